// Attention with scales of many rows (prefill) on Hopper: head_dim 64, 128 and 256. It divides the work, copies and
// goes over a chunk twice as sm90_attention_prefill.cuh does; sm90_attention_scaled_steps.cuh has what scales change,
// and sm90_attention_scaled_wide.cuh 256 channels.
//
// Bound: wgmma, with 8 operations for each key, row and channel where 4 are counted, plus about 24 thread instructions
// for each score.
#pragma once

#include <type_traits>

#include "sm90_attention_scaled_wide.cuh"

namespace kaiju::cuda {

// Half of a tile of 128 rows, by a warpgroup; both go from tile to tile together.
template <int kHeadDim>
class ScaledTiles : ScaledSteps<kHeadDim> {
  using Steps = ScaledSteps<kHeadDim>;
  using Map = ScaledMap<kHeadDim>;
  using Steps::release, Steps::score, Steps::take_seen, Steps::take_maximum, Steps::larger_scales, Steps::largest_of,
      Steps::quad_most, Steps::find_inverse, Steps::weigh, Steps::await_values, Steps::release_values, Steps::fence,
      Steps::is_masked, Steps::begin, Steps::fold, Steps::finish;
  using Steps::work_, Steps::memory_, Steps::warpgroup_, Steps::tiles_, Steps::keys_, Steps::values_, Steps::masked_,
      Steps::maximum_, Steps::largest_, Steps::sum_, Steps::value_operand_;

 public:
  __device__ ScaledTiles(const ScaledPrefillWork& work, uint8_t* memory, int32_t warpgroup)
      : Steps(work, memory, warpgroup) {}

  __device__ void run() {
    wait_for_inputs();
    if (warpgroup_ == 1) give_turn();  // the other is the first
    while (tiles_.front().rows > 0) {
      const RowTile& tile = tiles_.front();
      begin(tile);
      for (int32_t chunk = tile.chunk; chunk < tile.end_chunk; ++chunk) {
        const int32_t begin_block = tile.begin_block(chunk), end_block = tile.end_block(chunk);
        int32_t high[kHeadDim / 2], low[kHeadDim / 2];
        masked_ = is_masked(begin_block) || is_masked(end_block - 1);
        take_turn();
        find_maxima(begin_block, end_block);
        give_turn();
        sum_values(begin_block, end_block, high, low);
        const uint32_t weights[2] = {quad_sum(sum_[0]), quad_sum(sum_[1])};
        fold(high, low, weights, chunk == tile.chunk);
      }
      finish(tile);
      tiles_.pop();
    }
    if (warpgroup_ == 0) take_turn();  // the last that was given
  }

 private:
  __device__ void take_turn() { await_warpgroup(3 + warpgroup_); }
  __device__ void give_turn() { tell_warpgroup(4 - warpgroup_); }

