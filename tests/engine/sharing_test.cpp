// What sessions share: characters, salts, shared tails, prefixes that are being computed; and what they never share.
#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::test;

TEST_CASE("a second session finds its character's prompt, at whatever position in a block the prompt ends") {
  for (const int32_t window : {0, 1, 63, 64, 65, 128})
    for (const int32_t card_tokens : {1, 63, 64, 65, 127, 128, 129, 300}) {
      INFO("window " << window << " card " << card_tokens);
      ExecutorInfo info = small_facts();
      info.window = window;
      Harness h(info);
      const auto card = tokens_from(1, static_cast<size_t>(card_tokens));
      h.run(h.session(), card + tokens_from(2, 50), in_scope("wren@1", card_tokens, ""));
      const auto prompt = card + std::vector<int32_t>{96} + tokens_from(3, 40);
      const Reply& reply = h.run(h.session(), prompt, in_scope("wren@1", card_tokens, "", 30));
      CHECK(reply.counts.cached_tokens == card_tokens);
      CHECK(reply.tokens == h.reference(prompt, 30));
      CHECK(h.engine->metrics().cache.hit_shared == static_cast<uint64_t>(card_tokens));
    }
}

TEST_CASE("a salt finds its own blocks and never those of another salt") {
  for (const int32_t shared : {0, 64, 100, 128}) {
    Harness h;
    const auto prompt = tokens_from(1, 250);
    h.run(h.session(), prompt, in_scope("wren", shared, "secret"));
    const auto cached = [&](const RequestOptions& options) {
      return h.run(h.session(), prompt, options).counts.cached_tokens;
    };
    CHECK(cached(in_scope("wren", shared, "secret")) == 249);
    CHECK(cached(in_scope("wren", shared, "secreT")) == shared);
    CHECK(cached(in_scope("wren", shared, "")) == shared);
    CHECK(cached(in_scope("wren", shared, "")) == shared);  // a session's own is not another's
    CHECK(cached(in_scope("robin", shared, "other")) == 0);
    CHECK(h.engine->metrics().cache.hit_other > 0);
  }
}

TEST_CASE("one private token makes a block private") {
  Harness h;
  const auto prompt = tokens_from(1, 128);
  h.run(h.session(), prompt, in_scope("wren", 127, "a"));
  CHECK(h.run(h.session(), prompt, in_scope("wren", 127, "b")).counts.cached_tokens == 127);
  CHECK(h.run(h.session(), prompt, in_scope("wren", 126, "c")).counts.cached_tokens == 126);
  CHECK(h.run(h.session(), prompt, in_scope("wren", 63, "d")).counts.cached_tokens == 63);
}

TEST_CASE("a fork shares the KV that its parent may use, and when both are destroyed no private KV stays") {
  Harness h;
  const SessionId parent = h.session();
  const auto prompt = tokens_from(1, 200);
  h.run(parent, prompt, asking(5));
  const SessionId child = h.engine->fork_session(parent, 200).value();
  CHECK(h.engine->destroy_session(parent).ok());
  CHECK(h.run(child, tokens_from(2, 5), asking(3)).counts.cached_tokens >= 200);
  CHECK(h.engine->destroy_session(child).ok());
  h.step();
  CHECK(h.used(BlockKind::kGlobal) == 0);
  CHECK(h.used(BlockKind::kWindow) == 0);
}

TEST_CASE("the KV of a destroyed session stays for its salt") {
  Harness h;
  const auto prompt = tokens_from(1, 200);
  const SessionId first = h.session();
  const auto history = prompt + h.run(first, prompt, in_scope("", 0, "alice", 20)).tokens;
  CHECK(h.engine->destroy_session(first).ok());
  const Reply& again = h.run(h.session(), history + tokens_from(2, 9), in_scope("", 0, "alice", 20));
  CHECK(again.counts.cached_tokens == 219);
  CHECK(again.tokens == h.reference(history + tokens_from(2, 9), 20));
}

