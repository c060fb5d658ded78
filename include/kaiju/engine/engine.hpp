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
// Threads: any thread may make any call. Only one thread at a time may be in step; a second thread gets kBusy. Two
// calls block: generate blocks until its request is done, and wait blocks until there is an event to poll or something
// to step. The engine starts no thread of its own and prints nothing. The engine throws no exceptions of its own; if a
// callback of generate throws, that exception leaves through generate.
//
// Errors: after kDeviceLost or kInternal the engine has stopped: all its requests fail, and every later call returns
// the same error at once.
//
// fork(): an engine belongs to the process that created it. In a child process, every call that returns a Status or a
// Result returns kInvalidArgument; poll and wait return false; pending and metrics return zeros. If a child process
// deletes an engine of its parent, the memory of the engine and its executor is freed only when the child ends. A child
// process may create its own engine.
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
#include "kaiju/cache/events.hpp"
#include "kaiju/cache/options.hpp"
#include "kaiju/cache/share_limits.hpp"
#include "kaiju/engine/event.hpp"
#include "kaiju/engine/metrics.hpp"
#include "kaiju/engine/prefetch_options.hpp"
#include "kaiju/engine/request.hpp"
#include "kaiju/engine/save_options.hpp"
#include "kaiju/engine/step_limits.hpp"
#include "kaiju/step/executor_info.hpp"
#include "kaiju/step/scrubbed.hpp"

namespace kaiju {

class Calibration;  // kaiju/engine/calibration.hpp
class Checkpoint;   // kaiju/format/checkpoint.hpp

class EngineImpl;
class Executor;
class Pieces;
class PrefixTree;

struct EngineOptions : StepLimits {
  int32_t max_waiting = 4096;  // most requests that wait or are suspended; while so many do, submit returns kBusy
  int32_t max_events = 16384;  // most events that wait to be polled; while so many wait, step returns kBusy
  int32_t max_sessions = 65536;
  CacheOptions cache;
  // The stop tokens of requests that name none. Model::create_engine puts the model's own here if the list is empty.
  std::vector<int32_t> stop_tokens;
  // The host's steady clock, for deadlines and timings. The engine calls the clock in submit, step, wait and generate,
  // on the thread of that call. If `clock` is empty, the engine uses std::chrono::steady_clock.
  Function<TimePoint()> clock;
  // After each reply, prefetch the session when its user usually comes back: at the mean time of the session's turns,
  // less twice their mean deviation. A session is known after three turns. A kPrefetched event with `user_data` null
  // follows.
  bool prefetch_usual = false;
  bool check_ledger = false;  // recount every block after every step (tests)
};

class Engine {
 public:
  Engine(Engine&&) = delete;
  ~Engine();
  // Creates an engine, which takes ownership of the executor. `pieces` has the text of every token. If `pieces` is
  // null, events carry no text and stop strings are refused.
  static Result<std::unique_ptr<Engine>> create(std::unique_ptr<Executor> executor,
                                                std::shared_ptr<const Pieces> pieces, const EngineOptions& options);
  // Returns kInvalidArgument in a child process of the process that created the engine (fork()).
  Status check_process() const;

  // -- sessions --
  // A session is a token history whose KV stays in the cache from turn to turn. The session calls below return kBusy
  // while a request of the session is unfinished, except session_tokens, unfinished_request and destroy_session. The
  // session calls return kNotFound if the id is unknown.
  Result<SessionId> create_session();
  // Creates a session with the first `length` tokens of the parent; both sessions share the KV of these tokens.
  // Returns kBusy also if more forks and destroyed sessions than max_sessions wait for the next step.
  Result<SessionId> fork_session(SessionId parent, size_t length);
  // Cuts the history to its first `length` tokens. The session's next request uses the KV of the remaining tokens
  // again.
  Status truncate_session(SessionId session, size_t length);
  // Replaces the history of the session. The session's next request uses the KV of the longest common prefix of the old
  // and the new history again.
  Status set_session_tokens(SessionId session, std::span<const int32_t> tokens);
  // Returns the history of the session. After a request's kDone event, the history includes the prompt and all
  // generated tokens. While a request is unfinished, the history is the one before that request.
  Result<std::vector<int32_t>> session_tokens(SessionId session) const;
  // Returns the session's request whose last event no step has produced yet, or 0 if the session has none.
  Result<RequestId> unfinished_request(SessionId session) const;
  // Ends the session; this call allocates no memory. An unfinished request of the session is cancelled, and its kDone
  // event still comes.
  Status destroy_session(SessionId session);

  // Keeps the KV of the session's history that is in the cache there until the session is destroyed, and returns how
  // many tokens it covers. An earlier pin of the session ends. Returns kNotFound if no KV of the history is in the
  // cache, and kOutOfMemory if the pinned KV of all sessions would not leave room for a request of the whole context.
  // The rules of save_session for steps apply.
  Result<int32_t> pin_session(SessionId session);

