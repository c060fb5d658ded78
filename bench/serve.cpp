// kaiju-bench serve: serves many conversations at once with a real model, and reports throughput, time to the first
// token and time between tokens. Time is real engine time; a user's next message arrives as soon as the reply is
// complete. Some replies are computed again alone and compared before results are printed.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/replay/bounds.hpp"
#include "bench/replay/machine.hpp"
#include "examples/tools/name_from.hpp"
#include "examples/tools/number_from.hpp"
#include "examples/tools/standard_streams.hpp"
#include "gpu_options.hpp"
#include "serving.hpp"

namespace kaiju::bench {
namespace serve_command {
namespace {

struct Options {
  std::string model, backend = "auto", products = "auto", products_file;
  std::vector<int32_t> devices;
  int32_t threads = 0;
  int32_t conversations = 16, characters = 4, turns = 3;
  int32_t prompt_tokens = 512, user_tokens = 30, reply_tokens = 100;
  double over_seconds = 0;
  bool staggered = false;
  SamplingParams sampling;
  int32_t slots = 0, step_tokens = 0, prefill_tokens = 0;
  int64_t cache_bytes = 0, host_bytes = 0;
  int32_t checked = 4;
  bool json = false;
};

int32_t slots_of(const Options& options) {
  return options.slots > 0 ? options.slots : std::min(options.conversations, options.backend == "cuda" ? 1024 : 256);
}

int32_t step_tokens_of(const Options& options) {
  return options.step_tokens > 0 ? options.step_tokens : options.backend == "cuda" ? 4096 : 256;
}

// Steps until so many conversations have begun, when steps are filled with prompts beside a row of each that has.
double steps_to_begin(const Options& options, int32_t conversations) {
  return -(options.prompt_tokens + options.user_tokens) *
         std::log1p(-static_cast<double>(conversations) / step_tokens_of(options));
}

// Tokens of a reply that fills a slot first, so that replies end evenly from the moment on at which all slots are used,
// in no order: as though they had begun at different times.
int32_t staggered_tokens(const Options& options, int32_t conversation) {
  constexpr double kGoldenRatio = 0.6180339887498949;
  const double place = kGoldenRatio * (conversation + 1), rest = (place - std::floor(place)) * options.reply_tokens;
  return 1 + static_cast<int32_t>(steps_to_begin(options, slots_of(options)) -
                                  steps_to_begin(options, conversation + 1) + rest);
}

// All turns of a conversation arrive with it, and each waits for the reply before.
replay::Trace make_trace(const Options& options) {
  replay::Trace trace;
  trace.characters = true;
  trace.conversation_count = options.conversations;
  int32_t contents = 0;
  std::vector<int32_t> characters;
  characters.reserve(static_cast<size_t>(options.characters));
  for (int32_t i = 0; i < options.characters; ++i)
    characters.push_back(trace.add(replay::kNone, options.prompt_tokens, ++contents));
  for (int32_t c = 0; c < options.conversations; ++c) {
    int32_t leaf = characters[static_cast<size_t>(c % options.characters)];
    for (int32_t turn = 0; turn < options.turns; ++turn) {
      replay::Request request;
      request.seconds = options.over_seconds * c / options.conversations;
      request.prompt = trace.add(leaf, options.user_tokens, ++contents);
      const bool begun = options.staggered && turn == 0 && c < slots_of(options);
      const int32_t reply_tokens = begun ? staggered_tokens(options, c) : options.reply_tokens;
      request.reply = leaf =
          trace.add(request.prompt, reply_tokens, ++contents, trace.texts[static_cast<size_t>(request.prompt)].end);
      request.conversation = c;
      trace.requests.push_back(request);
    }
  }
  return trace;
}

// The time in which every slot is used: from the first token of the last of the conversations that fill the slots
// first, for as long as there is somebody to take the place of who ends.
class Steady {
 public:
  Steady(int32_t slots, int32_t turns) : turns_(turns), slots_(slots) {}

  void first_token(int32_t request) {
    if (request % turns_ == 0 && request / turns_ < slots_) --to_start_;
  }
  void between_tokens(double ms) {
    if (on()) between.values.push_back(ms);
  }
  void step(double now, const Metrics& metrics) {
    if (on()) {
      ++steps.count;
      steps.decoded = metrics.tokens_decoded - before_.tokens_decoded;
      steps.prefilled = metrics.tokens_prefilled - before_.tokens_prefilled;
      steps.seconds = now - from_;
    } else if (to_start_ == 0 && !over_) {
      begun_ = true;
      from_ = now;
      before_ = metrics;
    }
    over_ = over_ || metrics.requests_waiting == 0;
  }

