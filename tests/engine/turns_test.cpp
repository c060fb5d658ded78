// Turns of one conversation: what is computed, what is kept, what a cut or a retry costs.
#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::test;

namespace {

std::vector<ExecutorInfo> shapes() {
  std::vector<ExecutorInfo> all;
  for (const bool global : {true, false})
    for (const int32_t window : {0, 1, 63, 64, 65, 128, 1000}) {
      if (!global && window == 0) continue;
      ExecutorInfo info = small_facts();
      info.has_global = global;
      info.window = window;
      if (!global) info.block_count[0] = 0;
      if (window == 0) info.block_count[1] = 0;
      all.push_back(info);
    }
  return all;
}

}  // namespace

TEST_CASE("a reply is that of one-at-a-time decoding, with or without global and sliding layers") {
  for (const ExecutorInfo& info : shapes()) {
    INFO("global " << info.has_global << " window " << info.window);
    Harness h(info);
    const auto prompt = tokens_from(1, 500);
    CHECK(h.run(h.session(), prompt, asking(300)).tokens == h.reference(prompt, 300));
  }
}

TEST_CASE("a second turn computes only its new tokens and the last sampled token") {
  for (const ExecutorInfo& info : shapes()) {
    INFO("global " << info.has_global << " window " << info.window);
    Harness h(info);
    const SessionId session = h.session();
    const auto first = tokens_from(1, 300), second = tokens_from(2, 30);
    const auto reply = h.run(session, first, asking(50)).tokens;
    CHECK(h.engine->session_tokens(session).value() == first + reply);
    const Reply& next = h.run(session, second, asking(40));
    CHECK(next.tokens == h.reference(first + reply + second, 40));
    CHECK(next.counts.prompt_tokens == 380);
    CHECK(next.counts.cached_tokens == 349);
    CHECK(next.counts.generated == 40);
  }
}

TEST_CASE("a prompt found whole still computes its last token") {
  Harness h;
  const SessionId session = h.session();
  const auto prompt = tokens_from(1, 256);
  h.run(session, prompt, asking(1));
  REQUIRE(h.engine->truncate_session(session, 256).ok());
  const Reply& again = h.run(session, {}, asking(5));
  CHECK(again.counts.cached_tokens == 255);
  CHECK(again.tokens == h.reference(prompt, 5));
}

TEST_CASE("a retry of a long reply finds its turn's beginning in the cache") {
  Harness h;
  const SessionId session = h.session();
  const auto prompt = tokens_from(1, 700);
  h.run(session, prompt, asking(400));
  for (uint32_t stream = 0; stream < 3; ++stream) {
    REQUIRE(h.engine->truncate_session(session, prompt.size()).ok());
    RequestOptions options = asking(300);
    options.sampling.temperature = 1;
    options.sampling.variant = stream;
    const Reply& retry = h.run(session, {}, options);
    CHECK(retry.counts.cached_tokens == 699);
    CHECK(retry.tokens == h.reference(prompt, 300, options));
  }
}

TEST_CASE("an undo of a short turn and an edit of its message are found in the cache") {
  Harness h;
  const SessionId session = h.session();
  const auto start = tokens_from(1, 700);
  const auto reply = h.run(session, start, asking(100)).tokens;
  const auto history = start + reply;
  h.run(session, tokens_from(2, 60), asking(200));
  REQUIRE(h.engine->truncate_session(session, history.size()).ok());
  const Reply& other = h.run(session, tokens_from(3, 20), asking(30));
  CHECK(other.counts.cached_tokens == 800);
  CHECK(other.tokens == h.reference(history + tokens_from(3, 20), 30));
}

TEST_CASE("a cut within the last block of the reply is found in the cache") {
  Harness h;
  const SessionId session = h.session();
  const auto prompt = tokens_from(1, 100);
  for (int32_t cut = 0; cut < 64; cut += 9) {
    auto history = prompt + h.run(session, prompt, asking(900)).tokens;
    history.resize(history.size() - 1 - static_cast<size_t>(cut));
    auto request = h.engine->submit_history(session, history + tokens_from(9, 1), asking(1));
    REQUIRE(request.ok());
    h.drain();
    INFO("cut " << cut);
    CHECK(h.replies[request.value()].counts.cached_tokens == static_cast<int32_t>(history.size()));
    CHECK(h.replies[request.value()].tokens == h.reference(history + tokens_from(9, 1), 1));
    REQUIRE(h.engine->truncate_session(session, 0).ok());
  }
}

