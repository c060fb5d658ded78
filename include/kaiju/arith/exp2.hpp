// exp2: kaiju's own implementation, because library functions differ in the last bit. Host and device use this source
// (arithmetic.md, section 1).
#pragma once

#include "kaiju/arith/float32.hpp"

namespace kaiju::arith {

// Coefficients of a minimax polynomial on [-0.5, 0.5]. The constant term is fixed at 1, so integer powers are exact.
// The relative error is at most 2.9e-6 in f32 with fma, which is below the rounding of attention's 16-bit weights. One
// more term cost 2% of an attention kernel's time on an H200.
inline constexpr float kPow2C1 = 0x1.62e12cp-1f;
inline constexpr float kPow2C2 = 0x1.ec0366p-3f;
inline constexpr float kPow2C3 = 0x1.c9fbe4p-5f;
inline constexpr float kPow2C4 = 0x1.3a0562p-7f;

// 2^(n + f) for an integer n in [-126, 126] and f in [-0.5, 0.5].
KAIJU_HOST_DEVICE inline float pow2(int32_t n, float f) {
  float y = kPow2C4;
  y = fma(y, f, kPow2C3);
  y = fma(y, f, kPow2C2);
  y = fma(y, f, kPow2C1);
  y = fma(y, f, 1.0f);
  return float_of(bits_of(y) + (static_cast<uint32_t>(n) << 23));
}

// 2^x for x in [-126, 126].
KAIJU_HOST_DEVICE inline float exp2(float x) {
  const float n = rint(x);
  return pow2(static_cast<int32_t>(n), add(x, -n));
}

}  // namespace kaiju::arith
