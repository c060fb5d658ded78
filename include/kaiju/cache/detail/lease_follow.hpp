// Lease: waits for blocks that other sequences compute and uses them: whole blocks, one by one, and the shared tail at
// the end of a shared region. Part of lease.hpp, which states the contract.
#pragma once

#include "kaiju/cache/lease.hpp"

namespace kaiju {

inline void Lease::follow(PrefixTree& tree) {
  while (ready_ < path_count() && tree.at(path_[at(ready_)]).ready()) ++ready_;
  const bool windows = tree.uses(BlockKind::kWindow);
  while (next_ % kBlockTokens == 0 && next_ / kBlockTokens < ready_) {
    const int32_t index = next_ / kBlockTokens;
    const NodeId node = path_[at(index)];
    // A last block is computed again from its beginning: it is that or a copy.
    if (next_ + kBlockTokens > limit() || (windows && !tree.at(node).has(BlockKind::kWindow))) return;
    if (std::max(table_[BlockKind::kGlobal].size(), table_[BlockKind::kWindow].size()) > at(index))
      return;  // begun already
    if (tree.uses(BlockKind::kGlobal)) table_[BlockKind::kGlobal].push_back(tree.at(node).block[BlockKind::kGlobal]);
    if (windows) {
      tree.hold_window(node);
      table_[BlockKind::kWindow].push_back(tree.at(node).block[BlockKind::kWindow]);
      from_stash_.push_back(false);
    }
    count_hit(tree, node, next_, kBlockTokens);
    next_ += kBlockTokens;
    completed_ = next_ / kBlockTokens;
    bound_ = false;
    mark_at(tree, index, node);
    release_windows(tree, {});
  }
}

// At the shared tail, made by another lease or by this one: what follows is written into a copy.
inline void Lease::pass_shared_tail(PrefixTree& tree, const EditSink& sink) {
  const int32_t first = shared_tail_index() * kBlockTokens;
  if (next_ == first) tree.claim(shared_tail_, request_.ticket);
  const Node& tail = tree.at(shared_tail_);
  if (!tail.ready()) return;
  const bool made_here = next_ == request_.regions.shared_tokens;
  const int32_t position = made_here ? next_ : std::min(limit(), request_.regions.shared_tokens);
  if (!made_here && (next_ != first || position <= next_ || next_ / kBlockTokens < ready_ ||
                     (tree.uses(BlockKind::kWindow) && !tail.has(BlockKind::kWindow)))) {
    if (next_ >= first) drop_shared_tail(tree);  // of no use: computed again
    return;
  }
  if (made_here) {
    if (tree.uses(BlockKind::kWindow)) tree.release_node_window(shared_tail_);
  } else {
    count_hit(tree, shared_tail_, next_, position - next_);
    bound_ = false;
  }
  next_ = position;
  enter_block(tree, tail.block, position, true, sink);
  drop_shared_tail(tree);
}

inline void Lease::complete_shared_tail(PrefixTree& tree) {
  if (tree.uses(BlockKind::kWindow)) {
    tree.hold_window(shared_tail_);
    tree.attach(shared_tail_, BlockKind::kWindow, table_[BlockKind::kWindow][at(shared_tail_index())]);
  }
  tree.make_ready(shared_tail_);
  tree.mark_branch_point(shared_tail_);
}

inline void Lease::drop_shared_tail(PrefixTree& tree) {
  tree.release_node(shared_tail_);
  shared_tail_ = kNoNode;
}

// Goes on at `position`, in the middle of a block whose beginning the blocks `from` hold.
inline void Lease::enter_block(PrefixTree& tree, const PerKind<BlockId>& from, int32_t position, bool copy_global,
                               const EditSink& sink) {
  const int32_t index = position / kBlockTokens, count = position % kBlockTokens;
  if (tree.uses(BlockKind::kGlobal)) {
    const BlockId found = from[BlockKind::kGlobal], own = copy_global ? global_for(tree, index) : found;
    put(BlockKind::kGlobal, index, own, sink);
    if (copy_global) sink.plan->copies.push_back({BlockKind::kGlobal, found, own, count});
  }
  if (tree.uses(BlockKind::kWindow)) {
    const BlockId own = pop(BlockKind::kWindow);
    put(BlockKind::kWindow, index, own, sink);
    from_stash_.resize(table_[BlockKind::kWindow].size());
    from_stash_[at(index)] = true;
    sink.plan->copies.push_back({BlockKind::kWindow, from[BlockKind::kWindow], own, count});
  }
}

}  // namespace kaiju