  // Brings the KV of the session's history up from host memory and the file before the session's next request, for
  // example while its user is typing. Never makes a running request wait: it is done in steps that compute nothing, or
  // a few blocks at a time beside others (StepLimits::prefetch_blocks), and only while no request waits. If the
  // session's request comes first, the prefetch ends with 0 tokens. A kPrefetched event follows with the returned id:
  // `counts` says how many tokens the history has, and at which of them the next request can resume. Nothing is
  // computed. Returns kBusy if the session has an unfinished request, or if max_waiting prefetches have not ended. An
  // engine that stops tells no prefetch's end.
  Result<RequestId> prefetch(SessionId session, const PrefetchOptions& options);
  // Returns at how many of these tokens a request of this scope could resume now with what is on the device. The rules
  // of save_session for steps apply.
  Result<int32_t> cached_tokens(std::span<const int32_t> tokens, const Scope& scope);

  // -- saved sessions: docs/cache.md says what is in one --
  // save_session and restore_session return kBusy while another thread is in step, or while a step that failed waits to
  // be run again. Before they save or restore, both calls carry out the calls like cancel and suspend that were made
  // since the last step. The callbacks of a save or a restore run on the calling thread and must not call step.
  //
  // Writes a session without an unfinished request: its tokens, and the KV of these tokens that is in the cache. If
  // save_session returns an error, discard the bytes that were written.
  Status save_session(SessionId session, const SaveOptions& options, const SessionSink& write);
  // Creates a session with the saved history. The call reads exactly as many bytes as save_session wrote. Saved KV that
  // does not fit into the cache, or that another backend saved in another layout, is computed again when a request
  // needs it. A restore that fails leaves nothing in the engine. Returns kBadModel if the saved bytes are damaged or
  // cut off. Returns kUnsupported if the saved bytes come from another version, model or scale epoch. Returns
  // kInvalidArgument if the session was saved with a key and `options` has none, or was saved without a key and
  // `options` has one. If the callback `read` fails, returns its error.
  Result<SessionId> restore_session(const RestoreOptions& options, const SessionSource& read);

  // -- requests --
  // Submits a request, which appends the tokens (there may be none) to the session's history and generates. Returns
  // kBusy if the session has an unfinished request, or if too many requests are waiting. Returns kInvalidArgument if an
  // option or a token id is out of range, or if prompt + max_tokens exceeds the context; the message names the field
  // and its range. Returns kOutOfMemory if the request needs more KV blocks than the engine has; the message has both
  // numbers.
  Result<RequestId> submit(SessionId session, std::span<const int32_t> tokens, const RequestOptions& options);
  // Like submit, with the whole new history instead of the tokens to append. The request uses the KV of the longest
  // common prefix of the old and the new history.
  Result<RequestId> submit_history(SessionId session, std::span<const int32_t> history, const RequestOptions& options);
  // Ends a request at the next step, whatever its state. The calls cancel, suspend and resume ignore the ids of unknown
  // and finished requests.
  Status cancel(RequestId request);
  // Suspends a request at the next step, whatever its state; a kSuspended event follows. The KV of a suspended request
  // stays in the cache until other requests need the memory. The deadline of a suspended request still applies.
  Status suspend(RequestId request);
  // Puts a suspended request back at its old place in the order of service. A kResumed event follows when the request
  // runs again.
  Status resume(RequestId request);

