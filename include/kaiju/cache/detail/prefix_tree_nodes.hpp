// PrefixTree: adds and removes nodes, and keeps the states of their blocks and their lists in step with their counts.
// Part of prefix_tree.hpp, which states the contract.
#pragma once

#include "kaiju/cache/prefix_tree.hpp"

namespace kaiju {

inline void PrefixTree::reset_root() {
  Node& root = node(kRoot);
  root = {};
  root.first_child = kNoNode;
  root.name = namer_.root();
  used_nodes_ = 1;
  for (const BlockKind kind : kBothKinds) owner_of_[kind].assign(static_cast<size_t>(pool_.total(kind)), kNoNode);
}

// -- coming --

inline NodeId PrefixTree::fresh_node() {
  while (free_node_ == kNoNode && used_nodes_ == capacity_)
    if (const NodeId oldest_node = oldest(BlockKind::kGlobal, EvictionPass::kUnpromised, {});
        oldest_node == kNoNode ? !give_up_point(EvictionPass::kUnpromised, {}) : !evict_node(oldest_node))
      return kNoNode;
  if (free_node_ == kNoNode) return used_nodes_++;
  const NodeId id = free_node_;
  free_node_ = at(id).bucket_next;
  return id;
}

inline NodeId PrefixTree::insert(const NodeKey& key, int32_t claim, uint64_t owner) {
  const NodeId id = fresh_node();
  if (id == kNoNode) return kNoNode;
  Node& added = node(id);
  const uint32_t generation = added.generation + 1;
  added = {};
  added.generation = generation;
  std::memcpy(added.tokens, key.tokens.data(), key.tokens.size_bytes());
  added.name = key.name;
  added.owner = owner;
  added.count = key.count();
  added.claim = claim;
  added.domain = key.domain;
  added.path = tiers_ ? tiers_->path_of(at(key.parent).path, key.domain, key.tokens, key.name) : 0;
  added.block = {kNoBlock, kNoBlock};
  added.first_child = added.older = added.newer = added.window_older = added.window_newer = kNoNode;
  added.point = -1;
  added.bucket_next = std::exchange(bucket_of(key.name), id);
  added.parent = key.parent;
  added.previous_sibling = kNoNode;
  added.next_sibling = std::exchange(node(key.parent).first_child, id);
  if (added.next_sibling != kNoNode) node(added.next_sibling).previous_sibling = id;
  count_kept(key.parent, 1);
  Domain& domain = domains_.at(key.domain);
  added.domain_next = kNoNode;
  added.domain_previous = domain.last;
  (domain.last == kNoNode ? domain.first : node(domain.last).domain_next) = id;
  domain.last = id;
  ++domain.nodes;
  ++node_count_;
  return id;
}

inline BlockId PrefixTree::detach(NodeId id, BlockKind kind) {
  const BlockId block = at(id).block[kind];
  if (kind == BlockKind::kWindow) unlist_window(id);
  node(id).block[kind] = kNoBlock;
  owner_slot(kind, block) = kNoNode;
  shares_.charge(share_of(id), -pool_.block_bytes(kind));
  pool_.set(kind, block, BlockState::kLive);
  return block;
}

// -- settling --

// Puts a node's blocks into the states, and itself and its window block into the lists, that its counts ask for.
inline void PrefixTree::settle(NodeId id) {
  const Node& settled = at(id);
  for (const BlockKind kind : kBothKinds)
    if (settled.has(kind)) pool_.set(kind, settled.block[kind], settled.state_of(kind));
  if (settled.has(BlockKind::kWindow)) relist_window(id);
  if (removable(id) && settled.ready() && domains_.at(settled.domain).dead)
    remove_all(id, false);
  else
    relist(id);
}

// Puts a node into the list of nodes to evict, or takes it out, and then its ancestors as far as that concerns them.
inline void PrefixTree::relist(NodeId id) {
  while (id != kRoot) {
    const Node& own = at(id);
    const bool idle = own.refs == 0 && own.ready() && own.pins == 0 && own.points == 0 && own.kept_children == 0;
    if (idle == own.listed) return;
    if (idle) {
      node(id).listed = true;
      node(id).idle[BlockKind::kGlobal] = ++clock_;
      link(shares_.at(share_of(id)).idle[BlockKind::kGlobal], id, &Node::older, &Node::newer);
      if (own.has(BlockKind::kGlobal)) pool_.set_spare(BlockKind::kGlobal, own.block[BlockKind::kGlobal], true);
      refresh_oldest(share_of(id), BlockKind::kGlobal);
    } else {
      unlist(id);
    }
    if (!same_share(id, own.parent)) return;  // a parent of another share needs it as long as it is there
    count_kept(own.parent, idle ? -1 : 1);
    id = own.parent;
  }
}

// One more or one fewer child of a node is needed: without any, its own point alone needs its global blocks.
inline void PrefixTree::count_kept(NodeId id, int32_t by) {
  Node& own = node(id);
  own.kept_children += by;
  if (own.points == 0) return;
  int32_t& below = points_.at(own.point).blocks_below;
  if (own.kept_children == 0) below = 0;
  if (own.kept_children > 0 && below == 0) below = reach_ + 1;
}

inline void PrefixTree::unlist(NodeId id) {
  if (!at(id).listed) return;
  node(id).listed = false;
  unlink(shares_.at(share_of(id)).idle[BlockKind::kGlobal], id, &Node::older, &Node::newer);
  if (at(id).has(BlockKind::kGlobal)) pool_.set_spare(BlockKind::kGlobal, at(id).block[BlockKind::kGlobal], false);
  refresh_oldest(share_of(id), BlockKind::kGlobal);
}

// The same for its window block.
inline void PrefixTree::relist_window(NodeId id) {
  const bool idle = at(id).state_of(BlockKind::kWindow) == BlockState::kCached && at(id).retainers == 0;
  if (!idle) return unlist_window(id);
  if (at(id).window_listed) return;
  node(id).window_listed = true;
  node(id).idle[BlockKind::kWindow] = ++clock_;
  link(shares_.at(share_of(id)).idle[BlockKind::kWindow], id, &Node::window_older, &Node::window_newer);
  pool_.set_spare(BlockKind::kWindow, at(id).block[BlockKind::kWindow], true);
  refresh_oldest(share_of(id), BlockKind::kWindow);
}

inline void PrefixTree::unlist_window(NodeId id) {
  if (!at(id).window_listed) return;
  unlink(shares_.at(share_of(id)).idle[BlockKind::kWindow], id, &Node::window_older, &Node::window_newer);
  pool_.set_spare(BlockKind::kWindow, at(id).block[BlockKind::kWindow], false);
  node(id).window_listed = false;
  refresh_oldest(share_of(id), BlockKind::kWindow);
}

inline void PrefixTree::link(NodeList& list, NodeId id, NodeId Node::* older, NodeId Node::* newer) {
  node(id).*older = list.newest;
  node(id).*newer = kNoNode;
  (list.newest == kNoNode ? list.oldest : node(list.newest).*newer) = id;
  list.newest = id;
}

inline void PrefixTree::unlink(NodeList& list, NodeId id, NodeId Node::* older, NodeId Node::* newer) {
  const NodeId before = at(id).*older, after = at(id).*newer;
  (before == kNoNode ? list.oldest : node(before).*newer) = after;
  (after == kNoNode ? list.newest : node(after).*older) = before;
}

// The nodes whose window blocks a resume point at the end of `id` needs, and one more.
template <class Visit>
void PrefixTree::for_reach(NodeId id, Visit visit) {
  for (int32_t i = 0; i <= reach_ && id != kRoot; ++i) {
    const NodeId parent = at(id).parent;
    visit(id);
    id = parent;
  }
}

inline void PrefixTree::change_retainers(NodeId id, int32_t by) {
  for_reach(id, [&](NodeId each) {
    Node& reached = node(each);
    reached.retainers += by;
    if (reached.retainers == 0) reached.window_wanted_below = false;
    if (reached.has(BlockKind::kWindow)) relist_window(each);
  });
}

inline void PrefixTree::change_pins(NodeId tip, int32_t by) {
  for_reach(tip, [&](NodeId each) { node(each).window_pins += by; });
  for (NodeId id = tip; id != kRoot;) {
    const NodeId parent = at(id).parent;
    node(id).pins += by;
    settle(id);
    id = parent;
  }
}

// -- going --

// Children first, without recursion: down to a leaf, erase it, up again.
inline void PrefixTree::remove_all(NodeId top, bool evicted) {
  for (NodeId id = top;;) {
    while (at(id).first_child != kNoNode) id = at(id).first_child;
    const NodeId parent = at(id).parent;
    const bool last = id == top;
    erase(id, evicted);
    if (last) return;
    id = parent;
  }
}

inline void PrefixTree::purge(DomainId id) {
  domains_.kill(id);
  ++domains_.at(id).holders;  // not forgotten meanwhile
  if (tiers_) tiers_->purge(id);
  for (NodeId each = domains_.at(id).last; each != kNoNode;) {
    const NodeId before = at(each).domain_previous;
    if (removable(each)) remove_all(each, false);
    each = before;
  }
  --domains_.at(id).holders;
  domains_.forget_if_unused(id);
}

inline void PrefixTree::erase(NodeId id, bool evicted) {
  Node& erased = node(id);
  if (erased.points > 0) {
    if (evicted) points_.forget(points_.at(erased.point), erased.name);
    remove_point(id);
    if (tiers_ && evicted) for_reach(id, [&](NodeId each) { want_window_below(each); });
  }
  const NodeId parent = erased.parent;
  if (!erased.listed || !same_share(id, parent)) count_kept(parent, -1);
  unlist(id);
  for (const BlockKind kind : kBothKinds) {
    if (!erased.has(kind)) continue;
    if (evicted) tell_evicted(kind, id);
    pool_.release_block(kind, detach(id, kind));
  }
  if (evicted && erased.ready()) evicted_.add(erased.name);
  if (erased.ready()) publish_removed(erased);
  NodeId* link = &bucket_of(erased.name);
  while (*link != id) link = &node(*link).bucket_next;
  *link = erased.bucket_next;
  (erased.previous_sibling == kNoNode ? node(erased.parent).first_child : node(erased.previous_sibling).next_sibling) =
      erased.next_sibling;
  if (erased.next_sibling != kNoNode) node(erased.next_sibling).previous_sibling = erased.previous_sibling;
  Domain& domain = domains_.at(erased.domain);
  (erased.domain_previous == kNoNode ? domain.first : node(erased.domain_previous).domain_next) = erased.domain_next;
  (erased.domain_next == kNoNode ? domain.last : node(erased.domain_next).domain_previous) = erased.domain_previous;
  --domain.nodes;
  domains_.forget_if_unused(erased.domain);
  erased.parent = kNoNode;
  erased.bucket_next = free_node_;
  free_node_ = id;
  --node_count_;
  relist(parent);
}

}  // namespace kaiju
