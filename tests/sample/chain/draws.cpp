// Draws tokens by chains of samplers, for compare.py, which draws them from the text of arithmetic.md alone. Each line
// of the standard input is a JSON object: samplers [[name, values ...] ...], logits, history, breakers (ids), seed,
// stream, position. Each line of the output is the token.
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "kaiju/arith/chain.hpp"

int main() {
  using namespace kaiju;
  for (std::string line; std::getline(std::cin, line);) {
    const auto given = nlohmann::json::parse(line);
    std::vector<Sampler> samplers;
    for (const auto& named : given["samplers"]) {
      const auto info = std::find_if(kSamplers.begin(), kSamplers.end(),
                                     [&](const SamplerInfo& each) { return each.name == named[0].get<std::string>(); });
      Sampler sampler{info->kind, {}};
      for (size_t i = 0; i < info->value_count; ++i)
        sampler.values[i] = i + 1 < named.size() ? named[i + 1].get<double>() : info->values[i].default_value;
      samplers.push_back(sampler);
    }
    const auto logits = given["logits"].get<std::vector<float>>();
    const auto history = given["history"].get<std::vector<int32_t>>();
    std::vector<uint8_t> breakers(logits.size(), 0);
    for (const auto& token : given["breakers"]) breakers[token.get<size_t>()] = 1;
    std::vector<arith::Candidate> candidates;
    for (size_t i = 0; i < logits.size(); ++i) candidates.push_back({logits[i], static_cast<int32_t>(i), 0});
    const arith::ChainInput input{samplers,
                                  breakers,
                                  history,
                                  given["seed"].get<uint64_t>(),
                                  given["stream"].get<uint32_t>(),
                                  given["position"].get<uint64_t>()};
    std::printf("%d\n", arith::Chain(input, candidates).token());
  }
}
