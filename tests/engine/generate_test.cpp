// Generate beside everything else that uses the engine: others' events stay for poll, its own never get there, and
// threads that generate at once share the stepping.
#include <atomic>
#include <stdexcept>
#include <thread>

#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::test;

namespace {

// One request of a session of its own, generated on the calling thread.
struct Generated {
  Status status;
  std::string text;
  Event done;
};
Generated generate(Engine& engine, const std::vector<int32_t>& prompt, const RequestOptions& options,
                   const std::function<bool()>& on_text = {}) {
  Generated out;
  const SessionId session = engine.create_session().value();
  out.status = engine.generate(
      session, prompt, options,
      [&](std::string_view text) {
        out.text += text;
        return !on_text || on_text();
      },
      out.done);
  return out;
}

// What the same request gives alone in an engine.
std::string text_alone(const std::vector<int32_t>& prompt, const RequestOptions& options) {
  Harness h;
  return h.run(h.session(), prompt, options).text;
}

}  // namespace

TEST_CASE("a request submitted while generate runs keeps its events for poll, in order") {
  Harness h;
  const RequestId before = h.submit(h.session(), tokens_from(1, 20), asking(30));
  std::vector<RequestId> others;
  const Generated mine = generate(*h.engine, tokens_from(2, 30), asking(40), [&] {
    if (others.size() < 3)
      others.push_back(
          h.submit(h.session(), tokens_from(10 + others.size(), 20), asking(5 + 40 * (others.size() % 2))));
    return true;
  });
  CHECK(mine.status.message() == "");
  CHECK(mine.done.reason == DoneReason::kLength);
  CHECK(mine.text == text_alone(tokens_from(2, 30), asking(40)));
  REQUIRE(others.size() == 3);
  CHECK(h.engine->pending() == 4);
  h.collect();  // everything that has been told so far, the ends of short requests included
  CHECK(h.replies.count(mine.done.request) == 0);
  CHECK(h.replies[before].done);
  h.drain();
  CHECK(h.replies[before].tokens == h.reference(tokens_from(1, 20), 30));
  for (size_t i = 0; i < others.size(); ++i) {
    CHECK(h.replies[others[i]].done);
    CHECK(h.replies[others[i]].tokens == h.reference(tokens_from(10 + i, 20), 5 + 40 * (i % 2)));
  }
  CHECK(h.replies.count(mine.done.request) == 0);
}

TEST_CASE("generate may be called from generate's callback, with another session") {
  Harness h;
  const SessionId outer_session = h.session();
  Generated inner, innermost;
  Event done;
  std::string text;
  bool again = false;
  const Status status = h.engine->generate(
      outer_session, tokens_from(1, 20), asking(12),
      [&](std::string_view piece) {
        text += piece;
        if (inner.done.kind != EventKind::kNone) return true;
        Event none;  // the session has a request already
        again = h.engine->generate(outer_session, tokens_from(9, 3), asking(2), {}, none).code() == StatusCode::kBusy;
        inner = generate(*h.engine, tokens_from(2, 25), asking(30), [&] {
          if (innermost.done.kind == EventKind::kNone) innermost = generate(*h.engine, tokens_from(3, 10), asking(8));
          return true;
        });
        return true;
      },
      done);
  CHECK(status.message() == "");
  CHECK(text == text_alone(tokens_from(1, 20), asking(12)));
  CHECK(inner.text == text_alone(tokens_from(2, 25), asking(30)));
  CHECK(innermost.text == text_alone(tokens_from(3, 10), asking(8)));
  CHECK(again);
  CHECK(h.engine->pending() == 0);
  Event event;
  CHECK_FALSE(h.engine->poll(event));
}

TEST_CASE("threads inside generate at once, beside one that steps and polls, each get their own events") {
  for (const bool beside_host : {false, true}) {
    INFO("executor beside the host " << beside_host);
    Harness h;
    h.executor->beside_host = beside_host;
    constexpr size_t kThreads = 4, kTurns = 6;
    std::vector<Generated> mine(kThreads * kTurns);
    std::atomic<size_t> generating{kThreads};
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        for (size_t i = t * kTurns; i < (t + 1) * kTurns; ++i)
          mine[i] = generate(*h.engine, tokens_from(i, 10 + 7 * i), asking(static_cast<int32_t>(5 + i)));
        --generating;
      });
    std::vector<RequestId> others;
    while (generating > 0 || others.size() < 10 || h.engine->pending() > 0) {
      if (others.size() < 10) others.push_back(h.submit(h.session(), tokens_from(100 + others.size(), 30), asking(20)));
      h.engine->wait(std::chrono::milliseconds(20));
      const Status status = h.engine->step();
      if (!status.ok() && status.code() != StatusCode::kBusy) FAIL(status.message());
      h.collect();
    }
    for (std::thread& thread : threads) thread.join();
    h.check();
    for (size_t i = 0; i < mine.size(); ++i) {
      INFO("generated " << i << ": " << mine[i].status.message());
      CHECK(mine[i].done.reason == DoneReason::kLength);
      CHECK(mine[i].text == text_alone(tokens_from(i, 10 + 7 * i), asking(static_cast<int32_t>(5 + i))));
    }
    CHECK(h.replies.size() == others.size());
    for (size_t i = 0; i < others.size(); ++i)
      CHECK(h.replies[others[i]].tokens == h.reference(tokens_from(100 + i, 30), 20));
  }
}

