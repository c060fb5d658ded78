// Divides a batch into work for the attention kernels. The division is computed on the GPU from the batch itself, so a
// launch needs only upper bounds from the host.
//
// The rows of a segment are its tokens times the H query heads that share a KV head: row r is token r / H, head r % H.
// On Hopper a segment of up to 40 rows, or of one token, is narrow (decode); all others are wide (prefill). Narrow
// segments become items and units of one chunk (sm90_attention_decode_plan.cuh). Wide segments become tiles of 128
// rows, or of 64 rows if there are few tiles; each tile folds all its chunks in order. Single tokens with many heads
// also become tiles if that is faster (sm90_attention.cu). On other chips all segments become tiles
// (sm80_attention.cuh).
#pragma once

#include "../kernels.hpp"
#include "kaiju/arith/softmax.hpp"

namespace kaiju::cuda {

constexpr int32_t kTileRows = kAttentionTileRows;  // of a warpgroup
constexpr int32_t kWideRows = 2 * kTileRows;       // of a tile of two warpgroups
constexpr int32_t kNarrowRows = kAttentionItemRows;
constexpr int32_t kMostKept = 2048;  // chunks of an item that are kept apart
constexpr int32_t kChunkBlocks = arith::kChunkKeys / kBlockTokens;
template <int kHeadDim>
constexpr int32_t kTileBytes = kBlockTokens * kHeadDim;  // half a block, and 64 rows of queries

struct AttentionWork {
  AttentionArgs args;
  KvSlot kv;
  const BatchSegment* segments;
  int32_t segment_count;
  int32_t wide_segments;  // segments from this one on are not wide
  int32_t heads;          // query heads that share a KV head
  int32_t
      least_difference;  // of a score from its maximum: weights are 0 from there on (for others than the contract's)
  int32_t narrow_limit;  // rows that a narrow segment has at most
  int32_t narrow_rows;   // that an item has at most
  int32_t row_parts;     // items of a narrow segment and KV head
  int32_t key_slots, value_slots;  // of a ring in shared memory, of 64 keys or values
  int32_t decode_blocks;           // of threads, that take narrow work: a multiple of row_parts
  bool one_row_each;               // segments have one, and all are narrow
  bool keys_once;                  // keys are not read again soon: they leave the L2 cache first
  bool item_each;                  // and a block of threads takes one item
  int32_t wide_tiles;              // at least as many as there are
  AttentionScratch scratch;
};

__device__ inline bool is_narrow(const BatchSegment& segment, const AttentionWork& work) {
  return segment.row_count * work.heads <= work.narrow_limit;
}

struct Found {
  int32_t segment;  // -1: there are fewer units
  int32_t offset;   // of the unit among the segment's
};
// Where unit `unit` of the first `end` segments is when segment s has count(s) of them. By a whole warp.
template <class Count>
__device__ Found find_unit(int32_t unit, const AttentionWork& work, int32_t end, Count count) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  for (int32_t base = 0; base < end; base += 32) {
    const int32_t mine = base + lane < end ? count(work.segments[base + lane]) : 0;
    int32_t through = mine;
    for (int distance = 1; distance < 32; distance *= 2) {
      const int32_t before = __shfl_up_sync(0xFFFFFFFFu, through, distance);
      if (lane >= distance) through += before;
    }
    const uint32_t later = __ballot_sync(0xFFFFFFFFu, unit < through);
    if (later != 0) {
      const int at = __ffs(static_cast<int>(later)) - 1;
      return {base + at, unit - __shfl_sync(0xFFFFFFFFu, through - mine, at)};
    }
    unit -= __shfl_sync(0xFFFFFFFFu, through, 31);
  }
  return {-1, 0};
}

// The blocks of keys that any row of a segment sees.
struct SeenBlocks {
  int32_t first, end;
  __device__ SeenBlocks(const BatchSegment& segment, const KvSlot& kv) {
    first = (kv.window > 0 && segment.position >= kv.window ? segment.position - kv.window + 1 : 0) / kBlockTokens;
    end = (segment.position + segment.row_count - 1) / kBlockTokens + 1;
  }
  __device__ int32_t count() const { return end - first; }
  __device__ int32_t first_chunk() const { return first / kChunkBlocks; }
  __device__ int32_t chunk_count() const { return (end - 1) / kChunkBlocks - first / kChunkBlocks + 1; }
};
// One tile of rows of a segment and the chunks to take.
struct RowTile {
  const BlockId* table;
  int32_t batch_row;            // of the segment's first token
  int32_t position;             // of the segment's first token
  int32_t rows;                 // of the segment
  int32_t first_row;            // of the tile
  int32_t group;                // KV head
  int32_t first_key, last_key;  // that any row of the tile sees
  int32_t chunk, end_chunk;

  // Of a chunk, the blocks of keys that any row sees.
  __device__ int32_t begin_block(int32_t at) const { return max(at * kChunkBlocks, first_key / kBlockTokens); }
  __device__ int32_t end_block(int32_t at) const { return min((at + 1) * kChunkBlocks, last_key / kBlockTokens + 1); }
};
__device__ inline RowTile make_tile(const AttentionWork& work, int32_t segment_index, int32_t group, int32_t first_row,
                                    int32_t tile_rows) {
  const BatchSegment& segment = work.segments[segment_index];
  RowTile tile;
  tile.table = segment.table[static_cast<int32_t>(work.kv.kind)];
  tile.batch_row = segment.first_row;
  tile.position = segment.position;
  tile.rows = segment.row_count * work.heads;
  tile.first_row = first_row;
  tile.group = group;
  const int32_t first = tile.position + first_row / work.heads, window = work.kv.window;
  tile.first_key = window > 0 && first >= window ? first - window + 1 : 0;
  tile.last_key = tile.position + (min(first_row + tile_rows, tile.rows) - 1) / work.heads;
  tile.chunk = tile.first_key / arith::kChunkKeys;
  tile.end_chunk = tile.last_key / arith::kChunkKeys + 1;
  return tile;
}

// What sm90's kernels need of a batch: bounds alone, computed on the host (sm90_attention.cu).
AttentionWork attention_work(const AttentionArgs& args, const Batch& batch, const KvSlot& kv,
                             const AttentionScratch& scratch);

}  // namespace kaiju::cuda
