// Which waiting sequences of the Scheduler get a slot and memory. Part of scheduler.hpp, which says what each function
// promises.
#pragma once

#include "kaiju/engine/detail/scheduler.hpp"

namespace kaiju {

inline Status Scheduler::check_fits(int32_t prompt_tokens, int32_t max_tokens) const {
  const int32_t positions = prompt_tokens + std::max(0, max_tokens - 1);
  const BlockNeed need = Lease::need_alone(positions, limits_.chunk_tokens, info_);
  if (tree_.pool().could_ever_hold(need)) return {};
  const bool shared = tree_.pool().shared();
  std::string needed, whole;
  for (const BlockKind kind : kBothKinds) {
    if (!tree_.uses(kind)) continue;
    const std::string blocks = std::string(" ") + name_of(kind) + " blocks",
                      total = std::to_string(tree_.pool().total(kind));
    needed += (needed.empty() ? "" : " and ") + std::to_string(need.count[kind]) + blocks +
              (shared ? "" : " (of " + total + ")");
    whole += (whole.empty() ? "" : " or ") + total + blocks;
  }
  return {StatusCode::kOutOfMemory, std::to_string(prompt_tokens) + " prompt tokens and " + std::to_string(max_tokens) +
                                        " to generate need " + needed + " of " + std::to_string(kBlockTokens) +
                                        " tokens" + (shared ? " in one memory, which " + whole + " alone fill" : "") +
                                        ": ask for fewer tokens or give the engine more memory"};
}

// A sequence whose memory was reserved in parts, and is used up, asks for more at its place in the order of service.
inline void Scheduler::renew() {
  displaced_.clear();
  close_gaps();
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->token_count() <= running_[i]->leased_positions) continue;
    displaced_.push_back(running_[i].get());
    std::unique_ptr<Sequence> stopped = stop(i);
    move(*stopped, SequenceState::kWaiting);
    wait(std::move(stopped));
  }
  close_gaps();
}

inline int32_t Scheduler::positions_to_lease(const Sequence& sequence) const {
  const int32_t most = sequence.request->most_positions();
  if (limits_.reserve_tokens == 0 || sequence.request->beams) return most;
  return static_cast<int32_t>(std::min<int64_t>(most, int64_t{sequence.token_count()} + limits_.reserve_tokens));
}

// Blocks that running sequences release are free again although no sequence has left.
inline bool Scheduler::blocked() {
  for (const BlockKind kind : kBothKinds)
    if (tree_.pool().busy_count(kind) < busy_when_blocked_[kind]) blocked_ = false;
  return blocked_;
}

// In the order of service; no sequence overtakes the first of those whose shares have a place. One that did not fit is
// tried again when something has become free. A sequence whose prefix can be promoted from a lower tier waits one step;
// sequences after it wait too, and what lower tiers hold of them is promoted meanwhile.
inline void Scheduler::admit(StepPlan& plan, TimePoint now) {
  BlockNeed promised;
  size_t promoting = 0;  // of the waiting, from the first on
  Sequence* next = first_waiting();
  while (!blocked() && next && running_.size() + promoting < static_cast<size_t>(limits_.max_running)) {
    Sequence& sequence = *next;
    if (promote(sequence, promised) || promoting > 0) {
      ++promoting;
      next = first_waiting(&sequence);
      continue;
    }
    if (!start(sequence, plan) && !(release_promoted() && start(sequence, plan))) {
      blocked_ = true;
      for (const BlockKind kind : kBothKinds) busy_when_blocked_[kind] = tree_.pool().busy_count(kind);
      break;
    }
    move(sequence, SequenceState::kRunning);
    if (!sequence.started()) sequence.admitted = now;
    running_.insert(place_for(running_, sequence), waiting_.extract(sequence));
    places_.start(sequence.request->step_share);
    next = first_waiting();
  }
  release_promoted();
}

// Beam searches that hold slots and wait for more can keep each other waiting. If nothing computes, and the first of
// the waiting belongs to a search, the search that is last in the order of service gives a slot up. Its sequence waits,
// and later starts again from the cache. False: no sequence has given up its slot.
inline bool Scheduler::give_way() {
  const Sequence* const waiting = waiting_.first();  // also where no place is free for it
  if (!waiting || !waiting->request->beams || computes()) return false;
  const Sequence& first = *waiting;
  close_gaps();
  for (size_t i = running_.size(); i-- > 0;) {
    Sequence& last = *running_[i];
    if (!last.request->beams || last.state != SequenceState::kRunning || !goes_before(first, last)) continue;
    std::unique_ptr<Sequence> stopped = stop(i);
    move(last, SequenceState::kWaiting);
    wait(std::move(stopped));
    close_gaps();
    return true;
  }
  return false;
}

