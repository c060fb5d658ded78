// Engine's step: inbox, plan, run, commit, tell. Part of engine_impl.hpp, which says what it promises.
#pragma once

#include "kaiju/engine/detail/engine_impl.hpp"

namespace kaiju {

inline void EngineImpl::metrics_from_scheduler() {
  metrics_.requests_waiting = scheduler_.waiting().size();
  metrics_.requests_running = 0;
  const Request* last = nullptr;  // sequences of one request follow one another in the order of service
  for (const auto& sequence : scheduler_.running()) {
    if (!sequence->live() || sequence->request.get() == last) continue;
    last = sequence->request.get();
    ++metrics_.requests_running;
  }
  metrics_.requests_suspended = scheduler_.suspended_requests();
  metrics_.cache = scheduler_.cache().stats();
  metrics_.tokens_from_cache = metrics_.cache.hits();
  for (const BlockKind kind : kBothKinds) {
    const BlockPool& pool = scheduler_.cache().pool();
    const auto count = [&](BlockState state) { return pool.count(kind, state); };
    metrics_.blocks[kind] = {pool.total(kind), count(BlockState::kFree), count(BlockState::kCached),
                             count(BlockState::kLive), count(BlockState::kPinned)};
  }
  if (const Tiers* tiers = scheduler_.cache().tiers()) {
    metrics_.host = tiers->stats(CacheTier::kHost);
    metrics_.file = tiers->stats(CacheTier::kFile);
    metrics_.file_status = tiers->file_status();
  }
}

inline Status EngineImpl::step() {
  KAIJU_TRY(check_process());
  if (!inbox_.enter_step())
    return {StatusCode::kBusy, "another thread is in step: try again when it is through, wait waits for that"};
  return step_entered();
}

// The step of the thread that has entered it, and leaves it here.
inline Status EngineImpl::step_entered() {
  Status answer = guarded<Status>([&] { return ready_to_step(); });
  if (answer.ok()) {
    StepOutcome outcome = StepOutcome::kFailed;
    answer = guarded<Status>([&] { return step_once(outcome); });
    if (outcome == StepOutcome::kFailed && !answer.ok()) {
      // A shortage of host memory half-way through the books leaves them unknown; one that the executor reports does
      // not.
      if (answer.code() == StatusCode::kOutOfMemory) answer = internal_error("no memory");
      stop(answer);
    }
  } else if (!all_failed_) {
    stop(answer);
  }
  inbox_.leave_step();
  return answer;
}

// What must hold before a step, and is no reason to stop when it does not.
inline Status EngineImpl::ready_to_step() const {
  return inbox_.locked([&](const Inbox& inbox) -> Status {
    if (inbox.stopped.ok() && inbox.events.size() >= static_cast<size_t>(options_.max_events))
      return {StatusCode::kBusy, std::to_string(inbox.events.size()) + " events are unread, and max_events is " +
                                     std::to_string(options_.max_events) + ": poll them first"};
    return inbox.stopped;
  });
}

// Not ok with kTryAgain: what the executor asked to wait for. Not ok with kFailed, which `outcome` is before and while
// anything can fail: the engine stops.
inline Status EngineImpl::step_once(StepOutcome& outcome) {
  const TimePoint begin = now();
  do_inbox();
  end_overdue(begin);
  take_due_prefetches(begin);
  if (plan_stage_ == PlanStage::kNone) {
    KAIJU_TRY(scheduler_.plan(plan_, begin));
    tell_moves();
    if (plan_.segments.empty() && plan_.copies.empty() && plan_.transfers.empty()) {
      if (scheduler_.running().empty() && scheduler_.has_waiting())
        return internal_error("cache ledger: request " + std::to_string(scheduler_.waiting().first()->request->id) +
                              " does not fit though nothing else is here");
      publish(false);
      outcome = StepOutcome::kNothingToDo;
      return {};
    }
  }
  const auto answer = [&](const Status& status) {
    if (plan_stage_ != PlanStage::kToRunAgain) return status;
    publish();  // cancels and suspensions, at least
    outcome = StepOutcome::kTryAgain;
    return status;
  };
  if (plan_stage_ != PlanStage::kStarted)
    if (const Status started = start(plan_); !started.ok()) return answer(started);
  next_plan_.clear();
  if (executor_->runs_beside_host()) KAIJU_TRY(scheduler_.plan_next(next_plan_));
  if (const Status ended = finish(); !ended.ok()) return answer(ended);
  KAIJU_TRY(scheduler_.fault());
  if (options_.check_ledger) KAIJU_TRY(scheduler_.check_ledger());
  publish();
  outcome = StepOutcome::kRan;
  return {};
}

// Whether an executor's answer leaves the plan to be run again.
inline bool EngineImpl::may_run_again(const Status& answer) {
  return answer.code() == StatusCode::kOutOfMemory || answer.code() == StatusCode::kBusy ||
         answer.code() == StatusCode::kIo;
}

// A call of the executor that a step is made of.
template <class Call>
inline Status EngineImpl::ask_executor(Call call) {
  const TimePoint before = now();
  const Status answer = call();
  metrics_.step_ns += static_cast<uint64_t>((now() - before).count);
  return answer;
}

inline Status EngineImpl::start(const StepPlan& plan) {
  const Status started = ask_executor([&] { return executor_->start(plan); });
  plan_stage_ = started.ok() ? PlanStage::kStarted : may_run_again(started) ? PlanStage::kToRunAgain : PlanStage::kNone;
  return started;
}

// Ends the started step. Where the next one is planned, it is started before this one has ended.
inline Status EngineImpl::finish() {
  const bool goes_on = !next_plan_.segments.empty();
  if (goes_on)
    if (const Status started = start(next_plan_); !started.ok() && plan_stage_ != PlanStage::kToRunAgain)
      return started;
  const PlanStage next_stage = goes_on ? plan_stage_ : PlanStage::kNone;
  plan_stage_ = PlanStage::kNone;
  const Status ended = ask_executor([&] { return executor_->finish(plan_, result_); });
  if (!ended.ok()) {
    if (!goes_on && may_run_again(ended)) plan_stage_ = PlanStage::kToRunAgain;  // else one was started after it
    return ended;
  }
  ++metrics_.steps;
  KAIJU_TRY(commit());
  plan_stage_ = next_stage;
  if (goes_on) std::swap(plan_, next_plan_);
  return {};
}

inline void EngineImpl::do_inbox() {
  inbox_.take_commands(commands_);
  tiers_ = inbox_.locked([](const Inbox& inbox) { return inbox.tiers; });
  for (Command& command : commands_) {
    switch (command.kind) {
      case Command::Kind::kSubmit:
        deadlines_.add(*command.sequences.front()->request);
        scheduler_.drop_prefetches(command.sequences.front()->request->session);
        for (std::unique_ptr<Sequence>& sequence : command.sequences) scheduler_.add(std::move(sequence));
        break;
      case Command::Kind::kFork:
        scheduler_.fork(command.session, command.child);
        break;
      case Command::Kind::kControl:
        do_control(command);
        break;
      case Command::Kind::kSequence:
        do_sequence_call(command.request, command.call);
        break;
      case Command::Kind::kShare:
        scheduler_.set_share(command.share.first, command.share.second, command.share_limits);
        break;
      case Command::Kind::kPrefetch:
        take_prefetch(std::move(command.prefetch));
        break;
      case Command::Kind::kDestroy:
        scheduler_.drop_prefetches(command.session);
        end_request(command.request, DoneReason::kCancelled);
        if (is_ending(command.session))
          closing_.push_back(command.session);
        else
          scheduler_.close(command.session);
        break;
    }
  }
  commands_.clear();
}

inline void EngineImpl::do_control(const Command& command) {
  if (command.control.cancel) return end_request(command.request, DoneReason::kCancelled);
  Request* const request = scheduler_.find(command.request);
  if (!request || request->unended == 0) return;
  for (size_t i = 0; i < request->sequences.size(); ++i) {
    Sequence* const sequence = request->sequences[i];
    if (!sequence || !sequence->live()) continue;
    if (command.control.suspend)
      suspend(*sequence);
    else
      resume(*sequence);
  }
}

inline void EngineImpl::suspend(Sequence& sequence) {
  if (sequence.state == SequenceState::kSuspended || sequence.state == SequenceState::kSuspending) return;
  if (sequence.has_slot() && is_planned(sequence))
    scheduler_.move(sequence, SequenceState::kSuspending);
  else
    scheduler_.suspend(sequence);
  tell_suspended(sequence);
}

inline void EngineImpl::resume(Sequence& sequence) {
  if (sequence.state == SequenceState::kSuspending)
    scheduler_.move(sequence, sequence.cut_to ? SequenceState::kCutting : SequenceState::kRunning);
  else if (sequence.state == SequenceState::kSuspended)
    scheduler_.resume(sequence);
}

inline void EngineImpl::end_overdue(TimePoint now) {
  while (const RequestId request = deadlines_.take_over(now)) end_request(request, DoneReason::kDeadline);
}

// Whether a sequence with a slot has to stay until the plan that was started, or is to be run again, has run: the
// cache's books count on it.
inline bool EngineImpl::is_planned(const Sequence& sequence) const {
  return plan_stage_ == PlanStage::kToRunAgain || sequence.granted > 0;
}

// Whether a sequence of the session has ended for the host, and a plan still computes it.
inline bool EngineImpl::is_ending(SessionId session) {
  const auto& running = scheduler_.running();
  return std::any_of(running.begin(), running.end(), [&](const auto& sequence) {
    return sequence->state == SequenceState::kEnding && sequence->request->session == session;
  });
}

// Ends all sequences of a request, wherever they are.
inline void EngineImpl::end_request(RequestId id, DoneReason reason) {
  Request* const request = scheduler_.find(id);
  if (!request || request->unended == 0) return;
  if (request->beams) return cancel_beams(*request, reason);
  const std::vector<Sequence*> sequences = request->sequences;  // the request goes with the last one
  for (Sequence* sequence : sequences)
    if (sequence && sequence->live()) end_sequence(*sequence, reason);
}

// Ends a sequence for the host. One that a plan still computes leaves when that has run.
inline void EngineImpl::end_sequence(Sequence& sequence, DoneReason reason) {
  if (sequence.has_slot() && is_planned(sequence)) {
    scheduler_.move(sequence, SequenceState::kEnding);
    tell_end(sequence, reason);
  } else {
    tell_end(*scheduler_.remove(sequence), reason);
  }
}

// The plan has run: removes sequences that ended, were suspended or were cut back while it computed them, unless the
// next started step contains them.
inline void EngineImpl::release_planned() {
  const auto& running = scheduler_.running();
  for (size_t i = 0; i < running.size(); ++i) {
    Sequence& sequence = *running[i];
    if (sequence.granted > 0) continue;
    if (sequence.state == SequenceState::kEnding) {
      scheduler_.finish(i);
      continue;
    }
    if (sequence.state == SequenceState::kSuspending) scheduler_.suspend(sequence);
    if (sequence.cut_to) cut(sequence, *sequence.cut_to);
  }
  std::erase_if(closing_, [&](SessionId session) {
    if (is_ending(session)) return false;
    scheduler_.close(session);
    return true;
  });
}

inline void EngineImpl::tell_suspended(Sequence& sequence) {
  if (std::exchange(sequence.told_suspended, true) || is_silent(sequence)) return;
  events_.push_back(event_of(sequence, EventKind::kSuspended));
}

inline void EngineImpl::tell_moves() {
  for (Sequence* sequence : scheduler_.displaced())
    if (!sequence->has_slot()) tell_suspended(*sequence);
  for (const auto& sequence : scheduler_.running())
    if (std::exchange(sequence->told_suspended, false) && !is_silent(*sequence))
      events_.push_back(event_of(*sequence, EventKind::kResumed));
}

inline Status EngineImpl::commit() {
  const TimePoint computed = now();
  scheduler_.commit_transfers(result_.failed_transfers);
  std::span<SampledToken> samples(result_.sampled);
  size_t segment = 0;
  const auto& running = scheduler_.running();
  for (size_t i = 0; i < running.size(); ++i) {
    Sequence& sequence = *running[i];
    if (sequence.granted == 0) {  // a guided one may be in the next step without having been in this one
      sequence.granted = std::exchange(sequence.granted_next, 0);
      continue;
    }
    const Segment& ran = plan_.segments[segment++];
    const auto sample_count = static_cast<size_t>(ran.sample_count);
    if (samples.size() < sample_count) return wrong_answer(samples);
    const std::span<SampledToken> own = samples.first(sample_count);
    samples = samples.subspan(sample_count);
    if (!sequence.decoding()) metrics_.tokens_prefilled += static_cast<uint64_t>(sequence.granted);
    if (!sequence.live() || sequence.cut_to) {
      scheduler_.commit(sequence, sequence.granted);
      continue;
    }
    if (sequence.request->beams) {
      scheduler_.commit(sequence, sequence.granted);
      if (sample_count == 0) continue;
      if (!fits(own[0], ran)) return wrong_answer(samples);
      take_beam_sample(sequence, own[0], computed);
      continue;
    }
    bool done = false;
    DoneReason reason = DoneReason::kLength;
    size_t kept = 0;
    if (sequence.request->max_tokens == 0 && sample_count > 0) {  // the prompt is scored, and no token is taken
      if (!fits(own[0], ran)) return wrong_answer(samples);
      if (judge(sequence, own[0].scores)) reason = DoneReason::kRefused;
      sequence.scores = std::move(own[0].scores);
      kept = sample_count;
    }
    for (bool confirmed = true; confirmed && !done && kept < sample_count; ++kept) {
      if (!fits(own[kept], ran)) return wrong_answer(samples);
      confirmed = kept < sequence.drafts.size() && sequence.drafts[kept] == own[kept].token;
      commit_token(sequence, own[kept], computed, done, reason);
    }
    scheduler_.commit(sequence, sequence.granted - static_cast<int32_t>(sample_count - kept));
    if (sample_count > 0) sequence.drafts.clear();
    if (sequence.request->max_tokens == 0 && sequence.remaining() == 0) {
      done = true;
      sequence.first_token = sequence.last_token = computed;
    }
    if (!done) continue;
    if (sequence.granted > 0) {  // a step that it does not need was started already
      scheduler_.move(sequence, SequenceState::kEnding);
      tell_end(sequence, reason);
    } else {
      tell_end(*scheduler_.finish(i), reason);
    }
  }
  for (const std::shared_ptr<Request>& request : advancing_) advance_beams(*request);
  advancing_.clear();
  release_planned();
  return {};
}

// Whether a sample is one that its segment asked for.
inline bool EngineImpl::fits(const SampledToken& sample, const Segment& segment) const {
  return sample.slot == segment.slot && sample.token >= 0 && sample.token < info().vocab_size &&
         sample.scores.size() == static_cast<size_t>(segment.scores ? info().label_count : 0);
}

inline Status EngineImpl::wrong_answer(std::span<const SampledToken> left) const {
  return internal_error("the executor's answer does not fit the plan: a row before the last " +
                        std::to_string(left.size()) + " of " + std::to_string(result_.sampled.size()));
}

inline void EngineImpl::commit_token(Sequence& sequence, SampledToken& sampled, TimePoint now, bool& done,
                                     DoneReason& reason) {
  const Request& request = *sequence.request;
  if (request.scores && judge(sequence, sampled.scores)) {
    done = true;
    reason = DoneReason::kRefused;
    return;
  }
  if (sequence.counts.generated == 0) sequence.first_token = now;
  sequence.last_token = now;
  sequence.tokens->push_back(sampled.token);
  ++sequence.counts.generated;
  ++metrics_.tokens_decoded;
  if (sequence.mirostat()) sequence.mus.push_back(sampled.mu);
  const bool stop_token =
      std::find(request.stop_tokens.begin(), request.stop_tokens.end(), sampled.token) != request.stop_tokens.end();
  Event event = event_of(sequence, EventKind::kToken);
  event.token = sampled.token;
  event.logprob = sampled.logprob;
  event.top = std::move(sampled.top);
  if (request.reports_scores) event.scores = std::move(sampled.scores);
  if (sequence.banned.any() && goes_back(sequence)) return;
  TextEnd text_end = TextEnd::kNone;
  event.text = std::exchange(sequence.begun_text, {});
  if (pieces_ && !stop_token) text_end = sequence.text.push(pieces_->piece(sampled.token), event.text);
  tell_token(sequence, std::move(event));
  if (stop_token || text_end != TextEnd::kNone) {
    done = true;
    reason = stop_token                   ? DoneReason::kStopToken
             : text_end == TextEnd::kLoop ? DoneReason::kLoop
                                          : DoneReason::kStopString;
  } else if (sequence.counts.generated >= request.max_tokens) {
    done = true;
    reason = DoneReason::kLength;
  }
}

inline Event EngineImpl::event_of(const Sequence& sequence, EventKind kind) const {
  const auto ns = [](TimePoint from, TimePoint to) -> int64_t {
    if (from == TimePoint() || to == TimePoint()) return 0;
    return (to - from).count;
  };
  Event event;
  event.kind = kind;
  event.request = sequence.request->id;
  event.session = sequence.request->session;
  event.user_data = sequence.request->user_data;
  event.sequence = sequence.index;
  event.counts = sequence.counts;
  event.reuse = sequence.reuse;
  event.timing = {ns(sequence.request->submitted, sequence.admitted), ns(sequence.admitted, sequence.first_token),
                  ns(sequence.first_token, sequence.last_token)};
  return event;
}

// Tells that a sequence has ended; with the last one of its request, that this is over, and what its session's history
// is now. Event and ending are told together or, where memory runs short, neither is.
inline void EngineImpl::tell_end(Sequence& sequence, DoneReason reason) {
  Request& request = *sequence.request;
  const bool refused = reason == DoneReason::kRefused;
  SharedTokens& history = request.histories[static_cast<size_t>(sequence.index)];
  history = sequence.tokens;
  if (refused && !sequence.held.empty()) {
    const auto told = sequence.tokens->end() - std::ssize(sequence.held);
    history = std::make_shared<const std::vector<int32_t>>(sequence.tokens->begin(), told);
    sequence.counts.generated -= static_cast<int32_t>(sequence.held.size());
  }
  for (Event& held : sequence.held)
    if (!refused) events_.push_back(std::move(held));
  const bool last = --request.unended == 0;
  Event event = event_of(sequence, last ? EventKind::kDone : EventKind::kSequenceDone);
  event.reason = reason;
  event.statistics = sequence.judge.statistics();
  if (request.reports_scores) event.scores = sequence.scores;
  if (refused) {
    event.label = sequence.refused_label;
    event.probability = sequence.judge.newest(sequence.refused_label);
  }
  if (reason == DoneReason::kStopToken) event.stop = sequence.tokens->back();
  if (reason == DoneReason::kStopString) event.stop = sequence.text.stop_index();
  event.counts.prompt_tokens = request.prompt_count;
  if (!refused || sequence.held.empty()) sequence.text.finish(event.text);
  sequence.held.clear();
  if (request.recorded) event.record = record_of(request, sequence.sampling.stream, sequence.tokens, event);
  tell_reply_end(request, std::move(event));
}

// The event that ends one reply of a request: kDone ends the request too.
inline void EngineImpl::tell_reply_end(Request& request, Event event) {
  if (event.kind != EventKind::kDone) {
    events_.push_back(std::move(event));
    return;
  }
  deadlines_.remove(request);
  ++metrics_.requests_done;
  tell_end(std::move(event), {request.id, request.session, true, std::move(request.histories)});
}

inline void EngineImpl::tell_end(Event event, Ending ending) {
  if (endings_.size() == endings_.capacity()) endings_.reserve(2 * endings_.size() + 1);
  events_.push_back(std::move(event));
  endings_.push_back(std::move(ending));
}

// Latches the error and fails everything that is here or still arrives. What memory does not suffice for is left to the
// next call of step.
inline void EngineImpl::stop(const Status& error) {
  if (all_failed_) inbox_.stop(error);  // from here on submit refuses, so the inbox is the last
  all_failed_ = false;
  const Status stopped = guarded<Status>([&]() -> Status {
    publish();
    const auto fail = [&](const Sequence& sequence) {
      Request& request = *sequence.request;
      if (request.unended == 0) return;
      Event event = event_of(sequence, EventKind::kFailed);
      event.sequence = 0;
      event.status = error;
      tell_end(std::move(event), {request.id, request.session, false, {}});
      request.unended = 0;
      ++metrics_.requests_failed;
    };
    for (const auto& sequence : scheduler_.running()) fail(*sequence);
    scheduler_.waiting().for_each(fail);
    for (const auto& sequence : scheduler_.suspended()) fail(*sequence);
    const auto fail_commands = [&] {
      for (const Command& command : commands_)
        for (const std::unique_ptr<Sequence>& sequence : command.sequences)
          if (sequence) fail(*sequence);
    };
    fail_commands();  // those of this step that were not come to
    inbox_.take_commands(commands_);
    fail_commands();
    commands_.clear();
    scheduler_.abandon();
    deadlines_.clear();
    timed_prefetches_.clear();
    publish();
    inbox_.fail_unfinished();  // requests that were between two lists when memory ran short
    all_failed_ = true;
    return {};
  });
  (void)stopped;
}

}  // namespace kaiju
