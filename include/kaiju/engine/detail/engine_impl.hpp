// EngineImpl: what an Engine is made of. engine.hpp says what it promises, call by call; its calls from any thread are
// in engine_calls.hpp, those about one sequence of a request in engine_sequences.hpp, the step in engine_step.hpp, beam
// search in engine_beams.hpp, verdicts in engine_safety.hpp, records of replies in engine_record.hpp, shares in
// engine_shares.hpp, prefetches in engine_prefetch.hpp, weights and scales in engine_weights.hpp, saving and restoring
// in engine_saved.hpp, cache events in engine_cache_events.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kaiju/base/detail/owner_process.hpp"
#include "kaiju/base/status.hpp"
#include "kaiju/engine/detail/inbox.hpp"
#include "kaiju/engine/detail/limits.hpp"
#include "kaiju/engine/detail/saved_session.hpp"
#include "kaiju/engine/detail/scheduler.hpp"
#include "kaiju/engine/engine.hpp"
#include "kaiju/engine/event.hpp"
#include "kaiju/engine/metrics.hpp"
#include "kaiju/engine/request.hpp"
#include "kaiju/sample/params.hpp"
#include "kaiju/step/executor.hpp"
#include "kaiju/text/detail/pieces.hpp"

namespace kaiju {

// What a call of step came to.
enum class StepOutcome {
  kFailed,       // an error that is final: the engine stops
  kNothingToDo,  // no sequence has a token to compute
  kRan,          // a step was computed and committed
  kTryAgain,     // the executor asked for the same plan again later; everything else is as it was
};

// How far the step that was planned last has come.
enum class PlanStage {
  kNone,        // committed, or never planned
  kToRunAgain,  // planned; the executor asked to try again
  kStarted,     // the executor computes it
};

// The promises are those of Engine, call by call.
class EngineImpl {
 public:
  static Result<std::unique_ptr<EngineImpl>> create(std::unique_ptr<Executor> executor,
                                                    std::shared_ptr<const Pieces> pieces, const EngineOptions& options);
  // What `delete` calls instead of the destructor, which it runs in the engine's own process alone: in a child of
  // fork() the destructors of locks and threads may wait for ever, and lists may be half changed.
  static void operator delete(EngineImpl* engine, std::destroying_delete_t) noexcept;
  Status check_process() const { return process_.check("the engine"); }
  Result<SessionId> create_session();
  Result<SessionId> fork_session(SessionId parent, size_t length);
  Status truncate_session(SessionId session, size_t length);
  Status set_session_tokens(SessionId session, std::span<const int32_t> tokens);
  Result<std::vector<int32_t>> session_tokens(SessionId session) const;
  Result<RequestId> unfinished_request(SessionId session) const;
  Status destroy_session(SessionId session);
  Status save_session(SessionId session, const SaveOptions& options, const SessionSink& write);
  Result<int32_t> pin_session(SessionId session);
  Result<int32_t> cached_tokens(std::span<const int32_t> tokens, const Scope& scope);
  Result<SessionId> restore_session(const RestoreOptions& options, const SessionSource& read);
  Result<RequestId> submit(SessionId session, std::span<const int32_t> tokens, const RequestOptions& options);
  Result<RequestId> submit_history(SessionId session, std::span<const int32_t> history, const RequestOptions& options);
  Status cancel(RequestId request);
  Status suspend(RequestId request);
  Status resume(RequestId request);
  Result<int32_t> fork_sequence(RequestId request, int32_t sequence, uint32_t variant);
  Status cut_sequence(RequestId request, int32_t sequence, int32_t length);
  Status end_sequence(RequestId request, int32_t sequence);
  Status keep_sequence(RequestId request, int32_t sequence);
  Status propose(RequestId request, int32_t sequence, std::span<const int32_t> tokens);
  Status guide(RequestId request, const Guide& guide, int32_t sequence);
  Result<RequestId> prefetch(SessionId session, const PrefetchOptions& options);
  Status set_share(ShareOf of, const std::string& name, const ShareLimits& limits);
  Result<ShareUsage> share_usage(ShareOf of, const std::string& name) const;
  Status set_limit(const std::string& tier, const std::string& label, std::optional<double> limit);
  Status step();
  bool poll(Event& event);
  bool wait(Nanoseconds timeout);
  void wake();
  size_t pending() const;
  Status generate(SessionId session, std::span<const int32_t> tokens, const RequestOptions& options,
                  const Function<bool(std::string_view text)>& on_text, Event& done);
  Status set_head(const std::shared_ptr<const Checkpoint>& checkpoint);
  Status set_scales(const std::shared_ptr<const Checkpoint>& checkpoint);
  Status set_weights(const std::shared_ptr<const Checkpoint>& checkpoint);
  Result<bool> calibrate(Calibration& calibration);
  Result<Scrubbed> scrub(size_t most_bytes);
  Metrics metrics() const;
  Status status() const;
  const ExecutorInfo& info() const;                       // of the executor; constant
  const Pieces* pieces() const { return pieces_.get(); }  // of the tokenizer; null where there is none
  const EngineOptions& options() const { return options_; }
  TimePoint now() const { return options_.clock ? options_.clock() : steady_now(); }
  Status poll_cache(std::vector<CacheEvent>& events, size_t most);
  Result<std::vector<CacheEvent>> cached_blocks();
  Status check_ledger() const { return scheduler_.check_ledger(); }
  const PrefixTree& cache() const { return scheduler_.cache(); }

