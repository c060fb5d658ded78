// BlockNeed: how many cache blocks of each kind a sequence needs before it may start. No other file computes how many
// blocks a sequence needs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kaiju/step/executor_info.hpp"

namespace kaiju {

inline int32_t blocks_for(int32_t positions) { return (positions + kBlockTokens - 1) / kBlockTokens; }

// A number of cache blocks of each kind (global and window).
struct BlockNeed {
  PerKind<int32_t> count;

  BlockNeed& operator+=(const BlockNeed& other) {
    for (const BlockKind kind : kBothKinds) count[kind] += other.count[kind];
    return *this;
  }
};

// The state of the shared tail when a sequence with this prompt starts. The shared tail is the last, partly filled
// block of a shared region (the part of a prompt that several sessions share). The tree node of the shared tail ends
// where the shared region ends. Every sequence copies the shared tail before it writes more tokens into the block.
enum class SharedTail {
  kNone,       // the region ends between two blocks or after the prompt's end, or its tail cannot be used
  kReady,      // the tail's KV is computed
  kBeingMade,  // another sequence computes the tail; this one waits, and computes it if the other one leaves
  kToMake,     // this sequence computes the tail
};

// The window blocks of a sequence must have room for its window, one prefill chunk, and kWindowSlack more positions.
// kWindowSlack consists of 63 positions at each of three edges, which may be lost by rounding to whole blocks, and of
// one block of 64 positions before the window that is not released yet. kWindowSlack also covers a block that a
// sequence still holds while it uses the blocks that another sequence computes.
inline constexpr int32_t kWindowSlack = 3 * (kBlockTokens - 1) + kBlockTokens;

// The largest size that a sequence may reach.
struct SequenceSize {
  int32_t most_positions = 0;  // most positions that will hold KV
  int32_t chunk_tokens = 1;    // most tokens of the sequence in one step
};
// The part of a sequence whose KV was found in the cache.
struct FoundBlocks {
  int32_t path = 0;    // number of the prompt's blocks that are nodes of the tree, and so have global blocks
  int32_t resume = 0;  // position of the first token to compute
  SharedTail shared_tail = SharedTail::kNone;
};

// Returns the number of blocks that a sequence must take in addition to the blocks that were found in the cache. At any
// time a sequence holds at most the window blocks that cover its window, one prefill chunk and kWindowSlack positions,
// and one more window block if it computes or may have to compute the shared tail.
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