TEST_CASE("a prefix that several requests need is computed once: the others take over each block when it is computed") {
  ExecutorInfo info = small_facts();
  info.step_tokens = 64;
  Harness h(info);
  const auto card = tokens_from(1, 500);
  std::vector<RequestId> requests;
  for (uint64_t i = 0; i < 4; ++i)
    requests.push_back(h.submit(h.session(), card + tokens_from(10 + i, 30), in_scope("wren", 500, "", 10)));
  h.drain();
  for (uint64_t i = 0; i < 4; ++i) {
    CHECK(h.replies[requests[i]].tokens == h.reference(card + tokens_from(10 + i, 30), 10));
    CHECK(h.replies[requests[i]].counts.cached_tokens >= (i == 0 ? 0 : 500));
  }
  CHECK(h.executor->rows == 500 + 4 * (30 + 9));
  CHECK(h.engine->metrics().cache.miss_new == 500 + 4 * 30);
}

TEST_CASE(
    "when the request that computes a shared prefix ends, another one continues and computes at most one block again") {
  enum class Way { kCancel, kDestroy, kDeadline, kSuspend };
  const auto card = tokens_from(1, 410);
  const auto prompt = [&](uint64_t i) { return card + tokens_from(10 + i, 30); };
  for (const Way way : {Way::kCancel, Way::kDestroy, Way::kDeadline, Way::kSuspend})
    for (const bool retried : {false, true})  // while the executor asks to try a step again
      for (int steps = 1; steps < 12; ++steps) {
        INFO("way " << static_cast<int>(way) << " retried " << retried << " after " << steps << " steps");
        Clock::time_point time{Clock::duration(1)};
        EngineOptions engine_options;
        engine_options.clock = [&] { return time; };
        ExecutorInfo info = small_facts();
        info.step_tokens = 50;
        Harness h(info, engine_options);
        std::vector<SessionId> sessions;
        std::vector<RequestId> requests;
        for (uint64_t i = 0; i < 3; ++i) {
          RequestOptions options = in_scope("wren", 410, "", 10);
          if (i == 0 && way == Way::kDeadline) options.deadline = time + Clock::duration(1);
          sessions.push_back(h.session());
          requests.push_back(h.submit(sessions.back(), prompt(i), options));
        }
        for (int i = 0; i < steps; ++i) h.step();
        if (retried) {
          h.executor->before_run = [](const StepPlan&) { return Status(StatusCode::kBusy, "not now"); };
          CHECK(h.engine->step().code() == StatusCode::kBusy);
          h.executor->before_run = nullptr;
        }
        if (way == Way::kCancel) CHECK(h.engine->cancel(requests[0]).ok());
        if (way == Way::kDestroy) CHECK(h.engine->destroy_session(sessions[0]).ok());
        if (way == Way::kDeadline) time += Clock::duration(1);
        if (way == Way::kSuspend) CHECK(h.engine->suspend(requests[0]).ok());
        for (int i = 0; i < 100; ++i) h.step();
        for (uint64_t i = 1; i < 3; ++i) CHECK(h.replies[requests[i]].tokens == h.reference(prompt(i), 10));
        CHECK(h.executor->rows <= 410 + 3 * 39 + 64);
        const Reply& left = h.replies[requests[0]];
        if (way == Way::kSuspend && left.suspended > 0) {  // it goes on where the others have brought it meanwhile
          CHECK(h.engine->resume(requests[0]).ok());
          h.drain();
          CHECK(left.tokens == h.reference(prompt(0), 10));
          CHECK(h.executor->rows <= 410 + 3 * 39 + 64);
        }
        CHECK(left.done);
        CHECK(h.engine->pending() == 0);
      }
}

TEST_CASE("a request that finds a shared tail being computed continues after it, whatever part of the tail is cached") {
  const auto card = tokens_from(1, 100);
  for (const size_t same : {70u, 99u, 100u, 110u})  // tokens that agree with what the salt knows already
    for (const bool cancelled : {false, true}) {
      INFO("the same for " << same << (cancelled ? ", its maker cancelled" : ""));
      ExecutorInfo info = small_facts();
      info.step_tokens = 12;  // the boundary is reached with the end of a step
      Harness h(info);
      const auto prompt = card + tokens_from(2, 60);
      auto known = prompt;
      for (size_t i = same; i < known.size(); ++i) known[i] = (known[i] + 1) % 97;
      h.run(h.session(), known, in_scope("wren", 64, "salt", 1));
      const RequestId maker = h.submit(h.session(), card + tokens_from(3, 60), in_scope("wren", 100, "other salt", 5));
      h.step();
      const RequestId request = h.submit(h.session(), prompt, in_scope("wren", 100, "salt", 5));
      h.step();
      if (cancelled) CHECK(h.engine->cancel(maker).ok());
      for (int i = 0; i < 100; ++i) h.step();
      CHECK(h.engine->pending() == 0);
      CHECK(h.replies[request].tokens == h.reference(prompt, 5));
    }
}

