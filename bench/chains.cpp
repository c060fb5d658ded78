// kaiju-bench chains: times chains of samplers on rows of 65,536 logits and compares them with goals. It needs no
// model. A time is that of a whole draw, with the token's log-probability, which every draw has.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <random>

#include "bench.hpp"
#include "examples/tools/name_from.hpp"
#include "examples/tools/number_from.hpp"
#include "examples/tools/standard_streams.hpp"
#include "kaiju/backend/cpu.hpp"
#include "kaiju/backend/reference.hpp"
#include "kaiju/base/float_state.hpp"

namespace kaiju::bench {
namespace chains_command {
namespace {

struct Options {
  std::string isa = "auto";
  int32_t vocab = 65536, history = 4096;
  double seconds = 0.2;
  bool json = false;
};

constexpr double kCutGoal = 25, kGoal = 150;  // microseconds a row, at most

struct Chain {
  std::vector<Sampler> samplers;
  double goal = kGoal;
};

// First the chains whose first sampler leaves few tokens, then the others, then one of many samplers.
std::vector<Chain> chains() {
  using Kind = SamplerKind;
  const Sampler temperature{Kind::kTemperature, {0.8}};
  std::vector<Chain> made;
  for (const Sampler& cut : {Sampler{Kind::kTopK, {40}},
                             {Kind::kTopK, {1000}},
                             {Kind::kMinP, {0.05}},
                             {Kind::kTopNSigma, {1}},
                             {Kind::kEpsilonCutoff, {3e-4}},
                             {Kind::kTopP, {0.95}}})
    made.push_back({{cut, temperature}, kCutGoal});
  for (const Sampler& other : {Sampler{Kind::kEtaCutoff, {3e-4}},
                               {Kind::kTypicalP, {0.95}},
                               {Kind::kXtc, {1, 0.02}},
                               {Kind::kDynamicTemperature, {0.5, 1.5, 1}},
                               {Kind::kRepetitionPenalty, {1.1, 0}},
                               {Kind::kFrequencyPenalty, {0.1, 0}},
                               {Kind::kDry, {0.8, 1.75, 2, 0}},
                               {Kind::kNoRepeatNgram, {4}}})
    made.push_back({{other, temperature}});
  made.push_back({{temperature}});
  made.push_back({{temperature, {Kind::kMirostat, {5, 0.1}}}});
  made.push_back({{temperature, {Kind::kTopP, {0.95}}}});
  made.push_back({{{Kind::kRepetitionPenalty, {1.1, 64}},
                   {Kind::kFrequencyPenalty, {0.1, 64}},
                   {Kind::kDry, {0.8, 1.75, 2, 0}},
                   {Kind::kTopK, {40}},
                   {Kind::kTypicalP, {0.95}},
                   {Kind::kTopP, {0.95}},
                   {Kind::kMinP, {0.05}},
                   {Kind::kXtc, {0.5, 0.1}},
                   temperature}});
  return made;
}

// `peaked`: of a model that has few tokens in mind; else of one that knows little.
std::vector<float> row_of(int32_t vocab, bool peaked) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal(0, 2.5);
  std::vector<float> row(static_cast<size_t>(vocab));
  for (float& logit : row) logit = static_cast<float>(normal(random));
  for (size_t i = 0; peaked && i < 30; ++i) row[random() % row.size()] = 22 - 0.5f * static_cast<float>(i);
  return row;
}

std::string text_of(const Chain& chain) {
  std::string text;
  for (const Sampler& sampler : chain.samplers) {
    const SamplerInfo& info = *sampler_info(sampler.kind);
    text += fmt::format("{}{}", text.empty() ? "" : ", ", info.name);
    for (size_t i = 0; i < info.value_count && chain.samplers.size() < 4; ++i)
      text += fmt::format(" {}", sampler.values[i]);
  }
  return text.size() > 60 ? fmt::format("{} samplers, from {} to {}", chain.samplers.size(),
                                        sampler_info(chain.samplers.front().kind)->name,
                                        sampler_info(chain.samplers.back().kind)->name)
                          : text;
}

// Microseconds of a draw by each of the chains; throws Failed where a token or its log-probability is not the
// reference's.
std::vector<double> time_row(const Options& options, CpuBackend& backend, const std::vector<float>& row) {
  std::vector<int32_t> history;
  for (int32_t i = 0; i < options.history; ++i) history.push_back((i * 37 + i / 300) % options.vocab);
  std::vector<double> times;
  ReferenceBackend reference;
  for (const Chain& chain : chains()) {
    SamplingSpec spec;
    spec.chain = std::make_shared<SamplerChain>(SamplerChain{chain.samplers, {}});
    SampleArgs args{row.data(), options.vocab, &spec};
    args.history = history;
    args.mu = 10;
    SampledToken token, expected;
    for (args.position = 0; args.position < 4; ++args.position) {
      backend.sample(args, token);
      reference.sample(args, expected);
      if (token.token != expected.token || token.logprob != expected.logprob)
        throw Failed{internal_error(text_of(chain) + " does not draw the reference's token, so nothing was timed")};
    }
    times.push_back(1e6 * best_seconds(options.seconds, [&] {
                      ++args.position;
                      backend.sample(args, token);
                    }));
  }
  return times;
}

int run(const Options& options) {
  const FloatState float_state;
  const auto backend = value_of(CpuBackend::create(options.isa, 1));
  const std::vector<double> peaked = time_row(options, *backend, row_of(options.vocab, true)),
                            spread = time_row(options, *backend, row_of(options.vocab, false));
  const std::vector<Chain> all = chains();
  if (options.json) {
    auto out = nlohmann::ordered_json::array();
    for (size_t i = 0; i < all.size(); ++i)
      out.push_back({{"chain", text_of(all[i])},
                     {"goal_at_most_us", all[i].goal},
                     {"peaked_us", peaked[i]},
                     {"spread_us", spread[i]}});
    tools::print("{}\n", out.dump(2));
    return 0;
  }
  tools::print("{}, 1 thread, rows of {} logits, {} tokens before\n\n{:<62}{:>8}{:>12}{:>12}\n", backend->isa(),
               options.vocab, options.history, "microseconds a row", "goal", "peaked row", "spread row");
  for (size_t i = 0; i < all.size(); ++i)
    tools::print("{:<62}{:>8}{:>12.1f}{:>12.1f}\n", text_of(all[i]), all[i].goal, peaked[i], spread[i]);
  return 0;
}

}  // namespace
}  // namespace chains_command

void add_chains(CLI::App& app, int& status) {
  using namespace chains_command;
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("chains", "times chains of samplers on the CPU and compares them with goals; needs no model");
  command->add_option("--backend", options->isa, "auto, amx, avx512, avxvnni, avx2, i8mm, neon or portable")
      ->check(tools::name_from({"auto", "amx", "avx512", "avxvnni", "avx2", "i8mm", "neon", "portable"}))
      ->capture_default_str();
  command->add_option("--vocab", options->vocab, "number of logits in a row")
      ->check(tools::whole_number(64, 1 << 22))
      ->capture_default_str();
  command->add_option("--history", options->history, "number of tokens before the one to draw")
      ->check(tools::whole_number(0, 1 << 22))
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "time spent on each chain and row")
      ->check(tools::number_from(0.0001, 86400))
      ->capture_default_str();
  command->add_flag("--json", options->json, "JSON on standard output instead of a table");
  command->footer("Examples:\n  kaiju-bench chains\n  kaiju-bench chains --backend avx2 --vocab 131072");
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace kaiju::bench
