// Regimes of traffic: their traces, what the cache finds of them, and a model's replies in each.
#include "bench/replay/regimes.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/replay/bounds.hpp"
#include "bench/replay/drive.hpp"
#include "bench/replay/machine.hpp"
#include "bench/replay/scripted.hpp"
#include "catch.hpp"
#include "kaiju/format/presets.hpp"
#include "kaiju/run/executors.hpp"

using namespace kaiju;
using namespace kaiju::replay;

namespace {

TrafficOptions few() {
  TrafficOptions options;
  options.conversations = 40;
  options.characters = 8;
  options.warm_up_hours = 0.25;
  options.hours = 0.75;
  options.prompt_tokens_least = 200;
  options.prompt_tokens_most = 600;
  options.user_tokens = 20;
  options.reply_tokens = 40;
  options.reply_tokens_most = 100;
  options.context = 4096;
  options.truncation_step = 512;
  options.gap_hours = 0.2;
  return options;
}

// The texts of the request's prompt, first to last.
std::vector<int32_t> texts_of(const Trace& trace, const Request& request) {
  std::vector<int32_t> texts;
  for (int32_t text = request.prompt; text != kNone; text = trace.texts[static_cast<size_t>(text)].before)
    texts.push_back(text);
  std::reverse(texts.begin(), texts.end());
  return texts;
}

// For each prompt but a conversation's first: how many of its texts before the last are those of the prompt before it
// and its reply, and how many are not.
struct Parts {
  int32_t kept = 0, parted = 0;
};
std::vector<Parts> parts_of(const Trace& trace) {
  std::map<int32_t, Request> before;
  std::vector<Parts> all;
  for (const Request& request : trace.requests) {
    if (const auto last = before.find(request.conversation); last != before.end()) {
      Request whole = last->second;
      whole.prompt = whole.reply;
      const std::vector<int32_t> then = texts_of(trace, whole), now = texts_of(trace, request);
      Parts parts;
      while (parts.kept < std::ssize(now) && parts.kept < std::ssize(then) &&
             now[static_cast<size_t>(parts.kept)] == then[static_cast<size_t>(parts.kept)])
        ++parts.kept;
      parts.parted = static_cast<int32_t>(std::ssize(now)) - parts.kept - 1;
      all.push_back(parts);
    }
    before[request.conversation] = request;
  }
  return all;
}

double share(const std::vector<Parts>& all, auto is) {
  return static_cast<double>(std::ranges::count_if(all, is)) / static_cast<double>(all.size());
}

Trace trace_of(std::string_view regime) { return make_regime(*regime_called(regime), few()).value(); }

}  // namespace

TEST_CASE("a regime's requests are in order, fit the context, and are the same for the same seed") {
  for (const std::string_view name : kRegimeNames) {
    INFO(name);
    const Trace trace = trace_of(name), again = trace_of(name);
    REQUIRE(trace.requests.size() > 200);
    REQUIRE(trace.requests.size() == again.requests.size());
    REQUIRE(trace.texts.size() == again.texts.size());
    double before = 0;
    for (size_t i = 0; i < trace.requests.size(); ++i) {
      const Request& request = trace.requests[i];
      REQUIRE(request.seconds >= before);
      REQUIRE(request.prompt == again.requests[i].prompt);
      REQUIRE(trace.prompt_tokens(request) + trace.reply_tokens(request) <= few().context);
      REQUIRE(request.conversation < trace.conversation_count);
      before = request.seconds;
    }
  }
  CHECK_FALSE(regime_called("none"));
}

TEST_CASE("each regime's prompts part from the ones before them as its name says") {
  const auto goes_on = [](const Parts& parts) { return parts.parted == 0; };
  // One text parts: the end of the reply.
  const auto tails = parts_of(trace_of("retokenised"));
  CHECK(share(tails, [](const Parts& parts) { return parts.parted == 1 && parts.kept > 1; }) > 0.3);
  CHECK(share(tails, goes_on) > 0.3);
  const auto edits = parts_of(trace_of("edits"));
  CHECK(share(edits, goes_on) > 0.6);
  CHECK(share(edits, [](const Parts& parts) { return parts.parted > 4; }) > 0.02);
  // Two messages that the entries have passed, the entries, the note, and the three messages before the last.
  const auto notes = parts_of(trace_of("lorebook"));
  CHECK(share(notes, [](const Parts& parts) { return parts.parted == 7; }) > 0.5);
  const auto group = parts_of(trace_of("group"));
  CHECK(share(group, [](const Parts& parts) { return parts.kept == 0; }) > 0.5);
  CHECK(share(parts_of(trace_of("agents")), goes_on) > 0.7);
  const Trace visitors = trace_of("visitors");
  CHECK(visitors.conversation_count > 2 * std::ssize(parts_of(visitors)));
}

TEST_CASE("in memory that suffices the cache finds nearly all of every regime that an infinite one finds") {
  const ModelConfig config = preset("nano").value();
  for (const std::string_view name : kRegimeNames) {
    INFO(name);
    const Trace trace = trace_of(name);
    ExecutorInfo info = facts_without_memory(config, 16, 256);
    give_memory(info, 8 * whole_footprint(trace, kv_sizes(info)));
    auto executor = std::make_unique<ScriptedReplies>(info, step_cost(config));
    const ScriptedReplies& script = *executor;
    EngineOptions settings;
    settings.max_sessions = settings.max_waiting = trace.conversation_count + 1;
    const auto engine = Engine::create(std::move(executor), nullptr, settings).value();
    DriveOptions options;
    options.step_seconds = [&] { return script.seconds(); };
    const Figures figures = drive(trace, *engine, options).value().figures;
    const Bounds bounds(trace);
    REQUIRE(figures.prompt_tokens == bounds.prompt_tokens());
    CHECK(static_cast<double>(figures.found()) >
          static_cast<double>(bounds.infinite()) - 0.03 * static_cast<double>(bounds.prompt_tokens()));
  }
}

TEST_CASE("in every regime a model's replies from the cache equal those without one") {
  TrafficOptions options = few();
  options.seed = 33;
  options.conversations = 4;
  options.characters = 4;
  options.warm_up_hours = 0;
  options.hours = 0.03;
  options.prompt_tokens_least = 70, options.prompt_tokens_most = 140;
  options.user_tokens = 10, options.reply_tokens = 8, options.reply_tokens_most = 16;
  options.context = 1900;
  options.gap_hours = 0.003;
  const auto model =
      Checkpoint::open(std::string(KAIJU_SOURCE_DIR) + "/examples/chat/model/kaiju-nano.safetensors").value();
  const auto engine_of = [&](int32_t slots) {
    ExecutorOptions making;
    making.slot_count = slots;
    making.step_tokens = 128;
    making.threads = 1;
    return Engine::create(make_executor(model, making).value(), nullptr, {}).value();
  };
  const auto alone = engine_of(1);
  for (const std::string_view name : kRegimeNames) {
    INFO(name << ", seed " << options.seed);
    const Trace trace = make_regime(*regime_called(name), options).value();
    REQUIRE(trace.requests.size() >= 8);
    const auto engine = engine_of(3);  // memory for three contexts
    DriveOptions driving;
    driving.step_seconds = [] { return 0.02; };
    driving.replies_from_engine = true;
    driving.sample_every = 3;
    const Driven driven = drive(trace, *engine, driving).value();
    CHECK(driven.figures.found() > 0);
    REQUIRE(driven.samples.size() >= 4);
    CHECK(count_differing(driven.samples, *alone).value() == 0);
  }
}
