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
// Threads: any call may come from any thread. One thread at a time is in step; a second one gets kBusy. Two calls wait:
// generate, for its request, and wait, while there is nothing to poll. The engine has no thread of its own, prints
// nothing, and throws nothing but what a host's callback throws in generate.
//
// Errors: after kDeviceLost and kInternal the engine has stopped: all its requests fail, and every later call answers
// with the same error at once.
//
// fork(): an engine belongs to the process that created it. In a child every call that returns a Status or a Result
// answers kInvalidArgument; poll and wait return false; pending and metrics return zeros. `delete` in a child frees
// nothing of the engine and its executor; their memory is freed when the child ends. A child may create its own engine.
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
  int32_t max_waiting = 4096;  // requests that wait or are suspended; beyond that submit is refused with kBusy
  int32_t max_events = 16384;  // events that have not been polled; beyond that step is refused with kBusy
  int32_t max_sessions = 65536;
  CacheOptions cache;
  // The host's steady clock, for deadlines and timings. Called from submit, step, wait and generate, on any thread.
  // Empty: std::chrono::steady_clock.
  Function<TimePoint()> clock;
  bool check_ledger = false;  // recount every block after every step (tests)
};

class Engine {
 public:
  Engine(Engine&&) = delete;
  ~Engine();
  // Takes ownership of the executor. `pieces` may be null: then events carry no text and stop strings are refused.
  static Result<std::unique_ptr<Engine>> create(std::unique_ptr<Executor> executor,
                                                std::shared_ptr<const Pieces> pieces, const EngineOptions& options);
  // kInvalidArgument in a child of fork().
  Status check_process() const;

  // -- sessions --
  // A session is a token history whose KV is kept from turn to turn. The calls below, except session_tokens,
  // unfinished_request and destroy_session, need an idle session: they answer kBusy while a request of it is
  // unfinished. kNotFound for an unknown id.
  Result<SessionId> create_session();
  // Creates a session with the first `length` tokens of the parent; it shares their KV.
  Result<SessionId> fork_session(SessionId parent, size_t length);
  // Cuts the history to its first `length` tokens. Their KV is used again.
  Status truncate_session(SessionId session, size_t length);
  // Replaces the history. The KV of the longest common prefix is used again.
  Status set_session_tokens(SessionId session, std::span<const int32_t> tokens);
  // The history: after kDone the prompt and all generated tokens; while a request is unfinished, what it was before.
  Result<std::vector<int32_t>> session_tokens(SessionId session) const;
  // The session's request whose last event a step has not given yet; 0: the session is idle.
  Result<RequestId> unfinished_request(SessionId session) const;
  // Ends the session; needs no memory. An unfinished request of it is cancelled, and its kDone still comes.
  Status destroy_session(SessionId session);

  // -- saved sessions: docs/cache.md says what is in one --
  // kBusy while another thread is in step, or while a step waits to be run again. Both calls first do what a step does
  // first: they carry out calls like cancel and suspend that came since the last step. Their callbacks run on this
  // thread and must not call step.
  //
  // Writes an idle session: its tokens, and the KV that the cache has of them. After an error, discard what was
  // written.
  Status save_session(SessionId session, const SaveOptions& options, const SessionSink& write);
  // Creates a session with the saved history. Reads exactly as many bytes as were written. KV that does not fit, or
  // that another backend saved in another layout, is computed again when it is needed. A refused save leaves nothing in
  // the engine: kBadModel damaged or cut off; kUnsupported another version, model or scale epoch; kInvalidArgument a
  // key that is missing or was not used; and any error of `read`.
  Result<SessionId> restore_session(const RestoreOptions& options, const SessionSource& read);

  // -- requests --
  // Appends tokens to the history, or none, and generates. One request of a session at a time, else kBusy. Refused:
  // options and token ids out of range, and prompt + max_tokens beyond the context (kInvalidArgument, with the field
  // and its range); more memory than the pools have (kOutOfMemory, with the numbers); too many waiting requests
  // (kBusy).
  Result<RequestId> submit(SessionId session, std::span<const int32_t> tokens, const RequestOptions& options);
  // Like submit, with the whole new history instead of the tokens to append. The KV of the longest common prefix is
  // used.
  Result<RequestId> submit_history(SessionId session, std::span<const int32_t> history, const RequestOptions& options);
  // Ends a request at the next step, in any state. Unknown and finished ids are ignored, here and below.
  Status cancel(RequestId request);
  // Sets a request aside at the next step, in any state; kSuspended comes. Its KV stays until other requests need the
  // memory. Its deadline still counts.
  Status suspend(RequestId request);
  // Puts a suspended request back at its old place in the order of service; kResumed comes when it is computed again.
  Status resume(RequestId request);