  // -- sequences of a request --
  // A request generates RequestOptions::sequence_count sequences, by default one; each sequence is scheduled
  // independently of the request's other sequences and ends independently of them. When the last sequence of a request
  // ends, the event is kDone; when an earlier one ends, the event is kSequenceDone. The calls cancel, suspend and
  // resume, and the deadline of a request, act on all sequences of the request. The limit max_running and the
  // executor's slots count sequences, while max_waiting and pending count requests. The sequence calls below (all but
  // keep_sequence) take effect at the next step. A sequence call returns kNotFound if no unfinished request, or no
  // sequence of the request, has the given number. A sequence call returns kBusy if too many such calls are waiting for
  // the next step.
  //
  // Makes a new sequence of the request at the next step and returns its index. The new sequence begins with the tokens
  // that `sequence` has at that step, and samples with `variant`. The new sequence and `sequence` share the KV of all
  // whole blocks. The new sequence generates the same tokens as a request that has these tokens as its prompt. If
  // `sequence` ends before the next step, the new sequence ends at once with kCancelled. Returns kBusy if the request
  // already has kMaxSequences.
  Result<int32_t> fork_sequence(RequestId request, int32_t sequence, uint32_t variant);
  // Cuts a sequence back to its first `length` tokens, the prompt included; the sequence then continues from there.
  // Event::counts of a later token says at which position of the reply the token belongs. If the sequence has fewer
  // than `length` tokens, the call does nothing. Returns kInvalidArgument if `length` is less than the length of the
  // prompt.
  Status cut_sequence(RequestId request, int32_t sequence, int32_t length);
  // Ends one sequence of a request; its DoneReason is kCancelled.
  Status end_sequence(RequestId request, int32_t sequence);
  // Chooses the sequence whose tokens become the session's history when the request is done. If the host makes no
  // choice, sequence 0 becomes the history. The call keep_sequence takes effect at once.
  Status keep_sequence(RequestId request, int32_t sequence);
  // Proposes tokens that may follow those of a decoding sequence (speculative decoding). The next step computes the
  // proposed tokens together with the sequence's next token. The step accepts proposed tokens as long as they equal the
  // tokens that it samples, and adds one more sampled token. The generated tokens are the same as without proposals,
  // but come in fewer steps. If propose is called again before the next step, the newer proposal replaces the older
  // one. A proposal is ignored if the sequence is not decoding. Returns kUnsupported if the executor samples from only
  // one row of a segment (ExecutorInfo::most_samples), or if the request is guided or has a logits hook.
  Status propose(RequestId request, int32_t sequence, std::span<const int32_t> tokens);

  // Says what the next token of a sequence of a guided request may be (RequestOptions::guided). A sequence waits for a
  // guide when it begins, and again after each of its kToken events; give it right after submit, and after each kToken
  // event but the last, which is a stop token or the one that reaches max_tokens. A guide that comes earlier is kept
  // until the sequence is computed; a guide given before the one before it was used replaces that one, and cut_sequence
  // drops it. A guide is used when the step that samples the token begins. Returns kNotFound if no unfinished request,
  // or no sequence of the request, has the given number; after the last kToken event the host may ignore it. Returns
  // kInvalidArgument if the request is not guided, if the mask has the wrong number of words or allows no token of the
  // vocabulary, or if a bias is out of range. Returns kBusy if too many sequence calls are waiting for the next step.
  Status guide(RequestId request, const Guide& guide, int32_t sequence = 0);
  // Sets the limit of one of the classifier's labels in a tier (SafetyOptions::tier), from 0 to 1; nullopt: none. A
  // tier exists from its first limit on. Requests under way follow from the next step on. Returns kInvalidArgument if
  // the model has no such label.
  Status set_limit(const std::string& tier, const std::string& label, std::optional<double> limit);

  // Gives a tenant or a character's shared region a share of memory and of steps, or changes it, from the next step on.
  // Without limits the share stays and is counted. What requests of that name compute from then on is charged to it; KV
  // that is cached under a salt or a character already stays uncharged until it has gone. Returns kInvalidArgument if
  // the name is empty, if a floor is above its ceiling, or if all floors together leave no room for a request of the
  // whole context, or no place for one sequence, without a share; the message has the numbers.
  Status set_share(ShareOf of, const std::string& name, const ShareLimits& limits);
  // Returns what a share has as of the last step. Returns kNotFound if set_share was not called for it.
  Result<ShareUsage> share_usage(ShareOf of, const std::string& name) const;

