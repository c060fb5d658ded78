// Engine's step: inbox, plan, run, commit, tell. Part of engine_impl.hpp, which says what it promises.
#pragma once

#include "kaiju/engine/detail/engine_impl.hpp"

namespace kaiju {

inline void EngineImpl::metrics_from_scheduler() {
  metrics_.requests_waiting = scheduler_.waiting().size();
  const auto& running = scheduler_.running();
  metrics_.requests_running = static_cast<uint64_t>(
      std::count_if(running.begin(), running.end(), [](const auto& sequence) { return !sequence->ended; }));
  metrics_.requests_suspended = scheduler_.suspended().size();
  metrics_.cache = scheduler_.cache().stats();
  metrics_.tokens_from_cache = metrics_.cache.hits();
  for (const BlockKind kind : kBothKinds) {
    const BlockPool& pool = scheduler_.cache().pool();
    const auto count = [&](BlockState state) { return pool.count(kind, state); };
    metrics_.blocks[static_cast<int>(kind)] = {pool.total(kind), count(BlockState::kFree), count(BlockState::kCached),
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
    answer = guarded<Status>([&] { return step_once(); });
    if (!answer.ok() && !plan_waits_) {
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

inline Status EngineImpl::step_once() {
  const TimePoint begin = now();
  do_inbox();
  end_overdue(begin);
  if (!plan_waits_ && !under_way_) {
    KAIJU_TRY(scheduler_.plan(plan_, begin));
    tell_moves();
    if (plan_.segments.empty() && plan_.copies.empty() && plan_.transfers.empty()) {
      if (scheduler_.running().empty() && !scheduler_.waiting().empty())
        return internal_error("cache ledger: request " + std::to_string((*scheduler_.waiting().begin())->request) +
                              " does not fit though nothing else is here");
      publish();
      return {};
    }
  }
  const auto tell = [&](const Status& status) {
    if (!status.ok() && plan_waits_) publish();  // who was cancelled or suspended, at least
    return status;
  };
  if (!under_way_) KAIJU_TRY(tell(start(plan_)));
  next_plan_.clear();
  if (executor_->runs_beside_host()) KAIJU_TRY(scheduler_.plan_next(next_plan_));
  KAIJU_TRY(tell(finish()));
  if (options_.check_ledger) KAIJU_TRY(scheduler_.check_ledger());
  publish();
  return {};
}

// A call of the executor that a step is made of. Who asks to try again has the plan wait.
template <class Call>
inline Status EngineImpl::ask_executor(Call call) {
  const TimePoint before = now();
  const Status answer = call();
  metrics_.step_ns += static_cast<uint64_t>((now() - before).count);
  plan_waits_ = answer.code() == StatusCode::kOutOfMemory || answer.code() == StatusCode::kBusy ||
                answer.code() == StatusCode::kIo;
  return answer;
}

inline Status EngineImpl::start(const StepPlan& plan) {
  const Status started = ask_executor([&] { return executor_->start(plan); });
  under_way_ = started.ok();
  return started;
}

// Ends the step under way. Where the next one is planned, it is under way before this one has ended.
inline Status EngineImpl::finish() {
  const bool goes_on = !next_plan_.segments.empty();
  if (goes_on) {
    const Status started = start(next_plan_);
    if (!started.ok() && !plan_waits_) return started;
  }
  const bool next_waits = std::exchange(plan_waits_, false),
             next_under_way = std::exchange(under_way_, false) && goes_on;
  const Status ended = ask_executor([&] { return executor_->finish(plan_, result_); });
  if (goes_on) plan_waits_ = false;  // with one behind it, it cannot be run again
  KAIJU_TRY(ended);
  ++metrics_.steps;
  KAIJU_TRY(commit());
  plan_waits_ = next_waits;
  under_way_ = next_under_way;
  if (goes_on) std::swap(plan_, next_plan_);
  return {};
}

inline void EngineImpl::do_inbox() {
  inbox_.take_commands(commands_);
  for (Command& command : commands_) {
    switch (command.kind) {
      case Command::Kind::kSubmit:
        deadlines_.add(*command.sequence);
        scheduler_.add(std::move(command.sequence));
        break;
      case Command::Kind::kFork:
        scheduler_.fork(command.session, command.child);
        break;
      case Command::Kind::kControl:
        do_wish(command);
        break;
      case Command::Kind::kDestroy:
        end_request(command.request, DoneReason::kCancelled);
        if (leaving_.contains(command.session))
          closing_.push_back(command.session);
        else
          scheduler_.close(command.session);
        break;
    }
  }
  commands_.clear();
}

inline void EngineImpl::do_wish(const Command& command) {
  Sequence* const in_plan = planned(command.request);
  if (command.control.cancel) {
    end_request(command.request, DoneReason::kCancelled);
  } else if (in_plan) {
    if (in_plan->ended) return;  // meanwhile
    in_plan->aside = command.control.suspend;
    if (in_plan->aside) tell_suspended(*in_plan);
  } else if (command.control.suspend) {
    if (Sequence* sequence = scheduler_.suspend(command.request)) tell_suspended(*sequence);
  } else {
    scheduler_.resume(command.request);
  }
}

inline void EngineImpl::end_overdue(TimePoint now) {
  while (const RequestId request = deadlines_.take_over(now)) end_request(request, DoneReason::kDeadline);
}

// Whether a running sequence has to stay until the plan that is under way or waits has run: the cache's books count on
// it.
inline bool EngineImpl::is_planned(const Sequence& sequence) const { return plan_waits_ || sequence.granted > 0; }

inline Sequence* EngineImpl::planned(RequestId request) const {
  Sequence* const sequence = scheduler_.find(request);
  return sequence && sequence->slot >= 0 && is_planned(*sequence) ? sequence : nullptr;
}

// Over for the host, in the plan still.
inline void EngineImpl::end_planned(Sequence& sequence, DoneReason reason) {
  if (std::exchange(sequence.ended, true)) return;
  leaving_.insert(sequence.session);
  end(sequence, reason);
}

// Ends a request, wherever it is.
inline void EngineImpl::end_request(RequestId request, DoneReason reason) {
  if (Sequence* sequence = planned(request)) {
    end_planned(*sequence, reason);
  } else if (std::unique_ptr<Sequence> gone = scheduler_.remove(request)) {
    end(*gone, reason);
  }
}

// The plan has run: who was only waiting for that goes, unless the next one has it.
inline void EngineImpl::let_leave() {
  const auto& running = scheduler_.running();
  for (size_t i = 0; i < running.size(); ++i) {
    Sequence& sequence = *running[i];
    if (sequence.granted > 0) continue;
    if (sequence.ended) {
      leaving_.erase(sequence.session);
      scheduler_.finish(i);
    } else if (std::exchange(sequence.aside, false)) {
      scheduler_.suspend(sequence.request);
    }
  }
  std::erase_if(closing_, [&](SessionId session) {
    if (leaving_.contains(session)) return false;
    scheduler_.close(session);
    return true;
  });
}

inline void EngineImpl::tell_suspended(Sequence& sequence) {
  if (std::exchange(sequence.suspended, true)) return;
  events_.push_back(event_of(sequence, EventKind::kSuspended));
}

inline void EngineImpl::tell_moves() {
  for (Sequence* sequence : scheduler_.displaced())
    if (sequence->slot < 0) tell_suspended(*sequence);
  for (const auto& sequence : scheduler_.running())
    if (std::exchange(sequence->suspended, false)) events_.push_back(event_of(*sequence, EventKind::kResumed));
}

inline Status EngineImpl::commit() {
  const TimePoint computed = now();
  scheduler_.commit_transfers(result_.failed_transfers);
  size_t sampled = 0;
  size_t segment = 0;
  const auto& running = scheduler_.running();
  for (size_t i = 0; i < running.size(); ++i) {
    Sequence& sequence = *running[i];
    if (sequence.granted == 0) continue;
    const Segment& ran = plan_.segments[segment++];
    if (!sequence.decoding()) metrics_.tokens_prefilled += static_cast<uint64_t>(sequence.granted);
    scheduler_.commit(sequence);
    if (sequence.ended) {
      sampled += ran.sample;
      continue;
    }
    bool done = sequence.max_tokens == 0 && sequence.remaining() == 0;
    if (done) sequence.first_token = sequence.last_token = computed;
    DoneReason reason = DoneReason::kLength;
    if (ran.sample) {
      if (sampled >= result_.sampled.size() || result_.sampled[sampled].slot != ran.slot ||
          result_.sampled[sampled].token < 0 || result_.sampled[sampled].token >= info().vocab_size ||
          result_.sampled[sampled].scores.size() != static_cast<size_t>(ran.scores ? info().label_count : 0))
        return internal_error("the executor's answer does not fit the plan: row " + std::to_string(sampled) + " of " +
                              std::to_string(result_.sampled.size()));
      commit_token(sequence, result_.sampled[sampled++], computed, done, reason);
    }
    if (!done) continue;
    if (sequence.granted > 0)  // one row more than it needed is under way
      end_planned(sequence, reason);
    else
      end(*scheduler_.finish(i), reason);
  }
  let_leave();
  return {};
}

inline void EngineImpl::commit_token(Sequence& sequence, SampledToken& sampled, TimePoint now, bool& done,
                                     DoneReason& reason) {
  if (sequence.counts.generated == 0) sequence.first_token = now;
  sequence.last_token = now;
  sequence.tokens.push_back(sampled.token);
  ++sequence.counts.generated;
  ++metrics_.tokens_decoded;
  const bool stop_token =
      std::find(sequence.stop_tokens.begin(), sequence.stop_tokens.end(), sampled.token) != sequence.stop_tokens.end();
  Event event = event_of(sequence, EventKind::kToken);
  event.token = sampled.token;
  event.logprob = sampled.logprob;
  event.top = std::move(sampled.top);
  event.scores = std::move(sampled.scores);
  bool stop_string = false;
  if (pieces_ && !stop_token) stop_string = sequence.text.push(pieces_->piece(sampled.token), event.text);
  events_.push_back(std::move(event));
  if (stop_token || stop_string) {
    done = true;
    reason = DoneReason::kStop;
  } else if (sequence.counts.generated >= sequence.max_tokens) {
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
  event.request = sequence.request;
  event.session = sequence.session;
  event.user_data = sequence.user_data;
  event.counts = sequence.counts;
  event.timing = {ns(sequence.submitted, sequence.admitted), ns(sequence.admitted, sequence.first_token),
                  ns(sequence.first_token, sequence.last_token)};
  return event;
}

// Event and ending are told together or, where memory runs short, neither is.
inline void EngineImpl::tell_end(Event event, Ending ending) {
  if (endings_.size() == endings_.capacity()) endings_.reserve(2 * endings_.size() + 1);
  events_.push_back(std::move(event));
  endings_.push_back(std::move(ending));
}

// Tells that a request is over, and what its session's history is now.
inline void EngineImpl::end(Sequence& sequence, DoneReason reason) {
  deadlines_.remove(sequence);
  Event event = event_of(sequence, EventKind::kDone);
  event.reason = reason;
  event.counts.prompt_tokens = sequence.prompt_count;
  sequence.text.finish(event.text);
  tell_end(std::move(event), {sequence.request, sequence.session, true, sequence.tokens});
  ++metrics_.requests_done;
}

// Latches the error and fails everything that is here or still arrives. What memory does not suffice for is left to the
// next call of step.
inline void EngineImpl::stop(const Status& error) {
  if (all_failed_) inbox_.stop(error);  // from here on submit refuses, so the inbox is the last
  all_failed_ = false;
  const Status stopped = guarded<Status>([&]() -> Status {
    publish();
    const auto fail = [&](Sequence& sequence) {
      if (sequence.ended) return;
      Event event = event_of(sequence, EventKind::kFailed);
      event.status = error;
      tell_end(std::move(event), {sequence.request, sequence.session, false, {}});
      sequence.ended = true;
      ++metrics_.requests_failed;
    };
    for (const auto& sequence : scheduler_.running()) fail(*sequence);
    for (const auto& sequence : scheduler_.waiting()) fail(*sequence);
    for (const auto& sequence : scheduler_.suspended()) fail(*sequence);
    const auto fail_commands = [&] {
      for (const Command& command : commands_)
        if (command.sequence) fail(*command.sequence);
    };
    fail_commands();  // those of this step that were not come to
    inbox_.take_commands(commands_);
    fail_commands();
    commands_.clear();
    scheduler_.abandon();
    deadlines_.clear();
    publish();
    inbox_.fail_unfinished();  // who was on the way from one list to another when memory ran short
    all_failed_ = true;
    return {};
  });
  (void)stopped;
}

}  // namespace kaiju
