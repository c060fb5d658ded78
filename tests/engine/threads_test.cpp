// Many threads at one engine: submit, cancel, wake, pending and metrics while one thread drives the loop.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::test;

TEST_CASE("ten threads submit while one drives, and each gets its tokens") {
  ExecutorInfo info = small_facts();
  info.slot_count = 8;
  Harness h(info);
  constexpr int kThreads = 10, kTurns = 12;
  std::atomic<int> writing{kThreads};
  std::atomic<int> finished{0};
  std::atomic<int> wrong{0};
  struct Job {
    std::vector<int32_t> prompt;
    int32_t count = 0;
    std::atomic<RequestId> request{0};
    bool cancelled = false;
  };
  std::vector<Job> jobs(kThreads * kTurns);

  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::vector<SessionId> sessions;
      for (int turn = 0; turn < kTurns; ++turn) {
        Job& job = jobs[static_cast<size_t>(t * kTurns + turn)];
        const uint64_t seed = static_cast<uint64_t>(t * 100 + turn);
        job.prompt = tokens_from(seed, 5 + seed % 150);
        job.count = static_cast<int32_t>(5 + seed % 20);
        job.cancelled = turn % 4 == 3;
        sessions.push_back(h.engine->create_session().value());
        RequestOptions options = asking(job.count);
        options.priority = t % 3;
        if (turn % 6 == 5) options.deadline = h.engine->now();
        const auto request = h.engine->submit(sessions.back(), job.prompt, options);
        if (!request.ok()) ++wrong;
        job.request = request.ok() ? request.value() : 0;
        if (job.cancelled && !h.engine->cancel(request.value()).ok()) ++wrong;
        if (h.engine->metrics().steps > 1000000 || h.engine->pending() > 1000) ++wrong;
        (void)h.engine->session_tokens(sessions.back());
        if (turn % 3 == 0) h.engine->wake();
        if (turn % 2 == 0 && !(h.engine->suspend(job.request).ok() && h.engine->resume(job.request).ok())) ++wrong;
        if (turn % 5 == 4) (void)h.engine->destroy_session(sessions[static_cast<size_t>(turn - 4)]);
      }
      --writing;
    });

  while (writing > 0 || h.engine->pending() > 0) {
    h.engine->wait(std::chrono::milliseconds(20));
    h.step();
  }
  for (std::thread& thread : threads) thread.join();
  h.drain();
  CHECK(wrong == 0);
  for (const Job& job : jobs) {
    const Reply& reply = h.replies[job.request];
    REQUIRE(reply.done);
    auto expected = h.reference(job.prompt, job.count);
    const bool whole = reply.reason == DoneReason::kLength;
    if (!whole) expected.resize(reply.tokens.size());
    CHECK(reply.tokens == expected);
    finished += whole;
  }
  CHECK(finished > kThreads * kTurns / 4);
}

TEST_CASE("nothing but step waits for a running step, and a second driver is refused") {
  Harness h;
  const SessionId a = h.session(), b = h.session();
  const RequestId request = h.submit(a, {1, 2}, asking(1));
  std::atomic<bool> inside{false}, go_on{false};
  h.executor->before_run = [&](const StepPlan&) {
    inside = true;
    while (!go_on) std::this_thread::yield();
    return Status();
  };
  bool stepped = false;  // Catch2 wants its macros on one thread
  std::thread driver([&] { stepped = h.engine->step().ok(); });
  while (!inside) std::this_thread::yield();
  // Each of these would hang here if it waited for the step.
  CHECK(h.engine->step().code() == StatusCode::kBusy);
  const auto second = h.engine->submit(b, std::vector<int32_t>{3}, asking(1));
  CHECK(second.ok());
  CHECK(h.engine->cancel(second.value()).ok());
  CHECK(h.engine->pending() == 2);
  CHECK(h.engine->metrics().requests_waiting >= 1);
  CHECK(h.engine->session_tokens(a).ok());
  CHECK(h.engine->create_session().ok());
  h.engine->wake();
  Event event;
  CHECK_FALSE(h.engine->poll(event));
  go_on = true;
  driver.join();
  CHECK(stepped);
  h.drain();
  CHECK(h.replies[request].tokens == h.reference({1, 2}, 1));
  CHECK(h.replies[second.value()].reason == DoneReason::kCancelled);
}
