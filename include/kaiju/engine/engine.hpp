// Engine: many conversations, one executor, one loop that the host drives.
//
//   auto engine = Engine::create(std::move(executor), pieces, {});
//   SessionId chat = *engine->create_session();
//   engine->submit(chat, prompt, options);
//   while (engine->pending() > 0) {
//     engine->step();
//     for (Event event; engine->poll(event);) ...
//   }
//
// Threads: everything may be called from any thread. step wants one thread at a time (a second one gets kBusy). Nothing but step waits for
// a running step; wait waits for work. No thread of its own, no output, no exception.
// Errors: kDeviceLost and kInternal stop the engine: all its requests fail, and every later call answers with that error at once.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/engine/desk.hpp"
#include "kaiju/engine/event.hpp"
#include "kaiju/engine/metrics.hpp"
#include "kaiju/engine/request.hpp"
#include "kaiju/engine/scheduler.hpp"
#include "kaiju/step/executor.hpp"
#include "kaiju/text/pieces.hpp"

namespace kaiju {

struct EngineOptions {
  int32_t step_tokens = 0;     // most tokens a step computes; 0: what the executor allows
  int32_t chunk_tokens = 0;    // most prompt tokens of one request in a step; 0: step_tokens
  int32_t max_running = 0;     // requests computed at once; 0: the executor's slot_count
  int32_t max_waiting = 4096;  // a submit beyond is refused with kBusy
  int32_t max_sessions = 65536;
  CacheOptions cache;
  bool check_ledger = false;  // recount every block after every step (tests)
};

class Engine {
 public:
  // Owns the executor. `pieces` may be null: then events carry no text and stop strings are refused.
  static Result<std::unique_ptr<Engine>> create(std::unique_ptr<Executor> executor, std::shared_ptr<const Pieces> pieces,
                                                const EngineOptions& options);

  // -- sessions: a token history whose KV is kept from turn to turn --
  // All but session_tokens and destroy_session want the session idle: kBusy while a request of it is unfinished. kNotFound for an unknown
  // id.
  Result<SessionId> create_session();
  // A new session with the first `length` tokens of the parent; it shares their KV.
  Result<SessionId> fork_session(SessionId parent, size_t length);
  // Cuts the history. What is submitted next computes only what the cut made new.
  Status truncate_session(SessionId session, size_t length);
  // Replaces the history; the KV of the longest common prefix stays.
  Status set_session_tokens(SessionId session, std::span<const int32_t> tokens);
  // The history: after kDone the prompt and all generated tokens; while a request is unfinished, what it was before.
  Result<std::vector<int32_t>> session_tokens(SessionId session) const;
  // Gives the session up; an unfinished request of it is cancelled (its kDone still comes).
  Status destroy_session(SessionId session);

  // -- requests --
  // Appends tokens to the history (none: go on from it) and generates. One request per session at a time, else kBusy.
  // Refused here: bad options and token ids (kInvalidArgument, naming field and range), prompt + max_tokens beyond the context
  // (kInvalidArgument), more memory than the pools have (kOutOfMemory, with the numbers), too many waiting (kBusy).
  Result<RequestId> submit(SessionId session, std::span<const int32_t> tokens, const RequestOptions& options);
  // Same, with the whole new history instead of what to append; the KV of the longest common prefix is used.
  Result<RequestId> submit_history(SessionId session, std::span<const int32_t> history, const RequestOptions& options);
  // Takes effect at the next step, whatever the request's state; unknown and finished ids are ignored.
  Status cancel(RequestId request);

  // -- the loop --
  // Admits, plans, runs and commits one step. Ok with nothing to do. An error that is not final (kOutOfMemory, kBusy, kIo of the executor)
  // leaves everything as it was: the next call tries the same step again.
  Status step();
  // Moves the oldest event out; false when there is none.
  bool poll(Event& event);
  // Blocks until there is something to step or poll, wake is called, the engine has stopped, or the time is over. True if there is work.
  bool wait(std::chrono::nanoseconds timeout);
  void wake();
  // Requests whose last event has not been polled.
  size_t pending() const;
  Metrics metrics() const;
  // The error that stopped the engine, or ok.
  Status status() const;
  const Facts& facts() const;  // of the executor; constant
  // Recounts every block against every table; kInternal with the ledger when they differ. On the thread that steps.
  Status check_ledger() const { return scheduler_.check_ledger(); }
  // The block books, for tests and tools. On the thread that steps.
  const Tree& cache() const { return scheduler_.cache(); }

 private:
  Engine(std::unique_ptr<Executor> executor, std::shared_ptr<const Pieces> pieces, const EngineOptions& options,
         const SchedulerOptions& scheduling)
      : executor_(std::move(executor)), pieces_(std::move(pieces)), options_(options), scheduler_(executor_->facts(), scheduling) {
    metrics_from_scheduler();
    desk_.metrics = metrics_;
  }

  Result<RequestId> submit_tokens(SessionId session, std::span<const int32_t> tokens, bool whole, const RequestOptions& options);
  // A sequence checked but for its tokens.
  Result<std::unique_ptr<Sequence>> prepare(const RequestOptions& options) const;
  Status check_tokens(std::span<const int32_t> tokens) const;
  Status check_length(Sequence& sequence) const;

  Status step_once();
  void do_inbox();
  Status commit();
  void commit_token(Sequence& sequence, SampledToken& sampled, bool& done, DoneReason& reason);
  void end(std::unique_ptr<Sequence> sequence, DoneReason reason);
  void stop(const Status& error);
  Event event_of(const Sequence& sequence, EventKind kind) const;
  void metrics_from_scheduler();
  void publish(const Status& error = {}) {
    metrics_from_scheduler();
    desk_.publish(events_, endings_, metrics_, error);
  }

  // Runs a body that may allocate; shortage is an answer, not an exception.
  template <class Answer, class Body>
  static Answer guarded(Body body) noexcept {
    try {
      return body();
    } catch (const std::bad_alloc&) {
      return Answer(Status(StatusCode::kOutOfMemory, "out of memory"));  // short: no allocation
    } catch (...) {
      return Answer(Status(StatusCode::kInternal, "an exception"));
    }
  }
  // Finds an idle session under the desk's lock, or says why not.
  static Result<History*> idle_session(Desk& desk, SessionId session);

  std::unique_ptr<Executor> executor_;
  std::shared_ptr<const Pieces> pieces_;
  EngineOptions options_;
  Desk desk_;
  std::atomic<bool> stepping_{false};

  // Of the thread that steps.
  Scheduler scheduler_;
  StepPlan plan_;
  StepResult result_;
  bool plan_waits_ = false;  // planned, but the executor asked to try again
  std::vector<Command> commands_;
  std::vector<Event> events_;
  std::vector<Ending> endings_;
  Metrics metrics_;
};

}  // namespace kaiju

#include "kaiju/engine/engine_calls.hpp"
#include "kaiju/engine/engine_step.hpp"
