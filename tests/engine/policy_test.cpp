// Who is served when, and how a request ends early: priorities, deadlines, cancel and suspend in every state, queues
// that stay bounded.
#include <functional>

#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::test;

namespace {

using std::chrono::seconds;

// A clock the test turns by hand.
struct HandClock {
  Clock::time_point time = Clock::time_point(seconds(1000));
  EngineOptions options(EngineOptions base = {}) {
    base.clock = [this] { return time; };
    return base;
  }
};

std::vector<int32_t> first_of(const std::vector<int32_t>& tokens, size_t count) {
  return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(std::min(count, tokens.size()))};
}

// Where a request can be when something happens to it.
enum class State { kInbox, kWaiting, kPrefill, kDecode, kSuspended, kSuspendedWaiting, kPlanWaits };
constexpr State kStates[] = {State::kInbox,     State::kWaiting,          State::kPrefill,  State::kDecode,
                             State::kSuspended, State::kSuspendedWaiting, State::kPlanWaits};

// One slot, so that a second request waits behind the first.
struct Stage {
  explicit Stage(State state) : h(info(), clock.options()), prompt(tokens_from(1, 250)) {
    session = h.session();
    const bool waits = state == State::kWaiting || state == State::kSuspendedWaiting;
    if (waits) front = h.submit(h.session(), tokens_from(2, 30), asking(40));
    if (waits) h.step();
    RequestOptions options = asking(20);
    options.deadline = clock.time + seconds(10);
    options.sampling.temperature = 1;
    options.sampling.repetition_penalty = 1.1;
    request = h.submit(session, prompt, options);
    expected = h.reference(prompt, 20, options);
    switch (state) {
      case State::kInbox:
        break;
      case State::kWaiting:
      case State::kPrefill:
        h.step();
        break;
      case State::kDecode:
        for (int i = 0; i < 7; ++i) h.step();
        break;
      case State::kSuspended:
        for (int i = 0; i < 6; ++i) h.step();
        [[fallthrough]];
      case State::kSuspendedWaiting:
        REQUIRE(h.engine->suspend(request).ok());
        h.step();
        REQUIRE(h.replies[request].suspended == 1);
        break;
      case State::kPlanWaits:
        for (int i = 0; i < 5; ++i) h.step();
        h.executor->before_run = [](const StepPlan&) { return Status(StatusCode::kBusy, "later"); };
        REQUIRE(h.engine->step().code() == StatusCode::kBusy);
        break;
    }
  }
  static ExecutorInfo info() {
    ExecutorInfo info = small_facts();
    info.slot_count = 1;
    return info;
  }
  // Every step is tried; an executor that is busy is no matter.
  void step() {
    const Status status = h.engine->step();
    REQUIRE((status.ok() || status.message() == "later"));
    REQUIRE(h.engine->check_ledger().ok());
    h.check();
    h.collect();
  }
  // The request is over, its session goes on from what it has, and nothing else has noticed.
  void check_ended(DoneReason reason) {
    const Reply& reply = h.replies[request];
    REQUIRE(reply.done);
    CHECK(reply.reason == reason);
    CHECK(reply.tokens == first_of(expected, reply.tokens.size()));
    CHECK(h.engine->session_tokens(session).value() == prompt + reply.tokens);
    h.executor->before_run = nullptr;
    const auto history = prompt + reply.tokens;
    const Reply next = h.run(session, {9}, asking(5));
    CHECK(next.tokens == h.reference(history + std::vector<int32_t>{9}, 5));
    if (front) CHECK(h.replies[front].tokens == h.reference(tokens_from(2, 30), 40));
    CHECK(h.engine->metrics().requests_suspended == 0);
  }

  HandClock clock;
  Harness h;
  std::vector<int32_t> prompt, expected;
  SessionId session = 0;
  RequestId request = 0, front = 0;
};

}  // namespace

