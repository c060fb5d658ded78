// BlockNeed: how many cache blocks of each kind a sequence needs before it may start. Only this file computes it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kaiju/step/executor_info.hpp"

namespace kaiju {

inline int32_t blocks_for(int32_t positions) { return (positions + kBlockTokens - 1) / kBlockTokens; }

// A number of blocks of each kind.
struct BlockNeed {
  PerKind<int32_t> count;

  BlockNeed& operator+=(const BlockNeed& other) {
    for (const BlockKind kind : kBothKinds) count[kind] += other.count[kind];
    return *this;
  }
};

// State of the shared tail when a prompt starts. The shared tail is the last, partly filled block of a shared region.
// It is a node that ends with the region; every sequence copies it before it writes more tokens.
enum class SharedTail {
  kNone,       // the region ends between two blocks or after the prompt's end, or its tail cannot be used
  kReady,      // the tail's KV is computed
  kBeingMade,  // another sequence computes the tail; this one waits, and computes it if the other one leaves
  kToMake,     // this sequence computes the tail
};

// Positions to add to a window and a chunk when counting the window blocks that hold them. At each of three edges 63
// positions may be lost to rounding, and one block of 64 is kept before the window. A block that a following sequence
// has not released yet is included.
inline constexpr int32_t kWindowSlack = 3 * (kBlockTokens - 1) + kBlockTokens;

// The size of a sequence.
struct SequenceSize {
  int32_t most_positions = 0;  // most positions that will hold KV
  int32_t chunk_tokens = 1;    // most tokens of the sequence in one step
};
// The part of a sequence that is cached already.
struct FoundBlocks {
  int32_t path = 0;    // number of the prompt's blocks that are nodes of the tree, and so have global blocks
  int32_t resume = 0;  // position of the first token to compute
  SharedTail shared_tail = SharedTail::kNone;
};

// The blocks that a sequence must take in addition to the cached ones. At any time it holds at most the window blocks
// that cover the window, one chunk and kWindowSlack, plus one for a shared tail that it computes or may have to
// compute.
inline BlockNeed blocks_needed(const SequenceSize& size, const FoundBlocks& found, bool uses_global, int32_t window) {
  const int32_t blocks = blocks_for(size.most_positions);
  const bool makes = found.shared_tail == SharedTail::kToMake, may_make = found.shared_tail == SharedTail::kBeingMade;
  BlockNeed need;
  if (uses_global) need.count[BlockKind::kGlobal] = std::max(0, blocks - found.path) + (makes ? 1 : 0);
  if (window > 0) {
    const int64_t at_once =
        (int64_t{std::min(size.most_positions, size.chunk_tokens)} + window + kWindowSlack) / kBlockTokens;
    need.count[BlockKind::kWindow] =
        static_cast<int32_t>(std::min<int64_t>(blocks - found.resume / kBlockTokens, at_once)) +
        (makes || may_make ? 1 : 0);
  }
  return need;
}

}  // namespace kaiju
