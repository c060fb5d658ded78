// Bytes of gated values that a matmul's epilogue has transformed and rounded to bf16 (gated_matmul.hpp). A thread block
// takes a row, or one of equal parts of it. It requests its values before it finds the row's largest magnitude among
// those of the tiles. Bound: memory; with few rows latency.
#include <algorithm>

#include "../tiles/dependent_launch.cuh"
#include "gated_matmul.hpp"
#include "row_block.cuh"

namespace kaiju::cuda {
namespace {

using row_block::kThreads, row_block::packed_bytes;
constexpr int32_t kRun = 8;  // values of a load
constexpr int kAtOnce = 8;   // loads of a thread on their way

__global__ void __launch_bounds__(kThreads)
    quantise_gated_kernel(const arith::bf16* __restrict__ values, const float* __restrict__ magnitudes, int32_t tiles,
                          int32_t width, const __grid_constant__ Quantiser to, int32_t parts) {
  let_next_start();
  wait_for_inputs();
  const auto block = static_cast<int32_t>(blockIdx.x);
  const int32_t row = block / parts, part = block % parts, runs = width / kRun;
  const int32_t first = runs * part / parts, end = runs * (part + 1) / parts;  // of the runs of the row
  const auto* from = reinterpret_cast<const uint4*>(values + int64_t{row} * width);
  auto* const bytes = reinterpret_cast<uint2*>(to.bytes + int64_t{row} * width);
  uint4 loaded[kAtOnce];
  const auto load = [&](int32_t at) {
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) loaded[j] = from[min(at + j * kThreads, end - 1)];
  };
  load(first + thread());
  uint32_t most = 0;
  for (int32_t tile = thread(); tile < tiles; tile += kThreads)
    most = max(most, arith::bits_of(magnitudes[int64_t{row} * tiles + tile]));
  const auto steps = row_block::steps_of_row(to, row, row_block::most_of_block(most), thread() == 0 && part == 0);
  const auto byte = [&](uint32_t bits) { return steps(arith::float_of(bits)); };
  const auto four = [&](uint32_t a, uint32_t b) {
    return packed_bytes(byte(a << 16), byte(a & 0xFFFF0000u), byte(b << 16), byte(b & 0xFFFF0000u));
  };
  for (int32_t at = first + thread(); at < end; at += kAtOnce * kThreads) {
    if (at != first + thread()) load(at);
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (at + j * kThreads < end)
        bytes[at + j * kThreads] = {four(loaded[j].x, loaded[j].y), four(loaded[j].z, loaded[j].w)};
  }
}

// Blocks that share each of so many rows.
int32_t parts_for(int32_t rows, int32_t width) {
  const int32_t wanted = rows <= 64 ? 8 : rows <= 256 ? 2 : 1;
  return std::min(wanted, pieces(width, kThreads * kRun));
}

}  // namespace

cudaError_t quantise_gated(cudaStream_t stream, const Chip& chip, const Tile& tile, const GateRows& args) {
  const GatedValues from = gated_values(args);
  const int32_t width = args.ups.width, parts = parts_for(args.rows, width);
  return launch(stream, chip, quantise_gated_kernel, {int64_t{args.rows} * parts, kThreads}, from.values, from.most,
                gated_tiles(tile, width), width, args.to, parts);
}

}  // namespace kaiju::cuda