 private:
  EngineImpl(std::unique_ptr<Executor> executor, std::shared_ptr<const Pieces> pieces, const EngineOptions& options,
             const StepLimits& limits)
      : executor_(std::move(executor)),
        pieces_(std::move(pieces)),
        options_(options),
        scheduler_(executor_->info(), limits, options.cache) {
    metrics_from_scheduler();
    inbox_.metrics = metrics_;
  }

  // `own_events`: where the request's events go; null: to poll.
  Result<RequestId> submit_tokens(SessionId session, std::span<const int32_t> tokens, bool whole,
                                  const RequestOptions& options, Ring<Event>* own_events = nullptr);
  Status check_tokens(std::span<const int32_t> tokens) const;
  Status check_options(const RequestOptions& options) const;
  Status check_begun(const RequestOptions& options, const SamplingSpec& sampling) const;
  Status begin_reply(Sequence& sequence) const;
  const std::vector<int32_t>& stop_tokens_of(const RequestOptions& options) const {
    return options.stop_tokens ? *options.stop_tokens : options_.stop_tokens;
  }
  Status check_length(Request& request, size_t prompt_tokens) const;
  std::shared_ptr<Request> make_request(const RequestOptions& options) const;
  std::shared_ptr<const ReplyRecord> record_of(const Request& request, uint32_t variant, SharedTokens tokens,
                                               const Event& end);
  Result<SamplingSpec> sampling_of(const SamplingParams& params) const;
  std::vector<std::unique_ptr<Sequence>> make_sequences(const std::shared_ptr<Request>& request,
                                                        const RequestOptions& options, const SamplingSpec& sampling,
                                                        std::span<const int32_t> history,
                                                        std::span<const int32_t> tokens) const;
  Result<History*> ready_to_submit(Inbox& inbox, SessionId session) const;
  static RequestId enqueue(Inbox& inbox, History& history, Command command, Ring<Event>* own_events);

  // -- sequences of a request: engine_sequences.hpp --
  static Result<RequestControl*> control_of(Inbox& inbox, RequestId request, int32_t sequence);
  template <class Check>
  Status call_sequence(RequestId request, SequenceCall call, Check check);
  void do_sequence_call(RequestId id, SequenceCall& call);
  void fork_in_flight(Request& request, const Sequence* parent, const SequenceCall& call);
  void cut(Sequence& sequence, int32_t length);
  void say_again(Sequence& sequence);
  void take_guide(Sequence& sequence, std::shared_ptr<const TokenGuide> guide);

  // -- verdicts: engine_safety.hpp --
  Status check_safety(const RequestOptions& options) const;
  Result<std::vector<double>> by_label(const LabelValues& values, const char* what, double most,
                                       double otherwise) const;
  std::span<const double> limits_of(const Request& request);
  bool judge(Sequence& sequence, std::span<const float> scores);
  void tell_token(Sequence& sequence, Event event);

  // -- cache events: engine_cache_events.hpp --
  template <class Answer, class Body>
  Answer beside_step(Body body);

  // -- shares: engine_shares.hpp --
  Status check_share(const Inbox& inbox, const ShareName& name, const ShareLimits& limits) const;
  void count_shares();

  // -- prefetches: engine_prefetch.hpp --
  void take_prefetch(Prefetch prefetch);
  void take_due_prefetches(TimePoint now);
  void tell_prefetched();
  std::optional<TimePoint> earliest_time() const;

  // -- banned phrases: engine_banned.hpp --
  Status check_banned(const RequestOptions& options) const;
  bool goes_back(Sequence& sequence);

  // -- beam search: engine_beams.hpp --
  Status check_beams(const RequestOptions& options) const;
  void make_beams(Request& request, const RequestOptions& options, const SamplingSpec& sampling,
                  std::vector<std::unique_ptr<Sequence>>& sequences) const;
  void take_beam_sample(Sequence& sequence, SampledToken& sampled, TimePoint now);
  DoneReason end_of_beam(const Sequence& beam, int32_t token) const;
  void advance_beams(Request& request);
  static void append_beam_scores(const Sequence& beam, std::vector<float>& to);
  void copy_beam(const Sequence& parent, Sequence& child);
  Event beam_event(const Sequence& any, int32_t result, int32_t generated, EventKind kind) const;
  void tell_beam_token(const Sequence& any, int32_t result, size_t at, const BeamReply& reply, ReplyText& text);
  void tell_common(Request& request);
  void end_search(Request& request, const std::vector<Sequence*>& before);
  std::vector<LabelStatistics> statistics_of_beam(const Request& request, std::span<const float> scores, size_t tokens);
  void tell_beam_end(Request& request, const Sequence& any, int32_t result, std::vector<int32_t> reply,
                     std::span<const float> scores, ReplyText& text, DoneReason reason);
  void cancel_beams(Request& request, DoneReason reason);

