// drive(): traces through the real engine, on executors that compute nothing.
#include "bench/replay/drive.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "bench/replay/bounds.hpp"
#include "bench/replay/scripted.hpp"
#include "bench/replay/skipped_prompts.hpp"
#include "bench/replay/traffic.hpp"
#include "catch.hpp"
#include "kaiju/format/presets.hpp"
#include "tests/engine/scripted_executor.hpp"

using namespace kaiju;
using namespace kaiju::replay;

namespace {

Trace chats() {
  TrafficOptions options;
  options.conversations = 60;
  options.characters = 8;
  options.warm_up_hours = 0.25;
  options.hours = 0.5;
  options.prompt_tokens_least = 200;
  options.prompt_tokens_most = 600;
  options.messages_least = 4;
  options.messages_most = 20;
  options.user_tokens = 10;
  options.reply_tokens = 20;
  options.reply_tokens_most = 60;
  options.context = 2048;
  options.truncation_step = 512;
  options.gap_hours = 0.3;
  options.versions_per_day = 6;
  return make_traffic(options).value();
}

// Of a ScriptedExecutor, without memory.
ExecutorInfo scripted_info() {
  ExecutorInfo info;
  info.vocab_size = 97;
  info.context = 2048;
  info.window = 128;
  info.slot_count = 6;
  info.step_tokens = 256;
  info.block_bytes[0] = 3 * kBlockTokens;
  info.block_bytes[1] = 7 * kBlockTokens;
  return info;
}

struct Outcome {
  Driven driven;
  double rate = 0, infinite = 0, belady = 0;
};

// window_part: share of the memory for window blocks alone; 0: the kinds share one memory.
Outcome outcome(const Trace& trace, double memory_share, double window_part = 0) {
  ModelConfig config = preset("nano").value();
  ExecutorInfo info = facts_without_memory(config, 16, 256);
  const KvSizes sizes = kv_sizes(info);
  const double memory = memory_share * whole_footprint(trace, sizes);
  if (window_part == 0) {
    give_memory(info, memory);
  } else {
    info.block_count[0] = static_cast<int32_t>(memory * (1 - window_part) / static_cast<double>(info.block_bytes[0]));
    info.block_count[1] = static_cast<int32_t>(memory * window_part / static_cast<double>(info.block_bytes[1]));
  }
  auto executor = std::make_unique<ScriptedReplies>(info, step_cost(config));
  const ScriptedReplies& script = *executor;
  EngineOptions settings;
  settings.check_ledger = true;
  const auto engine = Engine::create(std::move(executor), nullptr, settings).value();
  DriveOptions options;
  options.step_seconds = [&] { return script.seconds(); };
  options.sample_every = 10;
  Result<Driven> driven = drive(trace, *engine, options);
  INFO(driven.status().message());
  REQUIRE(driven.ok());
  const Bounds bounds(trace);
  const auto share = [&](uint64_t tokens) {
    return static_cast<double>(tokens) / static_cast<double>(bounds.prompt_tokens());
  };
  Outcome out{std::move(driven).value(), 0, share(bounds.infinite()), share(bounds.belady(memory, sizes))};
  CHECK(out.driven.figures.prompt_tokens == bounds.prompt_tokens());
  out.rate = share(out.driven.figures.found());
  return out;
}

}  // namespace

TEST_CASE("a drive serves every measured request and accounts for each of its tokens") {
  const Trace trace = chats();
  const Outcome out = outcome(trace, 0.5);
  const Figures& figures = out.driven.figures;
  uint64_t requests = 0, generated = 0;
  for (const Request& request : trace.requests)
    if (trace.measured(request)) ++requests, generated += static_cast<uint64_t>(trace.reply_tokens(request));
  CHECK(figures.requests == requests);
  CHECK(figures.generated == generated);
  CHECK(figures.first_token_ms.size() == requests);
  CHECK(figures.found_shared > 0);
  CHECK(figures.found_own > 0);
  CHECK(figures.found_other == 0);
  CHECK(figures.found() < figures.prompt_tokens);
  CHECK(out.driven.samples.size() == (requests + 9) / 10);
}

