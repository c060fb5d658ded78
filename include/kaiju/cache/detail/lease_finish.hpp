// Lease: its end. It leaves computed blocks in the tree for other sequences and releases the rest. Part of lease.hpp,
// which states the contract.
#pragma once

#include "kaiju/cache/lease.hpp"

namespace kaiju {

// Blocks that this lease was to compute and did not: the next lease that wants them will, or they go.
inline void Lease::leave_pending(PrefixTree& tree) {
  const int32_t half = next_ % kBlockTokens > 0 ? next_ / kBlockTokens : -1;  // the block that is left as a tail
  if (shared_tail_ != kNoNode) leave(tree, shared_tail_, shared_tail_index() == half);
  while (path_count() > ready_) {
    leave(tree, path_.back(), path_count() - 1 == half);
    path_.pop_back();
  }
}

inline void Lease::leave(PrefixTree& tree, NodeId id, bool keep_global) {
  if (tree.at(id).claimed_by(request_.ticket)) tree.abandon(id);
  const Node& node = tree.at(id);
  if (node.claimed_by(kUnclaimed) && node.refs == 1) {
    if (keep_global && tree.uses(BlockKind::kGlobal) && holds(BlockKind::kGlobal, node.block[BlockKind::kGlobal]))
      tree.detach(id, BlockKind::kGlobal);
    tree.release_node(id);
    tree.remove(id);
    if (id == shared_tail_) shared_tail_ = kNoNode;
  } else if (id != shared_tail_) {
    tree.release_node(id);
  }
}

// A half-full last block stays, for the sequence that goes on from here. Returns its node, or kNoNode.
inline NodeId Lease::leave_tail(PrefixTree& tree, std::span<const int32_t> tokens) {
  const int32_t index = next_ / kBlockTokens, count = next_ % kBlockTokens;
  if (count == 0) {
    if (index > 0 && index == path_count()) mark_end(tree, path_.back());
    return kNoNode;
  }
  if (detached_ || index != path_count() || !owns(tree, index)) return kNoNode;
  const DomainId domain = next_ <= request_.regions.shared_tokens ? request_.regions.shared : request_.regions.own;
  const NodeKey key = tree.key(parent_of(index), domain, tokens.subspan(at(index * kBlockTokens), at(count)));
  NodeId node = tree.find(key);
  if (node == kNoNode) {
    node = tree.insert(key, request_.ticket, request_.owner);
    if (node == kNoNode) return kNoNode;
    tree.hold(node);
    if (tree.uses(BlockKind::kGlobal)) tree.attach(node, BlockKind::kGlobal, table_[BlockKind::kGlobal][at(index)]);
    give_window(tree, node, index);
    tree.make_ready(node);
    tree.release_node(node);
    if (tree.uses(BlockKind::kWindow)) {
      tree.release_node_window(node);
      table_[BlockKind::kWindow][at(index)] = kNoBlock;
    }
  }
  if (!tree.at(node).ready()) return kNoNode;
  mark_at(tree, index, node);
  mark_end(tree, node);
  return node;
}

inline void Lease::mark_end(PrefixTree& tree, NodeId node) {
  if (tree.retention().turns > 0) mark_turn(tree, node);
}

// Whether the table's blocks at `index` are this lease's own.
inline bool Lease::owns(const PrefixTree& tree, int32_t index) const {
  for (const BlockKind kind : kBothKinds)
    if (tree.uses(kind) && (std::ssize(table_[kind]) <= index || table_[kind][at(index)] == kNoBlock ||
                            tree.node_of(kind, table_[kind][at(index)]) != kNoNode))
      return false;
  return true;
}

inline bool Lease::holds(BlockKind kind, BlockId block) const {
  return std::find(table_[kind].begin(), table_[kind].end(), block) != table_[kind].end();
}

inline void Lease::release_all(PrefixTree& tree) {
  release_retained(tree);
  for (const BlockId block : table_[BlockKind::kWindow])
    if (block != kNoBlock) {
      if (const NodeId node = tree.node_of(BlockKind::kWindow, block); node != kNoNode)
        tree.release_node_window(node);
      else
        tree.release_block(BlockKind::kWindow, block);
    }
  for (const BlockId block : table_[BlockKind::kGlobal])
    if (block != kNoBlock && tree.node_of(BlockKind::kGlobal, block) == kNoNode)
      tree.release_block(BlockKind::kGlobal, block);
  if (copy_source_ != kNoNode) {
    tree.release_node_window(copy_source_);
    tree.release_node(copy_source_);
  }
  if (shared_tail_ != kNoNode) tree.release_node(shared_tail_);
  for (size_t i = path_.size(); i-- > 0;) tree.release_node(path_[i]);
  for (const BlockKind kind : kBothKinds) {
    for (const BlockId block : stash_[kind]) tree.release_block(kind, block);
    stash_[kind].clear();
    table_[kind].clear();
  }
  path_.clear();
  shared_tail_ = copy_source_ = kNoNode;
  ready_ = 0;
  detached_ = false;
}

// The tail that this sequence went on from is now the beginning of a longer block.
inline void Lease::drop_superseded(PrefixTree& tree) {
  if (!tree.alive(superseded_)) return;
  const Node& node = tree.at(superseded_.node);
  if (node.count < kBlockTokens && !node.branch_point && node.refs == 0 && node.pins == 0 &&
      node.owner == request_.owner)
    tree.remove(superseded_.node);
}

}  // namespace kaiju
