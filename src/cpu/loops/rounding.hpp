// Vector versions of rounding to bf16 and to bytes, and of powers of two (arithmetic.md, sections 1 and 5).
#pragma once

namespace kaiju::cpu {
namespace {

KAIJU_INLINE Floats from_bf16(Words bits) { return (Floats)(to_ints(bits) << 16); }
KAIJU_INLINE Words to_bf16(Floats x) {  // ties to even; finite inputs
  using Bits = uint32_t __attribute__((vector_size(4 * kLanes)));
  const Bits bits = (Bits)x;
  return to_words((Ints)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16));
}

// clamp(rint(x), low, high)
KAIJU_INLINE Ints round_saturate(Floats x, float low, float high) {
  return nearest(least(most(x, floats(low)), floats(high)));
}
KAIJU_INLINE Bytes quantise(Floats x, Floats inverse) { return to_bytes(round_saturate(x * inverse, -127.0f, 127.0f)); }

// 2^(n + f) without the 2^n, times a power of two, which rounds nothing.
KAIJU_INLINE Floats pow2_fraction(Floats f, float unit = 1.0f) {
  Floats y = floats(0x1.3a0562p-7f * unit);
  y = fma(y, f, floats(0x1.c9fbe4p-5f * unit));
  y = fma(y, f, floats(0x1.ec0366p-3f * unit));
  y = fma(y, f, floats(0x1.62e12cp-1f * unit));
  return fma(y, f, floats(unit));
}

constexpr float kRoundBias = 12582912.0f;  // 1.5 * 2^23

// E(d) for d given as exact floats <= 0. Below 2^-126 the result is some value of that size, not 0. Where scale()
// cannot shrink by any power, d * z has to be at least -126.
KAIJU_INLINE Floats exp2_product(Floats d, Floats z) {
  const Floats n = fma(d, z, floats(kRoundBias)) - floats(kRoundBias);
  return scale(pow2_fraction(fms(d, z, n)), n);
}

// The factor of a merge: E(difference), 0 where n < -126.
KAIJU_INLINE Floats merge_factor(float difference, float z) {
  const Floats d = floats(difference), zs = floats(z);
  const Floats n = fma(d, zs, floats(kRoundBias)) - floats(kRoundBias);
  return n[0] < -126.0f ? Floats{} : exp2_product(d, zs);
}

}  // namespace
}  // namespace kaiju::cpu