TEST_CASE(
    "when many requests end or are suspended in one step, each gets its event in order and the others go on "
    "unchanged") {
  for (const bool beside_host : {false, true}) {
    INFO("beside the host: " << beside_host);
    constexpr size_t kCount = 60;
    ExecutorInfo info = small_facts();
    info.slot_count = kCount;
    info.step_tokens = 256;
    info.block_count[0] = info.block_count[1] = 2 * kCount;
    Harness h(info);
    h.executor->beside_host = beside_host;
    std::vector<SessionId> sessions;
    std::vector<RequestId> requests;
    const auto prompt = [](size_t i) { return tokens_from(i, 3); };
    const auto length = [](size_t i) {
      return i % 5 == 0 ? 4 : 9 + static_cast<int32_t>(i % 2);
    };  // all of them begin in one step
    for (size_t i = 0; i < kCount; ++i) {
      sessions.push_back(h.session());
      requests.push_back(h.submit(sessions[i], prompt(i), asking(length(i))));
    }
    for (int step = 0; step < 3; ++step) h.step();
    std::vector<RequestId> expected;
    for (size_t i = kCount; i-- > 0;) {
      if (i % 5 == 1) CHECK(h.engine->cancel(requests[i]).ok());
      if (i % 5 == 2) CHECK(h.engine->suspend(requests[i]).ok());
      if (i % 5 == 1) expected.push_back(requests[i]);
    }
    for (size_t i = 3; i < kCount; i += 5) {
      CHECK(h.engine->destroy_session(sessions[i]).ok());
      expected.push_back(requests[i]);
    }
    for (size_t i = 0; i < kCount; i += 5) expected.push_back(requests[i]);  // their last token
    CHECK(h.engine->step().ok());
    h.check();
    std::vector<RequestId> ended;
    for (Event event; h.engine->poll(event);) {
      Reply& reply = h.replies[event.request];
      if (event.kind == EventKind::kToken) reply.tokens.push_back(event.token);
      if (event.kind == EventKind::kDone) ended.push_back(event.request);
    }
    CHECK(ended == expected);
    CHECK(h.engine->metrics().requests_done == expected.size());

    h.step();
    CHECK(h.engine->metrics().requests_running == kCount / 5);
    CHECK(h.engine->metrics().requests_suspended == kCount / 5);
    for (size_t i = 2; i < kCount; i += 5) CHECK(h.engine->resume(requests[i]).ok());
    h.drain();
    for (size_t i = 0; i < kCount; ++i)
      if (i % 5 != 1 && i % 5 != 3) CHECK(h.replies[requests[i]].tokens == h.reference(prompt(i), length(i)));
  }
}

TEST_CASE("a cancel takes effect at the next step in every state") {
  for (const State state : kStates) {
    INFO("state " << static_cast<int>(state));
    Stage stage(state);
    REQUIRE(stage.h.engine->cancel(stage.request).ok());
    stage.step();
    stage.check_ended(DoneReason::kCancelled);
  }
}

TEST_CASE("a deadline ends a request at the first step that finds it over, in every state") {
  for (const State state : kStates) {
    INFO("state " << static_cast<int>(state));
    Stage stage(state);
    stage.clock.time += seconds(10) - std::chrono::nanoseconds(1);
    stage.step();
    REQUIRE_FALSE(stage.h.replies[stage.request].done);
    stage.clock.time += std::chrono::nanoseconds(1);
    stage.step();
    stage.check_ended(DoneReason::kDeadline);
  }
}

TEST_CASE("wait returns when the deadline of a suspended request passes") {
  HandClock clock;
  std::chrono::nanoseconds pace{0};
  EngineOptions options;
  options.clock = [&] { return clock.time += pace; };
  Harness h(small_facts(), options);
  RequestOptions asked = asking(20);
  asked.deadline = clock.time + seconds(10);
  const RequestId request = h.submit(h.session(), tokens_from(1, 30), asked);
  h.step();
  REQUIRE(h.engine->suspend(request).ok());
  h.step();
  CHECK_FALSE(h.engine->wait(std::chrono::nanoseconds(0)));
  CHECK_FALSE(h.engine->wait(std::chrono::milliseconds(3)));
  SECTION("one that has passed already") { clock.time += seconds(10); }
  SECTION("one that passes meanwhile") {
    clock.time += seconds(10) - std::chrono::milliseconds(5);
    pace = std::chrono::milliseconds(1);  // a look at this clock takes a while
  }
  CHECK(h.engine->wait(seconds(20)));
  h.step();
  CHECK(h.replies[request].reason == DoneReason::kDeadline);
  CHECK_FALSE(h.engine->wait(std::chrono::milliseconds(1)));
}

