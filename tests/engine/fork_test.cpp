// fork(): an engine is its maker's. A child is refused by every call and destroys nothing, whatever the parent's
// threads were doing at that moment; the parent notices nothing.
#include <atomic>
#include <chrono>
#include <thread>

#include "kaiju/engine/conversation.hpp"
#include "tests/child.hpp"
#include "tests/engine/harness.hpp"

using namespace kaiju;
using namespace kaiju::test;

namespace {

bool refused(const Status& status) {
  return status.code() == StatusCode::kInvalidArgument && status.message().find("forked") != std::string::npos;
}

// Every call of an engine, in a child.
void check_refused(Engine& engine, SessionId session, RequestId request, Promises& must) {
  must(refused(engine.check_process()));
  must(refused(engine.step()));
  must(refused(engine.submit(session, std::vector<int32_t>{1, 2}, asking(1)).status()));
  must(refused(engine.submit_history(session, std::vector<int32_t>{1, 2}, asking(1)).status()));
  must(refused(engine.cancel(request)));
  must(refused(engine.suspend(request)));
  must(refused(engine.resume(request)));
  must(refused(engine.create_session().status()));
  must(refused(engine.fork_session(session, 0).status()));
  must(refused(engine.truncate_session(session, 0)));
  must(refused(engine.set_session_tokens(session, std::vector<int32_t>{1})));
  must(refused(engine.session_tokens(session).status()));
  must(refused(engine.unfinished_request(session).status()));
  must(refused(engine.save_session(session, {}, [](std::span<const std::byte>) { return Status(); })));
  must(refused(engine.restore_session({}, [](std::span<std::byte>) { return Result<size_t>(0); }).status()));
  must(refused(engine.destroy_session(session)));
  must(refused(engine.status()));
  Event event;
  must(!engine.poll(event));
  must(!engine.wait(std::chrono::hours(1)));
  must(engine.pending() == 0);
  must(engine.metrics().steps == 0);
  engine.wake();
}

}  // namespace

TEST_CASE(
    "every call refuses a child of fork(), which may destroy its parent's engine; the parent's reply is the same") {
  Harness h;
  const auto prompt = tokens_from(1, 150);
  const SessionId session = h.session();
  const RequestId request = h.submit(session, prompt, asking(20));
  h.step();
  std::shared_ptr<Engine> engine = std::move(h.engine);
  std::optional<Conversation> talk = Conversation::create(engine, tokens_from(2, 10), {}).value();
  REQUIRE(talk->append(tokens_from(3, 4), tokens_from(4, 5)).ok());
  CHECK(in_child([&] {
          Promises must;
          check_refused(*engine, session, request, must);
          must(refused(talk->say(std::vector<int32_t>{1}, {}).status()));
          must(refused(talk->swipe({}).status()));
          must(refused(talk->append(std::vector<int32_t>{1}, std::vector<int32_t>{2})));
          must(refused(talk->choose(0)));
          must(refused(talk->edit(0, TurnPart::kReply, std::vector<int32_t>{1})));
          must(refused(talk->undo()));
          must(refused(talk->fork(1).status()));
          must(refused(talk->settle()));
          talk.reset();
          engine.reset();
          return must.broken;
        }) == 0);
  talk.reset();
  REQUIRE(engine.use_count() == 1);
  while (engine->pending() > 0) {
    REQUIRE(engine->step().ok());
    for (Event event; engine->poll(event);)
      if (event.kind == EventKind::kToken) h.replies[request].tokens.push_back(event.token);
  }
  h.check();
  CHECK(h.replies[request].tokens == h.reference(prompt, 20));
}

TEST_CASE("a child of fork() can destroy an engine in which a thread of its parent waits") {
  Harness h;
  std::thread host([&] { h.engine->wait(std::chrono::hours(1)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it waits
  CHECK(in_child([&] { return h.engine.reset(), 0; }) == 0);
  h.engine->wake();
  host.join();
}

TEST_CASE("a child forked within a step, or while other threads call the engine, does not wait for those threads") {
  Harness h;
  const SessionId session = h.session();
  int within = -2;
  h.executor->before_run = [&](const StepPlan&) {
    within = in_child([&] {
      Promises must;
      check_refused(*h.engine, session, 1, must);
      h.engine.reset();
      return must.broken;
    });
    return Status();
  };
  h.run(session, tokens_from(5, 30), asking(1));
  CHECK(within == 0);
  h.executor->before_run = {};

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // a child may find their allocators' locks held
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    while (!stop) {
      (void)h.engine->step();
      for (Event event; h.engine->poll(event);) continue;
    }
  });
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      while (!stop) {
        const SessionId own = h.engine->create_session().value();
        (void)h.engine->submit(own, std::vector<int32_t>{1, 2, 3}, asking(2));
        (void)h.engine->metrics();
        (void)h.engine->destroy_session(own);
      }
    });
  std::vector<int> broken;
  for (int i = 0; i < 40; ++i)
    broken.push_back(in_child([&] {
      Promises must;
      check_refused(*h.engine, session, 1, must);
      h.engine.reset();
      return must.broken;
    }));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(broken == std::vector<int>(40, 0));
#endif
}

TEST_CASE("an engine that a child of fork() creates replies as its parent's engine does") {
  Harness h;
  const auto prompt = tokens_from(6, 100);
  h.run(h.session(), prompt, asking(3));
  CHECK(in_child([&] {
          Harness own;
          return own.run(own.session(), prompt, asking(12)).tokens == own.reference(prompt, 12) ? 0 : 1;
        }) == 0);
}
