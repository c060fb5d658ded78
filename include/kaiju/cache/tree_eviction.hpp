// How Tree makes room: what goes first, in which slab, and what it leaves behind. Part of tree.hpp, which says what it
// promises.
#pragma once

#include "kaiju/cache/tree.hpp"

namespace kaiju {

inline bool Tree::take(const BlockNeed& need, std::vector<BlockId> (&blocks)[kBlockKinds]) {
  if (!arena_.feasible(need)) return false;
  size_t before[kBlockKinds];
  for (const BlockKind kind : kBothKinds) {
    before[index(kind)] = blocks[index(kind)].size();
    blocks[index(kind)].reserve(before[index(kind)] + static_cast<size_t>(need.count[index(kind)]));
  }
  if (take_each(need, blocks, [&](BlockKind kind) { return take(kind); })) return true;
  // There is room, but the kinds took each other's: begin again with what only one of them can use.
  for (const BlockKind kind : kBothKinds)
    while (blocks[index(kind)].size() > before[index(kind)]) {
      arena_.give_back(kind, blocks[index(kind)].back());
      blocks[index(kind)].pop_back();
    }
  return take_each(need, blocks, [&](BlockKind kind) { return take_beside_busy(kind); });
}

inline void Tree::purge(DomainId id) {
  domains_.kill(id);
  ++domains_.at(id).holders;  // not forgotten meanwhile
  if (tiers_) tiers_->purge(id);
  for (NodeId node = domains_.at(id).last; node != kNoNode;) {
    const NodeId before = at(node).domain_previous;
    if (removable(node)) remove_all(node, false);
    node = before;
  }
  --domains_.at(id).holders;
  domains_.forget_if_unused(id);
}

// Gives up one thing so that a block of this kind can be had, or a step towards it. False: nothing can be given up.
inline bool Tree::evict_for(BlockKind kind) {
  const BlockKind other = kind == BlockKind::kGlobal ? BlockKind::kWindow : BlockKind::kGlobal;
  const NodeId own = oldest(kind);
  // The split between the kinds follows use: a slab changes hands when all that is in it was used before our oldest.
  // With anything newer in it, blocks that are in use every minute would go, and all that is behind them.
  if (arena_.shared()) {
    const uint64_t then = own == kNoNode ? UINT64_MAX : age(kind, own);
    NodeId theirs = oldest(other);
    for (int32_t looked = 0; looked < kSlabsLooked && theirs != kNoNode && age(other, theirs) < then; ++looked) {
      const int32_t slab = arena_.slab_of(other, at(theirs).block[index(other)]);
      if (arena_.is_idle(slab) && used_before(other, slab, then)) return clear_slab(other, slab);
      theirs = next_oldest(other, theirs);
    }
    if (own == kNoNode && !arena_.idle_slabs(other).empty()) return clear_slab(other, arena_.idle_slabs(other).back());
  }
  if (own == kNoNode) return false;
  return kind == BlockKind::kGlobal ? evict_node(own) : evict_window(own);
}

// Whose block of this kind goes first; kNoNode: none may.
inline NodeId Tree::oldest(BlockKind kind) const {
  if (kind == BlockKind::kGlobal) return nodes_list_.oldest;
  return window_lists_[kPassing].oldest != kNoNode ? window_lists_[kPassing].oldest : window_lists_[kRetained].oldest;
}

// Whose goes after `id`'s.
inline NodeId Tree::next_oldest(BlockKind kind, NodeId id) const {
  if (kind == BlockKind::kGlobal) return at(id).newer;
  if (at(id).window_newer != kNoNode) return at(id).window_newer;
  return at(id).window_list == kPassing ? window_lists_[kRetained].oldest : kNoNode;
}

inline uint64_t Tree::age(BlockKind kind, NodeId id) const {
  return kind == BlockKind::kWindow && at(id).window_list == kPassing ? 0 : at(id).used;
}

inline bool Tree::evict_node(NodeId id) { return removable(id) && (remove_all(id, true), true); }

inline bool Tree::evict_window(NodeId id) {
  tell_evicted(BlockKind::kWindow, id);
  arena_.give_back(BlockKind::kWindow, detach(id, BlockKind::kWindow));
  return true;
}

inline void Tree::tell_evicted(BlockKind kind, NodeId id) {
  ++stats_.blocks_evicted[index(kind)];
  if (tiers_) put_below(kind, id);
  if (on_evict) on_evict({kind, at(id).block[index(kind)], &at(id)});
}

// What a lower tier takes: global blocks, and window blocks that a resume point wants, here or below.
inline void Tree::put_below(BlockKind kind, NodeId id) {
  const Node& node = at(id);
  const bool wanted = kind == BlockKind::kGlobal || node.retainers > 0 || node.wanted_below;
  if (!wanted || node.claim != kReady || domains_.at(node.domain).dead) return;
  tiers_->put(kind, node.block[index(kind)],
              {node.name, at(node.parent).name, node.path, at(node.parent).path, node.owner, node.domain, node.tokens,
               node.count, node.junction});
}

// Whether all that an idle slab holds was used before then.
inline bool Tree::used_before(BlockKind kind, int32_t slab, uint64_t then) const {
  const BlockId first = arena_.first_block(kind, slab);
  for (BlockId block = first; block < first + arena_.per_slab(kind); ++block)
    if (arena_.state(kind, block) == BlockState::kCached && age(kind, node_of(kind, block)) >= then) return false;
  return true;
}

// Everything in an idle slab is cached.
inline bool Tree::clear_slab(BlockKind kind, int32_t slab) {
  const BlockId first = arena_.first_block(kind, slab);
  for (BlockId block = first; block < first + arena_.per_slab(kind); ++block)
    if (arena_.state(kind, block) == BlockState::kCached && !evict_block(kind, block)) return false;
  return true;
}

inline bool Tree::evict_block(BlockKind kind, BlockId block) {
  const NodeId id = owner_slot(kind, block);
  return kind == BlockKind::kGlobal ? evict_node(id) : evict_window(id);
}

// A block from the slabs that cannot be given to the other kind; from the others when there is none.
inline BlockId Tree::take_beside_busy(BlockKind kind) {
  const int32_t slab = arena_.slab_with_room(kind);
  if (slab < 0) return take_whole(kind);
  if (const BlockId block = arena_.take_in(kind, slab); block != kNoBlock) return block;
  const BlockId first = arena_.first_block(kind, slab);
  for (BlockId block = first; block < first + arena_.per_slab(kind); ++block)
    if (arena_.state(kind, block) == BlockState::kCached && evict_block(kind, block)) return arena_.take_in(kind, slab);
  return kNoBlock;
}

inline BlockId Tree::take_whole(BlockKind kind) {
  if (!arena_.has_free(kind))
    for (const BlockKind of : {kind == BlockKind::kGlobal ? BlockKind::kWindow : BlockKind::kGlobal, kind})
      if ((arena_.shared() || of == kind) && !arena_.idle_slabs(of).empty()) {
        if (!clear_slab(of, arena_.idle_slabs(of).back())) return kNoBlock;
        break;
      }
  return arena_.take(kind);
}

template <class Take>
bool Tree::take_each(const BlockNeed& need, std::vector<BlockId> (&blocks)[kBlockKinds], Take take) {
  for (const BlockKind kind : kBothKinds)
    for (int32_t i = 0; i < need.count[index(kind)]; ++i) {
      const BlockId block = take(kind);
      if (block == kNoBlock) return false;
      blocks[index(kind)].push_back(block);
    }
  return true;
}

// Children first, without recursion: down to a leaf, erase it, up again.
inline void Tree::remove_all(NodeId top, bool evicted) {
  for (NodeId id = top;;) {
    while (at(id).first_child != kNoNode) id = at(id).first_child;
    const NodeId parent = at(id).parent;
    const bool last = id == top;
    erase(id, evicted);
    if (last) return;
    id = parent;
  }
}

inline void Tree::erase(NodeId id, bool evicted) {
  Node& node = at(id);
  if (node.points > 0) {
    node.points = 0;
    change_retainers(id, -1);
    if (tiers_ && evicted) for_reach(id, [&](NodeId each) { at(each).wanted_below = true; });
  }
  for (const BlockKind kind : kBothKinds) {
    if (node.block[index(kind)] == kNoBlock) continue;
    if (evicted) tell_evicted(kind, id);
    arena_.give_back(kind, detach(id, kind));
  }
  if (evicted && node.claim == kReady) evicted_.add(node.name);
  if (node.claim == kReady) publish(CacheEventKind::kRemoved, node);
  unlist(id);
  NodeId* link = &bucket_of(node.name);
  while (*link != id) link = &at(*link).bucket_next;
  *link = node.bucket_next;
  (node.previous_sibling == kNoNode ? at(node.parent).first_child : at(node.previous_sibling).next_sibling) =
      node.next_sibling;
  if (node.next_sibling != kNoNode) at(node.next_sibling).previous_sibling = node.previous_sibling;
  Domain& domain = domains_.at(node.domain);
  (node.domain_previous == kNoNode ? domain.first : at(node.domain_previous).domain_next) = node.domain_next;
  (node.domain_next == kNoNode ? domain.last : at(node.domain_next).domain_previous) = node.domain_previous;
  --domain.nodes;
  domains_.forget_if_unused(node.domain);
  node.parent = kNoNode;
  node.bucket_next = free_node_;
  free_node_ = id;
  --node_count_;
}

}  // namespace kaiju
