// kaiju-bench hour: the cost of an hour of conversation. It serves a number of conversations at once. Each sends a
// message every so many seconds, characters follow Zipf's law, and the characters' prompts are in the cache. The result
// says whether all messages are answered within the design's limits. Time is real engine time, and skips ahead while no
// request waits. With --history-tokens the memory holds what every conversation said before. Some replies are computed
// again alone and compared before results are printed.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/replay/bounds.hpp"
#include "bench/replay/machine.hpp"
#include "bench/replay/skipped_prompts.hpp"
#include "bench/replay/traffic.hpp"
#include "examples/tools/name_from.hpp"
#include "examples/tools/number_from.hpp"
#include "examples/tools/standard_streams.hpp"
#include "gpu_options.hpp"
#include "serving.hpp"

namespace kaiju::bench {
namespace hour_command {
namespace {

// The design's: how long a user may wait, and how slowly a reply may come.
constexpr double kFirstTokenMedianMs = 800, kFirstTokenMostMs = 2500, kLeastTokensPerSecond = 10;

struct Options {
  std::string model, backend = "auto";
  std::vector<int32_t> devices;
  int32_t threads = 0;
  std::vector<int32_t> conversations = {64};
  replay::ChatsOptions chats;
  double settle_seconds = 15, seconds = 60;
  int32_t slots = 256, step_tokens = 0;
  int64_t cache_bytes = 0, host_bytes = 0;
  double dollars_per_hour = 3.5;
  int32_t checked = 4;
  bool json = false;
};

// What so many conversations at once came to; of messages that arrived in the counted time.
struct Outcome {
  int32_t conversations = 0;
  uint64_t messages = 0;
  double found = 0;              // share of prompt tokens
  double tokens_per_second = 0;  // generated in the counted time
  Quantiles first_token;
  Quantiles speeds;  // tokens a second of each conversation, after its replies' first tokens
  double slowest = 0;
  int64_t held_bytes = 0, cache_bytes = 0;  // of KV, in the end; of memory for it
  replay::Figures figures;
  bool holds() {
    return first_token.at(0.5) <= kFirstTokenMedianMs && first_token.at(0.99) <= kFirstTokenMostMs &&
           slowest >= kLeastTokensPerSecond;
  }
};

// Counts what on_token tells.
class Watch {
 public:
  Watch(const replay::Trace& trace, double from, double until)
      : trace_(trace), from_(from), until_(until), replies_(trace.requests.size()) {}

  void token(int32_t request, double arrived, double now) {
    Reply& reply = replies_[static_cast<size_t>(request)];
    if (reply.tokens++ == 0) {
      reply.first = now;
      reply.counted = arrived >= from_ && arrived < until_;
      if (reply.counted) outcome_.first_token.values.push_back(1e3 * (now - arrived));
    }
    reply.last = now;
    if (now >= from_ && now < until_) ++in_time_;
  }

  Outcome outcome() {
    struct Speed {
      double tokens = 0, seconds = 0;
    };
    std::map<int32_t, Speed> speeds;  // by conversation
    for (size_t r = 0; r < replies_.size(); ++r) {
      if (!replies_[r].counted) continue;
      Speed& speed = speeds[trace_.requests[r].conversation];
      speed.tokens += replies_[r].tokens - 1;
      speed.seconds += replies_[r].last - replies_[r].first;
    }
    for (const auto& [conversation, speed] : speeds)
      outcome_.speeds.values.push_back(speed.seconds > 0 ? speed.tokens / speed.seconds : 0);
    outcome_.slowest = outcome_.speeds.at(0);
    outcome_.messages = outcome_.first_token.values.size();
    outcome_.tokens_per_second = static_cast<double>(in_time_) / (until_ - from_);
    return std::move(outcome_);
  }

