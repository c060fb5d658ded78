// Matmul of up to 64 rows by mma.sync on any chip. A thread block computes 16 or 32 outputs. Its warps divide the inner
// dimension and add their integer sums in shared memory, in any order. Bound: memory, reading the weights once.
//
// A warp takes pieces of 64 bytes of the inner dimension, two neighbouring ones (a cache line) at a time, and loads
// each piece of its weights kAhead pieces before it multiplies. It loads the first ones before the previous kernels
// have ended, because no kernel writes weights.
//
// Weights are the 16-row operand, activations the 8-column one. Each lane reads 16 contiguous bytes of both. The order
// of the inner dimension does not matter in a dot product, so bytes 16 t to 16 t + 15 of a piece serve as the elements
// that lane t holds in two instructions.
#pragma once

#include "matmul_common.cuh"

namespace kaiju::cuda {
namespace {

template <MatmulKind kKind, int kOutTiles, int kRowTiles, int kAhead, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks) matmul_skinny_kernel(MatmulArgs args) {
  constexpr int kOuts = 16 * kOutTiles, kRows = 8 * kRowTiles;
  static_assert(kAhead % 2 == 0);
  __shared__ int32_t sums[kOuts][kRows + 1];
  const int32_t tid = static_cast<int32_t>(threadIdx.x), warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
  const int32_t first_out = static_cast<int32_t>(blockIdx.x) * kOuts;
  // Outputs and rows beyond the last read it again; their sums go nowhere.
  const int8_t* weights[kOutTiles][2];
#pragma unroll
  for (int m = 0; m < kOutTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      weights[m][half] = args.weight + int64_t{min(first_out + 16 * m + 8 * half + g, args.out - 1)} * args.in + 16 * t;
  const auto place = [&](int32_t turn) {
    return (turn / 2 * (2 * kWarps) + 2 * warp + turn % 2) * kStep;
  };  // of the warp's turn-th piece; the same in all lanes
  uint4 w[kAhead][kOutTiles][2];
  const auto load_weights = [&](uint4(&to)[kOutTiles][2], int32_t at) {
    if (at >= args.in) return;
#pragma unroll
    for (int m = 0; m < kOutTiles; ++m)
      to[m][0] = load_once(weights[m][0] + at), to[m][1] = load_once(weights[m][1] + at);
  };
  let_next_start();
#pragma unroll
  for (int u = 0; u < kAhead; ++u) load_weights(w[u], place(u));
  for (int32_t i = tid; i < kOuts * (kRows + 1); i += kThreads) (&sums[0][0])[i] = 0;
  __syncthreads();
  wait_for_inputs();

  const auto* a = static_cast<const int8_t*>(args.a) + 16 * t;
  int32_t row_at[kRowTiles];
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) row_at[r] = min(8 * r + g, args.rows - 1) * args.in;
  int32_t c[kOutTiles][kRowTiles][4] = {};
  for (int32_t turn = 0; place(turn) < args.in; turn += kAhead) {
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int32_t at = place(turn + u);
      if (at >= args.in) break;
      uint4 b[kRowTiles];
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) b[r] = *reinterpret_cast<const uint4*>(a + (row_at[r] + at));
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
        for (int m = 0; m < kOutTiles; ++m) {
          const uint4 low = w[u][m][0], high = w[u][m][1];
          mma<Sign::kSigned, kActivation<kKind>>(c[m][r], low.x, high.x, low.y, high.y, b[r].x, b[r].y);
          mma<Sign::kSigned, kActivation<kKind>>(c[m][r], low.z, high.z, low.w, high.w, b[r].z, b[r].w);
        }
      load_weights(w[u], place(turn + u + kAhead));
    }
  }
#pragma unroll
  for (int m = 0; m < kOutTiles; ++m)
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int e = 0; e < 4; ++e) atomicAdd(&sums[16 * m + g + 8 * (e / 2)][8 * r + 2 * t + e % 2], c[m][r][e]);
  __syncthreads();
  for (int32_t i = tid; i < kOuts * args.rows; i += kThreads) {
    const int32_t n = first_out + i % kOuts, row = i / kOuts;
    if (n < args.out) store_sum<kKind>(args, row, n, sums[i % kOuts][row]);
  }
}

template <MatmulKind kKind, int kOutTiles, int kRowTiles, int kAhead, int kBlocks>
cudaError_t launch_skinny(cudaStream_t stream, const Chip& chip, const MatmulArgs& args) {
  const auto kernel = matmul_skinny_kernel<kKind, kOutTiles, kRowTiles, kAhead, kBlocks>;
  return launch(stream, chip, kernel, {pieces(args.out, 16 * kOutTiles), kThreads}, args);
}

}  // namespace
}  // namespace kaiju::cuda