TEST_CASE("a drive reports every token once, later than its request and than the token before it") {
  const Trace trace = make_in_turn(3, 2, 100);
  ModelConfig config = preset("nano").value();
  ExecutorInfo info = facts_without_memory(config, 16, 256);
  give_memory(info, 2 * whole_footprint(trace, kv_sizes(info)));
  const auto engine = Engine::create(std::make_unique<ScriptedReplies>(info, step_cost(config)), nullptr, {}).value();
  std::vector<double> last(trace.requests.size(), 0);
  std::vector<int32_t> count(trace.requests.size(), 0);
  DriveOptions options;
  options.on_token = [&](int32_t request, double arrived, double now) {
    const auto index = static_cast<size_t>(request);
    CHECK(now > std::max(arrived, last[index]));
    last[index] = now;
    ++count[index];
  };
  REQUIRE(drive(trace, *engine, options).ok());
  for (size_t i = 0; i < count.size(); ++i) CHECK(count[i] == trace.reply_tokens(trace.requests[i]));
}

TEST_CASE(
    "a drive separates steps with prompt tokens from steps without, and counts each measured token in one of them") {
  const Trace trace = make_in_turn(3, 2, 100);
  ExecutorInfo info = facts_without_memory(preset("nano").value(), 16, 256);
  give_memory(info, 2 * whole_footprint(trace, kv_sizes(info)));
  const auto engine =
      Engine::create(std::make_unique<ScriptedReplies>(info, step_cost(preset("nano").value())), nullptr, {}).value();
  DriveOptions options;
  options.step_seconds = [] { return 0.01; };
  const Figures figures = drive(trace, *engine, options).value().figures;
  CHECK(figures.decode_steps.prefilled == 0);
  CHECK(figures.prompt_steps.count == 3);  // one a request: its message
  CHECK(figures.decode_steps.count + figures.prompt_steps.count == figures.steps);
  CHECK(figures.decode_steps.decoded + figures.prompt_steps.decoded == figures.decoded);
  CHECK(figures.prompt_steps.prefilled == figures.prefilled);
  CHECK(figures.decode_steps.seconds + figures.prompt_steps.seconds == Approx(figures.busy_seconds));
}

TEST_CASE("a drive ends after the step whose callback says so, with the tokens of that step reported") {
  const Trace trace = make_in_turn(3, 2, 100);
  ExecutorInfo info = facts_without_memory(preset("nano").value(), 16, 256);
  give_memory(info, 2 * whole_footprint(trace, kv_sizes(info)));
  const auto engine =
      Engine::create(std::make_unique<ScriptedReplies>(info, step_cost(preset("nano").value())), nullptr, {}).value();
  uint64_t told = 0;
  DriveOptions options;
  options.step_seconds = [] { return 0.01; };
  options.on_token = [&](int32_t, double, double) { ++told; };
  options.on_step = [&](double, const Metrics& metrics) {
    CHECK(told == metrics.tokens_decoded);
    return metrics.steps < 5;
  };
  REQUIRE(drive(trace, *engine, options).ok());
  CHECK(engine->metrics().steps == 5);
}

TEST_CASE("in a cache that has the characters' prompts, conversations compute only their messages") {
  ChatsOptions chats;
  chats.conversations = 200;
  chats.characters = 6;
  chats.prompt_tokens = 640;
  chats.user_tokens = 30;
  chats.reply_tokens = 100;
  chats.seconds = 150;
  const Trace trace = make_chats(chats);
  ExecutorInfo info = facts_without_memory(preset("nano").value(), 64, 512);
  give_memory(info, 2 * whole_footprint(trace, kv_sizes(info)));
  const auto engine =
      Engine::create(std::make_unique<ScriptedReplies>(info, step_cost(preset("nano").value())), nullptr, {}).value();
  DriveOptions options;
  options.step_seconds = [] { return 0.005; };
  REQUIRE(drive(make_prompts(chats, 0, 6), *engine, options).ok());
  const Figures figures = drive(trace, *engine, options).value().figures;
  CHECK(figures.requests == trace.requests.size());
  // A turn's history ends within a block: what is new is the message, and the reply's last token.
  CHECK(figures.prefilled < figures.requests * (30 + 1 + 64));
  CHECK(figures.found() > figures.prompt_tokens * 9 / 10);
}

TEST_CASE("the next turn finds the reply that the trace says") {
  const Trace trace = chats();
  const Outcome out = outcome(trace, 8);
  // Blocks are found whole, and now and then a branch within one is not seen: no more than that is lost.
  CHECK(out.rate > out.infinite - 0.02);
}