TEST_CASE("a request suspended in any state goes on where it was") {
  for (const State state : kStates) {
    INFO("state " << static_cast<int>(state));
    Stage stage(state);
    REQUIRE(stage.h.engine->suspend(stage.request).ok());
    stage.step();
    CHECK(stage.h.replies[stage.request].suspended == 1);
    CHECK((state == State::kPlanWaits || stage.h.engine->metrics().requests_suspended == 1));
    const auto so_far = stage.h.replies[stage.request].tokens;
    for (int i = 0; i < 5; ++i) stage.step();
    CHECK(stage.h.replies[stage.request].tokens == so_far);
    CHECK(stage.h.engine->submit(stage.session, std::vector<int32_t>{1}, {}).status().code() == StatusCode::kBusy);
    stage.h.executor->before_run = nullptr;
    REQUIRE(stage.h.engine->resume(stage.request).ok());
    REQUIRE(stage.h.engine->resume(stage.request).ok());
    stage.h.drain();
    const Reply& reply = stage.h.replies[stage.request];
    CHECK(reply.tokens == stage.expected);
    CHECK(reply.resumed == 1);
    CHECK(reply.counts.prompt_tokens == 250);
    CHECK(reply.counts.generated == 20);
    CHECK(reply.counts.cached_tokens == 0);
    stage.check_ended(DoneReason::kLength);
  }
}

TEST_CASE("an executor that fails for good ends a request in every state") {
  for (const State state : kStates) {
    INFO("state " << static_cast<int>(state));
    Stage stage(state);
    stage.h.executor->before_run = [](const StepPlan&) { return Status(StatusCode::kDeviceLost, "gone"); };
    if (state == State::kSuspended) stage.h.submit(stage.h.session(), {1}, asking(1));  // something to fail at
    CHECK(stage.h.engine->step().code() == StatusCode::kDeviceLost);
    stage.h.collect();
    CHECK(stage.h.replies[stage.request].failed);
    CHECK(stage.h.engine->session_tokens(stage.session).value().empty());
    CHECK(stage.h.engine->pending() == 0);
    CHECK(stage.h.engine->suspend(stage.request).code() == StatusCode::kDeviceLost);
    CHECK(stage.h.engine->resume(stage.request).code() == StatusCode::kDeviceLost);
  }
}

TEST_CASE("a suspended request whose KV made room for others computes it again and draws the same tokens") {
  ExecutorInfo info = small_facts();
  info.block_count[0] = 12;
  info.window = 0;
  Harness h(info);
  RequestOptions options = asking(60);
  options.sampling.repetition_penalty = 1.3;
  options.sampling.temperature = 1;
  const auto prompt = tokens_from(1, 300);
  const RequestId request = h.submit(h.session(), prompt, options);
  for (int i = 0; i < 30; ++i) h.step();
  REQUIRE(h.engine->suspend(request).ok());
  const RequestId other = h.submit(h.session(), tokens_from(2, 600), asking(10));
  while (!h.replies[other].done) h.step();
  CHECK(h.replies[other].tokens == h.reference(tokens_from(2, 600), 10));
  CHECK(h.replies[request].suspended == 1);
  REQUIRE(h.engine->resume(request).ok());
  h.drain();
  CHECK(h.replies[request].tokens == h.reference(prompt, 60, options));
  CHECK(h.engine->metrics().tokens_prefilled > 300 + 600);  // some of it twice
}

TEST_CASE("the latest of cancel, suspend and resume counts, and the inbox holds one command of each request") {
  Harness h;
  const auto prompt = tokens_from(1, 100);
  const RequestId request = h.submit(h.session(), prompt, asking(10));
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(h.engine->suspend(request).ok());
    REQUIRE(h.engine->resume(request).ok());
    REQUIRE(h.engine->suspend(12345).ok());
  }
  h.drain();
  CHECK(h.replies[request].tokens == h.reference(prompt, 10));
  CHECK(h.replies[request].suspended == 0);
}