TEST_CASE("a generate that returns early cancels its request") {
  Harness h;
  const RequestId other = h.submit(h.session(), tokens_from(1, 20), asking(30));
  SECTION("by an exception of its callback") {
    const SessionId session = h.session();
    Event done;
    CHECK_THROWS_AS(h.engine->generate(
                        session, tokens_from(2, 10), asking(1000),
                        [](std::string_view) -> bool { throw std::runtime_error("enough"); }, done),
                    std::runtime_error);
    CHECK(h.engine->pending() == 2);
    h.drain();
    CHECK(h.replies.size() == 1);
    CHECK(h.run(session, {5}, asking(3)).done);
  }
  SECTION("by a step that fails twice") {
    h.executor->before_run = [](const StepPlan&) { return Status(StatusCode::kBusy, "later"); };
    CHECK(generate(*h.engine, tokens_from(2, 10), asking(1000)).status.message() == "later");
    h.executor->before_run = nullptr;
    h.drain();
    CHECK(h.replies.size() == 1);
  }
  CHECK(h.replies[other].tokens == h.reference(tokens_from(1, 20), 30));
}

TEST_CASE("generate ends with an error when too many events of other requests are unread, and no event is lost") {
  EngineOptions options;
  options.max_events = 10;
  Harness h(small_facts(), options);
  const RequestId other = h.submit(h.session(), tokens_from(1, 20), asking(40));
  const Generated mine = generate(*h.engine, tokens_from(2, 10), asking(1000));
  CHECK(mine.status.code() == StatusCode::kBusy);
  CHECK(mine.status.message().find("10 events are unread") == 0);
  h.collect();
  h.drain();
  CHECK(h.replies.size() == 1);
  CHECK(h.replies[other].tokens == h.reference(tokens_from(1, 20), 40));
}

TEST_CASE("a generate whose request is suspended sleeps, and ends at its deadline") {
  Clock::time_point time(std::chrono::seconds(1000));
  EngineOptions options;
  options.clock = [&] { return time += std::chrono::milliseconds(1); };  // each look at it takes a while
  Harness h(small_facts(), options);
  const SessionId session = h.session();
  RequestOptions asked = asking(1000);
  asked.deadline = time + std::chrono::milliseconds(60);
  Event done;
  bool suspended = false;
  const Status status = h.engine->generate(
      session, tokens_from(1, 20), asked,
      [&](std::string_view) {
        return suspended = h.engine->suspend(h.engine->unfinished_request(session).value()).ok();
      },
      done);
  CHECK(status.message() == "");
  CHECK(suspended);
  CHECK(done.reason == DoneReason::kDeadline);
}

TEST_CASE("generate inside a save's callback is refused") {
  Harness h;
  const SessionId saved = h.session();
  h.run(saved, tokens_from(1, 20), asking(5));
  Status inside;
  CHECK(h.engine
            ->save_session(saved, {},
                           [&](std::span<const std::byte>) {
                             inside = generate(*h.engine, tokens_from(2, 10), asking(2)).status;
                             return Status();
                           })
            .ok());
  CHECK(inside.code() == StatusCode::kBusy);
  CHECK(h.engine->pending() == 0);
}

TEST_CASE("wait sleeps while another thread steps, until that is through") {
  Harness h;
  h.submit(h.session(), {1, 2}, asking(3));
  std::atomic<bool> inside{false}, go_on{false}, left{false}, early{false};
  h.executor->before_run = [&](const StepPlan&) {
    inside = true;
    while (!go_on) std::this_thread::yield();
    left = true;
    return Status();
  };
  std::thread driver([&] { (void)h.engine->step(); });
  while (!inside) std::this_thread::yield();
  std::thread waits([&] {
    if (!h.engine->wait(std::chrono::hours(1)) || !left) early = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  go_on = true;
  waits.join();
  driver.join();
  CHECK_FALSE(early);
  h.drain();
}
