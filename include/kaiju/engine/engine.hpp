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
// Threads: everything may be called from any thread. step wants one thread at a time (a second one gets kBusy). Nothing
// waits for a running step but generate, and wait while there is nothing to poll. No thread of its own, no output, no
// exception but those of a host's own callback in generate. Errors:
// kDeviceLost and kInternal stop the engine: all its requests fail, and every later call answers with that error at
// once.
//
// fork(): an engine belongs to the process that made it. In a child every call that returns a Status or a Result
// answers kInvalidArgument, whatever the parent's threads were doing; poll and wait answer false, pending and metrics
// nothing. There `delete` leaves the engine as it is, executor and all: the memory goes with the child. One may be made
// there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "kaiju/base/function.hpp"
#include "kaiju/base/status.hpp"
#include "kaiju/base/time.hpp"
#include "kaiju/cache/options.hpp"
#include "kaiju/engine/event.hpp"
#include "kaiju/engine/metrics.hpp"
#include "kaiju/engine/request.hpp"
#include "kaiju/engine/save_options.hpp"
#include "kaiju/engine/step_limits.hpp"
#include "kaiju/step/executor_info.hpp"

namespace kaiju {

class EngineImpl;
class Executor;
class Pieces;
class PrefixTree;

struct EngineOptions : StepLimits {
  int32_t max_waiting = 4096;  // requests waiting or suspended; a submit beyond is refused with kBusy
  int32_t max_events = 16384;  // events to poll; while there are as many, step refuses with kBusy
  int32_t max_sessions = 65536;
  CacheOptions cache;
  // The host's steady clock, for deadlines and timings; called from submit, step, wait and generate, by any thread.
  // Empty: std::chrono::steady_clock.
  Function<TimePoint()> clock;
  bool check_ledger = false;  // recount every block after every step (tests)
};

class Engine {
 public:
  Engine(Engine&&) = delete;
  ~Engine();
  // Owns the executor. `pieces` may be null: then events carry no text and stop strings are refused.
  static Result<std::unique_ptr<Engine>> create(std::unique_ptr<Executor> executor,
                                                std::shared_ptr<const Pieces> pieces, const EngineOptions& options);
  // kInvalidArgument in a child of fork().
  Status check_process() const;

  // -- sessions: a token history whose KV is kept from turn to turn --
  // All but session_tokens and destroy_session want the session idle: kBusy while a request of it is unfinished.
  // kNotFound for an unknown id.
  Result<SessionId> create_session();
  // A new session with the first `length` tokens of the parent; it shares their KV.
  Result<SessionId> fork_session(SessionId parent, size_t length);
  // Cuts the history. What is submitted next computes only what the cut made new.
  Status truncate_session(SessionId session, size_t length);
  // Replaces the history; the KV of the longest common prefix stays.
  Status set_session_tokens(SessionId session, std::span<const int32_t> tokens);
  // The history: after kDone the prompt and all generated tokens; while a request is unfinished, what it was before.
  Result<std::vector<int32_t>> session_tokens(SessionId session) const;
  // The session's request whose last event is still to come from a step; 0: the session is idle.
  Result<RequestId> unfinished_request(SessionId session) const;
  // Gives the session up, which needs no memory; an unfinished request of it is cancelled (its kDone still comes).
  Status destroy_session(SessionId session);

  // -- sessions saved and restored, in this process or another one; docs/cache.md says what is in one --
  // kBusy while another thread is in step, or while a step waits to be run again. The callbacks run here and must call
  // no step. Writes an idle session: tokens, and the KV that is known of them. What was written before an error is to
  // be thrown away.
  Status save_session(SessionId session, const SaveOptions& options, const SessionSink& write);
  // A new session with the saved history. Reads exactly what was written. KV that finds no room, or was saved on a
  // backend that lays it out otherwise, is computed again when needed. Refused, and nothing stays: kBadModel damaged or
  // cut off, kUnsupported another version, model or scale epoch, kInvalidArgument a key too few or too many; and
  // whatever `read` says.
  Result<SessionId> restore_session(const RestoreOptions& options, const SessionSource& read);

  // -- requests --
  // Appends tokens to the history (none: go on from it) and generates. One request per session at a time, else kBusy.
  // Refused here: bad options and token ids (kInvalidArgument, naming field and range), prompt + max_tokens beyond the
  // context (kInvalidArgument), more memory than the pools have (kOutOfMemory, with the numbers), too many waiting
  // (kBusy).
  Result<RequestId> submit(SessionId session, std::span<const int32_t> tokens, const RequestOptions& options);
  // Same, with the whole new history instead of what to append; the KV of the longest common prefix is used.
  Result<RequestId> submit_history(SessionId session, std::span<const int32_t> history, const RequestOptions& options);
  // Takes effect at the next step, whatever the request's state; unknown and finished ids are ignored.
  Status cancel(RequestId request);
  // Sets a request aside at the next step, whatever its state: kSuspended comes. Its KV stays until others need the
  // room; its deadline runs on. Unknown and finished ids are ignored, here and below.
  Status suspend(RequestId request);
  // Lets it go on at its old place in the order of service: kResumed comes once it is computed again.
  Status resume(RequestId request);