TEST_CASE("higher priorities are admitted first and prefilled first, equal ones in order of arrival") {
  ExecutorInfo info = small_facts();
  info.slot_count = 2;
  Harness h(info);
  RequestOptions low = asking(1), high = asking(1);
  low.priority = -3;
  high.priority = 7;
  std::vector<RequestId> order;
  std::vector<RequestId> requests;
  for (const RequestOptions& options : {low, asking(1), high, low, asking(1), high})
    requests.push_back(h.submit(h.session(), tokens_from(requests.size(), 300), options));
  while (h.engine->pending() > 0) {
    h.step();
    for (const auto& [id, reply] : h.replies)
      if (reply.done && std::count(order.begin(), order.end(), id) == 0) order.push_back(id);
  }
  CHECK(order == std::vector<RequestId>{requests[2], requests[5], requests[1], requests[4], requests[0], requests[3]});
}

TEST_CASE("a suspended request resumes at its old place in the order of service") {
  ExecutorInfo info = small_facts();
  info.slot_count = 1;
  Harness h(info);
  const RequestId front = h.submit(h.session(), tokens_from(1, 20), asking(12));
  const RequestId first = h.submit(h.session(), tokens_from(2, 20), asking(2));
  const RequestId second = h.submit(h.session(), tokens_from(3, 20), asking(2));
  h.step();
  REQUIRE(h.engine->suspend(first).ok());
  h.step();
  REQUIRE(h.engine->resume(first).ok());
  while (!h.replies[front].done) h.step();
  while (!h.replies[first].done) {
    CHECK(h.replies[second].tokens.empty());
    h.step();
  }
  h.drain();
}

// What a tenant has computed before changes what its request costs, and never whose turn it is: a small need that would
// fit at once, because nearly all of it is cached, waits behind a large one like any other.
TEST_CASE("the order of service does not depend on what another tenant has cached") {
  std::vector<std::vector<RequestId>> orders;
  for (const bool cached : {false, true}) {
    ExecutorInfo info = small_facts();
    info.block_count[0] = 24;
    info.window = 0;
    Harness h(info);
    const auto shared = tokens_from(9, 500);
    const SessionId warm = h.session();
    if (cached) h.run(warm, shared, asking(1));
    const RequestId base = h.submit(h.session(), tokens_from(1, 600), asking(120));  // 12 of 24 blocks
    h.step();
    std::vector<RequestId> requests = {
        h.submit(h.session(), tokens_from(2, 900), asking(20))};  // 15: must wait for the first
    auto own = h.engine->submit_history(warm, shared + std::vector<int32_t>{5}, asking(10));
    REQUIRE(own.ok());
    requests.push_back(own.value());
    requests.push_back(h.submit(h.session(), tokens_from(3, 10), asking(10)));
    std::vector<RequestId> order;
    while (h.engine->pending() > 0) {
      h.step();
      for (size_t i = 0; i < requests.size(); ++i)
        if (!h.replies[requests[i]].tokens.empty() && std::count(order.begin(), order.end(), i) == 0)
          order.push_back(i);
      if (!h.replies[base].done) CHECK(order.empty());
    }
    orders.push_back(order);
  }
  CHECK(orders[0] == std::vector<RequestId>{0, 1, 2});
  CHECK(orders[0] == orders[1]);
}

TEST_CASE("a host that never polls is refused steps, with the number, and loses nothing") {
  HandClock clock;
  EngineOptions options = clock.options();
  options.max_events = 50;
  options.max_waiting = 10;
  Harness h(small_facts(), options);
  std::vector<RequestId> requests;
  std::vector<SessionId> sessions;
  for (int i = 0; i < 20; ++i) sessions.push_back(h.session());
  Status stepped;
  int refused = 0;
  for (int i = 0; i < 500; ++i) {
    const auto request = h.engine->submit(sessions[static_cast<size_t>(i) % 20], tokens_from(1, 5), asking(40));
    if (request.ok())
      requests.push_back(request.value());
    else
      ++refused;
    stepped = h.engine->step();
  }
  CHECK(stepped.code() == StatusCode::kBusy);
  CHECK(stepped.message().find("max_events is 50") != std::string::npos);
  CHECK(refused > 400);
  CHECK(requests.size() <= 10 + 4 + 4);
  size_t events = 0;
  for (Event event; h.engine->poll(event);) {
    ++events;
    h.replies[event.request].tokens.push_back(event.token);
  }
  CHECK(events <= 50 + 8);
  CHECK(h.engine->status().ok());
  for (auto& [id, reply] : h.replies) reply = {};
  while (h.engine->pending() > 0) {
    h.step();
    h.collect();
  }
  for (const RequestId request : requests) CHECK(h.replies[request].done);
}

