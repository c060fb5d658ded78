// PrefixTree: what belongs to which share, and what of it may go (cache_shares.hpp). Part of prefix_tree.hpp, which
// states the contract.
#pragma once

#include "kaiju/cache/prefix_tree.hpp"

namespace kaiju {

inline void PrefixTree::refresh_oldest(ShareId share, BlockKind kind) {
  const NodeId id = shares_.at(share).idle[kind].oldest;
  shares_.set_oldest(share, kind, id == kNoNode ? UINT64_MAX : at(id).idle[kind]);
}

// Whether a node, with all below it, may go. Below a node that is not in its list there may be nodes of another share;
// and what is below a node of a share with a floor might be more than the share can lose.
inline bool PrefixTree::may_evict(NodeId id, EvictionPass pass, const Claimant& claimant) const {
  if (!shares_.any()) return true;
  const ShareId share = share_of(id);
  if (!shares_.may_go(share, pass, claimant)) return false;
  if (at(id).first_child == kNoNode || pass == EvictionPass::kAll) return true;
  return at(id).listed && (shares_.at(share).limits.cache_floor_bytes == 0 || pass == EvictionPass::kOwn);
}
inline bool PrefixTree::may_evict(NodeId id, const Claimant& claimant) const {
  return std::ranges::any_of(kEvictionPasses, [&](EvictionPass pass) { return may_evict(id, pass, claimant); });
}
inline bool PrefixTree::may_clear(BlockKind kind, int32_t slab, EvictionPass pass, const Claimant& claimant) const {
  if (!shares_.any()) return true;
  const BlockId first = pool_.first_block(kind, slab);
  int64_t bytes = 0;  // the most that one share would lose
  for (BlockId block = first; block < first + pool_.per_slab(kind); ++block) {
    if (pool_.state(kind, block) != BlockState::kCached) continue;
    const NodeId id = node_of(kind, block);
    if (!may_evict(id, pass, claimant)) return false;
    const CacheShare& share = shares_.at(share_of(id));
    bytes += shares_.node_bytes();
    if (pass < EvictionPass::kOwn && share.limits.cache_floor_bytes > 0 &&
        share.bytes - bytes < share.limits.cache_floor_bytes)
      return false;
  }
  return true;
}

// Clears a slab without busy blocks, if one of a few may be cleared.
inline bool PrefixTree::clear_idle_slab(BlockKind kind, EvictionPass pass, const Claimant& claimant) {
  const std::vector<int32_t>& idle = pool_.idle_slabs(kind);
  if (!shares_.any()) return !idle.empty() && clear_slab(kind, idle.back());
  for (size_t looks = 1; looks <= std::min<size_t>(kSlabsLooked, idle.size()); ++looks)
    if (const int32_t slab = idle[idle.size() - looks]; may_clear(kind, slab, pass, claimant))
      return clear_slab(kind, slab);
  return false;
}

// Evicts one thing of the claimant's share, of any kind. False: all of it is in use.
inline bool PrefixTree::evict_own(const Claimant& claimant) {
  for (const BlockKind kind : kBothKinds)
    if (const NodeId id = oldest(kind, EvictionPass::kOwn, claimant); id != kNoNode)
      return kind == BlockKind::kGlobal ? evict_node(id) : evict_window(id);
  return give_up_point(EvictionPass::kOwn, claimant);
}

inline void PrefixTree::keep_below_ceiling(const Claimant& claimant, int64_t more_bytes) {
  const CacheShare& share = shares_.at(claimant.share);
  if (share.limits.cache_ceiling_bytes == 0) return;
  while (share.bytes + more_bytes > share.limits.cache_ceiling_bytes && evict_own(claimant)) continue;
}

// -- rings of resume points --

inline void PrefixTree::enter_ring(NodeId id) {
  const ShareId share = share_of(id);
  NodeId& hand = shares_.at(share).hand;
  ResumePoint& point = points_.at(at(id).point);
  if (hand == kNoNode) {
    point.ring_next = point.ring_previous = hand = id;
  } else {
    ResumePoint& before = points_.at(at(hand).point);
    point.ring_previous = hand;
    point.ring_next = std::exchange(before.ring_next, id);
    points_.at(at(point.ring_next).point).ring_previous = id;
  }
  shares_.count_point(share, 1);
}

inline void PrefixTree::leave_ring(NodeId id) {
  const ShareId share = share_of(id);
  NodeId& hand = shares_.at(share).hand;
  const ResumePoint& point = points_.at(at(id).point);
  if (hand == id) hand = point.ring_next == id ? kNoNode : point.ring_next;
  points_.at(at(point.ring_previous).point).ring_next = point.ring_next;
  points_.at(at(point.ring_next).point).ring_previous = point.ring_previous;
  shares_.count_point(share, -1);
}

// The place of the point that is worth least, of some of those that may go in this pass; -1: none.
template <class May>
int32_t PrefixTree::worst_point(EvictionPass pass, const Claimant& claimant, May may) {
  if (!shares_.any()) return points_.worst(may);
  if (pass == EvictionPass::kAll) return claimant.over_floors ? points_.worst(may) : -1;
  const std::vector<ShareId> own = {claimant.share};
  const std::vector<ShareId>& shares = pass == EvictionPass::kOver         ? shares_.over()
                                       : pass == EvictionPass::kUnpromised ? shares_.with_free_points()
                                                                           : own;
  const int32_t found = worst_of_rings(shares, false, may);
  return found >= 0 ? found : worst_of_rings(shares, true, may);
}

// Looks at 64 points of at most 8 shares; `all`: at all points of all shares.
template <class May>
int32_t PrefixTree::worst_of_rings(const std::vector<ShareId>& shares, bool all, May may) {
  constexpr size_t kShares = 8;
  constexpr int32_t kLooks = 64;
  const size_t count = all ? shares.size() : std::min(shares.size(), kShares);
  int32_t worst = -1;
  float least = 0;
  for (size_t i = 0; i < count; ++i) {
    CacheShare& share = shares_.at(shares[(i + shares_looked_) % shares.size()]);
    const int32_t looks = all ? share.points : std::min(share.points, kLooks / static_cast<int32_t>(count));
    for (int32_t look = 0; look < looks; ++look) {
      share.hand = points_.at(at(share.hand).point).ring_next;
      const int32_t place = at(share.hand).point;
      const float value = points_.worth(points_.at(place));
      if ((worst < 0 || value < least) && may(place)) worst = place, least = value;
    }
  }
  shares_looked_ += static_cast<uint32_t>(count);
  return worst;
}

}  // namespace kaiju