TEST_CASE("the engine stays below the bounds and finds more with more memory") {
  const Trace trace = chats();
  double before = 0;
  for (const double share : {0.3, 1.0, 4.0}) {
    const Outcome out = outcome(trace, share);
    CHECK(out.rate <= out.belady + 0.001);  // texts that happen to begin alike are not in the bounds
    CHECK(out.rate >= before);
    before = out.rate;
  }
}

TEST_CASE("one memory for both kinds of blocks finds as much as any fixed split of it") {
  const Trace trace = chats();
  double best = 0;
  for (const double window_part : {0.4, 0.5, 0.6, 0.7}) best = std::max(best, outcome(trace, 0.4, window_part).rate);
  const double shared = outcome(trace, 0.4).rate;
  INFO("shared " << shared << ", best fixed " << best);
  CHECK(shared > best - 0.01);
}

TEST_CASE("sessions in turn find all but new tokens while their histories fill 25, 50, 75 and 95% of the memory") {
  const Trace trace = make_in_turn(40, 3, 1500);
  // Kept: the least, a block behind the window, two turns' resume points, and what one running request reserves: 1.2
  // times the least here.
  for (const double occupancy : {0.25, 0.5, 0.75, 0.95}) {
    const Outcome out = outcome(trace, 1.2 / occupancy);
    INFO("occupancy " << occupancy);
    CHECK(out.rate > out.infinite - 0.01);
  }
}

TEST_CASE("under chat traffic in little memory every reply equals that of one-at-a-time decoding") {
  Trace trace = chats();
  ExecutorInfo info = scripted_info();
  give_memory(info, 0.4 * whole_footprint(trace, kv_sizes(info)));
  auto scripted = std::make_unique<test::ScriptedExecutor>(info);
  const test::ScriptedExecutor& executor = *scripted;
  const auto engine = Engine::create(std::move(scripted), nullptr, {}).value();
  DriveOptions options;
  options.step_seconds = [] { return 0.02; };
  options.replies_from_engine = true;
  options.sample_every = 3;
  Result<Driven> driven = drive(trace, *engine, options);
  INFO(driven.status().message());
  REQUIRE(driven.ok());
  for (const std::string& fault : executor.faults) FAIL_CHECK(fault);
  CHECK(driven->figures.cache.blocks_evicted[0] > 0);
  CHECK(driven->figures.found() > driven->figures.prompt_tokens / 2);
  REQUIRE(driven->samples.size() > 20);
  give_memory(info, 4e6);
  const auto alone = Engine::create(std::make_unique<test::ScriptedExecutor>(info), nullptr, {}).value();
  CHECK(count_differing(driven->samples, *alone).value() == 0);
  ++driven->samples[3].prompt[5];
  CHECK(count_differing(driven->samples, *alone).value() == 1);
}

TEST_CASE("histories that were copied are found, and conversations whose history was computed answer as alone") {
  constexpr int32_t kComputed = 8;
  ChatsOptions chats;
  chats.conversations = 40;
  chats.characters = 6;
  chats.prompt_tokens = 300;
  chats.user_tokens = 30;
  chats.reply_tokens = 20;
  chats.history_tokens = 400;
  chats.seconds = 60;
  const Trace trace = make_chats(chats);
  ExecutorInfo info = scripted_info();
  give_memory(info, 2 * whole_footprint(trace, kv_sizes(info)));
  auto wrapped = std::make_unique<SkippedPrompts>(std::make_unique<test::ScriptedExecutor>(info));
  SkippedPrompts& executor = *wrapped;
  const auto engine = Engine::create(std::move(wrapped), nullptr, {}).value();
  DriveOptions options;
  options.step_seconds = [] { return 0.02; };
  options.replies_from_engine = true;
  REQUIRE(drive(make_histories(chats, 0, kComputed), *engine, options).ok());
  executor.skip(true);
  REQUIRE(drive(make_histories(chats, kComputed, chats.conversations - kComputed), *engine, options).ok());
  executor.skip(false);
  options.sample_every = 1;
  options.sample_below = kComputed;
  const Driven driven = drive(trace, *engine, options).value();
  CHECK(driven.figures.prefilled < driven.figures.requests * (30 + 1 + 64));
  give_memory(info, 4e6);
  const auto alone = Engine::create(std::make_unique<test::ScriptedExecutor>(info), nullptr, {}).value();
  REQUIRE(driven.samples.size() == kComputed);
  CHECK(count_differing(driven.samples, *alone).value() == 0);
}
