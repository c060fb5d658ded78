// kaiju-bench policies: what a decode step costs when its requests have beams, limits of the classifier, banned phrases
// or a chain of samplers, beside the same requests without. Replies of each policy are first compared with those of the
// same requests alone.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "examples/tools/name_from.hpp"
#include "examples/tools/number_from.hpp"
#include "examples/tools/standard_streams.hpp"
#include "kaiju/base/random.hpp"
#include "serving.hpp"

namespace kaiju::bench {
namespace policies_command {
namespace {

struct Options {
  std::string model, backend = "auto";
  int32_t threads = 0;
  int32_t requests = 4, width = 4, prompt_tokens = 512, reply_tokens = 64, rounds = 3;
  bool json = false;
};

struct Policy {
  std::string name;
  RequestOptions options;
};

std::vector<Policy> policies_of(const Options& options, const ModelConfig& config) {
  RequestOptions plain;
  plain.max_tokens = options.reply_tokens;
  plain.stop_tokens.emplace();
  plain.sampling.temperature = 0.0f;
  std::vector<Policy> policies = {{"plain", plain}};
  const auto with = [&](const std::string& name, auto&& change) {
    policies.push_back({name, plain});
    change(policies.back().options);
  };
  const auto beams = [&](int32_t width) {
    return [width](RequestOptions& request) {
      request.sampling = {};
      request.beams.width = width;
    };
  };
  with("1 beam", beams(1));
  with(fmt::format("{} beams", options.width), beams(options.width));
  if (!config.labels.empty()) {
    with(fmt::format("{} beams, guidance", options.width), [&](RequestOptions& request) {
      beams(options.width)(request);
      request.beams.guidance.weight = 2.0;
    });
    with("limits of all labels", [&](RequestOptions& request) {
      for (const std::string& label : config.labels) request.safety.limits.push_back({label, 1.0});
    });
  }
  with("min-p, temperature", [](RequestOptions& request) {
    request.sampling.temperature = 0.8;
    request.sampling.min_p = 0.1;
  });
  with("chain: min-p, temperature", [](RequestOptions& request) {
    request.sampling.samplers = {{.kind = SamplerKind::kMinP, .values = {0.1}},
                                 {.kind = SamplerKind::kTemperature, .values = {0.8}}};
  });
  return policies;
}

struct Outcome {
  Quantiles ms;  // of the steps that only decode
  std::vector<std::vector<int32_t>> replies;
};

// A prompt of random tokens: no two requests share any.
std::vector<int32_t> prompt_of(int32_t request, const Options& options, const ModelConfig& config) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < options.prompt_tokens; ++i)
    tokens.push_back(static_cast<int32_t>(random_bits(7, static_cast<uint32_t>(request), static_cast<uint64_t>(i)) %
                                          static_cast<uint64_t>(config.vocab_size)));
  return tokens;
}

// Serves requests from `first` on at once, and times the steps in which all of them decode and none ends.
Outcome serve(Engine& engine, const Policy& policy, const Options& options, const ModelConfig& config, int32_t first,
              int32_t count) {
  using Clock = std::chrono::steady_clock;
  std::map<RequestId, size_t> places;
  std::vector<SessionId> sessions;
  for (int32_t i = 0; i < count; ++i) {
    sessions.push_back(value_of(engine.create_session()));
    places[value_of(engine.submit(sessions.back(), prompt_of(first + i, options, config), policy.options))] =
        static_cast<size_t>(i);
  }
  Outcome outcome;
  outcome.replies.resize(static_cast<size_t>(count));
  for (bool ending = false; engine.pending() > 0;) {
    const Metrics before = engine.metrics();
    const auto began = Clock::now();
    if (const Status status = engine.step(); !status.ok()) throw Failed{status};
    const double taken = std::chrono::duration<double>(Clock::now() - began).count();
    for (Event event; engine.poll(event);) {
      if (event.kind == EventKind::kFailed) throw Failed{event.status};
      if (event.kind == EventKind::kToken) outcome.replies[places.at(event.request)].push_back(event.token);
      ending = ending || event.kind == EventKind::kDone;
    }
    const Metrics after = engine.metrics();
    const uint64_t decoded = after.tokens_decoded - before.tokens_decoded;
    const auto rows = static_cast<uint64_t>(count * std::max(1, policy.options.beams.width));
    if (ending || after.tokens_prefilled != before.tokens_prefilled || decoded != rows) continue;
    outcome.ms.values.push_back(1e3 * taken);
  }
  if (outcome.ms.values.empty())
    throw Failed{invalid_argument(
        fmt::format("{}: no step decoded all requests at once: ask for more --reply-tokens or fewer --prompt-tokens",
                    policy.name))};
  for (const SessionId session : sessions)
    if (const Status status = engine.destroy_session(session); !status.ok()) throw Failed{status};
  return outcome;
}

void check_alone(const Outcome& outcome, Engine& engine, const Policy& policy, const Options& options,
                 const ModelConfig& config) {
  for (int32_t request = 0; request < std::min(2, options.requests); ++request)
    if (serve(engine, policy, options, config, request, 1).replies[0] != outcome.replies[static_cast<size_t>(request)])
      throw Failed{internal_error(fmt::format(
          "{}: reply {} differs from that of its request alone, so no times are reported", policy.name, request))};
}

int run(Options options) {
  options.backend = backend_called(options.backend);
  const std::shared_ptr<const Checkpoint> checkpoint = value_of(Checkpoint::open(options.model));
  const ModelConfig& config = checkpoint->config();
  ExecutorOptions making;
  making.backend = options.backend;
  making.threads = options.threads;
  making.slot_count = options.requests * options.width;
  making.step_tokens = making.slot_count + (options.backend == "cuda" ? 4096 : 256);  // the prompts go fast
  making.cache_bytes = 0;
  making.share_memory = true;
  const std::unique_ptr<Engine> engine = make_engine(checkpoint, making, 0);

  const std::vector<Policy> policies = policies_of(options, config);
  std::vector<Quantiles> times(policies.size());
  // Rounds in turn, so that what else the machine does hits all policies.
  for (int32_t round = 0; round < options.rounds; ++round)
    for (size_t i = 0; i < policies.size(); ++i) {
      Outcome outcome = serve(*engine, policies[i], options, config, 0, options.requests);
      if (round == 0) check_alone(outcome, *engine, policies[i], options, config);
      times[i].values.insert(times[i].values.end(), outcome.ms.values.begin(), outcome.ms.values.end());
      tools::print(stderr, "round {} of {}: {}\n", round + 1, options.rounds, policies[i].name);
    }

  nlohmann::ordered_json json;
  if (!options.json)
    tools::print("{}, {}: {} requests, {} tokens of prompt, {} of reply\n  {:<28}{:>6}{:>12}{:>12}\n", config.name,
                 options.backend, options.requests, options.prompt_tokens, options.reply_tokens, "policy", "rows",
                 "median ms", "of plain");
  for (size_t i = 0; i < policies.size(); ++i) {
    const int32_t rows = options.requests * std::max(1, policies[i].options.beams.width);
    const double median = times[i].at(0.5);
    const double ratio = median / times[0].at(0.5);
    if (options.json)
      json.push_back({{"policy", policies[i].name}, {"rows", rows}, {"ms", median}, {"of_plain", ratio}});
    else
      tools::print("  {:<28}{:>6}{:>12.3f}{:>12.3f}\n", policies[i].name, rows, median, ratio);
  }
  if (options.json) tools::print("{}\n", json.dump(2));
  return 0;
}

}  // namespace
}  // namespace policies_command

