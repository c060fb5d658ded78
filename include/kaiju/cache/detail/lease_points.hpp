// Lease: adds resume points at the ends of turns and behind them, at the ends of shared regions, where sequences
// branch, and at regular intervals; and tells which of the points that are there its request has used. Part of
// lease.hpp, which states the contract.
#pragma once

#include "kaiju/cache/lease.hpp"

namespace kaiju {

// Where a later prompt is likely to continue: where the turn before ended, at the first generated token (a swipe), and
// at distances before it that grow fourfold (an end that was written anew, an edit), as far as those are worth their
// memory.
inline void Lease::plan_points(const PrefixTree& tree) {
  constexpr int32_t kNearest = 8, kGrowth = 4;  // blocks
  if (tree.retention().turns <= 0) return;
  if (next_at_start_ > 0) turn_points_.push_back(next_at_start_);
  if (limit() > 0) turn_points_.push_back(limit());
  const int32_t first = std::max(next_at_start_, request_.regions.shared_tokens);
  for (int32_t behind = kNearest; tree.uses(BlockKind::kWindow); behind *= kGrowth) {
    const int32_t position = limit() - behind * kBlockTokens;
    if (position <= first) return;
    const int32_t above = std::min((position - first) / kBlockTokens + 1, behind * (kGrowth - 1));
    (tree.worth_point(above, behind, uses_) ? turn_points_ : watched_points_).push_back(position);
  }
}

// Whether a resume point to come needs the window block at `index`.
inline bool Lease::keeps(const PrefixTree& tree, int32_t index) const {
  const Retention& retention = tree.retention();
  bool kept = false;
  const auto look = [&](int32_t position) {
    const int32_t node = (position - 1) / kBlockTokens;
    kept = kept || (index <= node && index >= node - tree.reach());
  };
  std::ranges::for_each(turn_points_, look);
  if (const int32_t end = request_.regions.shared_tokens; retention.branch_points && end > 0 && end <= prompt_count_)
    look(end);
  if (retention.branch_points && branches_at_ > next_) look(branches_at_);
  if (const int32_t every = retention.every_tokens; every > 0) look((index * kBlockTokens / every + 1) * every);
  return kept;
}

// The point at or above the place of resumption was used; of those that were given up, the deepest would have been.
inline void Lease::use_points(PrefixTree& tree, const Found& found) {
  if (request_.counted_from < 0) tree.request_starts();
  const int32_t last = std::min((found.resume - 1) / kBlockTokens, path_count() - 1);  // a twin's end is in no node
  if (found.tail_tokens > 0)
    uses_ = tree.use_point(found.tail);
  else if (found.resume > 0 && last >= 0)
    uses_ = tree.use_point(path_[at(last)]);
  bool deepest = true;
  const auto recall = [&](const BlockName& name) {
    const int64_t uses = tree.recall_point(name, deepest);
    if (uses < 0) return;
    if (deepest) uses_ = std::max(uses_, static_cast<uint32_t>(uses) + 1);
    deepest = false;
  };
  recall(evicted_end_);
  for (int32_t index = path_count(); index >= blocks_for(found.resume); --index) {
    if (index < path_count()) recall(tree.at(path_[at(index)]).name);
    if (index == shared_tail_index() && shared_tail_possible() && found.resume < request_.regions.shared_tokens)
      recall(tree.key(parent_of(index), request_.regions.shared, prompt_block(index, shared_tail_tokens())).name);
  }
}

inline void Lease::mark_found(PrefixTree& tree) {
  next_at_start_ = next_;
  plan_points(tree);
  for (const int32_t position : turn_points_)
    if (const int32_t index = (position - 1) / kBlockTokens; index < completed_) mark_turn(tree, path_[at(index)]);
  // Another sequence went on from here otherwise: more may.
  const auto branches = [&](int32_t blocks) { return blocks > 0 && tree.has_branches(path_[at(blocks - 1)]); };
  if (next_ % kBlockTokens == 0 && branches(completed_)) tree.mark_branch_point(path_[at(completed_ - 1)]);
  if (const int32_t known = found_end_ / kBlockTokens; known > completed_ && known < path_count() && branches(known))
    branches_at_ = known * kBlockTokens;
}

inline void Lease::mark_at(PrefixTree& tree, int32_t index, NodeId node) {
  const Retention& retention = tree.retention();
  const auto here = [&](int32_t position) { return (position - 1) / kBlockTokens == index; };
  if (std::ranges::any_of(turn_points_, here))
    mark_turn(tree, node);
  else if (const auto watched = std::ranges::find_if(watched_points_, here); watched != watched_points_.end())
    tree.watch_point(node, (limit() - *watched) / kBlockTokens, uses_);
  const int32_t end = (index + 1) * kBlockTokens;
  const bool shared_end = request_.regions.shared_tokens / kBlockTokens == index + 1 && shared_tail_ == kNoNode;
  if (shared_end || branches_at_ == end) tree.mark_branch_point(node);
  if (const int32_t every = retention.every_tokens; every > 0 && end / every > index * kBlockTokens / every)
    tree.add_point(node, true);
}

inline void Lease::mark_turn(PrefixTree& tree, NodeId node) {
  tree.add_point(node);
  points_.push_back(tree.ref(node));
}

}  // namespace kaiju
