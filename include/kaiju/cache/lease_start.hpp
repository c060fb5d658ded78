// How a Lease starts: what it finds, holds, claims and copies. Part of lease.hpp, which says what it promises.
#pragma once

#include "kaiju/cache/lease.hpp"

namespace kaiju {

inline Lease::Found Lease::find(Tree& tree, Reuse reuse) {
  Found found;
  if (reuse == Reuse::kNothing) {
    detached_ = true;  // what is there stays there; nothing is added beside it
    return found;
  }
  for (int32_t index = 0; index < prompt_count() / kBlockTokens; ++index) {
    const DomainId domain = request_.regions.of_block(index);
    const int32_t* tokens = &prompt_[at(index * kBlockTokens)];
    const NodeId node = tree.find(parent_of(index), domain, tokens, kBlockTokens,
                                  tree.name_after(parent_of(index), domain, tokens, kBlockTokens));
    if (node == kNoNode) break;
    path_.push_back(node);
  }
  while (ready_ < path_count() && tree.at(path_[at(ready_)]).claim == kReady) ++ready_;
  if (reuse == Reuse::kAll) find_tail(tree, found);
  found.known = ready_ * kBlockTokens + found.tail_tokens;
  find_resume(tree, found, reuse);
  found.makes_seal = seal_possible() && seal_ == kNoNode && !seal_found_ && path_count() <= seal_index() &&
                     found.resume < request_.regions.shared_tokens && reuse == Reuse::kAll;
  return found;
}

// What continues the path within a block: a sealed tail, or the longest beginning of another block.
inline void Lease::find_tail(Tree& tree, Found& found) {
  const int32_t index = path_count();
  const std::span<const int32_t> rest(prompt_.data() + at(index * kBlockTokens),
                                      prompt_.size() - at(index * kBlockTokens));
  if (index == seal_index() && seal_possible()) {
    const DomainId shared = request_.regions.shared;
    const BlockName name = tree.name_after(parent_of(index), shared, rest.data(), seal_tokens());
    const NodeId seal = tree.find(parent_of(index), shared, rest.data(), seal_tokens(), name);
    seal_found_ = seal != kNoNode;
    if (seal_found_ && tree.at(seal).claim != kReady) seal_ = seal;
    if (seal_found_ && seal_ == kNoNode) found.tail = seal, found.tail_tokens = seal_tokens();
  }
  if (ready_ < index || rest.empty() || seal_ != kNoNode)
    return;  // a seal that is being made is followed from its block's beginning
  int32_t count = 0;
  const NodeId partial = tree.find_partial(parent_of(index), request_.regions, index, rest, count);
  if (count > found.tail_tokens) found.tail = partial, found.tail_tokens = count;
}

// The last position whose window is whole.
inline void Lease::find_resume(const Tree& tree, Found& found, Reuse reuse) {
  const int32_t whole = ready_ * kBlockTokens;
  int32_t position = std::min(limit(), whole + found.tail_tokens);
  if (tree.uses(BlockKind::kWindow)) {
    if (reuse == Reuse::kGlobalOnly) position = 0;
    const auto has_window = [&](int32_t index) {
      return tree.at(index < ready_ ? path_[at(index)] : found.tail).block[1] != kNoBlock;
    };
    for (int32_t index = blocks_for(position) - 1; index >= 0 && index >= tree.first_visible(position); --index)
      if (!has_window(index)) position = index * kBlockTokens;
    found.first_window = tree.first_kept(position);
  }
  if (reuse >= Reuse::kWholeBlocks) position = position / kBlockTokens * kBlockTokens;
  if (position <= whole) found.tail = kNoNode;
  found.tail_tokens = found.tail == kNoNode ? 0 : position - whole;
  if (tree.uses(BlockKind::kWindow)) found.first_window = tree.first_kept(position);
  found.resume = position;
}

// What is copied from: the block that the resume point lies in.
inline NodeId Lease::copied_from(const Found& found) const {
  if (found.resume % kBlockTokens == 0) return kNoNode;
  return found.tail != kNoNode ? found.tail : path_[at(found.resume / kBlockTokens)];
}

inline void Lease::hold(Tree& tree, const Found& found) {
  for (const NodeId node : path_) tree.hold(node);
  if (seal_ != kNoNode) tree.hold(seal_);
  for (const BlockKind kind : kBothKinds)
    if (tree.uses(kind)) table(kind).assign(at(found.resume / kBlockTokens), kNoBlock);
  from_stash_.assign(table(BlockKind::kWindow).size(), false);
  for (size_t index = 0; index < table(BlockKind::kGlobal).size(); ++index)
    table_[0][index] = tree.at(path_[index]).block[0];
  for (int32_t index = found.first_window; index < static_cast<int32_t>(table_[1].size()); ++index)
    if (tree.at(path_[at(index)]).block[1] != kNoBlock) {
      tree.hold_window(path_[at(index)]);
      table_[1][at(index)] = tree.at(path_[at(index)]).block[1];
    }
  window_first_ = found.first_window;
  if (copy_source_ = copied_from(found); copy_source_ != kNoNode) {
    tree.hold(copy_source_);
    tree.hold_window(copy_source_);
  }
}

inline BlockNeed Lease::need(const Tree& tree, const Found& found) const {
  const int32_t blocks = blocks_for(request_.most_positions);
  BlockNeed need;
  if (tree.uses(BlockKind::kGlobal)) need.count[0] = std::max(0, blocks - path_count()) + (found.makes_seal ? 1 : 0);
  if (tree.uses(BlockKind::kWindow))  // one more for a seal that we make, or may have to
    need.count[1] = (found.makes_seal || seal_ != kNoNode ? 1 : 0) +
                    static_cast<int32_t>(std::min<int64_t>(
                        blocks - found.resume / kBlockTokens,
                        window_blocks(request_.most_positions, request_.chunk_tokens, tree.window())));
  return need;
}

// The prompt's other blocks become nodes at once, so that others who want them see that they are being computed.
inline void Lease::insert_prompt(Tree& tree, const Found& found) {
  const auto claim = [&](int32_t index, DomainId domain, int32_t count) {
    const int32_t* tokens = &prompt_[at(index * kBlockTokens)];
    const NodeId node =
        tree.insert(parent_of(index), domain, tokens, count, tree.name_after(parent_of(index), domain, tokens, count),
                    request_.ticket, request_.owner);
    if (node == kNoNode) return node;
    tree.hold(node);
    if (tree.uses(BlockKind::kGlobal)) tree.attach(node, BlockKind::kGlobal, pop(BlockKind::kGlobal));
    return node;
  };
  for (int32_t index = path_count(); index <= prompt_count() / kBlockTokens && !detached_; ++index) {
    if (found.makes_seal && index == seal_index()) seal_ = claim(index, request_.regions.shared, seal_tokens());
    if ((index + 1) * kBlockTokens > prompt_count()) break;
    const NodeId node = claim(index, request_.regions.of_block(index), kBlockTokens);
    detached_ = node == kNoNode;
    if (!detached_) path_.push_back(node);
  }
}

// The block that the resume point lies in: global KV of a found block is masked; everything else is a copy of our own.
inline void Lease::fill_tables(Tree& tree, const Found& found, const EditSink& sink) {
  if (copy_source_ != kNoNode) {
    enter_block(tree, copy_source_, found.resume, found.tail != kNoNode, sink);
    tree.let_go_window(copy_source_);
    tree.let_go(copy_source_);
    if (found.tail != kNoNode && found.tail_tokens == tree.at(found.tail).count) superseded_ = tree.ref(found.tail);
  }
  copy_source_ = kNoNode;
}

}  // namespace kaiju
