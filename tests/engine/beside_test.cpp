// Steps planned while the one before them runs.
#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::test;

namespace {

struct Beside : Harness {
  explicit Beside(EngineOptions options = {}) : Harness(small_facts(), options) { executor->beside_host = true; }
  // Runs of the executor when the host has `count` tokens.
  size_t runs_at(RequestId request, size_t count) {
    while (replies[request].tokens.size() < count) step();
    return executor->runs;
  }
};

std::vector<int32_t> ending_at(const std::vector<int32_t>& reply, size_t count) {
  return {reply.begin(), reply.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

TEST_CASE(
    "beside the host a decode step runs already when the events of the step before it are polled, and no step is run "
    "in vain") {
  Beside h;
  const RequestId a = h.submit(h.session(), tokens_from(1, 40), asking(200));
  const RequestId b = h.submit(h.session(), tokens_from(2, 50), asking(150));
  CHECK(h.runs_at(a, 1) == 1);  // behind a prompt nothing is planned ahead
  CHECK(h.runs_at(a, 2) == 3);
  CHECK(h.runs_at(a, 100) == 101);
  h.drain();
  CHECK(h.executor->runs == 200);
  CHECK(h.replies[a].tokens == h.reference(tokens_from(1, 40), 200));
  CHECK(h.replies[b].tokens == h.reference(tokens_from(2, 50), 150));
}

TEST_CASE("beside the host a decode step is started before the previous step has ended") {
  Beside h;
  h.submit(h.session(), tokens_from(1, 40), asking(20));
  h.drain();
  CHECK(h.executor->most_under_way == 2);
}

TEST_CASE("beside the host a stop token ends a reply, and the memory of the row computed too many is released") {
  Beside h;
  const std::vector<int32_t> prompt = tokens_from(3, 70);
  const std::vector<int32_t> whole = h.reference(prompt, 100);
  RequestOptions options = asking(100);
  options.stop_tokens = std::vector<int32_t>{whole[20]};
  const std::vector<int32_t> reply = h.reference(prompt, 100, options);
  const SessionId session = h.session();
  CHECK(h.run(session, prompt, options).tokens == reply);
  CHECK(h.executor->runs == reply.size() + 1);
  h.step();
  for (const BlockKind kind : kBothKinds) CHECK(h.count(kind, BlockState::kLive) == 0);
  const std::vector<int32_t> next = tokens_from(4, 30);
  CHECK(h.run(session, next, asking(30)).tokens == h.reference(prompt + reply + next, 30));
  CHECK(h.replies.rbegin()->second.counts.cached_tokens == static_cast<int32_t>(prompt.size() + reply.size()));
}

TEST_CASE("beside the host a request may begin, end, be suspended and resume at any step of other requests") {
  for (int steps = 1; steps < 70; ++steps) {
    INFO("after " << steps << " steps");
    Beside h;
    const std::vector<int32_t> prompts[] = {tokens_from(5, 30), tokens_from(6, 33), tokens_from(7, 90)};
    RequestId requests[3];
    for (int i = 0; i < 2; ++i) requests[i] = h.submit(h.session(), prompts[i], asking(90));
    for (int i = 0; i < steps; ++i) h.step();
    requests[2] = h.submit(h.session(), prompts[2], asking(60));
    REQUIRE(h.engine->suspend(requests[0]).ok());
    h.step();
    REQUIRE(h.engine->cancel(requests[1]).ok());
    REQUIRE(h.engine->resume(requests[0]).ok());
    h.drain();
    CHECK(h.replies[requests[0]].tokens == h.reference(prompts[0], 90));
    CHECK(h.replies[requests[0]].suspended == h.replies[requests[0]].resumed);
    CHECK(h.replies[requests[1]].reason == DoneReason::kCancelled);
    CHECK(h.replies[requests[1]].tokens ==
          ending_at(h.reference(prompts[1], 90), h.replies[requests[1]].tokens.size()));
    CHECK(h.replies[requests[2]].tokens == h.reference(prompts[2], 60));
  }
}

TEST_CASE("beside the host a session is saved, forked and destroyed while a step of other requests runs") {
  Beside h;
  const SessionId saved = h.session(), other = h.session();
  const std::vector<int32_t> prompt = tokens_from(8, 150);
  const RequestId a = h.submit(saved, prompt, asking(10)), b = h.submit(other, tokens_from(9, 40), asking(100));
  while (!h.replies[a].done) h.step();
  std::vector<std::byte> bytes;
  REQUIRE(h.engine
              ->save_session(saved, {},
                             [&](std::span<const std::byte> more) {
                               bytes.insert(bytes.end(), more.begin(), more.end());
                               return Status();
                             })
              .ok());
  h.check();
  h.collect();
  const SessionId child = h.engine->fork_session(saved, prompt.size()).value();
  REQUIRE(h.engine->destroy_session(saved).ok());
  const RequestId c = h.submit(child, tokens_from(10, 3), asking(20));
  h.drain();
  CHECK(h.replies[b].tokens == h.reference(tokens_from(9, 40), 100));
  CHECK(h.replies[c].tokens == h.reference(prompt + tokens_from(10, 3), 20));
  CHECK(h.replies[c].counts.cached_tokens >= 128);
}

TEST_CASE(
    "a step planned ahead that the executor cannot run yet is tried again, and the step before it gives its events") {
  Beside h;
  const RequestId a = h.submit(h.session(), tokens_from(11, 40), asking(50));
  h.runs_at(a, 10);
  int refusals = 3;
  h.executor->before_run = [&](const StepPlan&) {
    return refusals-- > 0 ? Status(StatusCode::kBusy, "not now") : Status();
  };
  h.step();  // what was under way is told of; the next is refused
  CHECK(h.replies[a].tokens.size() == 11);
  CHECK(h.engine->step().code() == StatusCode::kBusy);
  CHECK(h.engine->step().code() == StatusCode::kBusy);
  h.drain();
  CHECK(h.replies[a].tokens == h.reference(tokens_from(11, 40), 50));
}

TEST_CASE("a device lost in a step planned ahead fails every request") {
  Beside h;
  const RequestId a = h.submit(h.session(), tokens_from(12, 40), asking(50));
  h.runs_at(a, 10);
  h.executor->before_run = [](const StepPlan&) { return Status(StatusCode::kDeviceLost, "gone"); };
  CHECK(h.engine->step().code() == StatusCode::kDeviceLost);
  h.collect();
  CHECK(h.replies[a].failed);
  CHECK(h.engine->step().code() == StatusCode::kDeviceLost);
}

TEST_CASE("beside the host a step that a save cannot end yet does not stop the engine") {
  Beside h;
  const SessionId idle = h.session();
  h.run(idle, tokens_from(1, 40), asking(2));
  const RequestId request = h.submit(h.session(), tokens_from(2, 40), asking(50));
  h.runs_at(request, 5);
  h.executor->before_finish = [] { return Status(StatusCode::kBusy, "later"); };
  CHECK(h.engine->save_session(idle, {}, [](std::span<const std::byte>) { return Status(); }).message() == "later");
  CHECK(h.engine->status().ok());
}

TEST_CASE(
    "beside the host a request that has ended frees no place among the waiting until its last planned row has run") {
  EngineOptions options;
  options.max_running = 2;
  options.max_waiting = 1;
  Beside h(options);
  const std::vector<int32_t> prompt = tokens_from(3, 70), whole = h.reference(prompt, 100);
  RequestOptions ends = asking(100);
  ends.stop_tokens = std::vector<int32_t>{whole[20]};
  const RequestId first = h.submit(h.session(), prompt, ends);
  h.step();
  h.submit(h.session(), tokens_from(2, 10), asking(100));
  h.step();
  h.submit(h.session(), tokens_from(4, 10), asking(100));
  const SessionId more = h.session();
  while (!h.replies[first].done) h.step();
  CHECK(h.engine->metrics().requests_running == 1);
  CHECK(h.engine->metrics().requests_waiting == 1);
  CHECK(h.engine->submit(more, prompt, ends).status().code() == StatusCode::kBusy);
  h.drain();
}