  // -- the loop --
  // Runs one step: admits requests, plans the step, computes it and produces its events. Returns ok if there is nothing
  // to do. If the executor fails with kOutOfMemory, kBusy or kIo, step returns that error, and the next call of step
  // tries the same step again, without requests that were cancelled, suspended or overdue meanwhile. Also, step returns
  // kBusy if max_events events are waiting to be polled. If the executor runs beside the host (a GPU) and every
  // sequence is decoding, step starts the following step before it returns. A request that is submitted while a step is
  // already running begins one step later. If a request ends while a step with its next token is already running, that
  // token is computed and dropped without an event.
  Status step();
  // Moves the oldest event into `event`. Returns false if there is no event.
  bool poll(Event& event);
  // Waits until one of these holds: there is an event to poll; there is something to step and no thread is in step;
  // wake is called; the engine has stopped; the timeout is over. Returns true if there is an event to poll or something
  // to step. A suspended request counts as something to step only after its deadline has passed, and so does a guided
  // request that waits for its guide.
  bool wait(Nanoseconds timeout);
  void wake();
  // Returns the number of requests whose last event has not been polled, including requests of generate.
  size_t pending() const;
  // Submits a request, steps the engine until the request is done, and writes the request's kDone event to `done`. If a
  // step fails, generate cancels its request and steps once more; it may then write the kDone event to `done` and still
  // return the error of the failed step. The callback `on_text` receives whole UTF-8 on the calling thread. If
  // `on_text` returns false, the request is cancelled. If `on_text` throws, the exception leaves through generate. The
  // steps compute other requests too, and the events of those requests stay for poll, in order; poll never returns
  // events of a request of generate. Any number of threads may call generate, each with its own session, while another
  // thread steps and polls. A call of step returns kBusy while a thread in generate steps the engine. `on_text` may
  // also call generate. Returns kBusy if generate is called in a callback of a save or a restore. Also, generate
  // returns kBusy if max_events events of other requests are waiting to be polled; in this case its request is
  // cancelled, and ends at the next step.
  Status generate(SessionId session, std::span<const int32_t> tokens, const RequestOptions& options,
                  const Function<bool(std::string_view text)>& on_text, Event& done);
  // Scores with another classifier from the next step on, in replies under way too: `checkpoint` is the engine's own
  // with another head (with_head), and must have the labels of the engine in the same order (kInvalidArgument). Giving
  // the checkpoint before back is the way back. KV and replies stay as they are. An error leaves the classifier as it
  // was, or stops the engine (status()). The rules of save_session for steps apply.
  Status set_head(const std::shared_ptr<const Checkpoint>& checkpoint);
  // Computes with other scales of keys and values from the next step on: `checkpoint` is the engine's own with another
  // set (with_scales). Giving the one before back is the way back. KV of the set before is never found again, and
  // sessions keep their tokens: their next request computes them anew. Returns kBusy while replies are under way, which
  // suspended ones are too; no other request begins then until the call is made again and does not return kBusy.
  // Another error leaves the scales as they were, or stops the engine (status()). The rules of save_session for steps
  // apply.
  Status set_scales(const std::shared_ptr<const Checkpoint>& checkpoint);
  // Computes with other weights from the next step on: those of a checkpoint of the same config, rotary frequencies and
  // tokenizer (with_update; or another file of the same training run). Replies under way go on from the tokens that
  // they have, which the next steps compute anew: each later token is what the new weights give for the tokens before
  // it. KV of the weights before is never found again, and sessions keep their tokens. The checkpoint's own classifier
  // and scales take the place of those of set_head and set_scales. Giving the checkpoint before back is the way back.
  // Returns kInvalidArgument for another config; an error leaves the weights as they were, or stops the engine
  // (status()). The rules of save_session for steps apply.
  Status set_weights(const std::shared_ptr<const Checkpoint>& checkpoint);
  // Adds the newest whole block of one of the running sequences to a calibration of this engine's model. Returns
  // whether there was one that had not been added; kInvalidArgument for a calibration of another model or of other
  // scales. Costs a copy of the block and about a nanosecond a byte. The rules of save_session for steps apply.
  Result<bool> calibrate(Calibration& calibration);
  // Looks at the next part of the weights in the executor's memory, of `most_bytes` or somewhat more, round and round,
  // and compares it with what was loaded. Call it when there is nothing to step: a GPU looks at some 1 TB a second, a
  // processor at 5 to 10 GB. kBadModel, which names the place, if bits have changed: then no reply can be trusted, and
  // the process should end. The rules of save_session for steps apply.
  Result<Scrubbed> scrub(size_t most_bytes);
  Metrics metrics() const;
  // Returns the error that stopped the engine. In a child process of fork(), returns an error that says that the engine
  // may not be used. Otherwise returns ok.
  Status status() const;
  const ExecutorInfo& info() const;      // about the executor; constant
  const EngineOptions& options() const;  // constant
  const Pieces* pieces() const;          // the texts of the tokens; null if the engine has none
  TimePoint now() const;                 // on the engine's clock
  // -- cache events: for a router that knows what each engine has cached --
  // Appends the events that wait, the oldest first and at most `most`, to `events` (CacheOptions::event_capacity). The
  // events of a step are there when the step returns. The next two calls return kBusy while another thread is in step,
  // and kInvalidArgument if event_capacity is 0.
  Status poll_cache(std::vector<CacheEvent>& events, size_t most);
  // Returns a stored event for each block of which events are told and which is cached now, each after its parent: what
  // a router knows that has had all events. Takes as long as there are blocks.
  Result<std::vector<CacheEvent>> cached_blocks() const;

  // Counts every cache block again and compares the counts with the engine's tables. Returns kInternal if the counts
  // and the tables differ; the message names the difference. Only the thread that steps may call check_ledger.
  Status check_ledger() const;
  // Returns the prefix tree of the cache, for tests and tools. Only the thread that steps may call cache().
  const PrefixTree& cache() const;  // kaiju/cache/prefix_tree.hpp

 private:
  explicit Engine(std::unique_ptr<EngineImpl> impl);

  std::unique_ptr<EngineImpl> impl_;
};

}  // namespace kaiju

#if defined(KAIJU_HEADER_ONLY)
#include "kaiju/engine/detail/engine-inl.hpp"
#endif
