// How a Lease ends: what it leaves behind for others, and how it lets go of the rest. Part of lease.hpp, which says
// what it promises.
#pragma once

#include "kaiju/cache/lease.hpp"

namespace kaiju {

// Blocks we were to compute and did not: the next who wants them will, or they go.
inline void Lease::leave_pending(Tree& tree) {
  const int32_t half = next_ % kBlockTokens > 0 ? next_ / kBlockTokens : -1;  // its block is ours to leave as a tail
  if (seal_ != kNoNode) leave(tree, seal_, seal_index() == half);
  while (path_count() > ready_) {
    leave(tree, path_.back(), path_count() - 1 == half);
    path_.pop_back();
  }
}

inline void Lease::leave(Tree& tree, NodeId node, bool keep_global) {
  if (tree.at(node).claim == request_.ticket) tree.at(node).claim = kUnclaimed;
  if (tree.at(node).claim == kUnclaimed && tree.at(node).refs == 1) {
    if (keep_global && tree.uses(BlockKind::kGlobal) && holds(BlockKind::kGlobal, tree.at(node).block[0]))
      tree.detach(node, BlockKind::kGlobal);
    tree.let_go(node);
    tree.remove(node);
    if (node == seal_) seal_ = kNoNode;
  } else if (node != seal_) {
    tree.let_go(node);
  }
}

// A half-full last block stays, for whoever goes on from here.
inline void Lease::leave_tail(Tree& tree, std::span<const int32_t> tokens) {
  const int32_t index = next_ / kBlockTokens, count = next_ % kBlockTokens;
  if (count == 0) {
    if (index > 0 && index == path_count()) mark_end(tree, path_.back());
    return;
  }
  if (detached_ || index != path_count() || !owns(tree, index)) return;
  const int32_t* block = &tokens[at(index * kBlockTokens)];
  const DomainId domain = next_ <= request_.regions.shared_tokens ? request_.regions.shared : request_.regions.own;
  const BlockName name = tree.name_after(parent_of(index), domain, block, count);
  NodeId node = tree.find(parent_of(index), domain, block, count, name);
  if (node == kNoNode) {
    node = tree.insert(parent_of(index), domain, block, count, name, request_.ticket, request_.owner);
    if (node == kNoNode) return;
    tree.hold(node);
    if (tree.uses(BlockKind::kGlobal)) tree.attach(node, BlockKind::kGlobal, table_[0][at(index)]);
    give_window(tree, node, index);
    tree.make_ready(node);
    tree.let_go(node);
    if (tree.uses(BlockKind::kWindow)) {
      tree.let_go_window(node);
      table_[1][at(index)] = kNoBlock;
    }
  }
  if (tree.at(node).claim == kReady) mark_at(tree, index, node), mark_end(tree, node);
}

inline void Lease::mark_end(Tree& tree, NodeId node) {
  if (tree.retention().turns > 0) mark_turn(tree, node);
}

// Whether the table's blocks at `index` are nobody else's.
inline bool Lease::owns(const Tree& tree, int32_t index) const {
  for (const BlockKind kind : kBothKinds)
    if (tree.uses(kind) && (std::ssize(table(kind)) <= index || table(kind)[at(index)] == kNoBlock ||
                            tree.node_of(kind, table(kind)[at(index)]) != kNoNode))
      return false;
  return true;
}

inline bool Lease::holds(BlockKind kind, BlockId block) const {
  return std::find(table(kind).begin(), table(kind).end(), block) != table(kind).end();
}

inline void Lease::let_go(Tree& tree) {
  for (const BlockId block : table_[1])
    if (block != kNoBlock) {
      if (const NodeId node = tree.node_of(BlockKind::kWindow, block); node != kNoNode)
        tree.let_go_window(node);
      else
        tree.arena().give_back(BlockKind::kWindow, block);
    }
  for (const BlockId block : table_[0])
    if (block != kNoBlock && tree.node_of(BlockKind::kGlobal, block) == kNoNode)
      tree.arena().give_back(BlockKind::kGlobal, block);
  if (copy_source_ != kNoNode) {
    tree.let_go_window(copy_source_);
    tree.let_go(copy_source_);
  }
  if (seal_ != kNoNode) tree.let_go(seal_);
  for (size_t i = path_.size(); i-- > 0;) tree.let_go(path_[i]);
  for (const BlockKind kind : kBothKinds) {
    for (const BlockId block : stash_[static_cast<size_t>(kind)]) tree.arena().give_back(kind, block);
    stash_[static_cast<size_t>(kind)].clear();
    table(kind).clear();
  }
  path_.clear();
  seal_ = copy_source_ = kNoNode;
  ready_ = 0;
  seal_found_ = false;
  detached_ = false;
}

// The tail we went on from is now the beginning of a longer block.
inline void Lease::drop_superseded(Tree& tree) {
  if (!tree.alive(superseded_)) return;
  const Node& node = tree.at(superseded_.node);
  if (node.count < kBlockTokens && !node.junction && node.refs == 0 && node.pins == 0 && node.owner == request_.owner)
    tree.remove(superseded_.node);
}

}  // namespace kaiju
