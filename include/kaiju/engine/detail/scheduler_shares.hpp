// What shares mean to the Scheduler: whose turn it is to start, and how a step is shared out. Part of scheduler.hpp,
// which says what each function promises.
#pragma once

#include "kaiju/engine/detail/scheduler.hpp"

namespace kaiju {

inline int64_t Scheduler::largest_bytes() const {
  const BlockNeed need = Lease::need_alone(info_.context, limits_.chunk_tokens, info_);
  int64_t bytes = 0;
  for (const BlockKind kind : kBothKinds) bytes += need.count[kind] * info_.block_bytes[kind];
  return bytes;
}

inline void Scheduler::set_share(ShareOf of, const std::string& name, const ShareLimits& limits) {
  const ShareId id = tree_.set_share(of, name, limits);
  places_.set(id, limits);
  const auto count = static_cast<size_t>(tree_.shares().count());
  computed_.resize(count);
  step_shares_.resize(count, {0, limits_.step_tokens});
  step_shares_[static_cast<size_t>(id)] = {floor_of(limits.step_floor, limits_.step_tokens),
                                           ceiling_of(limits.step_ceiling, limits_.step_tokens)};
  blocked_ = false;
}

inline ShareUsage Scheduler::usage(ShareId share) const {
  return {tree_.shares().at(share).bytes, places_.running(share), computed_[static_cast<size_t>(share)]};
}

// The share of a request's tenant; of its character, if the tenant has none.
inline void Scheduler::take_share(Request& request) {
  if (request.scheduled > 0) return;  // it keeps what it has
  request.share = tree_.shares().find(ShareOf::kTenant, request.scope.tenant);
  if (request.share == kCommonShare) request.share = tree_.shares().find(ShareOf::kCharacter, request.scope.character);
  request.step_share = request.beams ? kUnlimited : request.share;
}

// The first in the order of service whose share has a place, behind `after` if that is given; null: none.
inline Sequence* Scheduler::first_waiting(const Sequence* after) const {
  for (;;) {
    Sequence* const next = waiting_.first([this](ShareId share) { return places_.may_start(share); }, after);
    if (!next || !holds_new_ || next->started()) return next;
    after = next;
  }
}

// Whether every share may have one token of each of its running sequences in a step.
inline bool Scheduler::next_step_fits_shares() {
  for (size_t share = 1; share < step_shares_.size(); ++share)
    if (places_.running(static_cast<ShareId>(share)) > step_shares_[share].ceiling) return false;
  return true;
}

}  // namespace kaiju
