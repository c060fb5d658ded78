// Batch: the rows (tokens) of one step in the form that a backend receives. KvSlot: where the keys and values of one or
// several layers lie in the KV cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kaiju/arith/rotary.hpp"
#include "kaiju/step/executor_info.hpp"

namespace kaiju {

// A segment is consecutive rows of one sequence. When a batch begins, all blocks of the sequence before the block of
// the segment's first position already have their KV, and no segment of the batch writes these blocks. So a backend may
// read these earlier blocks and the block tables before its preceding operations of the same batch have ended.
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

// A KV slot holds the keys and values of one layer, or of several layers that share them. Every KV slot lies inside a
// pool, the memory for all cache blocks of one kind (global or window). A cache block is contiguous. For each KV slot
// of the block's kind and each KV head, the block has 64 tokens of keys and then 64 tokens of values, with head_dim
// bytes for each token. The backend chooses the layout of the 64 tokens of keys and of the 64 tokens of values. In
// version 2 of the arithmetic, 64 scales of keys and 64 scales of values follow for each KV head, as bf16.
struct KvSlot {
  std::byte* pool = nullptr;
  int64_t block_bytes = 0;
  int64_t slot_offset = 0;  // offset of this KV slot within a block
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  BlockKind kind = BlockKind::kGlobal;
  int32_t window = 0;   // in positions; 0: full attention
  bool scaled = false;  // each key and each value has a scale

  // Bytes of one KV head in a block.
  KAIJU_HOST_DEVICE static constexpr int64_t head_bytes(int32_t head_dim, bool scaled) {
    return int64_t{2} * kBlockTokens * (head_dim + (scaled ? int64_t{sizeof(arith::bf16)} : 0));
  }
  KAIJU_HOST_DEVICE std::byte* keys(BlockId block, int32_t head) const {
    return pool + block * block_bytes + slot_offset + int64_t{head} * head_bytes(head_dim, scaled);
  }
  KAIJU_HOST_DEVICE std::byte* values(BlockId block, int32_t head) const {
    return keys(block, head) + int64_t{kBlockTokens} * head_dim;
  }
  KAIJU_HOST_DEVICE arith::bf16* key_scales(BlockId block, int32_t head) const {
    return reinterpret_cast<arith::bf16*>(keys(block, head) + int64_t{2} * kBlockTokens * head_dim);
  }
  KAIJU_HOST_DEVICE arith::bf16* value_scales(BlockId block, int32_t head) const {
    return key_scales(block, head) + kBlockTokens;
  }

  // Returns the first position that a query at `position` attends to.
  int32_t first_visible(int32_t position) const { return window > 0 && position >= window ? position - window + 1 : 0; }
};

}  // namespace kaiju
