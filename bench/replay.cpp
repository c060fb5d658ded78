// kaiju-bench replay: measures which share of a chat service's prompt tokens a cache of a given size finds, and
// compares it with an upper bound for any cache of that size.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bench.hpp"
#include "bench/replay/bounds.hpp"
#include "bench/replay/drive.hpp"
#include "bench/replay/machine.hpp"
#include "bench/replay/mooncake.hpp"
#include "bench/replay/regimes.hpp"
#include "bench/replay/report.hpp"
#include "bench/replay/scripted.hpp"
#include "bench/replay/traffic.hpp"
#include "examples/tools/name_from.hpp"
#include "examples/tools/number_from.hpp"
#include "examples/tools/standard_streams.hpp"
#include "kaiju/format/presets.hpp"
#include "kaiju/run/executors.hpp"

namespace kaiju::bench {
namespace replay_command {
namespace {

struct Options {
  replay::TrafficOptions traffic;
  std::string trace;
  std::string regime;
  int32_t in_turn = 0;
  std::string preset = "small";
  std::string model;
  std::string backend = "auto";
  int32_t threads = 0;
  int32_t checked = 20;
  std::vector<double> memory = {0.25};
  int64_t host_bytes = 0;
  int32_t slots = 256;
  int32_t step_tokens = 2048;
  Retention retention;
  bool json = false;
};

replay::Trace read_trace(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw Failed{Status(StatusCode::kIo, "cannot read " + path)};
  Result<replay::Trace> trace = replay::read_mooncake(in);
  if (!trace.ok()) throw Failed{invalid_argument(path + ": " + trace.status().message())};
  return std::move(trace).value();
}

replay::Trace make_trace(const Options& options) {
  constexpr int32_t kRounds = 6, kHistoryTokens = 8192;
  if (!options.trace.empty()) return read_trace(options.trace);
  if (options.in_turn > 0) return replay::make_in_turn(options.in_turn, kRounds, kHistoryTokens);
  const std::optional<replay::Regime> regime = replay::regime_called(options.regime);
  Result<replay::Trace> traffic =
      regime ? replay::make_regime(*regime, options.traffic) : replay::make_traffic(options.traffic);
  if (traffic.status().code() == StatusCode::kInvalidArgument)
    throw CLI::ValidationError("traffic", traffic.status().message());
  return value_of(std::move(traffic));
}

std::string describe(const Options& options) {
  if (!options.trace.empty()) return tools::printable(options.trace);
  if (options.in_turn > 0) return fmt::format("{} sessions in turn", options.in_turn);
  const replay::TrafficOptions& t = options.traffic;
  return fmt::format("{}{} conversations on {} characters, seed {}: {:g} h measured after {:g} h",
                     options.regime.empty() ? "" : options.regime + ": ", t.conversations, t.characters, t.seed,
                     t.hours, t.warm_up_hours);
}

void check_lengths(const replay::Trace& trace, const ModelConfig& config) {
  for (const replay::Request& request : trace.requests)
    if (const int32_t tokens = trace.prompt_tokens(request) + trace.reply_tokens(request); tokens > config.context)
      throw Failed{
          invalid_argument(fmt::format("a prompt and its reply have {} tokens, the context of {} is {}: choose shorter "
                                       "ones (--context, --prompt-tokens-most)",
                                       tokens, config.name, config.context))};
}

// The engine on an executor that computes nothing, with memory for `bytes` of KV, which is `part` of what --memory
// counts.
replay::Figures drive_scripted(const replay::Trace& trace, const ModelConfig& config, double part, double bytes,
                               const Options& options) {
  ExecutorInfo info = replay::facts_without_memory(config, options.slots, options.step_tokens);
  replay::give_memory(info, bytes);
  auto executor = std::make_unique<replay::ScriptedReplies>(info, replay::step_cost(config));
  const replay::ScriptedReplies& script = *executor;
  EngineOptions settings;
  settings.max_sessions = trace.conversation_count + 1;
  settings.max_waiting = trace.conversation_count + 1;
  settings.cache.retention = options.retention;
  settings.cache.host_bytes = options.host_bytes;
  const std::unique_ptr<Engine> engine = value_of(Engine::create(std::move(executor), nullptr, settings));
  replay::DriveOptions driving;
  driving.step_seconds = [&] { return script.seconds(); };
  Result<replay::Driven> driven = replay::drive(trace, *engine, driving);
  if (driven.status().code() == StatusCode::kOutOfMemory)
    throw Failed{Status(StatusCode::kOutOfMemory,
                        fmt::format("--memory {:g} is too little: {}", part, driven.status().message()))};
  return value_of(std::move(driven)).figures;
}

std::unique_ptr<Executor> make_executor(const std::shared_ptr<const Checkpoint>& checkpoint, int32_t slots,
                                        const Options& options) {
  ExecutorOptions making;
  making.backend = options.backend;
  making.threads = options.threads;
  making.slot_count = slots;
  making.step_tokens = std::min(options.step_tokens, 256);
  return value_of(kaiju::make_executor(checkpoint, making));
}

// The engine with a model that computes, its steps timed; a slot, and a context of memory, for every conversation.
replay::Point drive_model(const replay::Trace& trace, const std::shared_ptr<const Checkpoint>& checkpoint,
                          const Options& options, replay::Report& report) {
  std::unique_ptr<Executor> executor = make_executor(checkpoint, trace.conversation_count, options);
  const ExecutorInfo info = executor->info();
  EngineOptions settings;
  settings.cache.retention = options.retention;
  settings.cache.host_bytes = options.host_bytes;
  const std::unique_ptr<Engine> engine = value_of(Engine::create(std::move(executor), nullptr, settings));
  replay::DriveOptions driving;
  uint64_t before = 0;
  driving.step_seconds = [&] {
    return 1e-9 * static_cast<double>(engine->metrics().step_ns - std::exchange(before, engine->metrics().step_ns));
  };
  driving.replies_from_engine = true;
  driving.sample_every = options.checked > 0 ? std::max(1, static_cast<int32_t>(report.requests) / options.checked) : 0;
  replay::Driven driven = value_of(replay::drive(trace, *engine, driving));
  const std::unique_ptr<Engine> alone = value_of(Engine::create(make_executor(checkpoint, 1, options), nullptr, {}));
  report.checked = static_cast<int32_t>(driven.samples.size());
  report.differing = value_of(replay::count_differing(driven.samples, *alone));
  replay::Point point;
  for (const BlockKind kind : kBothKinds)
    point.memory_bytes += static_cast<double>(info.block_count[kind]) * static_cast<double>(info.block_bytes[kind]);
  point.memory_share = point.memory_bytes / report.footprint_bytes;
  point.engine = std::move(driven.figures);
  return point;
}

int run(Options options) {
  options.backend = backend_called(options.backend);
  const replay::Trace trace = make_trace(options);
  const std::shared_ptr<const Checkpoint> checkpoint =
      options.model.empty() ? nullptr : value_of(Checkpoint::open(options.model));
  ModelConfig config = checkpoint ? checkpoint->config() : value_of(preset(options.preset));
  if (checkpoint || options.trace.empty()) check_lengths(trace, config);
  for (const replay::Request& request : trace.requests)  // a recorded trace is played whole
    config.context = std::max(config.context, trace.prompt_tokens(request) + trace.reply_tokens(request));
  const ExecutorInfo info = replay::facts_without_memory(config, 1, 1);
  const replay::KvSizes sizes = replay::kv_sizes(info);
  const replay::Bounds bounds(trace);
  replay::Report report;
  report.source = describe(options);
  report.machine = checkpoint ? fmt::format("{} computes, backend {}", config.name, options.backend)
                              : fmt::format("KV of {}, {} slots, {} tokens a step, step times modelled", config.name,
                                            options.slots, options.step_tokens);
  for (const BlockKind kind : kBothKinds) report.block_bytes[kind] = static_cast<double>(info.block_bytes[kind]);
  report.footprint_bytes = replay::whole_footprint(trace, sizes);
  for (const replay::Request& request : trace.requests) report.requests += trace.measured(request);
  if (report.requests == 0)
    throw Failed{invalid_argument(report.source + ": no request arrives in the measured time, so there is no result" +
                                  (options.trace.empty() ? ": ask for more --hours or --conversations" : ""))};
  report.prompt_tokens = bounds.prompt_tokens();
  const auto share = [&](uint64_t tokens) {
    return static_cast<double>(tokens) / static_cast<double>(std::max<uint64_t>(1, bounds.prompt_tokens()));
  };
  const auto add = [&](replay::Point point) {
    point.infinite = share(bounds.infinite());
    const double bytes =
        point.memory_bytes + static_cast<double>(options.host_bytes);  // a cache of both may hold as much
    point.farthest_next_use = share(bounds.farthest_next_use(bytes, sizes));
    point.priced = share(bounds.priced(bytes, sizes));
    point.belady = std::min(point.farthest_next_use, point.priced);
    report.points.push_back(std::move(point));
  };
  if (checkpoint) {
    add(drive_model(trace, checkpoint, options, report));
  } else {
    for (const double part : options.memory) {
      const double bytes = part * report.footprint_bytes;
      add({part, bytes, 0, 0, 0, 0, drive_scripted(trace, config, part, bytes, options)});
    }
  }
  tools::print("{}\n", options.json ? replay::to_json(report) : replay::to_table(report));
  return report.differing > 0 ? 1 : 0;
}

std::vector<CLI::Option*> add_traffic_options(CLI::App& command, replay::TrafficOptions& traffic) {
  std::vector<CLI::Option*> all;
  const auto option = [&](const char* name, auto& value, const CLI::Validator& range, const char* text) {
    all.push_back(command.add_option(name, value, text)->check(range)->capture_default_str()->group("Traffic"));
  };
  const CLI::Validator count = tools::whole_number(1, 1 << 20), messages = tools::whole_number(0, 1 << 16);
  const CLI::Validator mean = tools::number_from(1, 100000), share = tools::number_from(0, 1);
  option("--seed", traffic.seed, tools::whole_number(), "the same seed gives the same traffic");
  option("--conversations", traffic.conversations, count, "number of conversations at once");
  option("--characters", traffic.characters, count, "number of characters, chosen by Zipf's law");
  option("--warm-up-hours", traffic.warm_up_hours, tools::number_from(0, 1000), "virtual time before measuring begins");
  option("--hours", traffic.hours, tools::number_from(0.001, 1000), "virtual time measured");
  option("--prompt-tokens-least", traffic.prompt_tokens_least, count, "least length of a character's prompt");
  option("--prompt-tokens-most", traffic.prompt_tokens_most, count, "greatest length of a character's prompt");
  option("--messages-least", traffic.messages_least, messages, "fewest messages of a history when the trace begins");
  option("--messages-most", traffic.messages_most, messages, "most messages of a history when the trace begins");
  option("--user-tokens", traffic.user_tokens, mean, "mean length of a message");
  option("--reply-tokens", traffic.reply_tokens, mean, "mean length of a reply");
  option("--reply-tokens-most", traffic.reply_tokens_most, tools::whole_number(2, 1 << 20),
         "greatest length of a reply");
  option("--context", traffic.context, tools::whole_number(1, 1 << 24), "context length of the model");
  option("--truncation-step", traffic.truncation_step, tools::whole_number(0, 1 << 24),
         "tokens that are dropped at once when a chat does not fit the context");
  option("--think-seconds", traffic.think_seconds, tools::number_from(0, 86400),
         "median time from a reply to the next message");
  option("--sitting-turns", traffic.sitting_turns, tools::number_from(1, 100000),
         "mean number of turns before the user leaves");
  option("--gap-hours", traffic.gap_hours, tools::number_from(0.001, 1000), "median time until the user comes back");
  option("--swipe", traffic.swipe, share, "share of replies that are generated again");
  option("--edit", traffic.edit, share, "share of turns that rewrite an earlier message");
  option("--new-chat", traffic.new_chat, share, "share of sittings that begin a new conversation");
  option("--versions-per-day", traffic.versions_per_day, tools::number_from(0, 1000),
         "edits of a character by its author");
  return all;
}

}  // namespace
}  // namespace replay_command

void add_replay(CLI::App& app, int& status) {
  using namespace replay_command;
  CLI::App* command = app.add_subcommand("replay", "hit rates of the cache under a chat service's traffic");
  auto options = std::make_shared<Options>();
  CLI::Option* trace = command->add_option(
      "--trace", options->trace,
      "instead of chat traffic: a recorded trace in the Mooncake format (JSON lines), at most 256 MiB");
  CLI::Option* in_turn =
      command
          ->add_option("--in-turn", options->in_turn,
                       "instead of chat traffic: this many sessions with nothing in common, one turn each in rotation")
          ->check(tools::whole_number(1, 1 << 20));
  CLI::Option* regime =
      command
          ->add_option("--regime", options->regime,
                       "traffic of this kind: retokenised, edits, lorebook, group, visitors or agents")
          ->check(tools::name_from({std::begin(replay::kRegimeNames), std::end(replay::kRegimeNames)}));
  CLI::Option* preset = command
                            ->add_option("--preset", options->preset,
                                         "model whose KV sizes and step times are used: nano, small, medium or large")
                            ->check(tools::preset_name())
                            ->capture_default_str();
  CLI::Option* model = command->add_option(
      "--model", options->model,
      "checkpoint to really compute with, on a CPU: memory for all conversations, measured step times");
  for (CLI::Option* file : {trace, model}) file->type_name("FILE");
  command->add_option("--backend", options->backend, "with --model: auto or a backend's name")
      ->check(tools::backend_name())
      ->needs(model)
      ->capture_default_str();
  command->add_option("--threads", options->threads, "with --model: number of threads; 0: one per core")
      ->check(tools::whole_number(0, 256))
      ->needs(model)
      ->capture_default_str();
  command
      ->add_option(
          "--check", options->checked,
          "with --model: number of replies, roughly, that are computed again alone, without a cache, and compared")
      ->check(tools::whole_number(0, 1000000))
      ->needs(model)
      ->capture_default_str();
  CLI::Option* memory =
      command
          ->add_option("--memory", options->memory,
                       "for KV, as shares of what all conversations hold at the end; several make a curve")
          ->check(tools::number_from(0.001, 4))
          ->delimiter(',')
          ->capture_default_str();
  command->add_option("--host-bytes", options->host_bytes, "host memory for KV behind that: 8GiB, or bytes")
      ->transform(tools::byte_count());
  CLI::Option* slots = command->add_option("--slots", options->slots, "requests computed at once")
                           ->check(tools::whole_number(1, 65536))
                           ->capture_default_str();
  command->add_option("--step-tokens", options->step_tokens, "most tokens of a step")
      ->check(tools::whole_number(1, 65536))
      ->capture_default_str();
  command
      ->add_option("--retain-turns", options->retention.turns,
                   "most newest turns of a session whose resume points are kept")
      ->check(tools::whole_number(0, INT32_MAX))
      ->capture_default_str();
  command
      ->add_option("--retain-every", options->retention.every_tokens,
                   "also keep a resume point at every multiple of this many tokens; 0: off")
      ->check(tools::whole_number(0, 1 << 24))
      ->capture_default_str();
  command->add_flag("--json", options->json, "JSON on standard output instead of a table");
  trace->excludes(in_turn)->excludes(regime);
  in_turn->excludes(regime);
  for (CLI::Option* each : add_traffic_options(*command, options->traffic)) {
    trace->excludes(each);
    in_turn->excludes(each);
  }
  for (CLI::Option* each : {preset, memory, slots}) model->excludes(each);
  command->footer(
      "Examples:\n  kaiju-bench replay --conversations 20000 --characters 2000\n  kaiju-bench replay --memory "
      "0.25,0.05,0.1,0.5,1 --json > replay.json\n  kaiju-bench replay --memory 0.05 --host-bytes 8GiB\n  kaiju-bench "
      "replay --trace conversation_trace.jsonl\n  kaiju-bench replay --in-turn 200 --memory 4,2,1.333,1.053,0.9,0.7");
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace kaiju::bench
