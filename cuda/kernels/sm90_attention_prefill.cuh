// Attention of many rows (prefill) on Hopper: head_dim 64 and 128, more than 40 rows for each sequence and KV head. A
// row is one query head of one token; the rows of a token are neighbours.
//
// Warpgroup 0 copies: one warp copies keys and one copies values, half a block of 64 tokens at a time, each through its
// own ring. A whole chunk of keys stays in shared memory for the second pass over it. Warpgroups 1 and 2 compute, each
// with half of a tile of 128 rows (sm90_attention_prefill_steps.cuh). The sums of a chunk are int32 in registers; the
// tile's float totals are in shared memory. For few tiles see sm90_attention_prefill_cluster.cuh, for few rows
// sm90_attention_decode.cuh.
//
// Bound: wgmma, with 8 operations for each key, row and channel where 4 are counted, plus about 16 thread instructions
// for each score. Both add up, because they share the multiprocessor's cycles.
#pragma once

#include <algorithm>

#include "../tiles/dependent_launch.cuh"
#include "sm90_attention_prefill_steps.cuh"

namespace kaiju::cuda {

constexpr int32_t kPrefillThreads = 384;

// Tiles of 128 rows, one after another; each warpgroup has half of a tile.
template <int kHeadDim, class Weight>
class PrefillTiles : TileSteps<kHeadDim, Weight, 1> {
  using Steps = TileSteps<kHeadDim, Weight, 1>;
  using Steps::kPieces, Steps::column, Steps::row_total, Steps::writes_rows, Steps::total, Steps::load_queries,
      Steps::begin, Steps::take_turn, Steps::give_turn, Steps::is_masked, Steps::find_maxima, Steps::sum_values,
      Steps::whole, Steps::join, Steps::result_of, Steps::store, Steps::work_, Steps::warpgroup_, Steps::tiles_,
      Steps::masked_, Steps::maximum_, Steps::high_sums_, Steps::low_sums_;
  using typename Steps::Join;

 public:
  using typename Steps::Map;
  __device__ PrefillTiles(const AttentionWork& work, uint8_t* memory, int32_t warpgroup)
      : Steps(work, memory, warpgroup) {}

  __device__ void run() {
    wait_for_inputs();
    uint4 queries[kPieces];
    load_queries(tiles_.front(), queries);
    if (warpgroup_ == 1) give_turn();  // the other is the first
    while (tiles_.front().rows > 0) {
      const RowTile& tile = tiles_.front();
      begin(tile, queries);
      for (int32_t chunk = tile.chunk; chunk < tile.end_chunk; ++chunk) {
        const int32_t begin_block = tile.begin_block(chunk), end_block = tile.end_block(chunk);
        int32_t high[kHeadDim / 2], low[kHeadDim / 2];
        masked_ = is_masked(begin_block) || is_masked(end_block - 1);
        take_turn();
        find_maxima(begin_block, end_block);
        give_turn();
        sum_values(begin_block, end_block, high, low);
        fold(high, low, chunk == tile.chunk);
      }
      load_queries(tiles_.second(), queries);  // they come while this tile's results are written
      finish(tile);
      tiles_.pop();
    }
    if (warpgroup_ == 0) take_turn();  // the last that was given
  }

