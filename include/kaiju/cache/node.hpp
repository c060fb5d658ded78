// Node: one block of the prefix tree: 64 tokens behind those of its path, with a block of KV of each kind. Plain data;
// only the tree changes it.
#pragma once

#include <cstdint>

#include "kaiju/cache/block_pool.hpp"
#include "kaiju/cache/domain.hpp"
#include "kaiju/cache/name.hpp"

namespace kaiju {

inline constexpr NodeId kRoot = 0;

// Node::claim: which lease computes the node's KV, by its ticket (positive), or one of these.
inline constexpr int32_t kReady = 0;       // it is written
inline constexpr int32_t kUnclaimed = -1;  // no lease at the moment: the next that needs it claims it
inline constexpr int32_t kTransfer = -2;   // none: it arrives from a lower tier

// Invariants, which check_tree (invariants.hpp) recounts:
// - A node has 1 to 64 tokens. One with fewer than 64, a tail, has no children.
// - Where the model has global layers, every node has a global block: whoever inserts it attaches one at once. It may
//   lack a window block; the one it has is written. A block belongs to one node at most.
// - Only a ready node may be read. One that is not ready is held, by its writer or by those that wait for it: so no
//   node is unclaimed with nobody to claim it.
// - `refs` counts the leases, promotions and path builders that hold the node, `window_refs` those among them that hold
//   its window block. A path is held whole: a parent has at least the refs and the pins of each child.
// - Its blocks are in the state that state_of says.
// - A node is listed, and may be evicted, exactly while it is ready, unheld and unpinned. A path is let go from its
//   tip: so a parent was used no earlier than its children, and the oldest node of the list has no child.
// - `points` counts the resume points at the node's end. `retainers` counts the nodes with points whose window reaches
//   back to this one: window blocks without retainers are evicted first.
// - Its window block is listed, and may be evicted, exactly while it is cached.
struct Node {
  int32_t tokens[kBlockTokens];
  BlockName name;
  uint64_t used;   // when it was last let go, on the tree's clock
  uint64_t owner;  // the session that computed it
  uint64_t path;   // its number in the lower tiers (BlockKey); 0 where there are none
  NodeId parent, first_child, next_sibling, previous_sibling;
  NodeId bucket_next;                   // in the index; kRoot ends the chain
  NodeId domain_next, domain_previous;  // in the domain's list
  NodeId older, newer;                  // in the list of nodes that may be evicted
  NodeId window_older, window_newer;    // in the list of window blocks that may be evicted
  DomainId domain;
  PerKind<BlockId> block;
  int32_t count;  // tokens
  int32_t claim;
  uint32_t generation;  // tells a node from a later one in its place
  int32_t refs, window_refs;
  int32_t pins, window_pins;
  int32_t points, retainers;
  bool listed;
  bool branch_point;         // a resume point was added because sequences part here
  bool window_wanted_below;  // a resume point in a lower tier wants the window block there
  int8_t window_list;        // which list its window block is in; -1: none

  bool ready() const { return claim == kReady; }
  bool arriving() const { return claim == kTransfer; }
  bool claimed_by(int32_t ticket) const { return claim == ticket; }
  bool has(BlockKind kind) const { return block[kind] != kNoBlock; }
  // The state of its block of this kind, as its counts ask for.
  BlockState state_of(BlockKind kind) const {
    const bool global = kind == BlockKind::kGlobal;
    if (arriving()) return BlockState::kArriving;
    if (global ? refs > 0 || !ready() : window_refs > 0) return BlockState::kLive;
    return (global ? pins : window_pins) > 0 ? BlockState::kPinned : BlockState::kCached;
  }
};

// A node that may have gone meanwhile.
struct NodeRef {
  NodeId node = kNoNode;
  uint32_t generation = 0;
};

// A block that is about to be evicted: a lower tier may copy it down before this step writes anything.
struct EvictedBlock {
  BlockKind kind = BlockKind::kGlobal;
  BlockId block = kNoBlock;
  const Node* node = nullptr;
};

}  // namespace kaiju
