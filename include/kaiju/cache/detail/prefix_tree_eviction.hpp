// PrefixTree: eviction. It chooses which node or window block is evicted first, and moves its KV to the lower tiers.
// Part of prefix_tree.hpp, which states the contract.
#pragma once

#include "kaiju/cache/prefix_tree.hpp"

namespace kaiju {

inline bool PrefixTree::take(const BlockNeed& need, PerKind<std::vector<BlockId>>& blocks, const Claimant& claimant) {
  if (!pool_.feasible(need)) return false;
  keep_below_ceiling(claimant, need.count[BlockKind::kGlobal] * pool_.block_bytes(BlockKind::kGlobal) +
                                   need.count[BlockKind::kWindow] * pool_.block_bytes(BlockKind::kWindow));
  PerKind<size_t> before;
  for (const BlockKind kind : kBothKinds) {
    before[kind] = blocks[kind].size();
    blocks[kind].reserve(before[kind] + static_cast<size_t>(need.count[kind]));
  }
  const auto give_back = [&] {
    for (const BlockKind kind : kBothKinds)
      while (blocks[kind].size() > before[kind]) {
        pool_.release_block(kind, blocks[kind].back());
        blocks[kind].pop_back();
      }
  };
  if (take_each(need, blocks, [&](BlockKind kind) { return take(kind, claimant); })) return true;
  // There is room, but one kind took slabs that the other needs: begin again with what only one of them can use.
  give_back();
  if (take_each(need, blocks, [&](BlockKind kind) { return take_beside_busy(kind, claimant); })) return true;
  give_back();  // the room was promised to another share
  return false;
}

// Evicts one thing so that a block of this kind can be taken, or is nearer to being so. False: nothing may be evicted.
inline bool PrefixTree::evict_for(BlockKind kind, const Claimant& claimant) {
  for (const EvictionPass pass : kEvictionPasses) {
    if (!shares_.any() && pass != EvictionPass::kUnpromised) continue;
    if (pass == EvictionPass::kOver && shares_.over().empty()) continue;
    if (pass == EvictionPass::kAll && !claimant.over_floors) continue;
    over_floors_ = pass == EvictionPass::kAll;
    const bool evicted = evict_idle(kind, pass, claimant) || give_up_point(pass, claimant) ||
                         (pool_.shared() && clear_idle_slab(other_kind(kind), pass, claimant));
    over_floors_ = false;
    if (evicted) return true;
  }
  return false;
}

// The same, of what no resume point needs: what has been so for longest. A slab of the other kind changes hands when
// all of it has been so for longer than the oldest of this kind.
inline bool PrefixTree::evict_idle(BlockKind kind, EvictionPass pass, const Claimant& claimant) {
  const BlockKind other = other_kind(kind);
  const NodeId own = oldest(kind, pass, claimant);
  const uint64_t then = own == kNoNode ? UINT64_MAX : at(own).idle[kind];
  int32_t slab = pool_.shared() ? pool_.oldest_spare(other) : -1;
  for (int32_t looks = shares_.any() ? kSlabsLooked : 1; looks > 0 && slab >= 0;
       --looks, slab = pool_.newer_spare(slab))
    if (idle_before(other, slab, then) && may_clear(other, slab, pass, claimant)) return clear_slab(other, slab);
  if (own == kNoNode) return false;
  return kind == BlockKind::kGlobal ? evict_node(own) : evict_window(own);
}

// The node whose block of this kind is evicted first; kNoNode: no block is in the list.
inline NodeId PrefixTree::oldest(BlockKind kind, EvictionPass pass, const Claimant& claimant) const {
  const ShareId share = shares_.oldest(kind, pass, claimant);
  return share < 0 ? kNoNode : shares_.at(share).idle[kind].oldest;
}

inline bool PrefixTree::evict_node(NodeId id) { return removable(id) && (remove_all(id, true), true); }

// A tail goes with its window block: nothing resumes behind it, and nobody would compute that block again.
inline bool PrefixTree::evict_window(NodeId id) {
  if (at(id).count < kBlockTokens && removable(id)) return evict_node(id);
  tell_evicted(BlockKind::kWindow, id);
  pool_.release_block(BlockKind::kWindow, detach(id, BlockKind::kWindow));
  return true;
}

inline void PrefixTree::tell_evicted(BlockKind kind, NodeId id) {
  ++stats_.blocks_evicted[kind];
  if (over_floors_) ++stats_.blocks_over_floors;
  if (tiers_) put_below(kind, id);
  if (on_evict) on_evict({kind, at(id).block[kind], &at(id)});
}

// Lower tiers take global blocks, and window blocks that a resume point wants, here or below.
inline void PrefixTree::put_below(BlockKind kind, NodeId id) {
  const Node& node = at(id);
  const bool wanted = kind == BlockKind::kGlobal || node.retainers > 0 || node.window_wanted_below;
  if (!wanted || !node.ready() || domains_.at(node.domain).dead) return;
  const std::span<const int32_t> tokens(node.tokens, static_cast<size_t>(node.count));
  tiers_->put(kind, node.block[kind],
              {node.name, at(node.parent).name, node.path, at(node.parent).path, node.owner, node.domain, tokens,
               node.branch_point});
}

// Whether no resume point has needed anything in a spare slab since before `then`.
inline bool PrefixTree::idle_before(BlockKind kind, int32_t slab, uint64_t then) const {
  const BlockId first = pool_.first_block(kind, slab);
  for (BlockId block = first; block < first + pool_.per_slab(kind); ++block)
    if (const NodeId id = node_of(kind, block); id != kNoNode && at(id).idle[kind] >= then) return false;
  return true;
}

// Evicts all that an idle slab holds: all of it is cached.
inline bool PrefixTree::clear_slab(BlockKind kind, int32_t slab) {
  const BlockId first = pool_.first_block(kind, slab);
  for (BlockId block = first; block < first + pool_.per_slab(kind); ++block)
    if (pool_.state(kind, block) == BlockState::kCached && !evict_block(kind, block)) return false;
  return true;
}

inline bool PrefixTree::evict_block(BlockKind kind, BlockId block) {
  const NodeId id = owner_slot(kind, block);
  return kind == BlockKind::kGlobal ? evict_node(id) : evict_window(id);
}

// A block from the slabs that have busy blocks, which the other kind cannot use; from the others when there is none.
inline BlockId PrefixTree::take_beside_busy(BlockKind kind, const Claimant& claimant) {
  const int32_t slab = pool_.slab_with_room(kind);
  if (slab < 0) return take_whole(kind, claimant);
  if (const BlockId block = pool_.take_in(kind, slab); block != kNoBlock) return block;
  const BlockId first = pool_.first_block(kind, slab);
  for (BlockId block = first; block < first + pool_.per_slab(kind); ++block)
    if (pool_.state(kind, block) == BlockState::kCached && may_evict(node_of(kind, block), claimant) &&
        evict_block(kind, block))
      return pool_.take_in(kind, slab);
  return kNoBlock;
}

inline BlockId PrefixTree::take_whole(BlockKind kind, const Claimant& claimant) {
  const auto clear = [&](BlockKind of) {
    if (!pool_.shared() && of != kind) return false;
    return std::ranges::any_of(kEvictionPasses, [&](EvictionPass pass) { return clear_idle_slab(of, pass, claimant); });
  };
  if (!pool_.has_free(kind)) (void)(clear(other_kind(kind)) || clear(kind));
  return pool_.take(kind);
}

template <class Take>
bool PrefixTree::take_each(const BlockNeed& need, PerKind<std::vector<BlockId>>& blocks, Take take) {
  for (const BlockKind kind : kBothKinds)
    for (int32_t i = 0; i < need.count[kind]; ++i) {
      const BlockId block = take(kind);
      if (block == kNoBlock) return false;
      blocks[kind].push_back(block);
    }
  return true;
}

}  // namespace kaiju
