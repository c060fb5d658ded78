// Draws tokens by chains of samplers, for compare.py, which draws them from the text of arithmetic.md alone. Each line
// of the standard input is a JSON object: samplers [[name, values ...] ...], logits, history, breakers (ids), seed,
// stream, position, draws, mu. Each line of the output has so many tokens, of that position and those after it; the
// history stays. With mirostat, mu is the one before the first of them. The plain chain draws, and the kernels of each
// instruction set of this machine draw the same, or the program ends with 1.
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "kaiju/base/float_state.hpp"
#include "src/cpu/instruction_sets.hpp"
#include "src/cpu/row_chain.hpp"

namespace {

using namespace kaiju;

struct Row {
  std::vector<Sampler> samplers;
  std::vector<float> logits;
  std::vector<int32_t> history;
  std::vector<uint8_t> breakers;
  arith::ChainInput input;
  int draws = 1;
};

Sampler sampler_of(const nlohmann::json& named) {
  const auto info = std::find_if(kSamplers.begin(), kSamplers.end(),
                                 [&](const SamplerInfo& each) { return each.name == named[0].get<std::string>(); });
  Sampler sampler{info->kind, {}};
  for (size_t i = 0; i < info->value_count; ++i)
    sampler.values[i] = i + 1 < named.size() ? named[i + 1].get<double>() : info->values[i].default_value;
  return sampler;
}

void read(const std::string& line, Row& row) {
  const auto given = nlohmann::json::parse(line);
  row.samplers.clear();
  for (const auto& named : given["samplers"]) row.samplers.push_back(sampler_of(named));
  row.logits = given["logits"].get<std::vector<float>>();
  row.history = given["history"].get<std::vector<int32_t>>();
  row.breakers.assign(row.logits.size(), 0);
  for (const auto& token : given["breakers"]) row.breakers[token.get<size_t>()] = 1;
  row.input = {row.samplers,
               row.breakers,
               row.history,
               given["seed"].get<uint64_t>(),
               given["stream"].get<uint32_t>(),
               given["position"].get<uint64_t>(),
               given["mu"].get<float>()};
  row.draws = given["draws"].get<int>();
}

struct Drawn {
  int32_t token;
  float mu;
  bool operator==(const Drawn&) const = default;
};

Drawn draw_plainly(const Row& row) {
  std::vector<arith::Candidate> candidates;
  for (size_t i = 0; i < row.logits.size(); ++i) candidates.push_back({row.logits[i], static_cast<int32_t>(i), 0});
  arith::Chain chain(row.input, candidates);
  const int32_t token = chain.token();
  return {token, chain.mu()};
}

Drawn draw(const Row& row, const cpu::Kernels& kernels, cpu::RowChain& chain) {
  const auto count = static_cast<int32_t>(row.logits.size());
  const int32_t token = chain.draw(row.input, {row.logits.data(), count, kernels.maximum(row.logits.data(), count), 0});
  return {token, chain.mu()};
}

}  // namespace

int main() {
  const FloatState float_state;
  std::vector<std::pair<const cpu::Kernels*, std::unique_ptr<cpu::RowChain>>> sets;
  for (const cpu::InstructionSet& set : cpu::instruction_sets())
    if (set.runs_here()) sets.emplace_back(&set.kernels(), std::make_unique<cpu::RowChain>(set.kernels()));
  Row row;
  for (std::string line; std::getline(std::cin, line);) {
    read(line, row);
    for (int i = 0; i < row.draws; ++i, ++row.input.position) {
      const Drawn expected = draw_plainly(row);
      for (const auto& [kernels, chain] : sets)
        if (draw(row, *kernels, *chain) != expected) {
          std::fprintf(stderr, "%s does not draw what the plain chain does, draw %d of\n%s\n", kernels->isa, i,
                       line.c_str());
          return 1;
        }
      std::printf("%d ", expected.token);
      row.input.mu = expected.mu;
    }
    std::printf("\n");
  }
}