  // -- sequences of a request --
  // A request has one sequence, or RequestOptions::sequence_count; each is scheduled and ends independently of the
  // others. A sequence that ends before the last one of its request gives kSequenceDone, the last one kDone. cancel,
  // suspend, resume and the deadline act on all of them. max_running and the executor's slots count sequences;
  // max_waiting and pending count requests. All calls below take effect at the next step. kNotFound: no unfinished
  // request, or no sequence of it, has this number. kBusy: too many such calls wait for the next step.
  //
  // Makes another sequence of the request, with the tokens that `sequence` has by then and a stream number of its own,
  // and returns its index. It shares the KV of all whole blocks, and generates what a request with these tokens as its
  // prompt would. Where `sequence` has ended by then, the new one ends at once with kCancelled. kBusy: the request has
  // kMaxSequences.
  Result<int32_t> fork_sequence(RequestId request, int32_t sequence, uint32_t stream);
  // Cuts a sequence back to its first `length` tokens, the prompt included, from where it goes on; Event::counts of the
  // next tokens say where they belong. Does nothing if the sequence has fewer tokens than
  // that. kInvalidArgument if `length` is less than the length of the prompt.
  Status cut_sequence(RequestId request, int32_t sequence, int32_t length);
  // Ends a sequence with kCancelled.
  Status end_sequence(RequestId request, int32_t sequence);
  // Chooses the sequence whose tokens become the session's history when the request is done; without a choice sequence
  // 0. Takes effect at once.
  Status keep_sequence(RequestId request, int32_t sequence);
  // Proposes tokens that may follow those of a decoding sequence (speculative decoding). The next step computes them
  // beside the token that is due, and keeps as many as equal what is sampled, plus one more sample: the tokens are
  // those that come without proposals, whatever is proposed, in fewer steps. A later call replaces an earlier one.
  // Ignored while the sequence does not decode. kUnsupported: the executor samples from one row of a segment
  // (ExecutorInfo::most_samples).
  Status propose(RequestId request, int32_t sequence, std::span<const int32_t> tokens);

  // -- the loop --
  // Admits, plans, runs and commits one step. Ok if there is nothing to do. kOutOfMemory, kBusy and kIo of the executor
  // are not final: the next call tries the same step again, without requests that were cancelled, suspended or overdue
  // meanwhile. kBusy also while max_events are unread.
  // On an executor that runs beside the host (a GPU), while every sequence decodes, the next step has been started when
  // this call returns. A request that is submitted then begins one step later, and a request that ends meanwhile has
  // one more token computed, which no event tells of.
  Status step();
  // Moves the oldest event out; false when there is none.
  bool poll(Event& event);
  // Waits until there is an event to poll; or something to step and no thread in step; or wake is called; or the engine
  // has stopped; or the time is over. True if there is an event or something to step. A suspended request is something
  // to step from its deadline on.
  bool wait(Nanoseconds timeout);
  void wake();
  // Requests whose last event has not been polled, those of generate included.
  size_t pending() const;
  // Submits a request, steps until it is done, and gives its kDone event. `done` is written only then; the status may
  // still be an error, of a step that continued without this request. `on_text` gets whole UTF-8 on this thread; if it
  // returns false the request is cancelled; what it throws leaves through this call.
  // Other requests are computed in the same steps. Their events stay for poll, in order; events of this request never
  // get there. So any number of threads may call generate, each with its own session, also beside a thread that steps
  // and polls (its step answers kBusy while this call steps), and from inside on_text. kBusy in a callback of save or
  // restore, and where max_events of other requests are unread: then the request is cancelled, and the next step ends
  // it.
  Status generate(SessionId session, std::span<const int32_t> tokens, const RequestOptions& options,
                  const Function<bool(std::string_view text)>& on_text, Event& done);
  Metrics metrics() const;
  // The error that stopped the engine; or, in a child of fork(), that it may not be used; else ok.
  Status status() const;
  const ExecutorInfo& info() const;  // of the executor; constant
  const Pieces* pieces() const;      // of the tokenizer; null where there is none
  TimePoint now() const;             // on the engine's clock
  // Counts every block again and compares with the tables; kInternal names the difference. On the thread that steps.
  Status check_ledger() const;
  // The prefix tree, for tests and tools. On the thread that steps.
  const PrefixTree& cache() const;  // kaiju/cache/prefix_tree.hpp

 private:
  explicit Engine(std::unique_ptr<EngineImpl> impl);

  std::unique_ptr<EngineImpl> impl_;
};

}  // namespace kaiju

#if defined(KAIJU_HEADER_ONLY)
#include "kaiju/engine/detail/engine-inl.hpp"
#endif
