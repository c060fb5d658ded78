// The softmax weights of attention with scales (docs/arithmetic-2.md, section 6), with the bits of the contract's
// formula and fewer instructions.
#pragma once

#include <limits>

#include "score_weight.hpp"

namespace kaiju::cuda {

constexpr float kLeastScore = -std::numeric_limits<float>::infinity();  // of a key that a row does not see
constexpr float kMostFloat = std::numeric_limits<float>::max();

// What the scores of a row are weighed by. From `floor` below the maximum on, weights are 0; for z = 0 none are.
struct ScaledRow {
  float maximum, z, floor;
  __device__ static float floor_of(float z) { return z > 0.0f ? arith::divide(-18.0f, z) : -kMostFloat; }
};

// The weights of keys, as bits of 1.5 * 2^23 more; row(i) is that of score i. As d z >= -18 here, 2^n needs no lower
// bound, and 65535 times it is exact.
template <int kCount, class Row>
__device__ __forceinline__ void weigh_keys(const float (&score)[kCount], Row row, uint32_t (&key)[kCount]) {
  using namespace arith;
  float d[kCount], rounded[kCount], f[kCount];
  uint32_t power[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) d[i] = fmaxf(add(score[i], -row(i).maximum), row(i).floor);
#pragma unroll
  for (int i = 0; i < kCount; ++i) rounded[i] = fma(d[i], row(i).z, kRoundBias);
#pragma unroll
  for (int i = 0; i < kCount; ++i) f[i] = fma(d[i], row(i).z, -add(rounded[i], -kRoundBias));
#pragma unroll
  for (int i = 0; i < kCount; ++i) power[i] = 0x477FFF00u + (bits_of(rounded[i]) << 23);  // of 65535 * 2^n
  weights_of(power, f, key);
}
// The weight of a value, in the low bits.
__device__ __forceinline__ uint32_t weigh_value(uint32_t key, float ratio) {
  return arith::bits_of(arith::fma(arith::add(arith::float_of(key), -arith::kRoundBias), ratio, arith::kRoundBias));
}

// What a chunk does to a row's totals.
struct ScaledJoin {
  bool later;  // the chunk keeps its scale, the total is multiplied
  float factor;
  __device__ ScaledJoin(float total, float chunk, float z) : later(total <= chunk) {
    const float difference = later ? arith::add(total, -chunk) : arith::add(chunk, -total);
    factor = total == kLeastScore || chunk == kLeastScore ? 0.0f : arith::exp2_product(difference, z);
  }
  __device__ float operator()(float total, float chunk) const {
    return arith::fma(later ? total : chunk, factor, later ? chunk : total);
  }
};

}  // namespace kaiju::cuda
