// Attention on the tensor cores of every chip from capability 8.0 on (mma.sync), for shapes that the Hopper kernels do
// not support: head_dim 256 on Hopper, and head_dim 64, 128 and 256 on other chips. Any number of rows. Version 2 of
// the arithmetic uses it on every chip (sm80_attention_scaled.cuh).
//
// The rows of a segment are its tokens times the query heads that share a KV head, token by token. A thread block takes
// a tile of rows and processes the chunks of 512 keys that the rows see. In a chunk every warp computes the scores of
// every kWarps-th block of 64 keys, once, and keeps them in registers. The maxima of rows and the two bytes of each
// weight are exchanged through shared memory. Then every warp computes some channels of the sums over all keys of the
// chunk, as exact integers (sm80_attention_scores.cuh, sm80_attention_tile.cuh).
//
// Keys and values are loaded from the cache directly to registers, because no other warp needs a warp's keys or
// channels. A lane reads four bytes, so that a load of the warp is one line of 128 bytes; with 16 bytes for each lane
// it touches four lines, which takes longer. The next blocks are prefetched into the L2 cache meanwhile.
//
// If there are few tiles, several thread blocks share the chunks of one tile and store their sums separately; the last
// one to finish folds them in order. Bound: the tensor cores, with 6 operations for each key, row and channel where 4
// are counted; with few rows memory.
#pragma once

#include <algorithm>

#include "../tiles/dependent_launch.cuh"
#include "sm80_attention_tile.cuh"

namespace kaiju::cuda {

// The tile of this block of threads; one without rows where there are fewer. By a whole warp.
template <int kRows>
__device__ RowTile find_tile(const MmaWork& work, int32_t at) {
  const int32_t groups = work.kv.kv_heads, singles = work.segment_count - work.single_from,
                single_tiles = (work.heads + kRows - 1) / kRows;
  int32_t segment, offset;
  if (at < singles * single_tiles * groups) {
    segment = work.single_from + at / (single_tiles * groups), offset = at % (single_tiles * groups);
  } else {
    at = work.tiles - 1 - at;  // the longest histories first
    const Found found = find_unit(at, work, work.single_from, [&](const BatchSegment& s) {
      return (s.row_count * work.heads + kRows - 1) / kRows * groups;
    });
    if (found.segment < 0) return {};
    segment = found.segment, offset = found.offset;
  }
  return make_tile(work, segment, offset % groups, offset / groups * kRows, kRows);
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    sm80_attention_kernel(const __grid_constant__ typename Shape::Work work) {
  extern __shared__ __align__(16) uint8_t memory[];
  auto& shared = *reinterpret_cast<MmaShared<Shape>*>(memory);
  let_next_start();
  wait_for_inputs();
  const auto at = static_cast<int32_t>(blockIdx.x) / work.pieces,
             piece = static_cast<int32_t>(blockIdx.x) % work.pieces;
  const RowTile tile = find_tile<Shape::kRows>(work, at);
  if (tile.rows == 0) return;
  const int32_t chunks = tile.end_chunk - tile.chunk;
  const bool apart = work.pieces > 1 && chunks > 1 && chunks <= work.kept_each;
  const int32_t pieces = apart ? work.pieces : 1;
  const auto share = [&](int32_t p) { return tile.chunk + static_cast<int32_t>(int64_t{chunks} * p / pieces); };
  if (piece >= pieces || share(piece) == share(piece + 1)) return;
  const int64_t kept = apart ? int64_t{at} * work.kept_each : -1;
  MmaAttention<Shape> attention(work, tile, shared);
  attention.run(share(piece), share(piece + 1), kept);
  if (apart) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      shared.last = atomicAdd(&work.counters[at], 1) == min(chunks, pieces) - 1;
      if (shared.last) work.counters[at] = 0;
      __threadfence();
    }
    __syncthreads();
    if (!shared.last) return;
    attention.fold_kept(kept);
  }
  attention.finish();
}

inline int32_t single_segments(const Batch& batch) {
  const auto segments = static_cast<int32_t>(batch.segments.size());
  return batch.row_count == segments ? segments : segments - std::min(segments, batch.single_from);
}
// As many tiles as a batch can have.
template <class Shape>
int32_t mma_tiles(int32_t all_heads, const Batch& batch, const KvSlot& kv) {
  const int32_t heads = all_heads / kv.kv_heads, singles = single_segments(batch),
                others = static_cast<int32_t>(batch.segments.size()) - singles;
  return kv.kv_heads * (singles * ((heads + Shape::kRows - 1) / Shape::kRows) +
                        (batch.row_count - singles) * heads / Shape::kRows + others);
}

// `work` has its arguments; the division of the batch is added.
template <class Shape>
cudaError_t launch_mma(cudaStream_t stream, const Chip& chip, typename Shape::Work work, const Batch& batch,
                       const KvSlot& kv, const AttentionScratch& scratch) {
  const int32_t tiles = mma_tiles<Shape>(work.args.heads, batch, kv),
                segments = static_cast<int32_t>(batch.segments.size()), units = scratch.units_of(Shape::kHeadDim),
                most_chunks = kv.window == 0 ? INT32_MAX : (kv.window + Shape::kRows) / arith::kChunkKeys + 2;
  work.kv = kv;
  work.segments = batch.segments.data();
  work.segment_count = segments;
  work.heads = work.args.heads / kv.kv_heads;
  work.single_from = segments - single_segments(batch);
  work.tiles = tiles;
  const int32_t at_once = Shape::kBlocks * chip.multiprocessors;
  int32_t pieces = at_once / tiles;
  // With more tiles than run at once, pieces even out the last round.
  if (Shape::kScaled && pieces == 0 && batch.row_count == segments) pieces = (3 * at_once + tiles - 1) / tiles;
  work.pieces = units < tiles ? 1 : std::clamp(pieces, 1, most_chunks);
  work.kept_each = units / tiles * (kAttentionTileRows / Shape::kRows);
  work.kept = reinterpret_cast<float4*>(scratch.sums);
  work.parts = scratch.parts;
  work.counters = scratch.counters;
  const auto kernel = sm80_attention_kernel<Shape>;
  constexpr auto kBytes = static_cast<int32_t>(sizeof(MmaShared<Shape>));
  if constexpr (kBytes > 48 << 10)  // what a launch may have unasked
    if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
        error != cudaSuccess)
      return error;
  return launch(stream, chip, kernel, {int64_t{tiles} * work.pieces, Shape::kThreads, kBytes}, work);
}

}  // namespace kaiju::cuda
