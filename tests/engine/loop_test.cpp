// The loop: batching, admission, cancellation, refusals, faults.
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::test;

TEST_CASE("one step mixes decode rows and chunked prefill within its budget of tokens") {
  Harness h;
  const RequestId a = h.submit(h.session(), tokens_from(1, 40), asking(60));
  h.step();
  const RequestId b = h.submit(h.session(), tokens_from(2, 400), asking(60));
  bool mixed = false;
  h.executor->before_run = [&](const StepPlan& plan) {
    CHECK(plan.tokens.size() <= 96);
    mixed |= plan.segments.size() == 2 && plan.segments[0].token_count == 1 && plan.segments[1].token_count == 95;
    return Status();
  };
  h.drain();
  CHECK(mixed);
  CHECK(h.replies[a].tokens == h.reference(tokens_from(1, 40), 60));
  CHECK(h.replies[b].tokens == h.reference(tokens_from(2, 400), 60));
}

TEST_CASE("if a step has fewer tokens than decode rows, the rows take turns") {
  EngineOptions options;
  options.step_tokens = 3;
  Harness h(small_facts(), options);
  std::vector<RequestId> requests;
  for (uint64_t i = 0; i < 4; ++i) requests.push_back(h.submit(h.session(), tokens_from(i, 2), asking(30)));
  while (h.replies[requests[3]].tokens.size() < 10) h.step();
  for (const RequestId request : requests) CHECK(h.replies[request].tokens.size() >= 6);
  h.drain();
  for (uint64_t i = 0; i < 4; ++i) CHECK(h.replies[requests[i]].tokens == h.reference(tokens_from(i, 2), 30));
}

TEST_CASE("tokens are shared out: decode first, then prefill by age and chunk") {
  std::vector<int32_t> grants;
  share_step({{100, false}, {1, true}, {50, false}, {1, true}}, {64, 40, 64}, 0, grants);
  CHECK(grants == std::vector<int32_t>{40, 1, 22, 1});
  share_step({{1, true}, {1, true}, {1, true}}, {2, 40, 2}, 2, grants);
  CHECK(grants == std::vector<int32_t>{1, 0, 1});
  share_step({}, {2, 40, 2}, 0, grants);
  CHECK(grants.empty());
  share_step({{100, false}, {1, true}, {50, false}}, {64, 40, 48}, 0, grants);
  CHECK(grants == std::vector<int32_t>{40, 1, 8});  // fewer beside a reply
  share_step({{100, false}, {50, false}}, {64, 40, 48}, 0, grants);
  CHECK(grants == std::vector<int32_t>{40, 24});
}

TEST_CASE("the oldest waiting request starts first, and no request overtakes it") {
  ExecutorInfo info = small_facts();
  info.block_count[0] = 20;
  info.window = 0;
  Harness h(info);
  const RequestId a = h.submit(h.session(), tokens_from(1, 600), asking(100));  // 11 blocks
  const RequestId b = h.submit(h.session(), tokens_from(2, 700), asking(100));  // 13: must wait for a
  const RequestId c = h.submit(h.session(), tokens_from(3, 10), asking(10));    // would fit at once
  while (!h.replies[a].done) {
    h.step();
    CHECK((h.replies[a].done || h.replies[c].tokens.empty()));
  }
  h.drain();
  CHECK(h.replies[b].tokens == h.reference(tokens_from(2, 700), 100));
  CHECK(h.replies[c].tokens == h.reference(tokens_from(3, 10), 10));
}