  // -- sequences of a request --
  // A request has one sequence, or RequestOptions::sequence_count; each is scheduled and ends by itself. A sequence
  // that ends before the last one of its request gives kSequenceDone, the last one kDone. cancel, suspend, resume and
  // the deadline act on all of them. max_running and the executor's slots count sequences; max_waiting and pending
  // count requests. All calls below take effect at the next step. kNotFound: no unfinished request, or no sequence of
  // it, has this number. kBusy: too many such calls wait for the next step.
  //
  // Makes another sequence of the request, with the tokens that `sequence` has by then and a stream number of its own,
  // and returns its index. It shares the KV of all whole blocks, and generates what a request with these tokens as its
  // prompt would. Where `sequence` has ended by then, the new one ends at once with kCancelled. kBusy: the request has
  // kMaxSequences.
  Result<int32_t> fork_sequence(RequestId request, int32_t sequence, uint32_t stream);
  // Cuts a sequence back to its first `length` tokens, the prompt included, from where it goes on; Event::counts of the
  // next tokens say where they belong. No effect where it has fewer. kInvalidArgument: less than the prompt.
  Status cut_sequence(RequestId request, int32_t sequence, int32_t length);
  // Ends a sequence with kCancelled.
  Status end_sequence(RequestId request, int32_t sequence);
  // Chooses the sequence whose tokens become the session's history when the request is done; without a choice sequence
  // 0. Takes effect at once.
  Status keep_sequence(RequestId request, int32_t sequence);
  // Proposes tokens that may follow those of a decoding sequence (speculative decoding). The next step computes them
  // beside the token that is due, and keeps as many as equal what is drawn, plus one more draw: the tokens are those
  // that come without proposals, whatever is proposed, in fewer steps. A later call replaces an earlier one. Ignored
  // while the sequence does not decode. kUnsupported: the executor draws from one row of a segment
  // (ExecutorInfo::most_draws).
  Status propose(RequestId request, int32_t sequence, std::span<const int32_t> tokens);

  // -- the loop --
  // Admits, plans, runs and commits one step. Ok with nothing to do. An error that is not final (kOutOfMemory, kBusy,
  // kIo of the executor) leaves everything as it was: the next call tries the same step again, without the requests
  // that were cancelled or suspended or have run out of time meanwhile. kBusy as well while max_events are unread.
  // Where the executor runs beside the host and everybody decodes, the next step is under way when this one returns:
  // who is submitted then begins behind it, and for who ended by what was drawn it computes a token more, which nobody
  // sees.
  Status step();
  // Moves the oldest event out; false when there is none.
  bool poll(Event& event);
  // Blocks until there is something to poll, or to step with no thread in step, wake is called, the engine has stopped,
  // or the time is over. True if there is work. A suspended request is work from its deadline on.
  bool wait(Nanoseconds timeout);
  void wake();
  // Requests whose last event has not been polled, those of generate included.
  size_t pending() const;
  // Submits, drives the engine until this request is done, and gives its last event, a kDone. Only then is `done`
  // written; the status may be an error all the same, of a step that went on without this request. `on_text` gets whole
  // UTF-8 on this thread; false cancels the request, and an exception of it leaves through here.
  // Others' requests are computed beside it, and their events stay for poll, in order; this request's never get there.
  // So it may be called from any number of threads, beside a thread that steps and polls (whose step answers kBusy
  // while this one steps), and from inside on_text, each with a session of its own. kBusy in a save's or a restore's
  // callback, and where max_events of others are unread: then the request is cancelled, and the next step ends it.
  Status generate(SessionId session, std::span<const int32_t> tokens, const RequestOptions& options,
                  const Function<bool(std::string_view text)>& on_text, Event& done);
  Metrics metrics() const;
  // The error that stopped the engine, or why this process may not use it, or ok.
  Status status() const;
  const ExecutorInfo& info() const;  // of the executor; constant
  const Pieces* pieces() const;      // of the tokenizer; null where there is none
  TimePoint now() const;             // on the engine's clock
  // Recounts every block against every table; kInternal with the ledger when they differ. On the thread that steps.
  Status check_ledger() const;
  // The block books, for tests and tools. On the thread that steps.
  const PrefixTree& cache() const;  // kaiju/cache/prefix_tree.hpp

 private:
  explicit Engine(std::unique_ptr<EngineImpl> impl);

  std::unique_ptr<EngineImpl> impl_;
};

}  // namespace kaiju

#if defined(KAIJU_HEADER_ONLY)
#include "kaiju/engine/detail/engine-inl.hpp"
#endif
