// The scalar pieces of attention: integer scores to two-byte weights, and the factors that merge tiles and chunks (arithmetic.md, section 5).
#pragma once

#include "kaiju/arith/exp2.hpp"

namespace kaiju::arith {

inline constexpr int kTileKeys = 128;    // one integer maximum step
inline constexpr int kChunkKeys = 512;   // what a split of the keys may work on alone
inline constexpr float kWeightScale = 65535.0f;
inline constexpr float kWeightFloor = -17.0f;  // below this, 65535 * 2^t rounds to zero anyway

// Weight of a key whose score lies `difference` (<= 0) under the maximum: 0 ... 65535.
KAIJU_HOST_DEVICE inline uint32_t key_weight(int32_t difference, float z) {
  const float t = mul(static_cast<float>(difference), z);
  return t < kWeightFloor ? 0u : static_cast<uint32_t>(rint(mul(kWeightScale, exp2(t))));
}

// Factor for sums taken under a maximum that lies `difference` (<= 0) under the new one.
KAIJU_HOST_DEVICE inline float merge_factor(int32_t difference, float z) {
  return exp2_or_zero(mul(static_cast<float>(difference), z));
}

}  // namespace kaiju::arith