TEST_CASE("a cut whose window was evicted computes the window again and does not write global blocks") {
  ExecutorInfo info = small_facts();
  info.block_count[1] = 10;  // no room for windows that no resume point needs
  Harness h(info);
  const SessionId session = h.session();
  const auto prompt = tokens_from(1, 1500);
  h.run(session, prompt, asking(20));
  size_t rewrites = 0;
  h.executor->before_run = [&](const StepPlan& plan) {
    for (const Segment& segment : plan.segments) rewrites += segment.position < 448 && segment.write_from != 448;
    return Status();
  };
  const auto cut = std::vector<int32_t>(prompt.begin(), prompt.begin() + 500);
  auto request = h.engine->submit_history(session, cut + tokens_from(2, 7), asking(30));
  REQUIRE(request.ok());
  h.drain();
  CHECK(rewrites == 0);
  CHECK(h.replies[request.value()].counts.cached_tokens == 0);
  CHECK(h.replies[request.value()].tokens == h.reference(cut + tokens_from(2, 7), 30));
}

TEST_CASE("a history may be replaced: the longest common prefix is kept") {
  Harness h;
  const SessionId session = h.session();
  const auto a = tokens_from(1, 200), b = tokens_from(2, 50);
  h.run(session, a + b, asking(5));
  REQUIRE(h.engine->set_session_tokens(session, a + tokens_from(3, 9)).ok());
  const Reply& reply = h.run(session, tokens_from(4, 3), asking(20));
  CHECK(reply.counts.cached_tokens == 200);
  CHECK(reply.tokens == h.reference(a + tokens_from(3, 9) + tokens_from(4, 3), 20));
}

TEST_CASE("a fork never changes its parent, nor the parent its fork") {
  for (const size_t length : {1u, 63u, 64u, 65u, 200u, 270u}) {
    Harness h;
    const SessionId parent = h.session();
    const auto prompt = tokens_from(1, 250);
    const auto history = prompt + h.run(parent, prompt, asking(20)).tokens;
    const SessionId child = h.engine->fork_session(parent, length).value();
    const SessionId twin = h.engine->fork_session(parent, length).value();
    const auto start = std::vector<int32_t>(history.begin(), history.begin() + static_cast<std::ptrdiff_t>(length));
    const RequestId a = h.submit(parent, tokens_from(2, 40), asking(90));
    const RequestId b = h.submit(child, tokens_from(3, 30), asking(90));
    const RequestId c = h.submit(twin, tokens_from(4, 1), asking(90));
    h.drain();
    INFO("length " << length);
    CHECK(h.replies[a].tokens == h.reference(history + tokens_from(2, 40), 90));
    CHECK(h.replies[b].tokens == h.reference(start + tokens_from(3, 30), 90));
    CHECK(h.replies[c].tokens == h.reference(start + tokens_from(4, 1), 90));
    CHECK(h.replies[b].counts.cached_tokens >= static_cast<int32_t>(std::min<size_t>(length, 269)));
  }
}

TEST_CASE("window blocks are released as the window moves on") {
  ExecutorInfo info = small_facts();
  info.slot_count = 1;
  info.block_count[1] = 16;
  Harness h(info);
  const SessionId session = h.session();
  h.submit(session, tokens_from(1, 1200), asking(600));
  int32_t most = 0;
  while (h.engine->pending() > 0) {
    h.step();
    most = std::max(most, h.used(BlockKind::kWindow));
  }
  // 128 of window, 64 behind it, 96 of chunk, the edges; and as much again, with 256 tokens more, for the turn's
  // beginning.
  CHECK(most <= 16);
  CHECK(h.used(BlockKind::kGlobal) == (1799 + 63) / 64);
}

TEST_CASE("destroyed sessions leave no block behind") {
  Harness h;
  for (uint64_t i = 0; i < 20; ++i) {
    const SessionId session = h.session();
    h.run(session, tokens_from(i, 100 + i), asking(10));
    const SessionId child = h.engine->fork_session(session, 50).value();
    h.run(child, tokens_from(i + 100, 5), asking(10));
    CHECK(h.engine->destroy_session(session).ok());
    CHECK(h.engine->destroy_session(child).ok());
    CHECK(h.engine->destroy_session(child).code() == StatusCode::kNotFound);
  }
  h.step();
  CHECK(h.used(BlockKind::kGlobal) == 0);
  CHECK(h.used(BlockKind::kWindow) == 0);
}

TEST_CASE("max_tokens 0 computes a prompt ahead") {
  Harness h;
  const SessionId session = h.session();
  const auto prompt = tokens_from(1, 300);
  const Reply& ahead = h.run(session, prompt, asking(0));
  CHECK(ahead.done);
  CHECK(ahead.reason == DoneReason::kLength);
  CHECK(ahead.tokens.empty());
  const Reply& reply = h.run(session, {}, asking(10));
  CHECK(reply.counts.cached_tokens == 299);
  CHECK(reply.tokens == h.reference(prompt, 10));
}

TEST_CASE("the repetition penalty sees tokens that came from the cache") {
  Harness h;
  const SessionId session = h.session();
  RequestOptions options = asking(60);
  options.sampling.repetition_penalty = 1.1;
  auto history = tokens_from(1, 120);
  history = history + h.run(session, history, options).tokens;
  CHECK(h.run(session, tokens_from(2, 3), options).tokens == h.reference(history + tokens_from(2, 3), 60, options));
}