  // First time over the chunk's keys. Leaves the ring where it was: the keys stay.
  __device__ void find_maxima(int32_t block, int32_t end) {
    maximum_[0] = maximum_[1] = kLeastScore;
    largest_[0] = largest_[1] = 0.0f;
    const int32_t count = end - block;
    Ring at = keys_;
    int32_t taken = keys_.slot;
    uint32_t most = 0;  // scales of values, of blocks that every row sees
    const auto score_next = [&](int32_t (&s)[32]) {
      barrier_wait(at.full + 8 * at.slot, at.phase);
      score(s, at.slot);
      at.advance();
    };
    const auto next_taken = [&] {
      const int32_t slot = taken;
      if (++taken == keys_.count) taken = 0;
      return slot;
    };
    if (count == kChunkBlocks && !masked_) {  // most chunks: two slots' scores under way
      int32_t s[2][32];
      score_next(s[0]);
#pragma unroll
      for (int i = 0; i < kChunkBlocks; ++i) {
        if (i + 1 < kChunkBlocks) score_next(s[(i + 1) % 2]);
        i + 1 < kChunkBlocks ? wgmma_wait<1>() : wgmma_wait<0>();
        wgmma_settle(s[i % 2]);
        const int32_t slot = next_taken();
        take_maximum(s[i % 2], slot);
        most = larger_scales(most, slot);
      }
    } else {
      for (; block < end; ++block) {
        int32_t s[32];
        score_next(s);
        wgmma_wait<0>();
        wgmma_settle(s);
        const int32_t slot = next_taken();
        if (masked_ && is_masked(block)) {
          take_seen(s, slot, block);
        } else {
          take_maximum(s, slot);
          most = larger_scales(most, slot);
        }
      }
    }
    const float of_all = largest_of(most);
    for (int r = 0; r < 2; ++r) {
      maximum_[r] = quad_most(maximum_[r]);
      largest_[r] = fmaxf(quad_most(largest_[r]), of_all);
      find_inverse(r);
    }
  }
  // The products of half a slot's weights with their values.
  template <int kHalf>
  __device__ __forceinline__ void add_values(int32_t (&high)[kHeadDim / 2], int32_t (&low)[kHeadDim / 2],
                                             const uint32_t (&p)[8], int32_t more) {
    const uint64_t b = advanced(value_operand_, values_.slot * Map::kValueBytes + kHalf * 2 * kHeadDim * kColumnBytes);
    wgmma_fence();
    multiply_registers(high, p, b, more);
    multiply_registers(low, p + 4, b, more);
    wgmma_commit();
  }
  // Second time over the chunk's keys, in the order of TileSteps::sum_values. Gives the slots back.
  __device__ void sum_values(int32_t block, int32_t end, int32_t (&high)[kHeadDim / 2], int32_t (&low)[kHeadDim / 2]) {
    int32_t s[16], t[16];  // integer scores of the first and of the second half
    uint32_t p[8], q[8];
    sum_[0] = sum_[1] = 0u - static_cast<uint32_t>(end - block) * 16u * static_cast<uint32_t>(kBiasBits);
    int32_t slot = keys_.slot;
    score(s, slot, 0);
    score(t, slot, 32);
    wgmma_wait<1>();
    wgmma_settle(s);
    weigh(s, p, 0, slot, block);
    wgmma_wait<0>();
    wgmma_settle(t);
    await_values();
    add_values<0>(high, low, p, 0);
    for (;;) {
      const uint32_t empty = keys_.empty + 8 * slot;
      keys_.advance();
      score(s, block + 1 < end ? keys_.slot : slot, 0);  // after the last keys: not used
      fence();
      weigh(t, q, 1, slot, block);
      add_values<1>(high, low, q, 1);
      score(t, block + 1 < end ? keys_.slot : slot, 32);
      wgmma_wait<2>();
      wgmma_settle(s);
      if (++block >= end) {
        wgmma_wait<0>();
        wgmma_settle(t);
        release(empty);
        break;
      }
      release(empty);
      slot = keys_.slot;
      weigh(s, p, 0, slot, block);
      wgmma_wait<0>();
      wgmma_settle(t);
      release_values();
      await_values();
      add_values<0>(high, low, p, 1);
    }
    wgmma_settle(high);
    wgmma_settle(low);
    release_values();
  }
};

template <int kHeadDim>
__global__ void __launch_bounds__(384, 1) sm90_scaled_prefill_kernel(const __grid_constant__ ScaledPrefillWork work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Map = ScaledMap<kHeadDim>;
  uint8_t* memory = shared_memory();
  let_next_start();
  if (threadIdx.x < 32) {
    const auto lane = static_cast<int32_t>(threadIdx.x);
    if (lane == 0) TileRing(memory + Map::kTiles).init();
    for (int values = 0; values < 2; ++values) {
      const Ring at = Map::ring(shared_address(memory), values != 0);
      for (int32_t i = lane; i < at.count; i += 32) {
        barrier_init(at.full + 8 * i, 1);
        barrier_init(at.empty + 8 * i, kWarpArrivals * (Map::kShared && values == 0 ? 4 : 8));  // warps that read it
      }
    }
    publish_stores();
  }
  __syncthreads();
  const int32_t warpgroup = __shfl_sync(0xFFFFFFFFu, static_cast<int32_t>(threadIdx.x) / 128, 0),
                warp = __shfl_sync(0xFFFFFFFFu, static_cast<int32_t>(threadIdx.x) / 32, 0);
  if (warpgroup == 0) {  // 40 * 128 + 232 * 256 registers are all that the block was given
    shrink_registers<40>();
    if (warp < 2)
      produce_scaled<kHeadDim>(work, memory, warp != 0);
    else
      wait_for_inputs();
  } else {
    grow_registers<232>();
    std::conditional_t<Map::kShared, ScaledSharedTiles, ScaledTiles<kHeadDim>>(work, memory, warpgroup - 1).run();
  }
#else
  __trap();  // never launched elsewhere
#endif
}

// For at most `tiles` tiles.
template <int kHeadDim>
cudaError_t launch_scaled_prefill(cudaStream_t stream, const Chip& chip, ScaledPrefillWork work, int32_t tiles) {
  constexpr int32_t kBytes = ScaledMap<kHeadDim>::kBytes;
  const auto kernel = sm90_scaled_prefill_kernel<kHeadDim>;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
      error != cudaSuccess)
    return error;
  work.wide_tiles = tiles;
  return launch(stream, chip, kernel, {std::min(tiles, chip.multiprocessors), 384, kBytes}, work);
}

}  // namespace kaiju::cuda
