// Node: one node of the prefix tree. A node has up to 64 tokens, which follow the tokens of its ancestors, and up to
// one KV block of each kind (global and window). A node is ready once its KV is computed. A lease is what a running
// sequence holds of the cache (lease.hpp). By claiming a node that is not ready, a lease states that its sequence will
// compute the node's KV. A Node is plain data, and only the PrefixTree changes it.
#pragma once

#include <cstdint>

#include "kaiju/cache/block_pool.hpp"
#include "kaiju/cache/domain.hpp"
#include "kaiju/cache/name.hpp"

namespace kaiju {

inline constexpr NodeId kRoot = 0;

// Node::claim is the positive ticket (a unique number) of the lease whose sequence computes the node's KV, or one of
// the constants kReady, kUnclaimed and kTransfer.
inline constexpr int32_t kReady = 0;       // the KV is written
inline constexpr int32_t kUnclaimed = -1;  // no lease computes the KV now; the next lease that needs it claims it
inline constexpr int32_t kTransfer = -2;   // the KV is being copied up from a lower tier

// Invariants, which check_tree (invariants.hpp) recounts:
// - A node has 1 to 64 tokens. A node with fewer than 64 tokens is called a tail and has no children.
// - If the model has global layers, every node has a global block, which is attached when the node is inserted. The KV
//   of this global block may be computed later. A node need not have a window block. A window block is attached to a
//   node only after the window block's KV was computed. A block belongs to one node at most.
// - The KV of a node may be read only once the node is ready. A node that is not ready is held by the lease that
//   computes its KV, by leases that wait for its KV, or by the promotion that copies its KV from a lower tier. So if a
//   node that is not ready has claim kUnclaimed, one of the leases that wait for the node can claim it and compute its
//   KV.
// - `refs` counts the holders of a node: the leases, promotions and path builders that use it. `window_refs` counts the
//   holders that also use the node's window block. Whoever holds or pins a node also holds or pins all its ancestors,
//   so a parent has at least as many refs and pins as each of its children.
// - Each block of a node is in the BlockState that state_of returns for it.
// - `points` counts who wants a resume point at the node's end. A resume point is a position from which a later prompt
//   can continue, because the cache retains the KV of the window before that position. While `points` is not 0, `point`
//   is its place among the resume points. `retainers` counts the nodes that have a resume point whose window includes
//   this node.
// - A node is in the list of nodes to evict exactly while it is ready, not held and not pinned, and no resume point
// needs
//   it: it has no point, and all its children are in the list. `kept_children` counts the children that are not. So a
//   node entered the list later than its children, and the oldest node of the list has no child.
// - A node's window block is in the list of window blocks to evict exactly while the window block's state is kCached
// and
//   the node has no retainers.
struct Node {
  int32_t tokens[kBlockTokens];
  BlockName name;
  PerKind<uint64_t> idle;  // when each of its blocks entered a list of blocks to evict, on the tree's clock
  uint64_t owner;          // the session that computed the KV
  uint64_t path;           // number of the node's path in the lower tiers (BlockKey); 0 if there are no tiers
  NodeId parent, first_child, next_sibling, previous_sibling;
  NodeId bucket_next;                   // next node in the same bucket of the index; kRoot ends the chain
  NodeId domain_next, domain_previous;  // neighbours in the domain's list
  NodeId older, newer;                  // neighbours in the list of nodes to evict
  NodeId window_older, window_newer;    // neighbours in the list of window blocks to evict
  DomainId domain;
  PerKind<BlockId> block;
  int32_t count;  // number of tokens
  int32_t claim;
  uint32_t generation;  // distinguishes this node from a later node in the same place
  int32_t refs, window_refs;
  int32_t pins, window_pins;
  int32_t points, retainers;
  int32_t point;  // place among the resume points; -1: none
  int32_t kept_children;
  bool listed, window_listed;
  bool branch_point;         // sequences were seen to branch here
  bool window_wanted_below;  // the window block belongs to a resume point that was given up or is in a lower tier

  bool ready() const { return claim == kReady; }
  bool arriving() const { return claim == kTransfer; }
  bool claimed_by(int32_t ticket) const { return claim == ticket; }
  bool has(BlockKind kind) const { return block[kind] != kNoBlock; }
  // Returns the state that the node's block of this kind must have, which follows from the node's claim, refs and pins.
  BlockState state_of(BlockKind kind) const {
    const bool global = kind == BlockKind::kGlobal;
    if (arriving()) return BlockState::kArriving;
    if (global ? refs > 0 || !ready() : window_refs > 0) return BlockState::kLive;
    return (global ? pins : window_pins) > 0 ? BlockState::kPinned : BlockState::kCached;
  }
};

// NodeRef: a reference to a node of the prefix tree. The node may be removed while a NodeRef to it exists;
// PrefixTree::alive tells whether it was removed.
struct NodeRef {
  NodeId node = kNoNode;
  uint32_t generation = 0;
};

// A cache block that is about to be evicted. A lower tier (host memory or a file) may copy the block's KV before the
// next step writes anything.
struct EvictedBlock {
  BlockKind kind = BlockKind::kGlobal;
  BlockId block = kNoBlock;
  const Node* node = nullptr;
};

}  // namespace kaiju