TEST_CASE("a request that waits for window blocks starts when a running sequence has released enough of them") {
  ExecutorInfo info = small_facts();
  info.context = 4096;
  info.step_tokens = 64;
  info.window = 512;
  info.block_count[0] = 200;
  info.block_count[1] = 24;
  Harness h(info);
  const SessionId first = h.session();
  h.run(first, tokens_from(1, 640), asking(1));
  const RequestId running = h.submit(first, {2}, asking(3000));  // its window is one that was found
  h.step();
  const RequestId waiting = h.submit(h.session(), tokens_from(3, 320), asking(1));
  h.step();
  CHECK(h.engine->metrics().requests_waiting == 1);
  for (int i = 0; i < 600; ++i) h.step();
  CHECK(h.replies[waiting].done);
  CHECK_FALSE(h.replies[running].done);
  REQUIRE(h.engine->cancel(running).ok());
  h.drain();
}

TEST_CASE("KV of idle sessions is evicted, the least recently used first, and is computed again when needed") {
  ExecutorInfo info = small_facts();
  info.block_count[0] = 20;
  info.window = 0;
  Harness h(info);
  std::vector<SessionId> sessions;
  std::vector<std::vector<int32_t>> histories;
  for (uint64_t i = 0; i < 3; ++i) {  // 6 blocks each
    sessions.push_back(h.session());
    const auto prompt = tokens_from(i, 350);
    histories.push_back(prompt + h.run(sessions.back(), prompt, asking(10)).tokens);
  }
  h.run(sessions[0], tokens_from(7, 1), asking(2));  // now the second is the oldest
  const auto prompt = tokens_from(8, 500);
  CHECK(h.run(h.session(), prompt, asking(2)).tokens == h.reference(prompt, 2));
  CHECK(h.engine->metrics().cache.blocks_evicted[0] == 6);
  CHECK(h.run(sessions[2], tokens_from(9, 1), asking(1)).counts.cached_tokens == 359);
  const Reply& dropped = h.run(sessions[1], tokens_from(9, 1), asking(20));
  CHECK(dropped.counts.cached_tokens == 0);
  CHECK(dropped.tokens == h.reference(histories[1] + tokens_from(9, 1), 20));
}

TEST_CASE("a request that can never fit is refused with the numbers, and others go on") {
  ExecutorInfo info = small_facts();
  info.block_count[0] = 10;
  Harness h(info);
  const SessionId session = h.session();
  const auto refused = h.engine->submit(session, tokens_from(1, 700), asking(100));
  REQUIRE(refused.status().code() == StatusCode::kOutOfMemory);
  CHECK(refused.status().message().find("700 prompt tokens") != std::string::npos);
  CHECK(refused.status().message().find("13 global blocks") != std::string::npos);
  CHECK(refused.status().message().find("(of 10)") != std::string::npos);
  CHECK(h.engine->session_tokens(session).value().empty());
  CHECK(h.run(session, tokens_from(2, 500), asking(100)).tokens == h.reference(tokens_from(2, 500), 100));
}

TEST_CASE("a window pool that holds a window and little more is enough for any length") {
  ExecutorInfo info = small_facts();
  info.block_count[1] = (128 + 189 + 1 + 63) / 64;
  Harness h(info);
  const auto prompt = tokens_from(1, 600);
  const SessionId session = h.session();
  const Reply& reply = h.run(session, prompt, asking(100));
  CHECK(reply.tokens == h.reference(prompt, 100));
  CHECK(h.run(session, tokens_from(2, 100), asking(100)).tokens ==
        h.reference(prompt + reply.tokens + tokens_from(2, 100), 100));
  info.block_count[1] -= 2;
  Harness small(info);
  const auto refused = small.engine->submit(small.session(), prompt, asking(100));
  CHECK(refused.status().code() == StatusCode::kOutOfMemory);
  CHECK(refused.status().message().find("window blocks") != std::string::npos);
}

