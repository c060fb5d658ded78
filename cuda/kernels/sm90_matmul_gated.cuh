// The epilogue of a Hopper matmul's tile (sm90_matmul.cuh) that has gate and up of the same outputs of a feed-forward:
// the first half of the tile's outputs are gate's, the second up's, so a lane has both sums of an output. It gates
// them, transforms blocks of 64 or fewer outputs with the three other lanes of its row, and stores bf16 and the largest
// magnitude of the row within the tile (gated_matmul.hpp).
#pragma once

#include "../tiles/epilogue.cuh"
#include "../tiles/sm90_wgmma_matmul.cuh"
#include "gate_steps.hpp"
#include "sm90_matmul_shape.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

namespace kaiju::cuda {
namespace sm90 {

// The scale of each row that a lane has sums of.
template <class S>
using RowScales = float[S::kTiles][2];
template <class S>
__device__ __forceinline__ void load_row_scales(const TileArgs& args, int32_t row, RowScales<S>& to) {
  const auto tid = static_cast<int32_t>(threadIdx.x);
#pragma unroll
  for (int m = 0; m < S::kTiles; ++m)
#pragma unroll
    for (int upper = 0; upper < 2; ++upper)
      to[m][upper] =
          args.gate.gates.scale[min(row + S::warp_row(tid) + 64 * m + 8 * upper + tid % 32 / 4, args.matmul.rows - 1)];
}

// A lane's values of a block of 64 outputs, from memory of 64 neighbours.
__device__ __forceinline__ void load_of_block(const float* block, int32_t quarter, float (&to)[kGateEach]) {
#pragma unroll
  for (int i = 0; i < kGateEach; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(block + place_in_block(0, i) + kGateRun * quarter);
    to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
  }
}

// Outputs first, first + 1, ... of 64 of one row, from a lane's sums `kFrom` on.
template <int kFrom, int kSums>
__device__ __forceinline__ void outputs_of_block(const Outputs& y, const int32_t (&c)[kSums], int upper,
                                                 const float* scales, float row_scale, int32_t first, int32_t quarter,
                                                 float (&out)[kGateEach]) {
  int32_t sum[kGateEach];
  float scale[kGateEach], bias[kGateEach] = {};
#pragma unroll
  for (int i = 0; i < kGateEach; ++i)  // of each group of 32 outputs a lane has 16 sums, 8 of each of two rows
    sum[i] = c[kFrom + 16 * (i / kGateRun) + 4 * (i % kGateRun / 2) + 2 * upper + i % 2];
  load_of_block(scales, quarter, scale);
  if (y.bias) load_of_block(y.bias + first, quarter, bias);
  outputs_of(y, sum, scale, row_scale, bias, out);
}

__device__ __forceinline__ void transform_block(float (&h)[kGateEach], int32_t block, int32_t lane) {
  if (block < 16) return;
  transform_pairs<1>(h);
  transform_pairs<2>(h);
  transform_pairs<4>(h);
#pragma unroll
  for (int distance = 1; distance <= 2; ++distance) {
    if (block <= 8 * distance) return;
    const float sign = (lane & distance) != 0 ? -1.0f : 1.0f;
#pragma unroll
    for (int i = 0; i < kGateEach; ++i) h[i] = transform_pair(h[i], __shfl_xor_sync(0xFFFFFFFFu, h[i], distance), sign);
  }
  if (block == 64) transform_pairs<kGateRun>(h);
}

// Block kBlock of 64 outputs of a row; `first` is the first of them. Returns the largest magnitude of a lane's values.
template <class S, int kBlock, int kSums>
__device__ __forceinline__ float store_gated_block(const TileArgs& args, const int32_t (&c)[kSums], int upper,
                                                   int32_t row, int32_t first, const float* gate_scales,
                                                   const float* up_scales, float row_scale) {
  const GateRows& gate = args.gate;
  const auto lane = static_cast<int32_t>(threadIdx.x) % 32, quarter = lane % 4;
  float x[kGateEach], up[kGateEach], h[kGateEach];
  outputs_of_block<32 * kBlock>(gate.gates, c, upper, gate_scales + kGateBlock * kBlock, row_scale, first, quarter, x);
  outputs_of_block<32 * kBlock + kSums / 2>(gate.ups, c, upper, up_scales + kGateBlock * kBlock, row_scale, first,
                                            quarter, up);
  gate_values(gate.gate, x, up, h);
  transform_block(h, gate.to.hadamard, lane);
  float most = 0.0f;
#pragma unroll
  for (int i = 0; i < kGateEach; ++i) most = fmaxf(most, fabsf(h[i]));
  if (row < args.matmul.rows) {
    auto* const to = static_cast<arith::bf16*>(args.matmul.result) + int64_t{row} * (args.matmul.out / 2) + first;
#pragma unroll
    for (int run = 0; run < kGateEach; run += kGateRun)
      *reinterpret_cast<uint4*>(to + place_in_block(0, run) + kGateRun * quarter) = {
          two_bf16(h[run], h[run + 1]), two_bf16(h[run + 2], h[run + 3]), two_bf16(h[run + 4], h[run + 5]),
          two_bf16(h[run + 6], h[run + 7])};
  }
  return most;
}

// `row` and `first` begin the tile; `first` counts gated outputs.
template <class S, int kTiles, int kSums>
__device__ __forceinline__ void store_gated_tile(const TileArgs& args, const int32_t (&c)[kTiles][kSums], int32_t row,
                                                 int32_t first, const float* gate_scales, const float* up_scales,
                                                 const RowScales<S>& row_scales) {
  constexpr int kBlocks = S::kOutputs / 2 / kGateBlock;
  static_assert(S::kGroup == 32 && kBlocks <= 2);
  const auto tid = static_cast<int32_t>(threadIdx.x);
  const bool has_second = kBlocks == 2 && first + kGateBlock < args.matmul.out / 2;
#pragma unroll
  for (int m = 0; m < kTiles; ++m)
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const int32_t warp_row = row + S::warp_row(tid) + 64 * m + 8 * upper, r = warp_row + tid % 32 / 4;
      if (warp_row >= args.matmul.rows) continue;  // a whole warp
      float most = store_gated_block<S, 0>(args, c[m], upper, r, first, gate_scales, up_scales, row_scales[m][upper]);
      if constexpr (kBlocks == 2)
        if (has_second)
          most = fmaxf(most, store_gated_block<S, 1>(args, c[m], upper, r, first + kGateBlock, gate_scales, up_scales,
                                                     row_scales[m][upper]));
      most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 2));
      if (tid % 4 == 0 && r < args.matmul.rows)  // rounding keeps the order, so the largest is rounded alone
        args.most[int64_t{r} * args.out_tiles + first / (S::kOutputs / 2)] = arith::from_bf16(arith::to_bf16(most));
    }
}

}  // namespace sm90
}  // namespace kaiju::cuda

#endif