TEST_CASE("a request never takes over blocks that a request with another salt computes") {
  ExecutorInfo info = small_facts();
  info.step_tokens = 64;
  Harness h(info);
  const auto prompt = tokens_from(1, 300);
  for (const char* salt : {"a", "b"}) h.submit(h.session(), prompt, in_scope("", 0, salt, 1));
  h.drain();
  CHECK(h.executor->rows == 600);
}

TEST_CASE("a block whose window block was evicted is computed again, and its global block is not written") {
  ExecutorInfo info = small_facts();
  info.block_count[1] = 8;  // a window, a chunk, and little to keep
  Harness h(info);
  const SessionId session = h.session();
  const auto prompt = tokens_from(1, 1000);
  h.run(session, prompt, asking(2));
  const std::vector<int32_t> cut(prompt.begin(), prompt.begin() + 400);
  const auto request = h.engine->submit_history(session, cut, asking(20));
  REQUIRE(request.ok());
  h.drain();
  CHECK(h.replies[request.value()].tokens == h.reference(cut, 20));
  CHECK(h.engine->metrics().cache.miss_window > 0);
}

TEST_CASE("the metrics tell evicted tokens from new ones") {
  ExecutorInfo info = small_facts();
  info.window = 0;
  info.block_count[0] = 10;
  Harness h(info);
  const auto first = tokens_from(1, 600), second = tokens_from(2, 600);
  h.run(h.session(), first, in_scope("", 0, "a", 1));
  h.run(h.session(), second, in_scope("", 0, "a", 1));
  CHECK(h.engine->metrics().cache.miss_new == 1200);
  h.run(h.session(), first, in_scope("", 0, "a", 1));
  CHECK(h.engine->metrics().cache.miss_evicted == 600);
  const CacheStats stats = h.engine->metrics().cache;
  CHECK(stats.prompt_tokens ==
        stats.hits() + stats.miss_new + stats.miss_evicted + stats.miss_window + stats.miss_last);
}

TEST_CASE("a shared region longer than the prompt is refused by name") {
  Harness h;
  const auto refused = h.engine->submit(h.session(), tokens_from(1, 10), in_scope("wren", 11, ""));
  CHECK(refused.status().code() == StatusCode::kInvalidArgument);
  CHECK(refused.status().message().find("shared_tokens is 11") != std::string::npos);
}

TEST_CASE(
    "sessions that take turns keep their hits until memory runs short, when both kinds of block share one memory") {
  for (const int occupancy : {25, 50, 75, 95}) {
    ExecutorInfo info = small_facts();
    info.slab_blocks[0] = 6, info.slab_blocks[1] = 1;
    info.block_count[0] = 60 * 6, info.block_count[1] = 60;
    Harness h(info);
    // A session of 300 tokens ends with 5 global blocks and 4 window blocks: about 5 slabs.
    const int count = 60 * occupancy / 100 / 5;
    std::vector<SessionId> sessions;
    for (int i = 0; i < count; ++i) {
      sessions.push_back(h.session());
      h.run(sessions.back(), tokens_from(static_cast<uint64_t>(i), 280), asking(20));
    }
    uint64_t cached = 0;
    for (int i = 0; i < count; ++i)
      cached += static_cast<uint64_t>(
          h.run(sessions[static_cast<size_t>(i)], tokens_from(99, 1), asking(1)).counts.cached_tokens);
    INFO("occupancy " << occupancy << " cached " << cached << " of " << count * 299);
    CHECK(cached >= static_cast<uint64_t>(count * 299) * (occupancy < 90 ? 100 : 90) / 100);
  }
}
