// Bytes of gated values that a matmul's epilogue has transformed and rounded to bf16 (gated_matmul.hpp). A thread block
// takes a row, or one of equal parts of it. It requests its values before it finds the row's largest magnitude among
// those of the tiles. Bound: memory; with few rows latency.
#include <algorithm>

#include "../tiles/dependent_launch.cuh"
#include "gated_matmul.hpp"
#include "row_steps.cuh"

namespace kaiju::cuda {
namespace {

constexpr int32_t kThreads = 256, kRun = 8;  // values of a load
constexpr int kAtOnce = 8;                   // loads of a thread on their way

__device__ __forceinline__ uint32_t most_of_block(uint32_t most) {
  __shared__ uint32_t of_warp[kThreads / 32];
  most = __reduce_max_sync(0xFFFFFFFFu, most);
  if (lane() == 0) of_warp[thread() / 32] = most;
  __syncthreads();
  return __reduce_max_sync(0xFFFFFFFFu, lane() < kThreads / 32 ? of_warp[lane()] : 0u);
}

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
  const float largest = largest_of(most_of_block(most));
  const bool constant = to.inverse != 0.0f;
  const float inverse = constant ? to.inverse : largest > 0.0f ? arith::divide(127.0f, largest) : 0.0f;
  if (thread() == 0 && part == 0) to.scale[row] = constant ? 1.0f : arith::divide(largest, 127.0f);
  const float least = constant ? -128.0f : -127.0f;
  const auto byte = [&](uint32_t bits) {
    return static_cast<uint32_t>(arith::round_saturate(arith::mul(arith::float_of(bits), inverse), least, 127.0f));
  };
  const auto four = [&](uint32_t a, uint32_t b) {
    return __byte_perm(__byte_perm(byte(a << 16), byte(a & 0xFFFF0000u), 0x0040),
                       __byte_perm(byte(b << 16), byte(b & 0xFFFF0000u), 0x0040), 0x5410);
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
