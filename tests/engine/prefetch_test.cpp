// Prefetches: a session's KV comes up before its request, and no running request waits for that.
#include <random>

#include "tests/engine/harness.hpp"
#include "tests/engine/memory_file.hpp"

using namespace kaiju;
using namespace kaiju::test;

namespace {

constexpr int64_t kPlaceBytes = kBlockTokens * ScriptedExecutor::kWordBytes;

// A device for one conversation of 500 tokens and little more, and lower tiers for many.
struct Typing : Harness {
  explicit Typing(int64_t host, const std::shared_ptr<MemoryFile>& file = nullptr, EngineOptions options = {})
      : Harness(device(), with_tiers(host, file, std::move(options))) {}

  static ExecutorInfo device() {
    ExecutorInfo info = small_facts();
    info.block_count[0] = 16;
    info.block_count[1] = 16;
    return info;
  }
  static EngineOptions with_tiers(int64_t host, const std::shared_ptr<MemoryFile>& file, EngineOptions options) {
    options.cache.host_bytes = host * kPlaceBytes;
    options.cache.file_bytes = file ? 300 * kPlaceBytes : 0;
    options.cache.file = file;
    return options;
  }
  // A session of 500 tokens and a reply, all of which has left the device.
  SessionId away() {
    const SessionId gone = session();
    run(gone, tokens_from(1, 500), with_salt());
    for (uint64_t i = 0; i < 4; ++i) run(session(), tokens_from(1000 + i, 620), asking(2));
    return gone;
  }
  static RequestOptions with_salt(int32_t max_tokens = 5) { return test::in_scope("", 0, "a", max_tokens); }
  // Steps until a prefetch has ended; how many steps it took.
  int until_prefetched(RequestId prefetch) {
    int steps = 0;
    while (!replies[prefetch].done) {
      REQUIRE(++steps < 100);
      step();
    }
    return steps;
  }
};

}  // namespace

TEST_CASE("a session whose user types is on the device when its request comes") {
  for (const bool in_file : {false, true}) {
    Typing h(in_file ? 24 : 200, in_file ? std::make_shared<MemoryFile>() : nullptr);
    const SessionId session = h.away();
    const std::vector<int32_t> history = h.engine->session_tokens(session).value();
    const RequestId prefetch = h.engine->prefetch(session, {}).value();
    CHECK(h.engine->wait(Nanoseconds(0)));
    CHECK(h.until_prefetched(prefetch) <= 3);
    CHECK(h.replies[prefetch].counts.prompt_tokens == 505);
    CHECK(h.replies[prefetch].counts.cached_tokens == 504);  // all but the token drawn last
    const uint64_t promoted = h.engine->metrics().host.blocks_out;
    CHECK(promoted >= 8);
    const Reply& reply = h.run(session, tokens_from(2, 20), Typing::with_salt());
    CHECK(reply.counts.cached_tokens == 504);
    CHECK(reply.tokens == h.reference(history + tokens_from(2, 20), 5));
    CHECK(h.engine->metrics().host.blocks_out == promoted);  // nothing was left to be brought up
    CHECK(h.engine->metrics().cache.hit_host + h.engine->metrics().cache.hit_file == 0);
  }
}

TEST_CASE("a prefetch waits while a request runs, and the request takes no step more") {
  const auto steps_beside = [](bool prefetches) {
    Typing h(200);
    const SessionId session = h.away();
    const uint64_t before = h.engine->metrics().host.blocks_out;
    const RequestId running = h.submit(h.session(), tokens_from(5, 90), asking(30));
    h.step();
    RequestId prefetch = 0;
    if (prefetches) prefetch = h.engine->prefetch(session, {}).value();
    int steps = 0;
    for (; !h.replies[running].done; ++steps) {
      h.step();
      if (!h.replies[running].done) CHECK(h.engine->metrics().host.blocks_out == before);
    }
    if (prefetches) {
      h.until_prefetched(prefetch);
      CHECK(h.replies[prefetch].counts.cached_tokens == 504);
    }
    return steps;
  };
  CHECK(steps_beside(true) == steps_beside(false));
}

