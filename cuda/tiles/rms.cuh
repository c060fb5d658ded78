// The RMS norm of a row. The sum of squares is computed in the order of the contract (docs/arithmetic.md, section 4),
// with its 256 partial sums in the shared memory of a thread block.
#pragma once

#include <cstdint>

#include "kaiju/arith/rms.hpp"
#include "quantise.cuh"

namespace kaiju::cuda {

// Two elements of a row join partial sums 2 t and 2 t + 1.
__device__ __forceinline__ void add_squares(uint32_t both, float& low, float& high) {
  const float first = arith::float_of(both << 16), second = arith::float_of(both & 0xFFFF0000u);
  low = arith::fma(first, first, low), high = arith::fma(second, second, high);
}
// The tree over them. Every warp that calls it folds them all.
__device__ __forceinline__ float fold_partials(const float* partials) {
  const auto lane = static_cast<int32_t>(threadIdx.x) % 32;
  float sum[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] = arith::add(partials[lane + 32 * i], partials[lane + 32 * i + 128]);
  float total = arith::add(arith::add(sum[0], sum[2]), arith::add(sum[1], sum[3]));
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    total = arith::add(total, __shfl_xor_sync(0xFFFFFFFFu, total, distance));
  return total;
}
// Two elements times m, as bytes.
__device__ __forceinline__ uint16_t two_quantised(uint32_t both, float m) {
  return static_cast<uint16_t>(__byte_perm(quantised(arith::float_of(both << 16), m),
                                           quantised(arith::float_of(both & 0xFFFF0000u), m), 0x0040));
}

// Among the first kThreads threads of the block.
template <int32_t kThreads>
__device__ __forceinline__ void sync_first() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

// The norm of a row in shared memory, by the first kThreads threads of the block: its bytes at `memory`, computed from
// the row that lies after them.
__host__ __device__ constexpr int32_t norm_bytes(int32_t width) {
  return 3 * width + static_cast<int32_t>(arith::kRmsPartials * sizeof(float));
}
template <int32_t kThreads>
__device__ __forceinline__ void norm_loaded_row(uint8_t* memory, int32_t width, float eps, float inverse_scale) {
  const int32_t tid = static_cast<int32_t>(threadIdx.x), half_partials = static_cast<int32_t>(arith::kRmsPartials) / 2;
  auto* bytes = reinterpret_cast<uint32_t*>(memory);
  auto* row = reinterpret_cast<uint32_t*>(memory + width);  // two elements each
  auto* partials = reinterpret_cast<float*>(memory + 3 * width);
  sync_first<kThreads>();
  if (tid < half_partials) {
    float low = 0.0f, high = 0.0f;
#pragma unroll 4
    for (int32_t i = tid; i < width / 2; i += half_partials) add_squares(row[i], low, high);
    partials[2 * tid] = low, partials[2 * tid + 1] = high;
  }
  sync_first<kThreads>();
  const float m = arith::norm_multiplier(fold_partials(partials), static_cast<float>(width), eps, inverse_scale);
#pragma unroll 1
  for (int32_t i = tid; i < width / 4; i += kThreads) {
    const uint2 four = reinterpret_cast<const uint2*>(row)[i];
    bytes[i] = __byte_perm(two_quantised(four.x, m), two_quantised(four.y, m), 0x5410);
  }
  sync_first<kThreads>();
}
// The same of the row at `x`.
template <int32_t kThreads>
__device__ __forceinline__ void norm_row(uint8_t* memory, const arith::bf16* x, int32_t width, float eps,
                                         float inverse_scale) {
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < width / 8; i += kThreads)
    reinterpret_cast<uint4*>(memory + width)[i] = reinterpret_cast<const uint4*>(x)[i];
  norm_loaded_row<kThreads>(memory, width, eps, inverse_scale);
}

}  // namespace kaiju::cuda
