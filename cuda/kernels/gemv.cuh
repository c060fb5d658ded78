// Matmuls of one row (GEMV), and of few outputs, by dp4a on any chip.
//
// One row: each multiprocessor runs one thread block (more if the outputs do not fit its shared memory) with an equal
// share of the outputs, whose weights are contiguous. The warps of a block divide these weights equally, wherever
// outputs begin, and add their partial sums in shared memory. So all multiprocessors read the same number of bytes, in
// memory order. Weights are loaded kAhead pieces before they are multiplied, the first ones before the previous kernels
// have ended; then too, kFetched more are fetched to the L2 cache, since memory is idle while a row is normed or gated.
// The next kernel may start only at the end, because its blocks would take memory bandwidth and be placed unevenly.
// Bound: memory.
//
// Few outputs, as in a classifier: the other kernels would have only a few thread blocks. Weights and rows are in the
// L2 cache. Bound: latency.
#pragma once

#include <algorithm>

#include "../tiles/rms.cuh"
#include "matmul_common.cuh"

namespace kaiju::cuda {
namespace {

constexpr int32_t kGemvThreads = 512;
constexpr int32_t kGemvWarps = kGemvThreads / 32;
constexpr int32_t kGemvOuts = (48 << 10) / 4;  // that a block has room for the sums of

// With kNorm every block computes the norm of the whole row itself, which takes less time than another kernel.
template <MatmulKind kKind, bool kNorm>
__global__ void __launch_bounds__(kGemvThreads, 2) gemv_kernel(MatmulArgs args) {
  constexpr int kAhead = 8, kFetched = 20;
  extern __shared__ __align__(16)
      uint8_t gemv_memory[];  // with kNorm the row's bytes, the row, and its partial sums; the block's sums
  auto* sums = reinterpret_cast<int32_t*>(gemv_memory + (kNorm ? norm_bytes(args.in) : 0));
  const int32_t tid = static_cast<int32_t>(threadIdx.x), warp = tid / 32, lane = tid % 32;
  const auto blocks = static_cast<int32_t>(gridDim.x), block = static_cast<int32_t>(blockIdx.x);
  const auto first = static_cast<int32_t>(int64_t{args.out} * block / blocks),
             outs = static_cast<int32_t>(int64_t{args.out} * (block + 1) / blocks) - first;
  const int32_t steps_of_out = args.in / kGemvBytes, steps = outs * steps_of_out;
  int32_t step = steps * warp / kGemvWarps;
  const int32_t end = steps * (warp + 1) / kGemvWarps;
  const int8_t* weights = args.weight + int64_t{first} * args.in + 16 * lane;
  uint4 w[kAhead];
#pragma unroll
  for (int u = 0; u < kAhead; ++u)
    if (step + u < end) w[u] = load_once(weights + int64_t{step + u} * kGemvBytes);
  constexpr int32_t kLine = 128, kLines = kFetched * kGemvBytes / kLine;  // 22 MB of 132 blocks
  const int8_t* fetched = args.weight + int64_t{first} * args.in + int64_t{step + kAhead} * kGemvBytes;
  for (int32_t line = lane; line < min(kLines, (end - step - kAhead) * (kGemvBytes / kLine)); line += 32)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(fetched + line * kLine));
  for (int32_t i = 32 * tid; i < outs; i += 32 * kGemvThreads)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(args.scale + first + i));
  for (int32_t i = tid; i < outs; i += kGemvThreads) sums[i] = 0;
  __syncthreads();
  wait_for_inputs();

  if constexpr (kNorm) norm_row<kGemvThreads>(gemv_memory, args.x, args.in, args.eps, args.inverse_scale);
  const auto* a =
      (kNorm ? reinterpret_cast<const int8_t*>(gemv_memory) : static_cast<const int8_t*>(args.a)) + 16 * lane;
  int32_t out = step / steps_of_out, k = step - out * steps_of_out, c = 0;
  const auto add_up = [&] {
    const int32_t sum = __reduce_add_sync(0xFFFFFFFFu, c);
    if (lane == 0) atomicAdd(&sums[out], sum);
    c = 0;
  };
  for (; step < end; step += kAhead) {
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (step + u >= end) break;
      const uint4 b = *reinterpret_cast<const uint4*>(a + k * kGemvBytes);
      c = dot4<kActivation<kKind>>(w[u].x, b.x, c);
      c = dot4<kActivation<kKind>>(w[u].y, b.y, c);
      c = dot4<kActivation<kKind>>(w[u].z, b.z, c);
      c = dot4<kActivation<kKind>>(w[u].w, b.w, c);
      if (step + u + kAhead < end) w[u] = load_once(weights + int64_t{step + u + kAhead} * kGemvBytes);
      if (++k == steps_of_out) add_up(), k = 0, ++out;
    }
  }
  if (k > 0) add_up();  // nothing where the warp had nothing; `out` is still within the block
  __syncthreads();
  for (int32_t i = tid; i < outs; i += kGemvThreads) store_sum<kKind>(args, 0, first + i, sums[i]);
}

template <MatmulKind kKind, bool kNorm = false>
cudaError_t launch_gemv(cudaStream_t stream, const Chip& chip, const MatmulArgs& args) {
  const int32_t blocks = std::max(std::min(chip.multiprocessors, args.out), pieces(args.out, kGemvOuts));
  const int32_t bytes =
      (kNorm ? norm_bytes(args.in) : 0) + pieces(args.out, blocks) * static_cast<int32_t>(sizeof(int32_t));
  return launch(stream, chip, gemv_kernel<kKind, kNorm>, {blocks, kGemvThreads, bytes}, args);
}

// ---- few outputs ----

constexpr int32_t kNarrowOuts = 32;

// A warp computes one output of one row.
__global__ void __launch_bounds__(kThreads) matmul_narrow_kernel(MatmulArgs args) {
  let_next_start();
  wait_for_inputs();
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int64_t item = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32, row = item / args.out;
  if (row >= args.rows) return;
  const auto n = static_cast<int32_t>(item - row * args.out);
  const int8_t* weights = args.weight + int64_t{n} * args.in;
  const auto* a = static_cast<const int8_t*>(args.a) + row * args.in;
  int32_t c = 0;
  for (int32_t k = 16 * lane; k < args.in; k += kGemvBytes) {
    const uint4 w = *reinterpret_cast<const uint4*>(weights + k), b = *reinterpret_cast<const uint4*>(a + k);
    c = dot4<Sign::kSigned>(
        w.x, b.x, dot4<Sign::kSigned>(w.y, b.y, dot4<Sign::kSigned>(w.z, b.z, dot4<Sign::kSigned>(w.w, b.w, c))));
  }
  const int32_t sum = __reduce_add_sync(0xFFFFFFFFu, c);
  if (lane == 0) store_sum<MatmulKind::kLinear>(args, static_cast<int32_t>(row), n, sum);
}

}  // namespace
}  // namespace kaiju::cuda