void add_policies(CLI::App& app, int& status) {
  using namespace policies_command;
  CLI::App* command =
      app.add_subcommand("policies", "what beams, limits and chains of samplers cost a decode step, beside plain ones");
  auto options = std::make_shared<Options>();
  const CLI::Validator count = tools::whole_number(1, 1 << 16);
  command->add_option("FILE", options->model, "checkpoint")->required();
  command->add_option("--backend", options->backend, "auto or a backend's name")
      ->check(tools::backend_name())
      ->capture_default_str();
  command->add_option("--threads", options->threads, "number of threads; 0: one per core")
      ->check(tools::whole_number(0, 256))
      ->capture_default_str();
  command->add_option("--requests", options->requests, "requests at once")->check(count)->capture_default_str();
  command->add_option("--width", options->width, "beams of a request")
      ->check(tools::whole_number(1, kMaxBeams))
      ->capture_default_str();
  command->add_option("--prompt-tokens", options->prompt_tokens, "length of each prompt")
      ->check(count)
      ->capture_default_str();
  command->add_option("--reply-tokens", options->reply_tokens, "length of each reply")
      ->check(count)
      ->capture_default_str();
  command->add_option("--rounds", options->rounds, "times that each policy is served")
      ->check(tools::whole_number(1, 1000))
      ->capture_default_str();
  command->add_flag("--json", options->json, "JSON on standard output instead of a table");
  command->footer(
      "Example:\n  kaiju-bench policies examples/chat/model/kaiju-nano.safetensors --threads 2 --requests 16");
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace kaiju::bench