TEST_CASE("a request beyond the context is refused with the numbers") {
  Harness h;
  const SessionId session = h.session();
  const auto refused = h.engine->submit(session, tokens_from(1, 2000), asking(49));
  REQUIRE(refused.status().code() == StatusCode::kInvalidArgument);
  CHECK(refused.status().message().find("at most 48") != std::string::npos);
  CHECK(h.engine->submit(session, tokens_from(1, 2048), asking(kToContextEnd)).status().code() ==
        StatusCode::kInvalidArgument);
  CHECK(h.engine->submit(session, tokens_from(1, 3000), asking(0)).status().code() == StatusCode::kInvalidArgument);
  const Reply& full = h.run(session, tokens_from(1, 2000), asking(kToContextEnd));
  CHECK(full.reason == DoneReason::kLength);
  CHECK(full.tokens == h.reference(tokens_from(1, 2000), 48));
  CHECK(h.engine->submit(session, {}, asking(1)).status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("bad requests are refused by name and change nothing") {
  Harness h;
  const SessionId session = h.session();
  const auto refused = [&](const std::vector<int32_t>& tokens, const RequestOptions& options, const std::string& word) {
    const Status status = h.engine->submit(session, tokens, options).status();
    INFO(status.message());
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK(status.message().find(word) != std::string::npos);
  };
  const auto with = [](auto change) {
    RequestOptions options;
    change(options);
    return options;
  };
  refused({}, {}, "empty");
  refused({1, -1}, {}, "token 1 is -1");
  refused({97}, {}, "0 to 96");
  refused({1}, asking(-2), "max_tokens");
  refused({1}, with([](auto& o) { o.sampling.temperature = -1; }), "temperature");
  refused({1}, with([](auto& o) { o.sampling.top_p = std::nan(""); }), "top_p");
  refused({1}, with([](auto& o) { o.logprobs = 65; }), "logprobs");
  refused({1}, with([](auto& o) { o.logprobs = -1; }), "logprobs");
  refused({1}, with([](auto& o) { o.stop_tokens = std::vector<int32_t>{97}; }), "stop token");
  refused({1}, with([](auto& o) { o.stop_strings = {""}; }), "stop string");
  refused({1}, with([](auto& o) { o.stop_strings = {"\xC3"}; }), "UTF-8");
  refused({1}, with([](auto& o) { o.stop_strings.assign(65, "x"); }), "at most 64");
  CHECK(h.engine->submit(99, std::vector<int32_t>{1}, {}).status().code() == StatusCode::kNotFound);
  CHECK(h.engine->submit(0, std::vector<int32_t>{1}, {}).status().code() == StatusCode::kNotFound);
  CHECK(h.engine->fork_session(session, 1).status().code() == StatusCode::kInvalidArgument);
  CHECK(h.engine->truncate_session(session, 1).code() == StatusCode::kInvalidArgument);
  CHECK(h.engine->set_session_tokens(session, std::vector<int32_t>{-5}).code() == StatusCode::kInvalidArgument);
  CHECK(h.engine->pending() == 0);
  CHECK(h.engine->session_tokens(session).value().empty());
}

TEST_CASE("a busy session refuses every call but destroy") {
  Harness h;
  const SessionId session = h.session();
  const RequestId request = h.submit(session, {1, 2, 3}, asking(20));
  for (int i = 0; i < 3; ++i) {
    CHECK(h.engine->submit(session, std::vector<int32_t>{1}, {}).status().code() == StatusCode::kBusy);
    CHECK(h.engine->fork_session(session, 1).status().code() == StatusCode::kBusy);
    CHECK(h.engine->truncate_session(session, 0).code() == StatusCode::kBusy);
    CHECK(h.engine->session_tokens(session).value().empty());
    h.step();
  }
  CHECK(h.engine->destroy_session(session).ok());
  h.drain();
  CHECK(h.replies[request].reason == DoneReason::kCancelled);
  CHECK(h.used(BlockKind::kGlobal) == 0);
  CHECK(h.engine->metrics().sessions == 0);
}

TEST_CASE("a request may be cancelled in every state") {
  ExecutorInfo info = small_facts();
  info.slot_count = 1;
  const auto prompt = tokens_from(1, 300);
  for (int steps = 0; steps < 12; ++steps) {
    Harness h(info);
    const SessionId session = h.session(), other = h.session();
    const RequestId request = h.submit(session, prompt, asking(8));
    const RequestId waiting = h.submit(other, {5, 6}, asking(3));
    for (int i = 0; i < steps; ++i) h.step();
    if (steps % 2 == 0) CHECK(h.engine->cancel(waiting).ok());
    CHECK(h.engine->cancel(request).ok());
    CHECK(h.engine->cancel(request).ok());
    CHECK(h.engine->cancel(12345).ok());
    h.drain();
    INFO("after " << steps << " steps");
    const Reply& reply = h.replies[request];
    const auto whole = h.reference(prompt, 8);
    CHECK(reply.done);
    CHECK(reply.reason == (steps < 11 ? DoneReason::kCancelled : DoneReason::kLength));
    CHECK(reply.tokens ==
          std::vector<int32_t>(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(reply.tokens.size())));
    CHECK(h.engine->session_tokens(session).value() == prompt + reply.tokens);
    if (steps % 2 == 1) CHECK(h.replies[waiting].tokens == h.reference({5, 6}, 3));
    // What was computed before the cancel is used, and used rightly.
    const Reply& next = h.run(session, {9}, asking(5));
    CHECK(next.tokens == h.reference(prompt + reply.tokens + std::vector<int32_t>{9}, 5));
    if (steps > 0) CHECK(next.counts.cached_tokens >= std::min(steps * 96, 299));
  }
}

TEST_CASE("stop tokens end a reply and stay in the history") {
  Harness h;
  const SessionId session = h.session();
  const auto whole = h.reference({1, 2, 3}, 50);
  RequestOptions options = asking(50);
  options.stop_tokens = std::vector<int32_t>{whole[20], whole[9]};
  const auto expected = h.reference({1, 2, 3}, 50, options);
  const Reply& reply = h.run(session, {1, 2, 3}, options);
  CHECK(reply.reason == DoneReason::kStopToken);
  CHECK(reply.stop == expected.back());
  CHECK(reply.tokens == expected);
  CHECK(h.engine->session_tokens(session).value() == std::vector<int32_t>{1, 2, 3} + expected);
}

TEST_CASE("stop strings are found across tokens and not shown") {
  Harness h;
  const auto prompt = tokens_from(4, 20);
  const std::string whole = h.run(h.session(), prompt, asking(120)).text;
  for (size_t at = 3; at + 3 < whole.size(); at += 5) {
    if (static_cast<unsigned char>(whole[at]) >= 0x80 || static_cast<unsigned char>(whole[at + 3]) >= 0x80) continue;
    RequestOptions options = asking(120);
    options.stop_strings = {"never, ever", whole.substr(at, 3)};
    if (!is_utf8(options.stop_strings[1])) continue;
    const Reply& reply = h.run(h.session(), prompt, options);
    INFO(whole << " / " << options.stop_strings[1]);
    CHECK(reply.reason == DoneReason::kStopString);
    CHECK(reply.stop == 1);
    CHECK(reply.text == whole.substr(0, whole.find(options.stop_strings[1])));
  }
}

TEST_CASE("text comes in whole code points, and an incomplete code point comes at the end") {
  Harness h;
  for (uint64_t i = 0; i < 20; ++i) {
    const Reply& reply = h.run(h.session(), tokens_from(i, 10), asking(100));
    CHECK(is_utf8(reply.text));
  }
}

TEST_CASE("alternatives are reported as asked") {
  Harness h;
  RequestOptions options = asking(4);
  options.logprobs = 5;
  CHECK(h.run(h.session(), {1}, options).top_counts == std::vector<size_t>(4, 5));
  CHECK(h.run(h.session(), {1}, asking(4)).top_counts == std::vector<size_t>(4, 0));
}

TEST_CASE("scores come with each token where they are asked for, and are refused of a model without a classifier") {
  RequestOptions options = asking(3);
  options.scores = true;
  ExecutorInfo info = small_facts();
  info.label_count = 2;
  Harness h(info);
  CHECK(h.run(h.session(), {1, 5}, options).scores == std::vector<std::vector<float>>{{2, 2}, {3, 3}, {4, 4}});
  CHECK(h.run(h.session(), {1, 5}, asking(1)).scores == std::vector<std::vector<float>>{{}});
  Harness without;
  const Status refused = without.engine->submit(without.session(), std::vector<int32_t>{1}, options).status();
  CHECK(refused.code() == StatusCode::kUnsupported);
  CHECK(refused.message().find("no classifier") != std::string::npos);
}

TEST_CASE("too many waiting are refused, and too many sessions") {
  EngineOptions options;
  options.max_waiting = 2;
  options.max_sessions = 3;
  Harness h(small_facts(), options);
  const SessionId a = h.session(), b = h.session(), c = h.session();
  CHECK(h.engine->create_session().status().code() == StatusCode::kBusy);
  h.submit(a, {1});
  h.submit(b, {1});
  CHECK(h.engine->submit(c, std::vector<int32_t>{1}, {}).status().code() == StatusCode::kBusy);
  h.step();
  h.submit(c, {1});
  h.drain();
}

TEST_CASE("a caller who never steps cannot fill the inbox") {
  EngineOptions options;
  options.max_sessions = 10;
  Harness h(small_facts(), options);
  const SessionId session = h.session();
  const RequestId request = h.submit(session, {1, 2}, asking(2));
  for (int i = 0; i < 1000; ++i) CHECK((h.engine->cancel(request).ok() && h.engine->cancel(777).ok()));
  for (int i = 0; i < 1000; ++i) CHECK(h.engine->destroy_session(h.session()).ok());
  h.drain();
  int forks = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto child = h.engine->fork_session(session, 1);
    CHECK((child.ok() || child.status().code() == StatusCode::kBusy));
    if (child.ok()) ++forks, (void)h.engine->destroy_session(child.value());
  }
  CHECK(forks < 20);
  h.step();
  CHECK(h.engine->fork_session(session, 1).ok());
  CHECK(h.replies[request].reason == DoneReason::kCancelled);
}

TEST_CASE("after a device is lost every call answers with that error at once") {
  for (const StatusCode code : {StatusCode::kDeviceLost, StatusCode::kInternal}) {
    Harness h;
    const SessionId a = h.session(), b = h.session(), c = h.session();
    const RequestId running = h.submit(a, {1, 2, 3}, asking(30));
    h.step();
    const RequestId arriving = h.submit(b, {4}, asking(30));
    RequestId late = 0;
    h.executor->before_run = [&](const StepPlan&) {
      late = h.engine->submit(c, std::vector<int32_t>{5}, {}).value();
      return Status(code, "the card has left");
    };
    CHECK(h.engine->step().code() == code);
    h.collect();
    for (const RequestId request : {running, arriving, late}) {
      CHECK(h.replies[request].failed);
      CHECK(h.replies[request].status.message() == "the card has left");
    }
    CHECK(h.engine->session_tokens(a).value().empty());
    CHECK(h.engine->pending() == 0);
    CHECK(h.engine->status().code() == code);
    CHECK(h.engine->step().code() == code);
    CHECK(h.engine->create_session().status().code() == code);
    CHECK(h.engine->submit(a, std::vector<int32_t>{1}, {}).status().code() == code);
    CHECK(h.engine->truncate_session(a, 0).code() == code);
    CHECK(h.engine->cancel(running).code() == code);
    CHECK_FALSE(h.engine->wait(std::chrono::hours(1)));
    CHECK(h.engine->metrics().requests_failed == 3);
    CHECK(h.engine->destroy_session(a).ok());
  }
}

TEST_CASE("a step that the executor could not run yet is tried again unchanged") {
  Harness h;
  const SessionId session = h.session();
  const auto prompt = tokens_from(1, 200);
  const RequestId request = h.submit(session, prompt, asking(20));
  int calls = 0;
  h.executor->before_run = [&](const StepPlan&) {
    return ++calls % 3 == 0 ? Status() : Status(StatusCode::kOutOfMemory, "later");
  };
  while (h.engine->pending() > 0) {
    const Status status = h.engine->step();
    CHECK((status.ok() || status.message() == "later"));
    CHECK(h.engine->check_ledger().ok());
    h.collect();
    h.check();
  }
  CHECK(h.replies[request].tokens == h.reference(prompt, 20));
}

TEST_CASE("an executor that answers nonsense stops the engine, not the process") {
  class Liar final : public Executor {
   public:
    explicit Liar(int mode) : mode_(mode), info_(small_facts()) {}
    const ExecutorInfo& info() const override { return info_; }
    Status run(const StepPlan&, StepResult& result) override {
      result.clear();
      if (mode_ == 1) result.sampled.push_back({0, 5000, 0, {}, {}});
      if (mode_ == 2) result.sampled.push_back({3, 1, 0, {}, {}});
      if (mode_ == 3) throw std::bad_alloc();
      if (mode_ == 4) throw 7;
      return {};
    }
    int mode_;
    ExecutorInfo info_;
  };
  for (int mode = 0; mode < 5; ++mode) {
    auto engine = std::move(Engine::create(std::make_unique<Liar>(mode), nullptr, {})).value();
    const SessionId session = engine->create_session().value();
    REQUIRE(engine->submit(session, std::vector<int32_t>{1}, {}).ok());
    CHECK(engine->step().code() == StatusCode::kInternal);
    CHECK_FALSE(engine->status().message().empty());
    Event event;
    REQUIRE(engine->poll(event));
    CHECK(event.kind == EventKind::kFailed);
  }
}

TEST_CASE("an engine refuses options that make no sense") {
  CHECK(Engine::create(nullptr, nullptr, {}).status().code() == StatusCode::kInvalidArgument);
  EngineOptions options;
  options.step_tokens = 97;
  const auto refused = Engine::create(std::make_unique<ScriptedExecutor>(small_facts()), nullptr, options);
  CHECK(refused.status().message() == "step_tokens is 97; it must be from 0 to 96");
  const auto retaining = [](int32_t turns, int32_t every_tokens) {
    EngineOptions of;
    of.cache.retention.turns = turns;
    of.cache.retention.every_tokens = every_tokens;
    return Engine::create(std::make_unique<ScriptedExecutor>(small_facts()), nullptr, of).status().message();
  };
  CHECK(retaining(-1, 0) == "retention.turns is -1; it must be from 0 to 2147483647");
  CHECK(retaining(0, -1) == "retention.every_tokens is -1; it must be from 0 to 2147483647");
  CHECK(retaining(INT32_MAX, INT32_MAX) == "");
}

TEST_CASE("without a tokenizer there are tokens and no text") {
  auto engine = std::move(Engine::create(std::make_unique<ScriptedExecutor>(small_facts()), nullptr, {})).value();
  const SessionId session = engine->create_session().value();
  RequestOptions options = asking(3);
  options.stop_strings = {"x"};
  CHECK(engine->submit(session, std::vector<int32_t>{1}, options).status().code() == StatusCode::kInvalidArgument);
  REQUIRE(engine->submit(session, std::vector<int32_t>{1}, asking(3)).ok());
  int tokens = 0;
  while (engine->pending() > 0) {
    REQUIRE(engine->step().ok());
    for (Event event; engine->poll(event);) {
      CHECK(event.text.empty());
      tokens += event.kind == EventKind::kToken;
    }
  }
  CHECK(tokens == 3);
}

TEST_CASE("wait returns for work, for wake, and in time") {
  Harness h;
  CHECK_FALSE(h.engine->wait(std::chrono::milliseconds(1)));
  CHECK_FALSE(h.engine->wait(std::chrono::nanoseconds(-5)));
  h.engine->wake();
  CHECK_FALSE(h.engine->wait(std::chrono::hours(1)));
  const SessionId session = h.session();
  h.submit(session, {1}, asking(2));
  CHECK(h.engine->wait(std::chrono::nanoseconds::max()));
  REQUIRE(h.engine->step().ok());
  CHECK(h.engine->wait(std::chrono::hours(1)));
  REQUIRE(h.engine->step().ok());
  CHECK(h.engine->wait(std::chrono::hours(1)));  // events to poll
  CHECK(h.engine->pending() == 1);
  h.collect();
  CHECK(h.engine->pending() == 0);
  CHECK_FALSE(h.engine->wait(std::chrono::milliseconds(1)));
}

TEST_CASE("the metrics add up") {
  Harness h;
  const SessionId session = h.session();
  h.run(session, tokens_from(1, 300), asking(50));
  h.run(session, tokens_from(2, 10), asking(50));
  const Metrics metrics = h.engine->metrics();
  CHECK(metrics.tokens_decoded == 100);
  CHECK(metrics.tokens_from_cache == 349);
  CHECK(metrics.tokens_prefilled == 300 + 11);
  CHECK(metrics.requests_done == 2);
  CHECK(metrics.requests_running == 0);
  CHECK(metrics.requests_waiting == 0);
  CHECK(metrics.steps == h.executor->runs);
  CHECK(metrics.sessions == 1);
  CHECK(metrics.blocks[0].total == 128);
  CHECK(metrics.blocks[0].cached == (409 + 63) / 64);
  CHECK(metrics.blocks[0].live == 0);
  const Reply& reply = h.replies.rbegin()->second;
  CHECK(reply.timing.wait_ns > 0);
  CHECK(reply.timing.prefill_ns > 0);
  CHECK(reply.timing.decode_ns > 0);
}

TEST_CASE("the metrics add up when requests are suspended") {
  for (const int steps : {0, 1, 2, 5, 7, 9}) {
    INFO("set aside after " << steps << " steps");
    Harness h;
    const SessionId session = h.session();
    const RequestId request = h.submit(session, tokens_from(1, 500), asking(5));
    for (int i = 0; i < steps; ++i) h.step();
    REQUIRE(h.engine->suspend(request).ok());
    h.step();
    CHECK(h.engine->metrics().requests_suspended == 1);
    CHECK(h.engine->metrics().requests_waiting == 0);
    h.submit(h.session(), tokens_from(2, 500), asking(5));
    REQUIRE(h.engine->resume(request).ok());
    h.drain();
    const CacheStats stats = h.engine->metrics().cache;
    CHECK(stats.prompt_tokens == 1000);
    CHECK(stats.prompt_tokens ==
          stats.hits() + stats.miss_new + stats.miss_evicted + stats.miss_window + stats.miss_last);
  }
}

TEST_CASE("a fork of a session wakes a thread in wait") {
  Harness h;
  const SessionId session = h.session();
  h.run(session, {1, 2}, asking(1));
  std::thread forks([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(h.engine->fork_session(session, 1).ok());
  });
  const auto begin = Clock::now();
  CHECK(h.engine->wait(std::chrono::seconds(60)));
  CHECK(Clock::now() - begin < std::chrono::seconds(30));
  forks.join();
}

TEST_CASE("two engines in one process do not affect each other") {
  Harness a, b;
  const SessionId sa = a.session(), sb = b.session();
  const RequestId ra = a.submit(sa, tokens_from(1, 50), asking(40)), rb = b.submit(sb, tokens_from(2, 50), asking(40));
  while (a.engine->pending() + b.engine->pending() > 0) {
    a.step();
    b.step();
  }
  CHECK(a.replies[ra].tokens == a.reference(tokens_from(1, 50), 40));
  CHECK(b.replies[rb].tokens == b.reference(tokens_from(2, 50), 40));
}
