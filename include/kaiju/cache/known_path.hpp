// KnownPath: finds the cached blocks of a token history, which are needed to save a session. PathBuilder: inserts
// blocks into the cache whose KV was read from a saved session. In this file, a tail is the last block of a path if it
// has fewer than 64 tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kaiju/cache/prefix_tree.hpp"

namespace kaiju {

struct KnownPath {
  std::vector<NodeId> nodes;  // one node for each block, from the first on; the last may be a tail
  int32_t tokens = 0;         // number of tokens that the nodes cover

  // Finds the blocks of `tokens` whose KV is already computed, in the two domains `shared` and `own`. Each of the two
  // domains may be kNoDomain. A tail (a last block of fewer than 64 tokens) is found only if all its tokens are in
  // `tokens`.
  static KnownPath find(const PrefixTree& tree, DomainId shared, DomainId own, std::span<const int32_t> tokens) {
    KnownPath path;
    NodeId parent = kRoot;
    const auto whole = [&](DomainId domain) {
      if (domain == kNoDomain) return kNoNode;
      return tree.find(tree.key(parent, domain, tokens.subspan(static_cast<size_t>(path.tokens), kBlockTokens)));
    };
    for (; path.tokens + kBlockTokens <= std::ssize(tokens); path.tokens += kBlockTokens) {
      NodeId node = whole(shared);
      if (node == kNoNode) node = whole(own);
      if (node == kNoNode || !tree.at(node).ready()) break;
      path.nodes.push_back(parent = node);
    }
    const Regions regions{shared, static_cast<int32_t>(tokens.size()), own};
    int32_t count = 0;
    const NodeId tail = tree.find_partial(parent, regions, static_cast<int32_t>(path.nodes.size()),
                                          tokens.subspan(static_cast<size_t>(path.tokens)), count);
    if (tail != kNoNode && count == tree.at(tail).count) {
      path.nodes.push_back(tail);
      path.tokens += count;
    }
    return path;
  }
};

// PathBuilder inserts the blocks of a token history into the prefix tree, one after another, and holds their nodes
// until the PathBuilder is destroyed. The destructor removes the blocks that add() has inserted, unless keep() was
// called. One thread at a time may use a PathBuilder.
class PathBuilder {
 public:
  // If `trusted` is true, the KV may be added to the shared region, where other sessions use it. `owner` is the id of
  // the session. The memory of `tokens` must outlive the PathBuilder.
  PathBuilder(PrefixTree& tree, const Regions& regions, bool trusted, std::span<const int32_t> tokens, uint64_t owner)
      : tree_(tree), regions_(regions), trusted_(trusted), tokens_(tokens), owner_(owner) {
    path_.reserve(tokens.size() / kBlockTokens + 1);
    window_.reserve(tokens.size() / kBlockTokens + 1);
  }
  PathBuilder(const PathBuilder&) = delete;
  PathBuilder& operator=(const PathBuilder&) = delete;
  ~PathBuilder() {
    for (size_t i = path_.size(); i-- > 0;) {
      const NodeRef node = tree_.ref(path_[i]);
      if (window_[i] != kNone) tree_.release_node_window(path_[i]);
      tree_.release_node(path_[i]);
      if (kept_ || !tree_.alive(node)) continue;
      if (i >= first_own_)
        tree_.remove(path_[i]);
      else if (const Node& n = tree_.at(path_[i]); window_[i] == kBrought && n.window_refs == 0 && n.window_pins == 0)
        tree_.release_block(BlockKind::kWindow, tree_.detach(path_[i], BlockKind::kWindow));
    }
  }
  // Tells the destructor to leave the blocks that add() has inserted in the cache.
  void keep() { kept_ = true; }

  // Adds the next block of the token history, which has `count` tokens. If the block's KV is not cached yet, add()
  // calls `fill(kind, block)`, which must write the KV into that cache block or return false. add() returns false if
  // there is no room for the block, if a running sequence is computing the block, or if `fill` returned false.
  template <class Fill>
  bool add(int32_t count, bool with_window, Fill fill) {
    const auto index = static_cast<int32_t>(path_.size());
    const NodeId parent = index == 0 ? kRoot : path_.back();
    const DomainId domain = index * kBlockTokens + count <= regions_.shared_tokens ? regions_.shared : regions_.own;
    const NodeKey key =
        tree_.key(parent, domain, tokens_.subspan(kBlockTokens * path_.size(), static_cast<size_t>(count)));
    NodeId node = tree_.find(key);
    if (node == kNoNode) {
      if (domain == regions_.shared && !trusted_) return false;
      node = insert(key, fill);
      if (node == kNoNode) return false;
      first_own_ = std::min(first_own_, path_.size());
    } else {
      if (!tree_.at(node).ready()) return false;
      tree_.hold(node);
    }
    path_.push_back(node);
    window_.push_back(kNone);
    if (with_window && tree_.uses(BlockKind::kWindow)) add_window(node, domain != regions_.shared || trusted_, fill);
    return true;
  }
  // Returns the tree node of the last added block, or kNoNode if no block was added.
  NodeId tip() const { return path_.empty() ? kNoNode : path_.back(); }

 private:
  Claimant claimant() const { return {tree_.domains().at(regions_.own).share, false}; }
  template <class Fill>
  NodeId insert(const NodeKey& key, Fill fill) {
    const bool has_global = tree_.uses(BlockKind::kGlobal);
    const BlockId global = has_global ? tree_.take(BlockKind::kGlobal, claimant()) : kNoBlock;
    if (has_global && global == kNoBlock) return kNoNode;
    const NodeId node = tree_.insert(key, kTransfer, owner_);
    if (node == kNoNode) {
      if (has_global) tree_.release_block(BlockKind::kGlobal, global);
      return kNoNode;
    }
    tree_.hold(node);
    if (has_global) tree_.attach(node, BlockKind::kGlobal, global);
    if (!has_global || fill(BlockKind::kGlobal, global)) {
      tree_.make_ready(node);
      return node;
    }
    tree_.abandon(node);
    tree_.release_node(node);
    tree_.remove(node);
    return kNoNode;
  }
  template <class Fill>
  void add_window(NodeId node, bool may_fill, Fill fill) {
    const bool brings = !tree_.at(node).has(BlockKind::kWindow);
    if (brings) {
      const BlockId window = may_fill ? tree_.take(BlockKind::kWindow, claimant()) : kNoBlock;
      if (window == kNoBlock) return;
      if (!fill(BlockKind::kWindow, window)) return tree_.release_block(BlockKind::kWindow, window);
      tree_.attach(node, BlockKind::kWindow, window);
    }
    tree_.hold_window(node);
    window_.back() = brings ? kBrought : kFound;
  }

  PrefixTree& tree_;
  Regions regions_;
  bool trusted_;
  std::span<const int32_t> tokens_;
  uint64_t owner_;
  std::vector<NodeId> path_;
  enum Window : uint8_t { kNone, kFound, kBrought };
  std::vector<Window> window_;   // for each node: whether its window block is held, and whether it was added here
  size_t first_own_ = SIZE_MAX;  // index of the first node that was inserted here
  bool kept_ = false;
};

}  // namespace kaiju
