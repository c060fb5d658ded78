// exp2: ours, because no two libraries agree on the last bit. One source for host and device (arithmetic.md, section 1).
#pragma once

#include "kaiju/arith/float32.hpp"

namespace kaiju::arith {

// Minimax on [-0.5, 0.5] with the constant term fixed at 1, so whole powers are exact. At most 2.1 ulp in f32 with fma.
inline constexpr float kExp2C1 = 0x1.62e42ap-1f;
inline constexpr float kExp2C2 = 0x1.ebf9c0p-3f;
inline constexpr float kExp2C3 = 0x1.c6b6e2p-5f;
inline constexpr float kExp2C4 = 0x1.3ce7b4p-7f;
inline constexpr float kExp2C5 = 0x1.5bda5cp-10f;

// 2^x for x in [-126, 126].
KAIJU_HOST_DEVICE inline float exp2(float x) {
  const float n = rint(x);
  const float f = add(x, -n);  // exact
  float y = kExp2C5;
  y = fma(y, f, kExp2C4);
  y = fma(y, f, kExp2C3);
  y = fma(y, f, kExp2C2);
  y = fma(y, f, kExp2C1);
  y = fma(y, f, 1.0f);
  return float_of(bits_of(y) + (static_cast<uint32_t>(static_cast<int32_t>(n)) << 23));
}

// 2^x for any x <= 126; 0 below -126.
KAIJU_HOST_DEVICE inline float exp2_or_zero(float x) { return x < -126.0f ? 0.0f : exp2(x); }

}  // namespace kaiju::arith