  bool is_over() const { return over_; }

  replay::Steps steps;
  Quantiles between;

 private:
  bool on() const { return begun_ && !over_; }

  int32_t turns_, slots_;
  int32_t to_start_ = slots_;  // of those that fill the slots first
  bool begun_ = false, over_ = false;
  double from_ = 0;
  Metrics before_;
};

// From a request's arrival to its first token, and between its tokens, in ms.
class Latencies {
 public:
  Latencies(size_t requests, int32_t slots, int32_t turns)
      : steady(slots, turns), turns_(turns), before_(requests, -1) {}

  void token(int32_t request, double arrived, double now) {
    double& last = before_[static_cast<size_t>(request)];
    Quantiles& times = last >= 0 ? between : request % turns_ == 0 ? first_of_all : first_later;
    times.values.push_back(1e3 * (now - (last >= 0 ? last : arrived)));
    if (last < 0)
      steady.first_token(request);
    else
      steady.between_tokens(times.values.back());
    last = now;
  }

  Quantiles first_of_all, first_later, between;  // first tokens of a conversation's first turn, of its later ones
  Steady steady;

 private:
  int32_t turns_;
  std::vector<double> before_;  // when each request's last token came; -1: none has
};

struct Outcome {
  replay::Driven driven;
  Metrics metrics;
  Latencies latencies;

