// Matmul on Hopper: int8 weights [out, in] times int8 or uint8 activations [rows, in], exact int32 sums, with the
// epilogue fused in (tiles/epilogue.cuh). One kernel with the tiles of kSm90Tiles, for 2 rows and more; `in` is a
// multiple of 64 and `out` of 32. Bound: memory (reading weights) up to about 200 rows, the tensor cores above.
//
// A block computes a tile of kRows rows x kOuts outputs. A producer thread lets TMA copy rows and weights, in steps of
// 128 bytes of the inner dimension, into a ring of stages in shared memory. Each consumer warpgroup multiplies 64 rows
// (128 in tiles of 256) with all outputs by wgmma and keeps the sums in registers. Weights are copied before the
// previous kernels have ended, because no kernel writes them, and with L2's evict-first policy, because they are read
// once.
//
// In large tiles that add to the residual stream, residuals pass through the ring after the last step. Results replace
// them in the ring, and TMA stores the results while the block multiplies its next tile.
//
// A block runs for 10 to 40 us, so the time before its first copy and after its last product matters: no division
// precedes the first copy, scales are copied with the first step, and residuals are loaded before sums are exchanged.
// With few rows the ring has more stages, so that more weights have arrived when the inputs are ready.
//
// Clusters serve two purposes. A cluster of kSplit blocks divides the inner dimension (split-K): the blocks write int32
// sums to each other's shared memory and add them there. In a cluster of kShare blocks, neighbouring row tiles fetch
// each part of their weights once and multicast it.
//
// TMA permutes the rows of weights within each group of 32 or 16 (weights_map()), so that a lane has the sums of eight
// neighbouring outputs (bytes and bf16) or four (floats). The four lanes of a row then store whole sectors of 32 bytes.
//
// This file has the consumers and the kernel. Other files have the tile's shape (sm90_matmul_shape.cuh), block and
// producer (sm90_matmul_block.cuh, sm90_matmul_producer.cuh), epilogues (sm90_matmul_epilogue.cuh,
// sm90_matmul_gated.cuh) and the launch (sm90_matmul_launch.cuh).
#pragma once

#include <cuda.h>

#include "sm90_matmul_epilogue.cuh"
#include "sm90_matmul_gated.cuh"
#include "sm90_matmul_producer.cuh"

namespace kaiju::cuda {
namespace sm90 {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// A consumer thread: multiplies what is in the ring, one unit after another, and has its share of the epilogue.
template <MatmulKind kKind, int kRows, int kOuts, int kSplit, int kShare>
class TileConsumer {
  using Block = TileBlock<kKind, kRows, kOuts, kSplit, kShare>;
  using S = typename Block::S;
  using Sums = int32_t[S::kTiles][kOuts / 2];
  static constexpr Sign kSign = kHasUnsignedInput<kKind> ? Sign::kUnsigned : Sign::kSigned;

 public:
  __device__ __forceinline__ explicit TileConsumer(const Block& block) : b_(block) {}

  __device__ __forceinline__ void run() {
    wait_for_inputs();
    int32_t row, out;
    if (S::kFits && b_.tid == 0) {
      b_.corner(b_.first_unit, row, out);
      for (int32_t s = 0; s < b_.ahead; ++s) b_.load_rows(s, row, b_.first_step + s);
    }
    for (int32_t unit = b_.first_unit; unit < b_.units; unit += b_.stride) {
      Sums c;
      b_.corner(unit, row, out);
      if constexpr (S::kIsGated) load_row_scales<S>(b_.args, row, row_scales_);
      __syncwarp();
      // Where there are several rounds, tiles of 64 rows that do not exist are not multiplied. In a single round that
      // would gain nothing, and blocks that read the same weights would read them at different times.
      const int32_t tiles = (b_.args.matmul.rows - row - b_.tid / 128 * (64 * S::kTiles) + 63) / 64;
      const bool one_round = b_.units <= b_.stride;
      if (!S::kRepeats || tiles >= S::kTiles || one_round)
        multiply<S::kTiles>(c);
      else if (tiles > 0)
        multiply<1>(c);
      else
        multiply<0>(c);
      store(c, row, out, unit == b_.first_unit);
      if (b_.scales_come) scales_ ^= 1;
    }
  }