// Begins to copy up what lower tiers hold of a sequence. False: it need not wait for that.
inline bool Scheduler::promote(Sequence& sequence, BlockNeed& promised) {
  if (sequence.state == SequenceState::kPromoting || !tree_.tiers()) return false;
  Promotion promotion;
  const Promotion::Outcome outcome = promotion.begin(tree_, lease_request(sequence), promised);
  if (outcome != Promotion::Outcome::kBegun) return outcome == Promotion::Outcome::kWait;
  move(sequence, SequenceState::kPromoting);
  sequence.promoted_from_file = promotion.from_file();
  sequence.resident = promotion.resident();
  promoting_.push_back(std::move(promotion));
  return true;
}

// What was copied up is held until the sequences it is for could start; from then on it is cached like everything else.
inline bool Scheduler::release_promoted() {
  for (Promotion& promotion : promoted_) promotion.release(tree_);
  const bool any = !promoted_.empty();
  promoted_.clear();
  return any;
}

// The sequence that it was forked from, while that has computed the same tokens and no more; null: it has not.
inline const Sequence* Scheduler::twin_of(const Sequence& sequence) {
  if (sequence.twin < 0 || sequence.ran_before) return nullptr;
  const Sequence* const twin = sequence.request->sequences[static_cast<size_t>(sequence.twin)];
  const auto count = static_cast<std::ptrdiff_t>(sequence.token_count()) - 1;
  if (!twin || !twin->has_slot() || twin->next != count || twin->cut_to) return nullptr;
  return std::equal(sequence.tokens->begin(), sequence.tokens->begin() + count, twin->tokens->begin()) ? twin : nullptr;
}

inline LeaseRequest Scheduler::lease_request(Sequence& sequence) {
  LeaseRequest request;
  request.prompt = *sequence.tokens;
  request.most_positions = sequence.leased_positions = positions_to_lease(sequence);
  request.chunk_tokens = limits_.chunk_tokens;
  if (!sequence.request->regions_before)
    sequence.request->regions_before = books_.regions_before(sequence.request->session);
  request.regions_before = *sequence.request->regions_before;
  request.regions = books_.regions(sequence.request->session, sequence.request->scope);
  request.owner = sequence.request->session;
  request.claimant.share = tree_.domains().at(request.regions.own).share;
  request.counted_from = sequence.counted;
  request.last_waits = sequence.request->guided;
  if (const Sequence* const twin = twin_of(sequence)) request.twin = &twin->lease;
  return request;
}

// Holds what the cache has of the sequence, and every block that it may ever need, or nothing.
inline bool Scheduler::start(Sequence& sequence, StepPlan& plan) {
  LeaseRequest request = lease_request(sequence);
  request.ticket = last_ticket_ = last_ticket_ % INT32_MAX + 1;
  const EditSink sink = {&plan, free_slots_.back()};
  constexpr Reuse kReuses[] = {Reuse::kAll, Reuse::kWholeBlocks, Reuse::kGlobalOnly, Reuse::kNothing};
  for (size_t tries = 0; tries < 2 * std::size(kReuses); ++tries) {
    const Reuse reuse = kReuses[tries % std::size(kReuses)];
    if (reuse >= Reuse::kGlobalOnly && !running_.empty()) return false;  // better wait than compute again
    request.claimant.over_floors = tries >= std::size(kReuses);          // nothing else runs: better that than nothing
    if (request.claimant.over_floors && !tree_.shares().any()) return false;
    if (sequence.lease.start(tree_, request, reuse, sink) != Lease::Outcome::kStarted) continue;
    sequence.slot = free_slots_.back();
    free_slots_.pop_back();
    sequence.next = sequence.lease.next();
    sequence.counts.prompt_tokens = sequence.request->prompt_count;
    if (!sequence.ran_before) {
      sequence.counts.cached_tokens = std::min(sequence.next, sequence.request->prompt_count);
      sequence.reuse = sequence.lease.reuse_report();
    }
    if (sequence.state == SequenceState::kPromoting)
      (sequence.promoted_from_file ? tree_.stats().hit_file : tree_.stats().hit_host) +=
          static_cast<uint64_t>(std::max(0, sequence.next - std::max(sequence.resident, sequence.counted)));
    return true;
  }
  return false;
}

}  // namespace kaiju