TEST_CASE("beside a running request a prefetch copies as many blocks in a step as the host allows") {
  EngineOptions options;
  options.prefetch_blocks = 2;
  Typing h(200, nullptr, options);
  const SessionId session = h.away();
  const RequestId running = h.submit(h.session(), tokens_from(5, 60), asking(40));
  h.step();
  const RequestId prefetch = h.engine->prefetch(session, {}).value();
  uint64_t before = h.engine->metrics().host.blocks_out;
  while (!h.replies[prefetch].done) {
    const int32_t generated = h.replies[running].counts.generated;
    REQUIRE_FALSE(h.replies[running].done);
    h.step();
    CHECK(h.replies[running].counts.generated == generated + 1);
    const uint64_t now = h.engine->metrics().host.blocks_out;
    CHECK(now - before <= 2 + 4);  // the last part has the windows, too
    before = now;
  }
  CHECK(h.replies[prefetch].counts.cached_tokens == 504);
  h.drain();
}

TEST_CASE("a prefetch reads no file beside a running request") {
  EngineOptions options;
  options.prefetch_blocks = 50;
  const auto file = std::make_shared<MemoryFile>();
  Typing h(24, file, options);
  const SessionId session = h.away();
  const RequestId running = h.submit(h.session(), tokens_from(5, 60), asking(20));
  h.step();
  const int reads = file->reads;
  const RequestId prefetch = h.engine->prefetch(session, {}).value();
  while (!h.replies[running].done) {
    CHECK(file->reads == reads);
    h.step();
  }
  h.until_prefetched(prefetch);
  CHECK(file->reads > reads);
  CHECK(h.replies[prefetch].counts.cached_tokens == 504);
}

TEST_CASE("a prefetch takes no block that a waiting request needs") {
  Typing h(200);
  const SessionId session = h.away();
  const RequestId first = h.submit(h.session(), tokens_from(5, 500), asking(60));
  const RequestId second = h.submit(h.session(), tokens_from(6, 500), asking(60));
  h.step();
  const RequestId prefetch = h.engine->prefetch(session, {}).value();
  while (!h.replies[first].done || !h.replies[second].done) {
    CHECK_FALSE(h.replies[prefetch].done);
    h.step();
  }
  h.until_prefetched(prefetch);
}

