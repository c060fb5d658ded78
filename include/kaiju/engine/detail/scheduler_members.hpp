// Which list of the Scheduler holds a sequence, and how it moves from one to another. Part of scheduler.hpp, which says
// what each function promises.
#pragma once

#include "kaiju/engine/detail/scheduler.hpp"

namespace kaiju {

inline void Scheduler::add(std::unique_ptr<Sequence>&& sequence) {
  Request& request = *sequence->request;
  books_.open(request.session);
  take_share(request);
  requests_.try_emplace(request.id, sequence->request);
  Sequence* const here = wait(std::move(sequence));
  request.sequences[static_cast<size_t>(here->index)] = here;
  ++request.scheduled;
}

inline Request* Scheduler::find(RequestId request) const {
  const auto found = requests_.find(request);
  return found == requests_.end() ? nullptr : found->second.get();
}

inline std::unique_ptr<Sequence> Scheduler::remove(Sequence& sequence) {
  return leave(take(sequence), SequenceState::kEnded);
}

inline void Scheduler::suspend(Sequence& sequence) {
  std::unique_ptr<Sequence> taken = take(sequence);
  move(sequence, SequenceState::kSuspended);
  suspended_.insert(std::move(taken));
  if (sequence.request->suspended++ == 0) ++suspended_requests_;
}

inline void Scheduler::resume(Sequence& sequence) {
  std::unique_ptr<Sequence> taken = take(sequence);
  move(sequence, SequenceState::kWaiting);
  wait(std::move(taken));
}

inline void Scheduler::cut(Sequence& sequence, int32_t count) {
  const auto shorten = [&] {
    sequence.tokens->resize(static_cast<size_t>(count));
    sequence.next = std::min(sequence.next, count);
    sequence.counts.generated = count - sequence.request->prompt_count;
    sequence.forget_mus();
    sequence.drafts.clear();
    sequence.cut_to.reset();
  };
  if (!sequence.has_slot()) return shorten();
  std::unique_ptr<Sequence> stopped = stop(sequence.row);
  shorten();
  move(sequence, SequenceState::kWaiting);
  wait(std::move(stopped));
}

inline void Scheduler::restart_running() {
  close_gaps();
  for (size_t i = 0; i < running_.size(); ++i) {
    std::unique_ptr<Sequence> stopped = stop(i);
    stopped->request->regions_before.reset();
    stopped->beam.sampled = false;
    if (stopped->beam.spare) stopped->tokens->resize(1);  // it computes nothing: it must not claim blocks of the prompt
    move(*stopped, SequenceState::kWaiting);
    wait(std::move(stopped));
  }
  close_gaps();
}

inline void Scheduler::discard(Sequence& sequence) {
  std::unique_ptr<Sequence> taken = take(sequence);
  drop_points(sequence);
  leave(std::move(taken), SequenceState::kEnded);
}

inline void Scheduler::give_up(Sequence& sequence) {
  if (sequence.state == SequenceState::kSuspending) {
    suspend(sequence);
  } else if (sequence.has_slot()) {
    std::unique_ptr<Sequence> stopped = stop(sequence.row);
    move(sequence, SequenceState::kWaiting);
    wait(std::move(stopped));
  }
  drop_points(sequence);
  sequence.ran_before = false;
}

inline void Scheduler::drop_points(Sequence& sequence) {
  for (std::vector<NodeRef>* points : {&sequence.first_points, &sequence.last_points}) {
    for (const NodeRef& point : *points) tree_.drop_point(point);
    points->clear();
  }
}

inline void Scheduler::abandon() {
  running_.clear();
  waiting_.clear();
  suspended_.clear();
  requests_.clear();
  prefetches_.clear();
  suspended_requests_ = 0;
}

// Takes a sequence out of its list.
inline std::unique_ptr<Sequence> Scheduler::take(Sequence& sequence) {
  if (sequence.has_slot()) return stop(sequence.row);
  if (sequence.state == SequenceState::kSuspended) {
    if (--sequence.request->suspended == 0) --suspended_requests_;
    return std::move(suspended_.extract(suspended_.find(sequence)).value());
  }
  release_promoted();
  blocked_ = false;
  return waiting_.extract(sequence);
}

// Takes running sequence `i` out of its slot. What it has computed stays in the cache.
inline std::unique_ptr<Sequence> Scheduler::stop(size_t i) {
  std::unique_ptr<Sequence> sequence = std::move(running_[i]);
  has_gaps_ = true;
  std::vector<NodeRef> points = sequence->lease.finish(tree_, *sequence->tokens);
  if (sequence->ran_before) {
    for (const NodeRef& point : sequence->last_points) tree_.drop_point(point);
    sequence->last_points = std::move(points);
  } else {
    sequence->first_points = std::move(points);
  }
  sequence->ran_before = true;
  sequence->counted =
      std::max(sequence->counted, sequence->next < sequence->request->prompt_count ? sequence->next : kAllCounted);
  sequence->lease = Lease();
  free_slots_.push_back(sequence->slot);
  places_.stop(sequence->request->step_share);
  sequence->slot = -1;
  sequence->granted = sequence->granted_next = 0;
  blocked_ = false;
  return sequence;
}

// Erased one by one, as many as end in a step would each move all behind them.
inline void Scheduler::close_gaps() {
  if (!std::exchange(has_gaps_, false)) return;
  std::erase(running_, nullptr);
  for (size_t i = 0; i < running_.size(); ++i) running_[i]->row = i;
}

// Puts a sequence at its place among the waiting.
inline Sequence* Scheduler::wait(std::unique_ptr<Sequence>&& sequence) {
  Sequence* const here = waiting_.insert(std::move(sequence));
  if (here == first_waiting()) blocked_ = false;  // the one that did not fit is not the first any more
  return here;
}

// A sequence that was taken out of its list leaves the scheduler, and with the last one its request.
inline std::unique_ptr<Sequence> Scheduler::leave(std::unique_ptr<Sequence> sequence, SequenceState state) {
  move(*sequence, state);
  Request& request = *sequence->request;
  request.sequences[static_cast<size_t>(sequence->index)] = nullptr;
  if (sequence->ran_before) {
    for (std::vector<NodeRef>* points : {&sequence->first_points, &sequence->last_points})
      request.points.insert(request.points.end(), points->begin(), points->end());
    request.ran = true;
  }
  if (--request.scheduled == 0) {
    requests_.erase(request.id);
    if (request.ran) books_.turn_ended(request.session, std::move(request.points));
  }
  return sequence;
}

inline bool Scheduler::has_started() const {
  const auto started = [](const auto& sequence) { return sequence && sequence->started(); };
  bool waits = false;
  waiting_.for_each([&](const Sequence& sequence) { waits |= sequence.started(); });
  return waits || std::any_of(running_.begin(), running_.end(), started) ||
         std::any_of(suspended_.begin(), suspended_.end(), started);
}

}  // namespace kaiju
