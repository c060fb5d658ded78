// Batch: the rows of one step as a backend gets them. KvSlot: where keys and values are in the KV cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kaiju/arith/rotary.hpp"
#include "kaiju/step/executor_info.hpp"

namespace kaiju {

// Consecutive rows of one sequence. The blocks before the block of its first position are complete when the batch
// begins, and no segment of the batch writes them. So a backend need not wait for its earlier operations of the batch
// before it reads those blocks and the block tables.
struct BatchSegment {
  int32_t first_row = 0;
  int32_t row_count = 0;
  int32_t position = 0;    // position of the first row
  int32_t write_from = 0;  // positions before this one are in global blocks already and must not be written again
  const BlockId* table[kBlockKinds] = {nullptr, nullptr};  // position p is in block table[kind][p / 64]
};

struct Batch {
  int32_t row_count = 0;
  std::span<const int32_t> tokens;     // [rows]
  std::span<const int32_t> positions;  // [rows]
  std::span<const BatchSegment> segments;
  std::span<const int32_t> row_segment;  // [rows] index of each row's segment
  int32_t single_from = INT32_MAX;       // All segments from this one on have one row each. Setting it is optional.
};

// One KV slot inside the pool of its kind of block. A block is contiguous: for each KV slot of the kind and each KV
// head, it has 64 tokens of keys, then 64 tokens of values, with head_dim bytes for each token. The backend chooses the
// layout within the keys and within the values.
struct KvSlot {
  std::byte* pool = nullptr;
  int64_t block_bytes = 0;
  int64_t slot_offset = 0;  // offset of this KV slot within a block
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  BlockKind kind = BlockKind::kGlobal;
  int32_t window = 0;  // in positions; 0: full attention

  std::byte* keys(BlockId block, int32_t head) const {
    return pool + block * block_bytes + slot_offset + int64_t{head} * 2 * kBlockTokens * head_dim;
  }
  std::byte* values(BlockId block, int32_t head) const { return keys(block, head) + int64_t{kBlockTokens} * head_dim; }

  // The first position that a query at `position` attends to.
  int32_t first_visible(int32_t position) const { return window > 0 && position >= window ? position - window + 1 : 0; }
};

}  // namespace kaiju