 private:
  // Sums of a unit, of the first kTiles tiles of the warpgroup.
  template <int kTiles>
  __device__ __forceinline__ void multiply(Sums& c) {
    int32_t before = 0;  // the stage multiplied last
    int32_t step = b_.first_step;
    if constexpr (S::kPending == 0) {  // the first time round the ring all stages are there, or soon
      multiply_until<kTiles, 1>(c, step, before, b_.first_step + b_.ahead);
      wgmma_wait<0>();
      release(before);
    }
    multiply_until<kTiles, S::kPending>(c, step, before, b_.last_step);
    if constexpr (kTiles > 0) {
      wgmma_wait<0>();
#pragma unroll
      for (int m = 0; m < kTiles; ++m) wgmma_settle(c[m]);
      if (S::kPending > 0) release(before);
    }
  }
  template <int kTiles, int kPending>
  __device__ __forceinline__ void multiply_until(Sums& c, int32_t& step, int32_t& before, int32_t end) {
    for (; step < end; ++step) {
      barrier_wait(b_.full + 8 * stage_, parity_);
      if constexpr (kTiles > 0) {
        const uint64_t rows = tile_descriptor(b_.base + stage_ * b_.row_stride +
                                              b_.tid / 128 * (64 * S::kTiles) * kStepBytes),
                       weights = tile_descriptor(b_.weights_base + stage_ * Block::kWeightStride);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < kStepBytes / 32; ++k)
#pragma unroll
          for (int m = 0; m < kTiles; ++m)
            wgmma<kSign, kOuts>(c[m], rows + 64 * kStepBytes / 16 * m + 2 * k, weights + 2 * k,
                                step > b_.first_step || k > 0);
        wgmma_commit();
        wgmma_wait<kPending>();
      }
      if (kTiles == 0 || kPending == 0)
        release(stage_);
      else if (step > b_.first_step)
        release(before);
      before = stage_;
      if (++stage_ == b_.ring) stage_ = 0, parity_ ^= 1;
    }
  }
  __device__ __forceinline__ void release(int32_t stage) const {
    if (kShare == 1) {
      if (kWarpArrivals == 32 || b_.lane == 0) barrier_arrive(b_.empty + 8 * stage);
    } else if (b_.lane < kShare) {
      barrier_arrive(b_.empty + 8 * stage, static_cast<uint32_t>(b_.lane));
    }
  }

  __device__ __forceinline__ void store(const Sums& c, int32_t row, int32_t out, bool first) {
    const MatmulArgs& matmul = b_.args.matmul;
    const auto* scales = reinterpret_cast<const float*>(b_.memory + S::kScales) + scales_ * kOuts;
    if constexpr (kSplit > 1) {  // one unit a block
      __syncwarp();
      cluster_wait();
      store_split_tile<kKind, S, kSplit>(matmul, c, b_.sums_base, b_.ready, b_.arrived, b_.split_rank, row, out,
                                         scales);
    } else if constexpr (S::kThroughRing) {
      add_to_residuals(c, scales, out, first);
    } else if constexpr (S::kIsGated) {
      const bool here = b_.scales_come || first;
      store_gated_tile<S>(b_.args, c, row, out / 2, here ? scales : matmul.scale + out / 2,
                          here ? scales + kOuts / 2 : matmul.scale + (out + matmul.out) / 2, row_scales_);
    } else {
      store_tile<kKind, S>(matmul, c, row, out, b_.scales_come || first ? scales : matmul.scale + out);
    }
  }
  // Results replace the residuals of the unit, in the stages after its steps.
  __device__ __forceinline__ void add_to_residuals(const Sums& c, const float* scales, int32_t out, bool first) {
    const auto part_stage = [&](int32_t part) { return stage_ + part - (stage_ + part < b_.ring ? 0 : b_.ring); };
    for (int32_t part = 0; part < S::kParts; ++part)
      barrier_wait(b_.full + 8 * part_stage(part), part_stage(part) < stage_ ? parity_ ^ 1 : parity_);
    add_to_parts<S>(
        [&](int32_t part) { return reinterpret_cast<arith::bf16*>(b_.memory + part_stage(part) * S::kStageBytes); }, c,
        b_.scales_come || first ? scales : b_.args.matmul.scale + out, b_.args.matmul.out - out);
    publish_stores();
    for (int32_t part = 0; part < S::kParts; ++part) barrier_arrive(b_.written + 8 * part);
    if ((stage_ += S::kParts) >= b_.ring) stage_ -= b_.ring, parity_ ^= 1;
  }

  const Block& b_;
  int32_t stage_ = 0;
  uint32_t parity_ = 0;
  int32_t scales_ = 0;  // which of the two places this unit's scales are in
  RowScales<S> row_scales_;
};

#endif

template <MatmulKind kKind, int kRows, int kOuts, int kSplit, int kShare>
__global__ void __launch_bounds__(Shape<kKind, kRows, kOuts, kSplit>::kThreads,
                                  Shape<kKind, kRows, kOuts, kSplit>::kBlocksByRegisters)
    sm90_matmul_kernel(const __grid_constant__ CUtensorMap rows_map, const __grid_constant__ CUtensorMap weights_map,
                       const __grid_constant__ CUtensorMap residuals_map, const TileArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Shape<kKind, kRows, kOuts, kSplit>;
  extern __shared__ __align__(1024) uint8_t memory[];
  const TileMaps maps{rows_map, weights_map, residuals_map};
  const TileBlock<kKind, kRows, kOuts, kSplit, kShare> block(maps, args, memory);
  block.begin();
  if (block.tid >= S::kConsumers) {
    if constexpr (S::kGrows) shrink_registers<S::kProducerRegisters>();
    TileProducer<kKind, kRows, kOuts, kSplit, kShare>(block).run();
  } else {
    if constexpr (S::kGrows) grow_registers<S::kConsumerRegisters>();
    TileConsumer<kKind, kRows, kOuts, kSplit, kShare>(block).run();
  }
#endif
}

}  // namespace sm90
}  // namespace kaiju::cuda