TEST_CASE("a prefetch comes at its time, and wait wakes for it") {
  TimePoint time(1'000'000'000);
  EngineOptions options;
  options.clock = [&time] { return time; };
  Typing h(200, nullptr, options);
  const SessionId session = h.away();
  int mark = 0;
  PrefetchOptions later;
  later.at = TimePoint(5'000'000'000);
  later.user_data = &mark;
  const RequestId prefetch = h.engine->prefetch(session, later).value();
  h.step();
  CHECK_FALSE(h.engine->wait(Nanoseconds(0)));
  time = TimePoint(5'000'000'001);
  CHECK(h.engine->wait(Nanoseconds(0)));
  REQUIRE(h.engine->step().ok());
  while (true) {
    Event event;
    if (!h.engine->poll(event)) {
      REQUIRE(h.engine->step().ok());
      continue;
    }
    CHECK(event.kind == EventKind::kPrefetched);
    CHECK(event.request == prefetch);
    CHECK(event.session == session);
    CHECK(event.user_data == &mark);
    CHECK(event.counts.cached_tokens == 504);
    break;
  }
}

TEST_CASE("a session is prefetched when its user usually comes back") {
  TimePoint time(0);
  EngineOptions options;
  options.clock = [&time] { return time; };
  options.prefetch_usual = true;
  Typing h(400, nullptr, options);
  const SessionId session = h.session();
  constexpr int64_t kSecond = 1'000'000'000;
  std::vector<int32_t> prompt = tokens_from(1, 400);
  for (uint64_t turn = 0; turn < 8; ++turn) {
    h.run(session, prompt, Typing::with_salt());
    prompt = tokens_from(10 + turn, 5);
    time = TimePoint(time.nanoseconds + (60 + static_cast<int64_t>(turn % 3)) * kSecond);
  }
  h.run(session, prompt, Typing::with_salt());
  const int64_t ended = time.nanoseconds;
  for (uint64_t i = 0; i < 4; ++i) h.run(h.session(), tokens_from(1000 + i, 620), asking(2));
  const uint64_t before = h.engine->metrics().host.blocks_out;
  const auto step_at = [&](int64_t seconds) {
    time = TimePoint(ended + seconds * kSecond);
    for (int i = 0; i < 4; ++i) h.step();
    return h.engine->metrics().host.blocks_out - before;
  };
  CHECK(step_at(10) == 0);
  CHECK(step_at(60) >= 6);
}

TEST_CASE("a prefetch whose session goes ends, and finds nothing") {
  Typing h(200);
  const SessionId session = h.away();
  const RequestId prefetch = h.engine->prefetch(session, {}).value();
  REQUIRE(h.engine->destroy_session(session).ok());
  h.until_prefetched(prefetch);
  CHECK(h.replies[prefetch].counts.cached_tokens == 0);
  CHECK(h.engine->metrics().host.blocks_out == 0);
}

TEST_CASE("without lower tiers a prefetch says what is on the device") {
  Harness h;
  const SessionId session = h.session();
  h.run(session, tokens_from(1, 200), Typing::with_salt());
  const RequestId prefetch = h.engine->prefetch(session, {}).value();
  h.step();
  CHECK(h.replies[prefetch].done);
  CHECK(h.replies[prefetch].counts.cached_tokens == 204);
  const RequestId other = h.engine->prefetch(session, {.scope = Scope{"", 0, "other", ""}}).value();
  h.step();
  CHECK(h.replies[other].counts.cached_tokens == 0);
}

TEST_CASE("prefetches of busy sessions, and too many, are refused") {
  EngineOptions options;
  options.max_waiting = 2;
  Harness h(small_facts(), options);
  const SessionId session = h.session(), busy = h.session();
  h.submit(busy, tokens_from(1, 50), asking(5));
  CHECK(h.engine->prefetch(busy, {}).status().code() == StatusCode::kBusy);
  CHECK(h.engine->prefetch(99, {}).status().code() == StatusCode::kNotFound);
  CHECK(h.engine->prefetch(session, {.scope = Scope{"", -1, "", ""}}).status().code() == StatusCode::kInvalidArgument);
  CHECK(h.engine->prefetch(session, {}).ok());
  CHECK(h.engine->prefetch(session, {}).ok());
  CHECK(h.engine->prefetch(session, {}).status().code() == StatusCode::kBusy);
  h.drain();
  h.step();
  CHECK(h.engine->prefetch(session, {}).ok());
}

TEST_CASE("random traffic with prefetches gives the replies that it gives alone, and the books agree") {
  const uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  EngineOptions options;
  options.prefetch_blocks = static_cast<int32_t>(random() % 3);
  options.prefetch_usual = true;
  Typing h(40, std::make_shared<MemoryFile>(), options);
  std::vector<SessionId> sessions;
  for (int i = 0; i < 10; ++i) sessions.push_back(h.session());
  std::map<RequestId, std::pair<std::vector<int32_t>, int32_t>> asked;
  for (int turn = 0; turn < 200; ++turn) {
    SessionId& session = sessions[random() % sessions.size()];
    if (random() % 20 == 0) {
      REQUIRE(h.engine->destroy_session(session).ok());
      session = h.session();
    }
    if (random() % 2) (void)h.engine->prefetch(session, {});
    if (random() % 2 && h.engine->unfinished_request(session).value() == 0) {
      std::vector<int32_t> prompt = h.engine->session_tokens(session).value();
      if (prompt.size() > 450) prompt.resize(random() % 300);
      const auto more = tokens_from(random(), 1 + random() % 150);
      prompt.insert(prompt.end(), more.begin(), more.end());
      RequestOptions request = test::in_scope("", 0, random() % 2 ? "a" : "", static_cast<int32_t>(1 + random() % 20));
      auto id = h.engine->submit_history(session, prompt, request);
      REQUIRE(id.status().message() == "");
      asked[*id] = {prompt, request.max_tokens};
    }
    for (uint64_t steps = random() % 5; steps > 0; --steps) h.step();
  }
  h.drain();
  for (const auto& [request, what] : asked)
    if (h.replies[request].reason == DoneReason::kLength)
      CHECK(h.replies[request].tokens == h.reference(what.first, what.second));
}
