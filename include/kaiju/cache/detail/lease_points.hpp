// Lease: adds resume points at the ends of turns, at the ends of shared regions, where sequences branch, and at regular
// intervals. Part of lease.hpp, which states the contract.
#pragma once

#include "kaiju/cache/lease.hpp"

namespace kaiju {

template <class Visit>
void Lease::for_turn_points(Visit visit) const {
  if (next_at_start_ > 0) visit(next_at_start_);  // where the turn before ended
  if (limit() > 0) visit(limit());                // the first generated token: a swipe
}

// Whether a resume point to come needs the window block at `index`.
inline bool Lease::keeps(const PrefixTree& tree, int32_t index) const {
  const Retention& retention = tree.retention();
  bool kept = false;
  const auto look = [&](int32_t position) {
    const int32_t node = (position - 1) / kBlockTokens;
    kept = kept || (index <= node && index >= node - tree.reach());
  };
  if (retention.turns > 0) for_turn_points(look);
  if (const int32_t end = request_.regions.shared_tokens; retention.branch_points && end > 0 && end <= prompt_count_)
    look(end);
  if (const int32_t every = retention.every_tokens; every > 0) look((index * kBlockTokens / every + 1) * every);
  return kept;
}

inline void Lease::mark_found(PrefixTree& tree) {
  next_at_start_ = next_;
  if (tree.retention().turns > 0)
    for_turn_points([&](int32_t position) {
      if (const int32_t index = (position - 1) / kBlockTokens; index < completed_) mark_turn(tree, path_[at(index)]);
    });
  // Another sequence went on from here otherwise: more may.
  if (next_ > 0 && next_ % kBlockTokens == 0)
    if (const NodeId node = path_[at(next_ / kBlockTokens - 1)]; tree.has_branches(node)) tree.mark_branch_point(node);
}

inline void Lease::mark_at(PrefixTree& tree, int32_t index, NodeId node) {
  const Retention& retention = tree.retention();
  if (retention.turns > 0)
    for_turn_points([&](int32_t position) {
      if ((position - 1) / kBlockTokens == index) mark_turn(tree, node);
    });
  if (request_.regions.shared_tokens == (index + 1) * kBlockTokens) tree.mark_branch_point(node);
  if (const int32_t every = retention.every_tokens;
      every > 0 && (index + 1) * kBlockTokens / every > index * kBlockTokens / every)
    tree.add_point(node);
}

inline void Lease::mark_turn(PrefixTree& tree, NodeId node) {
  tree.add_point(node);
  points_.push_back(tree.ref(node));
}

}  // namespace kaiju
