// Batch: the rows of one step as a backend sees them, and where their keys and values live.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kaiju/arith/rotary.hpp"
#include "kaiju/step/executor_info.hpp"

namespace kaiju {

// Consecutive rows of one sequence. All that it sees in front of the block of its first position is there when the
// batch begins, and no segment of the batch writes it: a backend may read those blocks, and the tables, before its own
// earlier operations have ended.
struct BatchSegment {
  int32_t first_row = 0;
  int32_t row_count = 0;
  int32_t position = 0;    // of the first row
  int32_t write_from = 0;  // global blocks hold the positions below already and must not be written there
  const BlockId* table[kBlockKinds] = {nullptr, nullptr};  // block of position p: table[kind][p / 64]
};

struct Batch {
  int32_t row_count = 0;
  std::span<const int32_t> tokens;     // [rows]
  std::span<const int32_t> positions;  // [rows]
  std::span<const BatchSegment> segments;
  std::span<const int32_t> row_segment;  // [rows] which segment a row belongs to
  int32_t single_from = INT32_MAX;  // segments from this one on have one row each; whoever makes a batch need not tell
};

// One KV slot inside the pool of its kind. A block of a kind is one contiguous piece: for each slot of the kind and
// each KV head, 64 tokens of keys, then 64 tokens of values, head_dim bytes a token. How the bytes lie within a half is
// the backend's own affair.
struct KvSlot {
  std::byte* pool = nullptr;
  int64_t block_bytes = 0;
  int64_t slot_offset = 0;  // of this slot within a block
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  BlockKind kind = BlockKind::kGlobal;
  int32_t window = 0;  // 0: sees everything

  std::byte* keys(BlockId block, int32_t head) const {
    return pool + block * block_bytes + slot_offset + int64_t{head} * 2 * kBlockTokens * head_dim;
  }
  std::byte* values(BlockId block, int32_t head) const { return keys(block, head) + int64_t{kBlockTokens} * head_dim; }

  // First position that a query at `position` sees.
  int32_t first_visible(int32_t position) const { return window > 0 && position >= window ? position - window + 1 : 0; }
};

}  // namespace kaiju
