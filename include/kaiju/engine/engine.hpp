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

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/engine/event.hpp"
#include "kaiju/engine/metrics.hpp"
#include "kaiju/engine/request.hpp"
#include "kaiju/step/executor.hpp"
#include "kaiju/text/pieces.hpp"

namespace kaiju {

struct EngineOptions {
  int32_t step_tokens = 0;     // most tokens a step computes; 0: what the executor allows
  int32_t chunk_tokens = 0;    // most prompt tokens of one request in a step; 0: step_tokens
  int32_t max_running = 0;     // requests computed at once; 0: the executor's slot_count
  int32_t max_waiting = 4096;  // a submit beyond is refused with kBusy
  int32_t max_sessions = 65536;
  bool check_ledger = false;   // recount every block after every step (tests)
};

class Engine {
 public:
  // Owns the executor. `pieces` may be null: then events carry no text and stop strings are refused.
  static Result<std::unique_ptr<Engine>> create(std::unique_ptr<Executor> executor, std::shared_ptr<const Pieces> pieces,
                                                const EngineOptions& options);

  // -- sessions: a token history whose KV is kept from turn to turn --
  // All but session_tokens and destroy_session want the session idle: kBusy while a request of it is unfinished. kNotFound for an unknown id.
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
  void cancel(RequestId request);

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
  const Facts& facts() const;
  // Recounts every block against every table; kInternal with the ledger when they differ. On the thread that steps.
  Status check_ledger() const;
};

}  // namespace kaiju