TEST_CASE("a full waiting list refuses with its numbers, the suspended ones among them") {
  EngineOptions options;
  options.max_waiting = 3;
  options.max_running = 1;
  Harness h(small_facts(), options);
  std::vector<RequestId> requests = {h.submit(h.session(), {1}, asking(50))};
  h.step();
  for (int i = 0; i < 3; ++i) requests.push_back(h.submit(h.session(), {2}, asking(2)));
  for (const RequestId request : requests) REQUIRE(h.engine->suspend(request).ok());
  h.step();
  CHECK(h.engine->metrics().requests_suspended == 4);
  const Status refused = h.engine->submit(h.session(), std::vector<int32_t>{3}, {}).status();
  CHECK(refused.code() == StatusCode::kBusy);
  CHECK(refused.message() ==
        "4 requests are waiting or suspended (max_waiting is 3) and 0 are running: try again later");
  for (const RequestId request : requests) REQUIRE(h.engine->resume(request).ok());
  h.drain();
}

TEST_CASE("timings are measured on the host's clock") {
  HandClock clock;
  Harness h(small_facts(), clock.options());
  const RequestId request = h.submit(h.session(), tokens_from(1, 150), asking(3));
  clock.time += seconds(5);
  h.step();
  clock.time += seconds(7);
  h.step();
  clock.time += seconds(2);
  h.drain();
  const RequestTiming timing = h.replies[request].timing;
  CHECK(timing.wait_ns == 5'000'000'000);
  CHECK(timing.prefill_ns == 7'000'000'000);
  CHECK(timing.decode_ns == 2'000'000'000);
}

TEST_CASE(
    "memory reserved in parts lets more requests run; a request that finds none is suspended and resumes by itself") {
  ExecutorInfo info = small_facts();
  info.block_count[0] = 20;
  info.window = 0;
  for (const int32_t reserve : {0, 40}) {
    EngineOptions options;
    options.reserve_tokens = reserve;
    Harness h(info, options);
    std::vector<RequestId> requests;
    for (uint64_t i = 0; i < 4; ++i)
      requests.push_back(h.submit(h.session(), tokens_from(i, 100), asking(500)));  // 10 blocks each
    for (int i = 0; i < 10; ++i) h.step();
    CHECK(h.engine->metrics().requests_running == (reserve ? 4 : 2));
    // The first in the order of service gets what later ones leave when their part is used up.
    while (!h.replies[requests[0]].done) h.step();
    for (size_t i = 1; i < 4; ++i) CHECK((reserve == 0 || !h.replies[requests[i]].done));
    h.drain();
    int suspended = 0;
    for (uint64_t i = 0; i < 4; ++i) {
      const Reply& reply = h.replies[requests[i]];
      CHECK(reply.tokens == h.reference(tokens_from(i, 100), 500));
      CHECK(reply.suspended == reply.resumed);
      CHECK(reply.counts.cached_tokens == 0);
      suspended += reply.suspended;
    }
    CHECK((suspended > 0) == (reserve > 0));
  }
}

TEST_CASE("a reply computed in many parts can still be swiped from its first token") {
  EngineOptions options;
  options.reserve_tokens = 8;
  Harness h(small_facts(), options);
  const SessionId session = h.session();
  const auto prompt = tokens_from(1, 700);
  h.run(session, prompt, asking(900));
  const auto again = h.engine->submit_history(session, prompt, asking(5));
  REQUIRE(again.ok());
  h.drain();
  CHECK(h.replies[again.value()].counts.cached_tokens == 699);
}
