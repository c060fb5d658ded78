// Scalar functions of attention: this file computes the two-byte weight of a key from its integer score, and the
// factors with which the sums of two chunks of keys are merged (arithmetic.md, section 5).
#pragma once

#include "kaiju/arith/exp2.hpp"

namespace kaiju::arith {

// Attention divides the keys of a sequence into chunks of this many keys. The weights of all keys in a chunk are
// relative to the chunk's largest score. Chunks begin at positions that are multiples of 512, and each chunk may be
// computed independently.
inline constexpr int kChunkKeys = 512;
inline constexpr float kRoundBias = 12582912.0f;  // 1.5 * 2^23: a sum with it has the nearest integer in its low bits

// Returns 2^(d * z) for d <= 0, without rounding the product. In docs/arithmetic.md this function is E(d). In version 1
// of the arithmetic, d is an integer of less than 2^24 in magnitude, which a float holds exactly.
KAIJU_HOST_DEVICE inline float exp2_product(float d, float z) {
  const float n = add(fma(d, z, kRoundBias), -kRoundBias);
  return n < -126.0f ? 0.0f : pow2(static_cast<int32_t>(n), fma(d, z, -n));
}

KAIJU_HOST_DEVICE inline float exp2_product(int32_t d, float z) { return exp2_product(static_cast<float>(d), z); }

// Returns the attention weight of a key, from 0 to 65535. `difference` (<= 0) is the key's score minus the largest
// score of the key's chunk.
KAIJU_HOST_DEVICE inline uint32_t key_weight(float difference, float z) {
  return bits_of(fma(65535.0f, exp2_product(difference, z), kRoundBias)) - bits_of(kRoundBias);
}

KAIJU_HOST_DEVICE inline uint32_t key_weight(int32_t difference, float z) {
  return key_weight(static_cast<float>(difference), z);
}

// Returns the weight of a value: the weight of its key times the value's scale over the largest scale.
KAIJU_HOST_DEVICE inline uint32_t value_weight(uint32_t key_weight, float ratio) {
  return bits_of(fma(static_cast<float>(key_weight), ratio, kRoundBias)) - bits_of(kRoundBias);
}

}  // namespace kaiju::arith
