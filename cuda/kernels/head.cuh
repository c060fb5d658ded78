// A head of version 2 of the arithmetic (kaiju/arith/rows.hpp) in the registers of a warp: norm, rotation, factors,
// transform and bytes.
#pragma once

#include "row_steps.cuh"

namespace kaiju::cuda {

// Lane l of a warp has channels l, l + 32, l + 64, ... of 32 * kEach. What a function is given is called with a
// channel.
template <int kEach>
class Head {
 public:
  __device__ static int32_t channel(int j) { return 32 * j + lane(); }

  template <class Value>
  __device__ __forceinline__ void load(Value&& value) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) x_[j] = value(channel(j));
  }
  template <class Change>
  __device__ __forceinline__ void change(Change&& change) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) x_[j] = change(x_[j], channel(j));
  }
  template <class Gain>
  __device__ __forceinline__ void norm(float eps, Gain&& gain) {
    const float r = inverse_rms(eps);
#pragma unroll
    for (int j = 0; j < kEach; ++j) x_[j] = arith::mul(arith::mul(x_[j], r), gain(channel(j)));
  }
  // `angle` is called with channels of the first half.
  template <class Angle>
  __device__ __forceinline__ void rotate(Angle&& angle) {
#pragma unroll
    for (int j = 0; j < kEach / 2; ++j) arith::rotate(x_[j], x_[j + kEach / 2], angle(channel(j)));
  }
  template <class Factor>
  __device__ __forceinline__ void multiply(Factor&& factor) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) x_[j] = arith::mul(x_[j], factor(channel(j)));
  }
  __device__ __forceinline__ void transform(int32_t block) { hadamard(x_, block); }
  __device__ __forceinline__ float largest() const {
    uint32_t most = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) most = max(most, magnitude(x_[j]));
    return largest_of(__reduce_max_sync(0xFFFFFFFFu, most));
  }
  // Calls store(channel, byte).
  template <class Store>
  __device__ __forceinline__ void quantise(float inverse, Store&& store) const {
#pragma unroll
    for (int j = 0; j < kEach; ++j) store(channel(j), arith::quantise(x_[j], inverse));
  }

 private:
  __device__ __forceinline__ float inverse_rms(float eps) const {
    constexpr int kSums = static_cast<int>(arith::kRmsPartials) / 32;
    float sum[kSums] = {};  // partial sums l, l + 32, l + 64, ...
#pragma unroll
    for (int j = 0; j < kEach; ++j) sum[j % kSums] = arith::fma(x_[j], x_[j], sum[j % kSums]);
#pragma unroll
    for (int width = kSums / 2; width > 0; width /= 2)
#pragma unroll
      for (int j = 0; j < width; ++j) sum[j] = arith::add(sum[j], sum[j + width]);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      sum[0] = arith::add(sum[0], __shfl_xor_sync(0xFFFFFFFFu, sum[0], distance));
    return arith::norm_multiplier(sum[0], static_cast<float>(32 * kEach), eps, 1.0f);
  }

  float x_[kEach];
};

}  // namespace kaiju::cuda
