// The sum of a row's squares as the contract takes it (docs/arithmetic.md, section 4), where a block of threads has the 256 partial sums in
// shared memory.
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
// The tree over them. Every warp that asks folds them all.
__device__ __forceinline__ float fold_partials(const float* partials) {
  const auto lane = static_cast<int32_t>(threadIdx.x) % 32;
  float sum[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] = arith::add(partials[lane + 32 * i], partials[lane + 32 * i + 128]);
  float total = arith::add(arith::add(sum[0], sum[2]), arith::add(sum[1], sum[3]));
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) total = arith::add(total, __shfl_xor_sync(0xFFFFFFFFu, total, distance));
  return total;
}
// Two elements times m, as bytes.
__device__ __forceinline__ uint16_t two_quantised(uint32_t both, float m) {
  return static_cast<uint16_t>(__byte_perm(quantised(arith::float_of(both << 16), m), quantised(arith::float_of(both & 0xFFFF0000u), m), 0x0040));
}

}  // namespace kaiju::cuda
