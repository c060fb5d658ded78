// Node: one node of the prefix tree. It has up to 64 tokens, which follow the tokens of its path, and a KV block of
// each kind. A node is ready once its KV is computed; before that, a lease (lease.hpp) claims it, which means that this
// lease's sequence computes it. Plain data; only the tree changes it.
#pragma once

#include <cstdint>

#include "kaiju/cache/block_pool.hpp"
#include "kaiju/cache/domain.hpp"
#include "kaiju/cache/name.hpp"

namespace kaiju {

inline constexpr NodeId kRoot = 0;

// Node::claim: the positive ticket of the lease that computes the node's KV, or one of these values.
inline constexpr int32_t kReady = 0;       // the KV is written
inline constexpr int32_t kUnclaimed = -1;  // no lease computes the KV now; the next lease that needs it claims it
inline constexpr int32_t kTransfer = -2;   // the KV is being copied up from a lower tier

// Invariants, which check_tree (invariants.hpp) recounts:
// - A node has 1 to 64 tokens. A node with fewer than 64 tokens is a tail and has no children.
// - If the model has global layers, every node has a global block, which is attached when the node is inserted. A node
//   may lack a window block; if it has one, its KV is written. A block belongs to one node at most.
// - Only a ready node may be read. A node that is not ready is held by the lease that computes it or by leases that
// wait
//   for it. So for every node that no lease has claimed, there is a lease that can claim it and compute its KV.
// - `refs` counts the leases, promotions and path builders that hold the node; `window_refs` counts those that also
//   hold its window block. Paths are held as a whole: a parent has at least as many refs and pins as each child.
// - The node's blocks are in the state that state_of returns.
// - A node is in the eviction list exactly while it is ready, not held and not pinned. Paths are released from their
//   last node to their first, so a parent was used no earlier than its children, and the oldest node of the list has no
//   child.
// - `points` counts the resume points at the node's end: positions where a prompt can resume, because the window's KV
//   is kept. `retainers` counts the nodes with resume points whose window includes this node. Window blocks without
//   retainers are evicted first.
// - The node's window block is in a list of blocks to evict exactly while its state is kCached.
struct Node {
  int32_t tokens[kBlockTokens];
  BlockName name;
  uint64_t used;   // when the node was last released, on the tree's clock
  uint64_t owner;  // the session that computed the KV
  uint64_t path;   // number of the node's path in the lower tiers (BlockKey); 0 if there are no tiers
  NodeId parent, first_child, next_sibling, previous_sibling;
  NodeId bucket_next;                   // next node in the same bucket of the index; kRoot ends the chain
  NodeId domain_next, domain_previous;  // neighbours in the domain's list
  NodeId older, newer;                  // neighbours in the list of nodes that may be evicted
  NodeId window_older, window_newer;    // neighbours in the list of window blocks that may be evicted
  DomainId domain;
  PerKind<BlockId> block;
  int32_t count;  // number of tokens
  int32_t claim;
  uint32_t generation;  // distinguishes this node from a later node in the same place
  int32_t refs, window_refs;
  int32_t pins, window_pins;
  int32_t points, retainers;
  bool listed;
  bool branch_point;         // a resume point was added because sequences branch here
  bool window_wanted_below;  // the window block belongs to a resume point in a lower tier
  int8_t window_list;        // the list that has the window block; -1: none

  bool ready() const { return claim == kReady; }
  bool arriving() const { return claim == kTransfer; }
  bool claimed_by(int32_t ticket) const { return claim == ticket; }
  bool has(BlockKind kind) const { return block[kind] != kNoBlock; }
  // The state that the node's block of this kind must have, by the node's counts.
  BlockState state_of(BlockKind kind) const {
    const bool global = kind == BlockKind::kGlobal;
    if (arriving()) return BlockState::kArriving;
    if (global ? refs > 0 || !ready() : window_refs > 0) return BlockState::kLive;
    return (global ? pins : window_pins) > 0 ? BlockState::kPinned : BlockState::kCached;
  }
};

// A reference to a node that may have been removed meanwhile.
struct NodeRef {
  NodeId node = kNoNode;
  uint32_t generation = 0;
};

// A block that is about to be evicted. A lower tier may copy its KV before the step writes anything.
struct EvictedBlock {
  BlockKind kind = BlockKind::kGlobal;
  BlockId block = kNoBlock;
  const Node* node = nullptr;
};

}  // namespace kaiju
