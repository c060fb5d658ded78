// Scalar functions of attention: the two-byte weight of an integer score, and the factors that merge chunks
// (arithmetic.md, section 5).
#pragma once

#include "kaiju/arith/exp2.hpp"

namespace kaiju::arith {

// Number of keys that share one maximum. Chunks begin at multiples of 512, and each may be computed independently.
inline constexpr int kChunkKeys = 512;
inline constexpr float kRoundBias = 12582912.0f;  // 1.5 * 2^23: a sum with it has the nearest integer in its low bits

// 2^(difference * z) for difference <= 0, without rounding the product: E(d) of the contract.
KAIJU_HOST_DEVICE inline float exp2_product(int32_t difference, float z) {
  const float d = static_cast<float>(difference);  // exact: |difference| < 2^24
  const float n = add(fma(d, z, kRoundBias), -kRoundBias);
  return n < -126.0f ? 0.0f : pow2(static_cast<int32_t>(n), fma(d, z, -n));
}

// Weight of a key, 0 to 65535. `difference` (<= 0) is its score minus the maximum of its chunk.
KAIJU_HOST_DEVICE inline uint32_t key_weight(int32_t difference, float z) {
  return bits_of(fma(65535.0f, exp2_product(difference, z), kRoundBias)) - bits_of(kRoundBias);
}

}  // namespace kaiju::arith