 private:
  // The chunk joins the totals.
  __device__ void fold(const int32_t (&high)[kHeadDim / 2], const int32_t (&low)[kHeadDim / 2], bool first) {
    Join by[2];
    uint32_t weights[2];
    for (int r = 0; r < 2; ++r) {
      const RowTotal before = first ? RowTotal{INT32_MIN, 0.0f} : row_total(r);
      by[r] = join(before.maximum, maximum_[r]);
      weights[r] = quad_sum(256 * high_sums_[r] + low_sums_[r]);
      __syncwarp();  // all have read it
      if (writes_rows())
        row_total(r) = {max(before.maximum, maximum_[r]), by[r](before.weight, static_cast<float>(weights[r]))};
    }
    __syncwarp();
    float sums[kHeadDim / 2];
    whole(high, low, max(weights[0], weights[1]), sums);
    const auto each = [&](auto join) {
#pragma unroll
      for (int j = 0; j < kHeadDim / 8; ++j) {
        const float4 t = first ? float4{0.0f, 0.0f, 0.0f, 0.0f} : total(j);
        total(j) = {join(0, t.x, sums[4 * j]), join(0, t.y, sums[4 * j + 1]), join(1, t.z, sums[4 * j + 2]),
                    join(1, t.w, sums[4 * j + 3])};
      }
    };
    if (__any_sync(0xFFFFFFFFu, by[0].later || by[1].later))
      each([&](int r, float t, float o) { return by[r](t, o); });
    else
      each([&](int r, float t, float o) { return arith::fma(o, by[r].factor, t); });
  }
  __device__ void finish(const RowTile& tile) {
    float inverse[2];
    for (int r = 0; r < 2; ++r) inverse[r] = arith::divide(1.0f, row_total(r).weight);
    int8_t* const to[2] = {result_of(tile, 0), result_of(tile, 1)};
#pragma unroll
    for (int j = 0; j < kHeadDim / 8; ++j) {
      const float4 t = total(j);
      store(to[0], tile.group, 8 * j + column(), t.x, t.y, inverse[0]);
      store(to[1], tile.group, 8 * j + column(), t.z, t.w, inverse[1]);
    }
  }
};

// By all: the first warpgroup copies, the others compute.
template <int kHeadDim, class Consumer>
__device__ __forceinline__ void run_tiles(const AttentionWork& work, uint8_t* memory, int32_t rank, int32_t blocks) {
  const int32_t warpgroup = __shfl_sync(0xFFFFFFFFu, static_cast<int32_t>(threadIdx.x) / 128, 0),
                warp = __shfl_sync(0xFFFFFFFFu, static_cast<int32_t>(threadIdx.x) / 32, 0);
  if (warpgroup == 0) {  // 40 * 128 + 232 * 256 registers are all that the block was given
    shrink_registers<40>();
    if (warp < 2)
      produce<kHeadDim, typename Consumer::Map>(work, memory, warp != 0, rank, blocks);
    else
      wait_for_inputs();
  } else {
    grow_registers<232>();
    Consumer(work, memory, warpgroup - 1).run();
  }
}

template <int kHeadDim, class Weight>
__global__ void __launch_bounds__(kPrefillThreads, 1) sm90_prefill_kernel(const __grid_constant__ AttentionWork work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Consumer = PrefillTiles<kHeadDim, Weight>;
  uint8_t* memory = shared_memory();
  let_next_start();
  if (threadIdx.x < 32) init_rings<kHeadDim, typename Consumer::Map>(work, memory);
  __syncthreads();
  run_tiles<kHeadDim, Consumer>(work, memory, 0, 1);
#else
  __trap();  // never launched elsewhere
#endif
}

// Lays out shared memory and launches, for at most `tiles` tiles, `takers` of which are taken at once, each by so many
// blocks of threads.
template <int kHeadDim, class Map>
cudaError_t launch_tiles(cudaStream_t stream, void (*kernel)(AttentionWork), AttentionWork work, int32_t tiles,
                         int32_t takers, int32_t blocks) {
  constexpr int32_t kMostBytes = 227 << 10, kMostSlots = kRingBarrierBytes / 32, kSlotBytes = kTileBytes<kHeadDim>;
  constexpr int32_t kSlots = (kMostBytes - Map::kRings) / kSlotBytes;
  // A slot is the same warpgroup's every time: nobody waits for one of which the bytes that another waited for may
  // still be on their way.
  constexpr int32_t kSharers = Map::kSharers;
  constexpr int32_t kKeySlots = std::min(2 * kSlots / 3, kMostSlots) / kSharers * kSharers,
                    kValueSlots = std::min(kSlots - kKeySlots, kMostSlots) / kSharers * kSharers;
  static_assert(kKeySlots >= kChunkBlocks && kValueSlots >= 1);
  constexpr int32_t kBytes = Map::kRings + (kKeySlots + kValueSlots) * kSlotBytes;
  work.wide_tiles = tiles;
  work.key_slots = kKeySlots;
  work.value_slots = kValueSlots;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
      error != cudaSuccess)
    return error;
  return launch(stream, Chip{.capability = 90}, kernel, {int64_t{takers} * blocks, kPrefillThreads, kBytes, blocks},
                work);
}
template <int kHeadDim, class Weight>
cudaError_t launch_prefill(cudaStream_t stream, const AttentionWork& work, int32_t tiles) {
  return launch_tiles<kHeadDim, TileMap<kHeadDim, 1>>(stream, sm90_prefill_kernel<kHeadDim, Weight>, work, tiles,
                                                      std::min(tiles, work.scratch.multiprocessors), 1);
}

}  // namespace kaiju::cuda