  // -- weights and scales: engine_weights.hpp --
  bool has_weights_of(const std::string& digest) const;
  uint64_t epoch_of(const std::string& digest, uint64_t scale_epoch) const;

  template <class Answer, class Body>
  Answer between_steps(Body body);
  Status changed(Status answer);
  Status transfer(const BlockTransfer& transfer);
  Status check_saved(const SavedSession& saved, const Scope& scope) const;
  Status restore_kv(SessionId session, PathBuilder& path, const SavedSession& saved, SessionReader& reader);
  Status step_entered();
  Status step_once(StepOutcome& outcome);
  Status ready_to_step() const;
  void do_inbox();
  void do_control(const Command& command);
  void suspend(Sequence& sequence);
  void resume(Sequence& sequence);
  void end_overdue(TimePoint now);
  template <class Call>
  Status ask_executor(Call call);
  static bool may_run_again(const Status& answer);
  Status start(const StepPlan& plan);
  Status finish();
  void tell_suspended(Sequence& sequence);
  // Of the sequences of a request with beams, the first speaks for all.
  static bool is_silent(const Sequence& sequence) { return sequence.request->beams && sequence.index > 0; }
  void tell_moves();
  bool is_planned(const Sequence& sequence) const;
  bool is_ending(SessionId session);
  void end_request(RequestId id, DoneReason reason);
  void end_sequence(Sequence& sequence, DoneReason reason);
  void release_planned();
  // Leaves a command about an unfinished request in the inbox.
  template <class Change>
  Status change_control(RequestId request, Change change);
  Status commit();
  void commit_token(Sequence& sequence, SampledToken& sampled, TimePoint now, bool& done, DoneReason& reason);
  bool fits(const SampledToken& sample, const Segment& segment) const;
  Status wrong_answer(std::span<const SampledToken> left) const;
  void tell_end(Sequence& sequence, DoneReason reason);
  void tell_reply_end(Request& request, Event event);
  void tell_end(Event event, Ending ending);
  void stop(const Status& error);
  Event event_of(const Sequence& sequence, EventKind kind) const;
  void metrics_from_scheduler();
  // `has_work`: there may be something to step, though no further call comes.
  void publish(bool has_work) {
    metrics_from_scheduler();
    count_shares();
    tell_prefetched();
    inbox_.publish(events_, endings_, metrics_, has_work, earliest_time(),
                   options_.prefetch_usual ? std::optional(now()) : std::nullopt);
  }
  void publish() {
    publish(scheduler_.has_waiting() || scheduler_.computes() || scheduler_.has_prefetches() ||
            (plan_stage_ != PlanStage::kNone && !scheduler_.running().empty()));
  }

  // Finds an idle session under the inbox's lock, or says why not.
  static Result<History*> idle_session(Inbox& inbox, SessionId session);

  const OwnerProcess process_;
  std::unique_ptr<Executor> executor_;
  std::shared_ptr<const Pieces> pieces_;
  EngineOptions options_;
  Inbox inbox_;

  // Of the thread that steps.
  Scheduler scheduler_;
  Deadlines deadlines_;
  TimedPrefetches timed_prefetches_;
  StepPlan plan_;
  StepPlan next_plan_;      // what goes on from plan_, while that runs
  StepPlan transfer_plan_;  // of saving and restoring
  StepResult result_;
  PlanStage plan_stage_ = PlanStage::kNone;  // of plan_
  std::vector<SessionId> closing_;           // sessions to close once the plan has run
  std::vector<Command> commands_;
  std::vector<Event> events_;
  std::vector<Ending> endings_;
  std::shared_ptr<const TierLimits> tiers_;          // as of the step's begin
  size_t calibrated_ = 0;                            // sequences whose blocks calibrate has looked for
  std::string weights_digest_;                       // of the weights that set_weights gave; empty: the first ones
  LabelLimits limits_;                               // what limits_of() answered last
  std::vector<std::shared_ptr<Request>> advancing_;  // all their live beams have been sampled from in this step
  Metrics metrics_;
  bool all_failed_ = true;  // false: the engine stopped, and not every request was told
};

}  // namespace kaiju

#include "kaiju/engine/detail/engine_banned.hpp"
#include "kaiju/engine/detail/engine_beams.hpp"
#include "kaiju/engine/detail/engine_cache_events.hpp"
#include "kaiju/engine/detail/engine_calls.hpp"
#include "kaiju/engine/detail/engine_prefetch.hpp"
#include "kaiju/engine/detail/engine_record.hpp"
#include "kaiju/engine/detail/engine_safety.hpp"
#include "kaiju/engine/detail/engine_saved.hpp"
#include "kaiju/engine/detail/engine_sequences.hpp"
#include "kaiju/engine/detail/engine_shares.hpp"
#include "kaiju/engine/detail/engine_step.hpp"
#include "kaiju/engine/detail/engine_weights.hpp"
