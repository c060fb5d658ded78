// What the row operations of version 2 of the arithmetic share: the Hadamard transform of values in a warp's registers,
// magnitudes, and norms.
#pragma once

#include "../tiles/layout.cuh"
#include "../tiles/rms.cuh"
#include "kaiju/arith/rows.hpp"

namespace kaiju::cuda {

__device__ __forceinline__ int32_t thread() { return static_cast<int32_t>(threadIdx.x); }
__device__ __forceinline__ int32_t lane() { return thread() % 32; }

// Lane l holds values l, l + 32, l + 64, ... of neighbours; each `block` of them are transformed.
template <int kEach>
__device__ __forceinline__ void hadamard(float (&x)[kEach], int32_t block) {
#pragma unroll
  for (int32_t stride = 1; stride < 32; stride *= 2) {
    if (stride >= block) return;
    const bool upper = (lane() & stride) != 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const float other = __shfl_xor_sync(0xFFFFFFFFu, x[j], stride);
      x[j] = upper ? arith::add(other, -x[j]) : arith::add(x[j], other);
    }
  }
#pragma unroll
  for (int stride = 1; stride < kEach; stride *= 2) {
    if (32 * stride >= block) return;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      if ((j & stride) != 0) continue;
      const float u = x[j], v = x[j + stride];
      x[j] = arith::add(u, v);
      x[j + stride] = arith::add(u, -v);
    }
  }
}

// Magnitudes as bits, which are ordered as the floats are.
__device__ __forceinline__ uint32_t magnitude(float x) { return arith::bits_of(x) & 0x7FFFFFFFu; }
__device__ __forceinline__ float largest_of(uint32_t most) {
  const float largest = arith::float_of(most);
  return largest < arith::kLeastMagnitude ? 0.0f : largest;
}
__device__ __forceinline__ float normed(float x, float r, const float* gain, int32_t i) {
  return gain ? arith::mul(arith::mul(x, r), gain[i]) : arith::mul(x, r);
}

}  // namespace kaiju::cuda