 private:
  struct Reply {
    int32_t tokens = 0;
    bool counted = false;
    double first = 0, last = 0;
  };
  const replay::Trace& trace_;
  double from_, until_;
  std::vector<Reply> replies_;
  uint64_t in_time_ = 0;
  Outcome outcome_;
};

// Asks for `count` prompts of `what` in pieces: piece(first, count) is the trace of some.
template <class Piece>
void ask_for(Engine& engine, int32_t first, int32_t count, const char* what, Piece&& piece) {
  const int32_t each = (count + 9) / 10;
  for (int32_t done = 0; done < count; done += each) {
    value_of(replay::drive(piece(first + done, std::min(each, count - done)), engine, {}));
    tools::print(stderr, "{} of {} {} are in the cache\n", std::min(done + each, count), count, what);
  }
}

void warm_up(Engine& engine, const replay::ChatsOptions& chats) {
  ask_for(engine, 0, chats.characters, "prompts",
          [&](int32_t first, int32_t count) { return replay::make_prompts(chats, first, count); });
}

// The same with what the conversations said before. The first `computed` conversations are computed; the KV of all
// others is copied from theirs, after `skipped`.
void warm_up_with_histories(Engine& engine, const replay::ChatsOptions& chats, int32_t computed,
                            replay::SkippedPrompts& skipped) {
  const auto histories = [&](int32_t first, int32_t count) { return replay::make_histories(chats, first, count); };
  computed = std::min(computed, chats.conversations);
  ask_for(engine, chats.first_conversation, computed, "computed histories", histories);
  skipped.skip(true);
  warm_up(engine, chats);
  ask_for(engine, chats.first_conversation + computed, chats.conversations - computed, "copied histories", histories);
  skipped.skip(false);
}

// The traffic goes on behind the counted time for as long as it settled before it: what is counted ends under the same
// load.
Outcome converse(Engine& engine, const Options& options, const replay::Trace& trace, int32_t computed_below,
                 std::vector<replay::Sample>& samples) {
  Watch watch(trace, options.settle_seconds, options.settle_seconds + options.seconds);
  replay::DriveOptions driving;
  driving.replies_from_engine = true;
  if (options.checked > 0) {
    const auto requests = static_cast<int32_t>(trace.requests.size());
    driving.sample_every = options.chats.history_tokens > 0 ? 1 : std::max(1, requests / options.checked);
    driving.sample_below = computed_below;
  }
  driving.on_token = [&](int32_t request, double arrived, double now) { watch.token(request, arrived, now); };
  replay::Driven driven = value_of(replay::drive(trace, engine, driving));
  for (replay::Sample& sample : driven.samples) samples.push_back(std::move(sample));
  Outcome outcome = watch.outcome();
  if (outcome.messages == 0)
    throw Failed{invalid_argument(
        fmt::format("no message of {} conversation{} arrives in the counted {:g} seconds, so nothing is told: ask for "
                    "more --seconds, or more --conversations",
                    trace.conversation_count, trace.conversation_count == 1 ? "" : "s", options.seconds))};
  outcome.found = static_cast<double>(driven.figures.found()) /
                  static_cast<double>(std::max<uint64_t>(1, driven.figures.prompt_tokens));
  outcome.figures = std::move(driven.figures);
  outcome.cache_bytes = engine.info().cache_bytes();
  for (const BlockKind kind : kBothKinds) {
    const BlockMetrics& blocks = outcome.figures.blocks[kind];
    outcome.held_bytes += int64_t{blocks.cached + blocks.live} * engine.info().block_bytes[kind];
  }
  return outcome;
}

void print_table(Outcome& outcome, const Options& options) {
  const replay::Figures& f = outcome.figures;
  const auto messages_a_second = static_cast<double>(outcome.messages) / options.seconds;
  tools::print("{} conversations at once\n", outcome.conversations);
  print("messages", fmt::format("{}, {:.1f} a second", outcome.messages, messages_a_second));
  print("generated", fmt::format("{:.1f} tokens a second", outcome.tokens_per_second));
  print("found in the cache", fmt::format("{:.2f}% of prompt tokens", 100 * outcome.found));
  print("KV held", fmt::format("{:.1f} of {:.1f} GiB", static_cast<double>(outcome.held_bytes) / (1 << 30),
                               static_cast<double>(outcome.cache_bytes) / (1 << 30)));
  print("engine", fmt::format("{:.1f}% busy, {:.2f}% of it not computing", 100 * f.busy_seconds / f.seconds,
                              100 * f.host_seconds / f.busy_seconds));
  print("  steps that only decode", describe(f.decode_steps));
  print("  steps with prompts", describe(f.prompt_steps));
  print("first token, p50/p90/p99/most",
        fmt::format("{:.0f} / {:.0f} / {:.0f} / {:.0f} ms", outcome.first_token.at(0.5), outcome.first_token.at(0.9),
                    outcome.first_token.at(0.99), outcome.first_token.at(1)));
  print("tokens a second, p50/p1/slowest",
        fmt::format("{:.1f} / {:.1f} / {:.1f}", outcome.speeds.at(0.5), outcome.speeds.at(0.01), outcome.slowest));
  print("limits", outcome.holds() ? "all hold" : "do not hold");
  if (outcome.holds())
    print("an hour of conversation", fmt::format("${:.6f}", options.dollars_per_hour / outcome.conversations));
}

nlohmann::ordered_json outcome_json(Outcome& outcome, const Options& options) {
  const auto quantiles = [](Quantiles& times) -> nlohmann::ordered_json {
    return {{"p50", times.at(0.5)}, {"p90", times.at(0.9)}, {"p99", times.at(0.99)}, {"max", times.at(1)}};
  };
  return {{"conversations", outcome.conversations},
          {"seconds", options.seconds},
          {"messages", outcome.messages},
          {"generated_per_second", outcome.tokens_per_second},
          {"prompt_tokens_found", outcome.found},
          {"kv_bytes_held", outcome.held_bytes},
          {"kv_bytes", outcome.cache_bytes},
          {"busy", outcome.figures.busy_seconds / outcome.figures.seconds},
          {"engine_seconds", outcome.figures.host_seconds},
          {"decode_steps", json_of(outcome.figures.decode_steps)},
          {"prompt_steps", json_of(outcome.figures.prompt_steps)},
          {"first_token_ms", quantiles(outcome.first_token)},
          {"tokens_per_second",
           {{"p50", outcome.speeds.at(0.5)}, {"p1", outcome.speeds.at(0.01)}, {"least", outcome.slowest}}},
          {"limits_hold", outcome.holds()},
          {"dollars_per_hour_of_conversation", outcome.holds() ? options.dollars_per_hour / outcome.conversations : 0}};
}

// Those after these. Where histories are copied, they have a cast of their own: a prompt that a conversation computes
// must not have been copied for the ones before.
void next_conversations(replay::ChatsOptions& chats) {
  chats.first_conversation += chats.conversations;
  if (chats.history_tokens > 0) ++chats.cast;
}

// One for each number of conversations. Fails where a conversation outgrows the context.
std::vector<replay::Trace> make_traces(const Options& options, replay::ChatsOptions chats, int32_t context) {
  const int32_t turn = chats.user_tokens + chats.reply_tokens;
  const auto turns = static_cast<int32_t>(chats.seconds / chats.every_seconds) + 1;
  const int64_t history = chats.history_tokens > 0 ? 2 * int64_t{chats.history_tokens} + turn : 0,
                length = chats.prompt_tokens + history + int64_t{turns} * turn;
  if (length > context)
    throw Failed{invalid_argument(
        fmt::format("a conversation has up to {} tokens in the end, the model's context is {}", length, context))};
  std::vector<replay::Trace> traces;
  for (const int32_t count : options.conversations) {
    chats.conversations = count;
    traces.push_back(replay::make_chats(chats));
    next_conversations(chats);
  }
  return traces;
}

// Memory for KV of the largest trace, unless the options say how much.
ExecutorOptions executor_options(const Options& options, const std::vector<replay::Trace>& traces,
                                 const ModelConfig& config) {
  const auto largest = std::max_element(
      traces.begin(), traces.end(),
      [](const replay::Trace& a, const replay::Trace& b) { return a.requests.size() < b.requests.size(); });
  ExecutorOptions making;
  making.backend = options.backend;
  making.devices = options.devices;
  making.threads = options.threads;
  making.slot_count = options.slots;
  making.step_tokens = options.step_tokens > 0 ? options.step_tokens : options.backend == "cuda" ? 4096 : 256;
  making.cache_bytes = options.cache_bytes > 0
                           ? options.cache_bytes
                           : static_cast<int64_t>(replay::whole_footprint(
                                 *largest, replay::kv_sizes(replay::facts_without_memory(config, 1, 1))));
  making.share_memory = true;
  return making;
}

int run(Options options) {
  options.backend = backend_called(options.backend);
  const std::shared_ptr<const Checkpoint> checkpoint = value_of(Checkpoint::open(options.model));
  const ModelConfig& config = checkpoint->config();
  replay::ChatsOptions chats = options.chats;
  chats.measured_from = options.settle_seconds;
  chats.seconds = options.seconds + 2 * options.settle_seconds;
  const std::vector<replay::Trace> traces = make_traces(options, chats, config.context);
  const ExecutorOptions making = executor_options(options, traces, config);
  auto executor = std::make_unique<replay::SkippedPrompts>(value_of(make_executor(checkpoint, making)));
  replay::SkippedPrompts& skipped = *executor;
  std::unique_ptr<Engine> engine = make_engine(std::move(executor), options.host_bytes);
  const bool has_histories = chats.history_tokens > 0;
  if (!has_histories) warm_up(*engine, chats);
  std::vector<Outcome> outcomes;
  std::vector<replay::Sample> samples;
  for (size_t i = 0; i < traces.size(); ++i) {
    chats.conversations = options.conversations[i];
    tools::print(stderr, "{} conversations\n", chats.conversations);
    // A quarter of the conversations or fewer speak while it is counted, and so some of the computed ones.
    const int32_t computed = 8 * std::max(1, options.checked);
    if (has_histories) warm_up_with_histories(*engine, chats, computed, skipped);
    const int32_t computed_below = has_histories ? chats.first_conversation + computed : INT32_MAX;
    outcomes.push_back(converse(*engine, options, traces[i], computed_below, samples));
    outcomes.back().conversations = chats.conversations;
    next_conversations(chats);
  }
  engine.reset();
  check_alone(samples, checkpoint, making);

  if (options.json) {
    nlohmann::ordered_json out = {{"model", config.name},
                                  {"backend", options.backend},
                                  {"characters", chats.characters},
                                  {"prompt_tokens", chats.prompt_tokens},
                                  {"history_tokens", chats.history_tokens},
                                  {"user_tokens", chats.user_tokens},
                                  {"reply_tokens", chats.reply_tokens},
                                  {"every_seconds", chats.every_seconds},
                                  {"replies_checked", samples.size()}};
    for (Outcome& outcome : outcomes) out["outcomes"].push_back(outcome_json(outcome, options));
    tools::print("{}\n", out.dump(2));
    return 0;
  }
  tools::print(
      "{}, {}: {} characters, {:.0f} s counted; limits: first token {:.0f} ms (p50) and {:.0f} (p99), {:.0f} tokens a "
      "second for "
      "everybody\n",
      config.name, options.backend, chats.characters, options.seconds, kFirstTokenMedianMs, kFirstTokenMostMs,
      kLeastTokensPerSecond);
  for (Outcome& outcome : outcomes) print_table(outcome, options);
  print("replies computed again alone", fmt::format("{}, all the same", samples.size()));
  return 0;
}

void add_traffic(CLI::App& command, Options& options) {
  replay::ChatsOptions& chats = options.chats;
  chats.characters = 16, chats.prompt_tokens = 6000, chats.user_tokens = 30, chats.reply_tokens = 100;
  const CLI::Validator count = tools::whole_number(1, 1 << 20);
  command
      .add_option("--conversations", options.conversations,
                  "number of conversations at once; several numbers are tried one after another")
      ->check(count)
      ->delimiter(',')
      ->capture_default_str();
  command
      .add_option("--characters", chats.characters,
                  "number of characters; their prompts are computed before the traffic begins")
      ->check(count)
      ->capture_default_str();
  command
      .add_option("--zipf", chats.zipf,
                  "the r-th character is chosen r^-ZIPF times as often as the first; 0: all equally often")
      ->check(tools::number_from(0, 10))
      ->capture_default_str();
  command.add_option("--prompt-tokens", chats.prompt_tokens, "length of a character's prompt")
      ->check(count)
      ->capture_default_str();
  command
      .add_option("--history-tokens", chats.history_tokens,
                  "mean length of what each conversation said before: up to twice as much. Memory holds the KV of all. "
                  "But for a few conversations it is copied from others, so that nobody waits for it")
      ->check(tools::whole_number(0, 1 << 20))
      ->capture_default_str();
  command.add_option("--user-tokens", chats.user_tokens, "length of a message")->check(count)->capture_default_str();
  command.add_option("--reply-tokens", chats.reply_tokens, "length of a reply")
      ->check(tools::whole_number(2, 1 << 20))
      ->capture_default_str();
  command
      .add_option("--every-seconds", chats.every_seconds,
                  "time from one message of a conversation to the next: reply, reading and thinking")
      ->check(tools::number_from(0.0001, 86400))
      ->capture_default_str();
  command.add_option("--settle-seconds", options.settle_seconds, "traffic before and after the measured time")
      ->check(tools::number_from(0, 86400))
      ->capture_default_str();
  command.add_option("--seconds", options.seconds, "measured time")
      ->check(tools::number_from(0.0001, 86400))
      ->capture_default_str();
  command.add_option("--seed", chats.seed, "the same seed gives the same traffic")
      ->check(tools::whole_number())
      ->capture_default_str();
}

}  // namespace
}  // namespace hour_command

void add_hour(CLI::App& app, int& status) {
  using namespace hour_command;
  CLI::App* command = app.add_subcommand(
      "hour", "how many conversations at once are answered in time, and the cost of one for an hour");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->model, "checkpoint")->required();
  command->add_option("--backend", options->backend, "auto or a backend's name")
      ->check(tools::backend_name())
      ->capture_default_str();
  add_devices(*command, options->devices);
  command->add_option("--threads", options->threads, "number of threads; 0: one per core")
      ->check(tools::whole_number(0, 256))
      ->capture_default_str();
  add_traffic(*command, *options);
  command->add_option("--slots", options->slots, "requests that run at once")
      ->check(tools::whole_number(1, 65536))
      ->capture_default_str();
  command->add_option("--step-tokens", options->step_tokens, "most tokens in a step; 0: 4096 on a GPU, 256 on a CPU")
      ->check(tools::whole_number(0, 65536))
      ->capture_default_str();
  command
      ->add_option("--cache-bytes", options->cache_bytes,
                   "KV cache besides the windows of running requests: 8GiB, or bytes; 0: room for all conversations")
      ->transform(tools::byte_count());
  command->add_option("--host-bytes", options->host_bytes, "host memory for evicted KV")
      ->transform(tools::byte_count());
  command->add_option("--dollars-per-hour", options->dollars_per_hour, "price of the machine")
      ->check(tools::number_from(0.0001, 1e6))
      ->capture_default_str();
  command
      ->add_option("--check", options->checked,
                   "number of replies, roughly, that are computed again alone and compared")
      ->check(tools::whole_number(0, 1000000))
      ->capture_default_str();
  command->add_flag("--json", options->json, "JSON on standard output instead of a table");
  command->footer(
      "Examples:\n  kaiju-bench hour examples/chat/model/kaiju-nano.safetensors --conversations 200,400 "
      "--prompt-tokens 600 --reply-tokens "
      "40 --seconds 20 --settle-seconds 5\n"
      "  kaiju-bench hour small.safetensors --backend cuda --conversations 12000 --characters 2000 --slots 2048 "
      "--history-tokens 3900 --cache-bytes 110GiB");
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace kaiju::bench
