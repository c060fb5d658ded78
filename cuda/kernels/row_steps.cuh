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

// Outputs of a row whose sums were loaded before: the scale of the row is loaded once.
class RowOutputs {
 public:
  __device__ RowOutputs(const Outputs& y, int32_t row) : y_(y), scale_(y.scale ? y.scale[row] : 1.0f) {
    const int32_t stride = y.stride > 0 ? y.stride : y.width;
    sums_ = y.sums ? y.sums + int64_t{row} * stride : nullptr;
  }
  __device__ __forceinline__ float load(int32_t i) const { return sums_ ? sums_[i] : 0.0f; }
  __device__ __forceinline__ float4 load_four(int32_t i) const { return *reinterpret_cast<const float4*>(sums_ + i); }
  // As arith::output, of a loaded sum; not of wide ones.
  __device__ __forceinline__ float operator()(float sum, int32_t i) const {
    float value = y_.scale ? arith::mul(sum, scale_) : sum;
    if (y_.bias) value = arith::add(value, y_.bias[i]);
    return y_.step == 0.0f ? value : stepped(value);
  }
  // Of four neighbours.
  __device__ __forceinline__ float4 operator()(const float4& sum, int32_t i) const {
    float4 v = sum;
    if (y_.scale)
      v = {arith::mul(v.x, scale_), arith::mul(v.y, scale_), arith::mul(v.z, scale_), arith::mul(v.w, scale_)};
    if (const float* bias = y_.bias)
      v = {arith::add(v.x, bias[i]), arith::add(v.y, bias[i + 1]), arith::add(v.z, bias[i + 2]),
           arith::add(v.w, bias[i + 3])};
    return y_.step == 0.0f ? v : float4{stepped(v.x), stepped(v.y), stepped(v.z), stepped(v.w)};
  }

 private:
  __device__ __forceinline__ float stepped(float value) const {
    return arith::mul(static_cast<float>(arith::round_saturate(arith::mul(value, y_.inverse), -128.0f, 127.0f)),
                      y_.step);
  }

  const Outputs& y_;
  const float* sums_;
  float scale_;
};

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