  // The share of prompt tokens that were in the cache.
  double found() const {
    const replay::Figures& f = driven.figures;
    return static_cast<double>(f.found()) / static_cast<double>(std::max<uint64_t>(1, f.prompt_tokens));
  }
};

void check_options(const Options& options) {
  const int32_t slots = slots_of(options), step_tokens = step_tokens_of(options);
  if (options.staggered && options.conversations <= slots)
    throw CLI::ValidationError(
        "--staggered", fmt::format("give fewer --slots ({}) than --conversations ({}), so that some wait", slots,
                                   options.conversations));
  if (options.staggered && step_tokens <= slots)
    throw CLI::ValidationError("--staggered",
                               fmt::format("give more --step-tokens ({}) than --slots ({})", step_tokens, slots));
}

void check_length(const Options& options, const ModelConfig& config) {
  const int32_t slots = slots_of(options);
  const int32_t to_begin = options.staggered ? static_cast<int32_t>(steps_to_begin(options, slots)) + 1 : 0;
  const int64_t length =
      options.prompt_tokens + int64_t{options.turns} * (options.user_tokens + options.reply_tokens) + to_begin;
  if (length > config.context)
    throw Failed{invalid_argument(
        fmt::format("a conversation has {} tokens in the end, the model's context is {}", length, config.context))};
}

ExecutorOptions executor_options(const Options& options, const ModelConfig& config, const replay::Trace& trace) {
  const replay::KvSizes sizes = replay::kv_sizes(replay::facts_without_memory(config, 1, 1));
  ExecutorOptions making;
  making.backend = options.backend;
  making.threads = options.threads;
  making.products = options.products;
  making.devices = options.devices;
  making.products_file = options.products_file;
  making.slot_count = slots_of(options);
  making.step_tokens = step_tokens_of(options);
  making.cache_bytes =
      options.cache_bytes > 0 ? options.cache_bytes : static_cast<int64_t>(replay::whole_footprint(trace, sizes));
  making.share_memory = true;
  return making;
}

Outcome converse(Engine& engine, const Options& options, const replay::Trace& trace) {
  Latencies latencies(trace.requests.size(), slots_of(options), options.turns);
  replay::DriveOptions driving;
  driving.replies_from_engine = true;
  driving.sampling = options.sampling;
  driving.sample_every =
      options.checked > 0 ? std::max(1, static_cast<int32_t>(trace.requests.size()) / options.checked) : 0;
  driving.on_token = [&](int32_t request, double arrived, double now) { latencies.token(request, arrived, now); };
  driving.on_step = [&](double now, const Metrics& metrics) {
    latencies.steady.step(now, metrics);
    return !options.staggered || !latencies.steady.is_over();
  };
  replay::Driven driven = value_of(replay::drive(trace, engine, driving));
  return {std::move(driven), engine.metrics(), std::move(latencies)};
}

nlohmann::ordered_json outcome_json(Outcome& outcome, const Options& options, const ModelConfig& config) {
  const auto quantiles = [](Quantiles& times) -> nlohmann::ordered_json {
    return {{"count", times.values.size()},
            {"p50", times.at(0.5)},
            {"p90", times.at(0.9)},
            {"p99", times.at(0.99)},
            {"max", times.at(1)}};
  };
  const replay::Figures& f = outcome.driven.figures;
  Latencies& latencies = outcome.latencies;
  const TierStats& host = outcome.metrics.host;
  return {{"model", config.name},
          {"backend", options.backend},
          {"conversations", options.conversations},
          {"characters", options.characters},
          {"turns", options.turns},
          {"prompt_tokens", options.prompt_tokens},
          {"user_tokens", options.user_tokens},
          {"reply_tokens", options.reply_tokens},
          {"replies_checked", outcome.driven.samples.size()},
          {"seconds", f.seconds},
          {"generated", f.decoded},
          {"generated_per_second", static_cast<double>(f.decoded) / f.seconds},
          {"prefilled", f.prefilled},
          {"prefilled_per_second", static_cast<double>(f.prefilled) / f.seconds},
          {"prompt_tokens_found", outcome.found()},
          {"steps", f.steps},
          {"decode_steps", json_of(f.decode_steps)},
          {"prompt_steps", json_of(f.prompt_steps)},
          {"engine_seconds", f.host_seconds},
          {"first_token_ms", quantiles(latencies.first_of_all)},
          {"first_token_later_turns_ms", quantiles(latencies.first_later)},
          {"between_tokens_ms", quantiles(latencies.between)},
          {"all_slots_used", json_of(latencies.steady.steps)},
          {"all_slots_used_between_tokens_ms", quantiles(latencies.steady.between)},
          {"host",
           {{"bytes", host.bytes},
            {"blocks_in", host.blocks_in},
            {"blocks_out", host.blocks_out},
            {"tokens_hit", f.cache.hit_host}}}};
}

std::string in_ms(Quantiles& times) {
  return fmt::format("{:.1f} / {:.1f} / {:.1f} / {:.1f} ms", times.at(0.5), times.at(0.9), times.at(0.99), times.at(1));
}

void print_steady(Steady& steady, const Options& options) {
  const replay::Steps& steps = steady.steps;
  if (steps.count == 0 && options.conversations > slots_of(options))
    print("while all slots are used", "no request waited by then");
  if (steps.count == 0) return;
  print("while all slots are used", fmt::format("{:.2f} s", steps.seconds));
  print("  generated, prefilled",
        fmt::format("{:.1f}, {:.1f} a second", static_cast<double>(steps.decoded) / steps.seconds,
                    static_cast<double>(steps.prefilled) / steps.seconds));
  print("  steps", describe(steps));
  print("  between tokens", in_ms(steady.between));
}

void print_table(Outcome& outcome, const Options& options, const ModelConfig& config) {
  const replay::Figures& f = outcome.driven.figures;
  Latencies& latencies = outcome.latencies;
  tools::print("{}, {}: {} conversations on {} characters, {} turns\n", config.name, options.backend,
               options.conversations, options.characters, options.turns);
  print("generated", fmt::format("{} tokens, {:.1f} a second", f.decoded, static_cast<double>(f.decoded) / f.seconds));
  print("prefilled",
        fmt::format("{} tokens, {:.1f} a second", f.prefilled, static_cast<double>(f.prefilled) / f.seconds));
  print("found in the cache", fmt::format("{:.2f}% of prompt tokens", 100 * outcome.found()));
  print("time",
        fmt::format("{:.2f} s in {} steps, engine {:.2f}%", f.seconds, f.steps, 100 * f.host_seconds / f.seconds));
  print("  steps that only decode", describe(f.decode_steps));
  print("  steps with prompts", describe(f.prompt_steps));
  print("first token, p50/p90/p99/most", in_ms(latencies.first_of_all));
  if (options.turns > 1) print("  in later turns", in_ms(latencies.first_later));
  print("between tokens", in_ms(latencies.between));
  print_steady(latencies.steady, options);
  const TierStats& host = outcome.metrics.host;
  if (host.bytes > 0)
    print("host memory",
          fmt::format("{} blocks down, {} up, {} tokens hit", host.blocks_in, host.blocks_out, f.cache.hit_host));
  print("replies computed again alone", fmt::format("{}, all the same", outcome.driven.samples.size()));
}

int run(Options options) {
  options.backend = backend_called(options.backend);
  check_options(options);
  const std::shared_ptr<const Checkpoint> checkpoint = value_of(Checkpoint::open(options.model));
  const ModelConfig& config = checkpoint->config();
  check_length(options, config);
  const replay::Trace trace = make_trace(options);
  const ExecutorOptions making = executor_options(options, config, trace);

  std::unique_ptr<Engine> engine = make_engine(checkpoint, making, options.host_bytes, options.prefill_tokens);
  Outcome outcome = converse(*engine, options, trace);
  engine.reset();
  check_alone(outcome.driven.samples, checkpoint, making);

  if (options.json)
    tools::print("{}\n", outcome_json(outcome, options, config).dump(2));
  else
    print_table(outcome, options, config);
  return 0;
}

}  // namespace

namespace {

// How the engine is sized, how replies are sampled, and how many are checked.
void add_engine_options(CLI::App& command, Options& options) {
  command.add_option("--temperature", options.sampling.temperature, "sampling temperature; 0: the likeliest token")
      ->check(tools::number_from(0.001, 100, tools::Zero::kToo))
      ->capture_default_str();
  command.add_option("--top-p", options.sampling.top_p, "top-p of sampling")
      ->check(tools::number_from(1e-6, 1))
      ->capture_default_str();
  command
      .add_option("--slots", options.slots,
                  "requests that run at once; 0: all conversations, at most 1024 on a GPU and 256 on a CPU")
      ->check(tools::whole_number(0, 65536))
      ->capture_default_str();
  command.add_option("--step-tokens", options.step_tokens, "most tokens in a step; 0: 4096 on a GPU, 256 on a CPU")
      ->check(tools::whole_number(0, 65536))
      ->capture_default_str();
  command
      .add_option("--prefill-tokens", options.prefill_tokens,
                  "most prompt tokens in a step that also decodes; 0: as many as fit")
      ->check(tools::whole_number(0, 65536))
      ->capture_default_str();
  command
      .add_option("--cache-bytes", options.cache_bytes,
                  "KV cache besides the windows of running requests: 8GiB, or bytes; 0: room for all conversations")
      ->transform(tools::byte_count());
  command.add_option("--host-bytes", options.host_bytes, "host memory for evicted KV")->transform(tools::byte_count());
  command
      .add_option("--check", options.checked, "number of replies, roughly, that are computed again alone and compared")
      ->check(tools::whole_number(0, 1000000))
      ->capture_default_str();
}

}  // namespace
}  // namespace serve_command

void add_serve(CLI::App& app, int& status) {
  using namespace serve_command;
  CLI::App* command = app.add_subcommand("serve", "serve many conversations at once: throughput and latencies");
  auto options = std::make_shared<Options>();
  const CLI::Validator count = tools::whole_number(1, 1 << 20);
  command->add_option("FILE", options->model, "checkpoint")->required();
  command->add_option("--backend", options->backend, "auto or a backend's name")
      ->check(tools::backend_name())
      ->capture_default_str();
  add_devices(*command, options->devices);
  add_products(*command, options->products, options->products_file);
  command->add_option("--threads", options->threads, "number of threads; 0: one per core")
      ->check(tools::whole_number(0, 256))
      ->capture_default_str();
  command->add_option("--conversations", options->conversations, "number of conversations at once")
      ->check(count)
      ->capture_default_str();
  command
      ->add_option("--characters", options->characters,
                   "number of characters; conversations take their prompts in turn")
      ->check(count)
      ->capture_default_str();
  command->add_option("--turns", options->turns, "messages and replies in each conversation")
      ->check(count)
      ->capture_default_str();
  command->add_option("--prompt-tokens", options->prompt_tokens, "length of a character's prompt")
      ->check(count)
      ->capture_default_str();
  command->add_option("--user-tokens", options->user_tokens, "length of a message")
      ->check(count)
      ->capture_default_str();
  command->add_option("--reply-tokens", options->reply_tokens, "length of a reply")
      ->check(count)
      ->capture_default_str();
  CLI::Option* over = command
                          ->add_option("--over-seconds", options->over_seconds,
                                       "conversations begin one after another within this time; 0: all at once")
                          ->check(tools::number_from(0, 86400))
                          ->capture_default_str();
  command
      ->add_flag("--staggered", options->staggered,
                 "the first conversations in the slots get replies of different lengths, so that they end at regular "
                 "intervals; measuring ends when no conversation waits for a slot")
      ->excludes(over);
  add_engine_options(*command, *options);
  command->add_flag("--json", options->json, "JSON on standard output instead of a table");
  command->footer(
      "Examples:\n  kaiju-bench serve examples/chat/model/kaiju-nano.safetensors --threads 2\n  kaiju-bench serve "
      "small.safetensors --backend cuda --conversations 1430 --characters 1430 --slots 1024 --step-tokens 2304 "
      "--staggered "
      "--prompt-tokens 970 --turns 1 --reply-tokens 1000");
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace kaiju::bench
