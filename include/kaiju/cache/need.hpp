// BlockNeed: how many blocks of each kind a sequence needs, before it starts. The one place that computes it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kaiju/step/executor_info.hpp"

namespace kaiju {

inline int32_t blocks_for(int32_t positions) { return (positions + kBlockTokens - 1) / kBlockTokens; }

// How many blocks of each kind.
struct BlockNeed {
  PerKind<int32_t> count;

  BlockNeed& operator+=(const BlockNeed& other) {
    for (const BlockKind kind : kBothKinds) count[kind] += other.count[kind];
    return *this;
  }
};

// The last, partly filled block of a shared region, as a prompt finds it. It is a node of its own, complete at the
// region's end; every sequence copies it before it writes on.
enum class SharedTail {
  kNone,       // the region ends between two blocks, lies beyond the prompt, or its tail is of no use
  kReady,      // computed
  kBeingMade,  // another sequence computes it: this one follows, and computes it itself if that one leaves
  kToMake,     // this sequence computes it
};

// Positions to add to a window and a chunk, to count the window blocks that hold them: 63 that may be lost at each of
// three edges, and 64 for the block kept behind the window. A block that a follower has not let go of yet is among
// them.
inline constexpr int32_t kWindowSlack = 3 * (kBlockTokens - 1) + kBlockTokens;

// What a sequence asks of the cache.
struct SequenceSize {
  int32_t most_positions = 0;  // that will ever hold KV
  int32_t chunk_tokens = 1;    // most tokens of it in a step
};
// What of that the cache has already.
struct FoundBlocks {
  int32_t path = 0;    // blocks of its prompt that are nodes of the tree: they have their global blocks
  int32_t resume = 0;  // position of the first token it computes
  SharedTail shared_tail = SharedTail::kNone;
};

// The blocks to take for a sequence beside those found. Of window blocks it holds at most as many at once as cover the
// window, a chunk and the slack; one more for a shared tail that it makes, or may have to.
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
