// Lease: the blocks that its sequence writes. They are given out as the sequence grows, added to the tree when full,
// and collected when they leave the window. Part of lease.hpp, which states the contract.
#pragma once

#include "kaiju/cache/lease.hpp"

namespace kaiju {

inline int32_t Lease::room(PrefixTree& tree, int32_t wanted) {
  int32_t end = next_ + wanted;
  if (shared_tail_ != kNoNode && next_ < request_.regions.shared_tokens) {
    const bool mine = tree.at(shared_tail_).claimed_by(request_.ticket);
    end = std::min(end, mine ? request_.regions.shared_tokens : shared_tail_index() * kBlockTokens);
  }
  for (int32_t index = std::max(ready_, next_ / kBlockTokens); index < path_count() && index * kBlockTokens < end;
       ++index)
    if (!tree.claim(path_[at(index)], request_.ticket)) end = std::min(end, index * kBlockTokens);
  if (tree.uses(BlockKind::kWindow)) {
    release_windows(tree, {});
    const int64_t held = std::ssize(table_[BlockKind::kWindow]) + std::ssize(stash_[BlockKind::kWindow]);
    end = static_cast<int32_t>(std::min<int64_t>(end, held * kBlockTokens));
  }
  return std::max(0, end - next_);
}

inline void Lease::bind(const EditSink& sink) {
  for (const BlockKind kind : kBothKinds)
    for (size_t i = 0; i < table_[kind].size(); ++i)
      if (table_[kind][i] != kNoBlock)
        sink.plan->table_edits.push_back({sink.slot, kind, static_cast<int32_t>(i), table_[kind][i]});
  edits_.clear();
  bound_ = true;
}

inline bool Lease::extend(PrefixTree& tree, int32_t end, const EditSink& sink) {
  release_windows(tree, sink);
  for (const BlockKind kind : kBothKinds) {
    if (!tree.uses(kind)) continue;
    while (std::ssize(table_[kind]) < blocks_for(end)) {
      const auto index = static_cast<int32_t>(table_[kind].size());
      const BlockId block = kind == BlockKind::kGlobal ? global_for(tree, index) : pop(kind);
      if (block == kNoBlock) return false;
      table_[kind].push_back(block);
      if (kind == BlockKind::kWindow) from_stash_.push_back(true);
      edits_.push_back({sink.slot, kind, index, block});
    }
  }
  flush(sink);
  return true;
}

// -- blocks that become full --

inline void Lease::complete(PrefixTree& tree, std::span<const int32_t> tokens, int32_t index) {
  if (index < path_count()) {
    const NodeId node = path_[at(index)];
    give_window(tree, node, index);
    if (tree.at(node).claimed_by(request_.ticket)) tree.make_ready(node);
    if (index == ready_) ++ready_;
  } else if (!append(tree, tokens, index)) {
    detached_ = true;
    return;
  }
  mark_at(tree, index, path_[at(index)]);
}

// A block beyond the prompt joins the tree. False: it cannot, and nothing behind it.
inline bool Lease::append(PrefixTree& tree, std::span<const int32_t> tokens, int32_t index) {
  if (detached_ || index != path_count()) return false;
  const NodeKey key = tree.key(parent_of(index), request_.regions.of_block(index),
                               tokens.subspan(at(index * kBlockTokens), at(kBlockTokens)));
  NodeId node = tree.find(key);
  if (node != kNoNode && !tree.at(node).ready()) return false;
  const bool found = node != kNoNode;  // then the lease's own blocks stay its own, and go with it
  if (!found) node = tree.insert(key, request_.ticket, request_.owner);
  if (node == kNoNode) return false;
  tree.hold(node);
  if (!found && tree.uses(BlockKind::kGlobal))
    tree.attach(node, BlockKind::kGlobal, table_[BlockKind::kGlobal][at(index)]);
  give_window(tree, node, index);
  if (!found) tree.make_ready(node);
  path_.push_back(node);
  ready_ = path_count();
  return true;
}

inline void Lease::give_window(PrefixTree& tree, NodeId node, int32_t index) {
  if (!tree.uses(BlockKind::kWindow) || tree.at(node).has(BlockKind::kWindow)) return;
  const BlockId block = table_[BlockKind::kWindow][at(index)];
  if (block == kNoBlock) return;
  tree.hold_window(node);
  tree.attach(node, BlockKind::kWindow, block);
}

// -- window blocks that left the window --

inline void Lease::release_windows(PrefixTree& tree, const EditSink& sink) {
  if (!tree.uses(BlockKind::kWindow)) return;
  std::vector<BlockId>& windows = table_[BlockKind::kWindow];
  const int32_t end = std::min(static_cast<int32_t>(windows.size()), tree.first_kept(next_));
  for (; window_first_ < end; ++window_first_) {
    BlockId& block = windows[at(window_first_)];
    if (block == kNoBlock) continue;
    release_window(tree, window_first_, block);
    block = kNoBlock;
    edits_.push_back({sink.slot, BlockKind::kWindow, window_first_, kNoBlock});
  }
  for (; owed_ > 0; --owed_) {
    BlockId block = tree.take(BlockKind::kWindow, request_.claimant);
    if (block == kNoBlock && !retained_.empty()) {
      release_retained(tree);  // going on comes before points to come
      block = tree.take(BlockKind::kWindow, request_.claimant);
    }
    if (block == kNoBlock && tree.shares().any())  // what runs has to go on
      block = tree.take(BlockKind::kWindow, {request_.claimant.share, true});
    if (block == kNoBlock) break;
    stash_[BlockKind::kWindow].push_back(block);
  }
  if (sink.plan) flush(sink);
}

// What came out of the hand comes back into it: another block, while one is idle; else this one, if nobody has use for
// it; else another one later.
inline void Lease::release_window(PrefixTree& tree, int32_t index, BlockId block) {
  const NodeId id = tree.node_of(BlockKind::kWindow, block);
  if (id == kNoNode) {
    stash_[BlockKind::kWindow].push_back(block);
    return;
  }
  const bool kept = keeps(tree, index);
  if (kept) {
    tree.retain_window(id);
    retained_.push_back(id);
  } else {
    release_retained(tree);  // the points that needed those are there
  }
  tree.release_node_window(id);
  if (!from_stash_[at(index)]) return;
  if (const BlockId other = tree.take_idle(BlockKind::kWindow); other != kNoBlock) {
    stash_[BlockKind::kWindow].push_back(other);
    return;
  }
  const Node& node = tree.at(id);
  if (node.window_refs == 0 && node.window_pins == 0 && node.retainers == 0)
    stash_[BlockKind::kWindow].push_back(tree.detach(id, BlockKind::kWindow));
  else
    ++owed_;
}

inline void Lease::release_retained(PrefixTree& tree) {
  for (const NodeId id : retained_) tree.release_window(id);
  retained_.clear();
}

// -- tables and the hand --

inline void Lease::flush(const EditSink& sink) {
  for (TableEdit& edit : edits_) {
    edit.slot = sink.slot;
    if (bound_) sink.plan->table_edits.push_back(edit);
  }
  edits_.clear();
}

inline BlockId Lease::pop(BlockKind kind) {
  if (stash_[kind].empty()) return kNoBlock;
  const BlockId block = stash_[kind].back();
  stash_[kind].pop_back();
  return block;
}

// The block for global KV at `index`: the node's, found or claimed; the shared tail's while this lease makes it; else
// one in hand.
inline BlockId Lease::global_for(const PrefixTree& tree, int32_t index) {
  if (shared_tail_ != kNoNode && index == shared_tail_index() && next_ < request_.regions.shared_tokens &&
      tree.at(shared_tail_).claimed_by(request_.ticket))
    return tree.at(shared_tail_).block[BlockKind::kGlobal];
  return index < path_count() ? tree.at(path_[at(index)]).block[BlockKind::kGlobal] : pop(BlockKind::kGlobal);
}

inline void Lease::put(BlockKind kind, int32_t index, BlockId block, const EditSink& sink) {
  if (std::ssize(table_[kind]) <= index) table_[kind].resize(at(index) + 1, kNoBlock);
  table_[kind][at(index)] = block;
  edits_.push_back({sink.slot, kind, index, block});
}

}  // namespace kaiju
