// PrefixTree: eviction. It chooses which node or window block is evicted first, and moves its KV to the lower tiers.
// Part of prefix_tree.hpp, which states the contract.
#pragma once

#include "kaiju/cache/prefix_tree.hpp"

namespace kaiju {

inline bool PrefixTree::take(const BlockNeed& need, PerKind<std::vector<BlockId>>& blocks) {
  if (!pool_.feasible(need)) return false;
  PerKind<size_t> before;
  for (const BlockKind kind : kBothKinds) {
    before[kind] = blocks[kind].size();
    blocks[kind].reserve(before[kind] + static_cast<size_t>(need.count[kind]));
  }
  if (take_each(need, blocks, [&](BlockKind kind) { return take(kind); })) return true;
  // There is room, but one kind took slabs that the other needs: begin again with what only one of them can use.
  for (const BlockKind kind : kBothKinds)
    while (blocks[kind].size() > before[kind]) {
      pool_.release_block(kind, blocks[kind].back());
      blocks[kind].pop_back();
    }
  return take_each(need, blocks, [&](BlockKind kind) { return take_beside_busy(kind); });
}

// Evicts one thing so that a block of this kind can be taken, or is nearer to being so. False: nothing may be evicted.
inline bool PrefixTree::evict_for(BlockKind kind) {
  if (evict_idle(kind) || give_up_point()) return true;
  const BlockKind other = other_kind(kind);
  return pool_.shared() && !pool_.idle_slabs(other).empty() && clear_slab(other, pool_.idle_slabs(other).back());
}

// The same, of what no resume point needs: what has been so for longest. A slab of the other kind changes hands when
// all of it has been so for longer than the oldest of this kind.
inline bool PrefixTree::evict_idle(BlockKind kind) {
  const BlockKind other = other_kind(kind);
  const NodeId own = oldest(kind);
  if (const int32_t slab = pool_.shared() ? pool_.oldest_spare(other) : -1; slab >= 0)
    if (own == kNoNode || idle_before(other, slab, at(own).idle[kind])) return clear_slab(other, slab);
  if (own == kNoNode) return false;
  return kind == BlockKind::kGlobal ? evict_node(own) : evict_window(own);
}

// The node whose block of this kind is evicted first; kNoNode: no block is in the list.
inline NodeId PrefixTree::oldest(BlockKind kind) const {
  return (kind == BlockKind::kGlobal ? nodes_list_ : window_list_).oldest;
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
inline BlockId PrefixTree::take_beside_busy(BlockKind kind) {
  const int32_t slab = pool_.slab_with_room(kind);
  if (slab < 0) return take_whole(kind);
  if (const BlockId block = pool_.take_in(kind, slab); block != kNoBlock) return block;
  const BlockId first = pool_.first_block(kind, slab);
  for (BlockId block = first; block < first + pool_.per_slab(kind); ++block)
    if (pool_.state(kind, block) == BlockState::kCached && evict_block(kind, block)) return pool_.take_in(kind, slab);
  return kNoBlock;
}

inline BlockId PrefixTree::take_whole(BlockKind kind) {
  if (!pool_.has_free(kind))
    for (const BlockKind of : {other_kind(kind), kind})
      if ((pool_.shared() || of == kind) && !pool_.idle_slabs(of).empty()) {
        if (!clear_slab(of, pool_.idle_slabs(of).back())) return kNoBlock;
        break;
      }
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
