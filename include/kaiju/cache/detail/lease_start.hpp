// Lease: its start. It finds, holds, claims and copies blocks for the prompt. Part of lease.hpp, which states the
// contract.
#pragma once

#include "kaiju/cache/lease.hpp"

namespace kaiju {

inline Lease::Found Lease::find(const PrefixTree& tree, Reuse reuse) {
  Found found;
  if (reuse == Reuse::kNothing) {
    detached_ = true;  // what is there stays there; nothing is added beside it
    return found;
  }
  for (int32_t index = 0; index < prompt_count_ / kBlockTokens; ++index) {
    const NodeId node = tree.find(tree.key(parent_of(index), request_.regions.of_block(index), prompt_block(index)));
    if (node == kNoNode) break;
    path_.push_back(node);
  }
  while (ready_ < path_count() && tree.at(path_[at(ready_)]).ready()) ++ready_;
  if (reuse == Reuse::kAll) find_tail(tree, found);
  found.known = ready_ * kBlockTokens + found.tail_tokens;
  find_resume(tree, found, reuse);
  if (reuse == Reuse::kAll && request_.twin) find_twin(tree, found);
  if (found.shared_tail == SharedTail::kNone && reuse == Reuse::kAll && shared_tail_possible() &&
      path_count() <= shared_tail_index() && found.resume < request_.regions.shared_tokens)
    found.shared_tail = SharedTail::kToMake;
  return found;
}

// What continues the path within a block: the shared tail, or the longest beginning of another block.
inline void Lease::find_tail(const PrefixTree& tree, Found& found) {
  const int32_t index = path_count();
  const std::span<const int32_t> rest = request_.prompt.subspan(at(index * kBlockTokens));
  if (index == shared_tail_index() && shared_tail_possible()) {
    const NodeId tail =
        tree.find(tree.key(parent_of(index), request_.regions.shared, rest.first(at(shared_tail_tokens()))));
    if (tail != kNoNode && tree.at(tail).ready()) {
      found.shared_tail = SharedTail::kReady;
      found.tail = tail, found.tail_tokens = shared_tail_tokens();
    } else if (tail != kNoNode) {
      found.shared_tail = SharedTail::kBeingMade;
      shared_tail_ = tail;
      return;  // it is followed from its block's beginning
    }
  }
  if (ready_ < index || rest.empty()) return;
  int32_t count = 0;
  const NodeId partial = tree.find_partial(parent_of(index), request_.regions, index, rest, count);
  if (count > found.tail_tokens) found.tail = partial, found.tail_tokens = count;
}

// The last position whose window is whole.
inline void Lease::find_resume(const PrefixTree& tree, Found& found, Reuse reuse) {
  const bool windows = tree.uses(BlockKind::kWindow);
  const int32_t whole = ready_ * kBlockTokens;
  int32_t position = std::min(limit(), whole + found.tail_tokens);
  if (windows) {
    if (reuse == Reuse::kGlobalOnly) position = 0;
    const auto has_window = [&](int32_t index) {
      return tree.at(index < ready_ ? path_[at(index)] : found.tail).has(BlockKind::kWindow);
    };
    for (int32_t index = blocks_for(position) - 1; index >= 0 && index >= tree.first_visible(position); --index)
      if (!has_window(index)) position = index * kBlockTokens;
  }
  if (reuse >= Reuse::kWholeBlocks) position = position / kBlockTokens * kBlockTokens;
  if (position <= whole) found.tail = kNoNode;
  found.tail_tokens = found.tail == kNoNode ? 0 : position - whole;
  if (windows) found.first_window = tree.first_kept(position);
  found.resume = position;
}

// The end of what the twin has computed, where all of its whole blocks were found.
inline void Lease::find_twin(const PrefixTree& tree, Found& found) const {
  const Lease& twin = *request_.twin;
  const int32_t index = twin.next_ / kBlockTokens;
  if (twin.next_ != limit() || twin.next_ % kBlockTokens == 0 || found.resume == limit() || index != ready_ ||
      index != path_count() || shared_tail_ != kNoNode)
    return;
  for (int32_t i = tree.uses(BlockKind::kWindow) ? tree.first_visible(twin.next_) : index; i < index; ++i)
    if (!tree.at(path_[at(i)]).has(BlockKind::kWindow)) return;
  for (const BlockKind kind : kBothKinds)
    if (tree.uses(kind) && (std::ssize(twin.table_[kind]) <= index || twin.table_[kind][at(index)] == kNoBlock)) return;
  found.copies_twin = true;
  found.resume = twin.next_;
  found.tail = kNoNode;
  found.tail_tokens = 0;
  if (tree.uses(BlockKind::kWindow)) found.first_window = tree.first_kept(found.resume);
}

// The node of the block that the resume point lies in, whose beginning is copied; kNoNode: the point is at an edge.
inline NodeId Lease::copied_from(const Found& found) const {
  if (found.resume % kBlockTokens == 0 || found.copies_twin) return kNoNode;
  return found.tail != kNoNode ? found.tail : path_[at(found.resume / kBlockTokens)];
}

inline void Lease::hold(PrefixTree& tree, const Found& found) {
  for (const NodeId node : path_) tree.hold(node);
  if (shared_tail_ != kNoNode) tree.hold(shared_tail_);
  for (const BlockKind kind : kBothKinds)
    if (tree.uses(kind)) table_[kind].assign(at(found.resume / kBlockTokens), kNoBlock);
  std::vector<BlockId>&globals = table_[BlockKind::kGlobal], &windows = table_[BlockKind::kWindow];
  from_stash_.assign(windows.size(), false);
  for (size_t index = 0; index < globals.size(); ++index)
    globals[index] = tree.at(path_[index]).block[BlockKind::kGlobal];
  for (size_t index = at(found.first_window); index < windows.size(); ++index)
    if (tree.at(path_[index]).has(BlockKind::kWindow)) {
      tree.hold_window(path_[index]);
      windows[index] = tree.at(path_[index]).block[BlockKind::kWindow];
    }
  window_first_ = found.first_window;
  if (copy_source_ = copied_from(found); copy_source_ != kNoNode) {
    tree.hold(copy_source_);
    tree.hold_window(copy_source_);
  }
}

inline BlockNeed Lease::need(const PrefixTree& tree, const Found& found) const {
  return blocks_needed(request_.size(), {path_count(), found.resume, found.shared_tail}, tree.uses(BlockKind::kGlobal),
                       tree.window());
}

// With all blocks in hand.
inline void Lease::begin(PrefixTree& tree, const Found& found, Reuse reuse, const EditSink& sink) {
  next_ = found.resume;
  completed_ = next_ / kBlockTokens;
  count_found(tree, found);
  report_ = report(tree, found, reuse);
  insert_prompt(tree, found);
  use_points(tree, found);
  fill_tables(tree, found, sink);
  mark_found(tree);
}

// The prompt's other blocks become nodes at once, so that others who want them see that they are being computed.
inline void Lease::insert_prompt(PrefixTree& tree, const Found& found) {
  const auto claim = [&](int32_t index, DomainId domain, int32_t count) {
    const NodeId node =
        tree.insert(tree.key(parent_of(index), domain, prompt_block(index, count)), request_.ticket, request_.owner);
    if (node == kNoNode) return node;
    tree.hold(node);
    if (tree.uses(BlockKind::kGlobal)) tree.attach(node, BlockKind::kGlobal, pop(BlockKind::kGlobal));
    return node;
  };
  for (int32_t index = path_count(); index <= claimed_count() / kBlockTokens && !detached_; ++index) {
    if (found.shared_tail == SharedTail::kToMake && index == shared_tail_index())
      shared_tail_ = claim(index, request_.regions.shared, shared_tail_tokens());
    if ((index + 1) * kBlockTokens > claimed_count()) break;
    const NodeId node = claim(index, request_.regions.of_block(index), kBlockTokens);
    detached_ = node == kNoNode;
    if (!detached_) path_.push_back(node);
  }
}

// The block that the resume point lies in: global KV of a found block is used behind the write mask; everything else is
// a copy of the lease's own.
inline void Lease::fill_tables(PrefixTree& tree, const Found& found, const EditSink& sink) {
  if (found.copies_twin) {
    const auto index = at(found.resume / kBlockTokens);
    PerKind<BlockId> from;
    for (const BlockKind kind : kBothKinds)
      from[kind] = tree.uses(kind) ? request_.twin->table_[kind][index] : kNoBlock;
    enter_block(tree, from, found.resume, true, sink);
  }
  if (copy_source_ != kNoNode) {
    enter_block(tree, tree.at(copy_source_).block, found.resume, found.tail != kNoNode, sink);
    tree.release_node_window(copy_source_);
    tree.release_node(copy_source_);
    if (found.tail != kNoNode && found.tail_tokens == tree.at(found.tail).count) superseded_ = tree.ref(found.tail);
  }
  copy_source_ = kNoNode;
}

}  // namespace kaiju
