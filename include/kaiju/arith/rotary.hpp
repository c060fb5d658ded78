// Rotary position embedding: this file computes the sine and cosine of an exact fixed-point angle, and rotates pairs of
// floats by the angle (arithmetic.md, sections 1 and 4).
#pragma once

#include "kaiju/arith/cos_sin.hpp"
#include "kaiju/arith/float32.hpp"

namespace kaiju::arith {

// Returns the cosine and sine of the rotary angle at a position. `frequency` is in turns per token times 2^64. The
// product of position and frequency overflows on purpose, which reduces the angle modulo one turn.
KAIJU_HOST_DEVICE inline CosSin cos_sin(uint64_t position, uint64_t frequency) {
  const uint64_t angle = position * frequency;
  const uint64_t quadrant = (angle + (uint64_t{1} << 61)) >> 62;
  const int64_t rest = static_cast<int64_t>(angle - (quadrant << 62));                  // [-2^61, 2^61)
  const float t = mul(static_cast<float>(static_cast<int32_t>(rest >> 37)), 0x1p-27f);  // turns, |t| <= 1/8
  const float u = mul(t, t);
  float s = 0x1.507834p+5f;  // Taylor coefficients; the next term would be 2e-9 of the result
  s = fma(s, u, -0x1.32d2ccp+6f);
  s = fma(s, u, 0x1.466bc6p+6f);
  s = fma(s, u, -0x1.4abbcep+5f);
  s = fma(s, u, 0x1.921fb6p+2f);
  s = mul(t, s);
  float c = 0x1.d9d57ep+5f;  // minimax coefficients with constant term 1; error 0.9 ulp
  c = fma(c, u, -0x1.55c612p+6f);
  c = fma(c, u, 0x1.03c1d8p+6f);
  c = fma(c, u, -0x1.3bd3ccp+4f);
  c = fma(c, u, 1.0f);
  switch (quadrant & 3) {
    case 0:
      return {c, s};
    case 1:
      return {-s, c};
    case 2:
      return {-c, -s};
    default:
      return {s, -c};
  }
}

// Rotates the pair (low, high) = (x[i], x[i + head_dim / 2]) of a head's vector x by an angle.
KAIJU_HOST_DEVICE inline void rotate(float& low, float& high, CosSin at) {
  const float a = low, b = high;
  low = fma(a, at.cos, -mul(b, at.sin));
  high = fma(b, at.cos, mul(a, at.sin));
}

}  // namespace kaiju::arith
