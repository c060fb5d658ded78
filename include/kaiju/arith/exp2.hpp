// exp2: kaiju has its own implementation of this function, because the implementations of math libraries differ in the
// last bit. Host and device code compile this same source (arithmetic.md, section 1).
#pragma once

#include "kaiju/arith/float32.hpp"

namespace kaiju::arith {

// The coefficients of a minimax polynomial for 2^x on [-0.5, 0.5]. The polynomial's constant term is fixed at 1, so 2^n
// is exact for integers n. The relative error of 2^x is at most 2.9e-6 in f32 with fma, which is below the rounding
// error of attention's 16-bit weights. A polynomial with one more term made an attention kernel 2% slower on an H200.
inline constexpr float kPow2C1 = 0x1.62e12cp-1f;
inline constexpr float kPow2C2 = 0x1.ec0366p-3f;
inline constexpr float kPow2C3 = 0x1.c9fbe4p-5f;
inline constexpr float kPow2C4 = 0x1.3a0562p-7f;

inline constexpr float kLog2E = 0x1.715476p+0f;  // f32(1.4426950408889634)

// Returns 2^(n + f) for an integer n in [-126, 126] and a float f in [-0.5, 0.5].
KAIJU_HOST_DEVICE inline float pow2(int32_t n, float f) {
  float y = kPow2C4;
  y = fma(y, f, kPow2C3);
  y = fma(y, f, kPow2C2);
  y = fma(y, f, kPow2C1);
  y = fma(y, f, 1.0f);
  return float_of(bits_of(y) + (static_cast<uint32_t>(n) << 23));
}

// Returns 2^x for x in [-126, 126].
KAIJU_HOST_DEVICE inline float exp2(float x) {
  const float n = rint(x);
  return pow2(static_cast<int32_t>(n), add(x, -n));
}

}  // namespace kaiju::arith
