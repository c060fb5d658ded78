// Matmul of many rows by mma.sync, on any chip and for any shape: tiles of 64 or 128 rows x 128 outputs in shared
// memory, which cp.async copies some stages ahead. The eight warps of a block form a grid of 2 (rows) x 4 (outputs).
// Activations are the 16-row operand, so that each lane gets two neighbouring outputs. Bound: the tensor cores.
#pragma once

#include "../tiles/sm80_copy.cuh"
#include "matmul_common.cuh"

namespace kaiju::cuda {
namespace {

constexpr int32_t kTileOuts = 128;
constexpr int32_t kStages = 4;

// Where 16-byte piece `piece` of row `row` lies in a [rows][64 bytes] tile, so that eight rows of one piece fall into
// different banks.
__device__ __forceinline__ uint32_t place(int32_t row, int32_t piece) {
  return static_cast<uint32_t>(row * kStep + ((piece ^ (row / 2 % 4)) * 16));
}

template <MatmulKind kKind, int kTileRows>
__global__ void __launch_bounds__(kThreads) matmul_tiled_kernel(MatmulArgs args) {
  constexpr int kRowTiles = kTileRows / 32, kOutTiles = 4, kStageBytes = (kTileRows + kTileOuts) * kStep;
  extern __shared__ __align__(128) uint8_t memory[];
  const uint32_t base = shared_address(memory);
  const int32_t tid = static_cast<int32_t>(threadIdx.x), warp = tid / 32, lane = tid % 32;
  const int32_t row_tiles = (args.rows + kTileRows - 1) / kTileRows;
  const int32_t first_row = static_cast<int32_t>(blockIdx.x) % row_tiles * kTileRows,
                first_out = static_cast<int32_t>(blockIdx.x) / row_tiles * kTileOuts;
  const auto* a = static_cast<const int8_t*>(args.a);
  const int32_t steps = args.in / kStep;

  const auto load = [&](int32_t step) {
    const uint32_t rows_at = base + static_cast<uint32_t>(step % kStages * kStageBytes),
                   outs_at = rows_at + kTileRows * kStep;
#pragma unroll
    for (int j = 0; j < kTileRows * 4 / kThreads; ++j) {
      const int32_t i = tid + j * kThreads;
      const int32_t row = first_row + i / 4;
      const bool valid = row < args.rows;
      copy_async(rows_at + place(i / 4, i % 4),
                 a + (valid ? int64_t{row} * args.in + int64_t{step} * kStep + i % 4 * 16 : 0), valid);
    }
#pragma unroll
    for (int j = 0; j < kTileOuts * 4 / kThreads; ++j) {
      const int32_t i = tid + j * kThreads;
      const int32_t out = first_out + i / 4;
      const bool valid = out < args.out;
      copy_async(outs_at + place(i / 4, i % 4),
                 args.weight + (valid ? int64_t{out} * args.in + int64_t{step} * kStep + i % 4 * 16 : 0), valid);
    }
  };

  let_next_start();
  wait_for_inputs();
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < steps) load(s);
    commit_copies();
  }
  const int32_t warp_row = warp / 4 * (kTileRows / 2), warp_out = warp % 4 * 32;
  int32_t c[kRowTiles][kOutTiles][4] = {};
  for (int32_t step = 0; step < steps; ++step) {
    wait_copies<kStages - 2>();
    __syncthreads();  // step `step` has arrived for all threads, and none reads the stage that is loaded next
    if (step + kStages - 1 < steps) load(step + kStages - 1);
    commit_copies();
    const uint32_t rows_at = base + static_cast<uint32_t>(step % kStages * kStageBytes),
                   outs_at = rows_at + kTileRows * kStep;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      uint32_t rows[kRowTiles][4], outs[kOutTiles / 2][4];
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r)
        load_matrices(rows[r], rows_at + place(warp_row + 16 * r + lane % 16, 2 * k + lane / 16));
#pragma unroll
      for (int n = 0; n < kOutTiles / 2; ++n)
        load_matrices(outs[n], outs_at + place(warp_out + 16 * n + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
        for (int n = 0; n < kOutTiles; ++n)
          mma<kActivation<kKind>, Sign::kSigned>(c[r][n], rows[r][0], rows[r][1], rows[r][2], rows[r][3],
                                                 outs[n / 2][n % 2 * 2], outs[n / 2][n % 2 * 2 + 1]);
    }
  }
  const int32_t g = lane / 4, t = lane % 4;
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int n = 0; n < kOutTiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int32_t row = first_row + warp_row + 16 * r + g + 8 * (e / 2),
                      out = first_out + warp_out + 8 * n + 2 * t + e % 2;
        if (row < args.rows && out < args.out) store_sum<kKind>(args, row, out, c[r][n][e]);
      }
}

template <MatmulKind kKind, int kTileRows>
cudaError_t launch_tiled(cudaStream_t stream, const Chip& chip, const MatmulArgs& args) {
  constexpr int kBytes = kStages * (kTileRows + kTileOuts) * kStep;
  const auto kernel = matmul_tiled_kernel<kKind, kTileRows>;
  // Per device and kernel; cheap, and needed anew for every device a process uses.
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
      error != cudaSuccess)
    return error;
  return launch(stream, chip, kernel,
                {int64_t{pieces(args.rows, kTileRows)} * pieces(args.out, kTileOuts), kThreads, kBytes}, args);
}

}  // namespace
}  // namespace kaiju::cuda
