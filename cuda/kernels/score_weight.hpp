// The contract's weights of scores (docs/arithmetic.md, section 5) by fewer instructions than the contract writes down, bit for bit the
// same: tests/cuda/weights.cpp tries every difference. One source for host and device.
#pragma once

#include <cstdint>

#include "kaiju/arith/exp2.hpp"
#include "kaiju/arith/softmax.hpp"

#if defined(__CUDA_ARCH__)
#define KAIJU_UNROLL _Pragma("unroll")
#else
#define KAIJU_UNROLL
#endif

namespace kaiju::cuda {

// 65535 * 2^(n + f), rounded, as bits of 1.5 * 2^23 more, of `power`, the bits of 65535 * 2^n, and f / unit, where unit is a power of
// two. Step by step for all of them, since each step waits for the one before.
template <int kCount>
KAIJU_HOST_DEVICE inline void weights_of(const uint32_t (&power)[kCount], const float (&f)[kCount], uint32_t (&weight)[kCount],
                                         float unit = 1.0f) {
  using namespace arith;
  const float c1 = kPow2C1 * unit, c2 = kPow2C2 * unit * unit, c3 = kPow2C3 * unit * unit * unit, c4 = kPow2C4 * unit * unit * unit * unit;
  float y[kCount];
  KAIJU_UNROLL
  for (int i = 0; i < kCount; ++i) y[i] = fma(c4, f[i], c3);
  KAIJU_UNROLL
  for (int i = 0; i < kCount; ++i) y[i] = fma(y[i], f[i], c2);
  KAIJU_UNROLL
  for (int i = 0; i < kCount; ++i) y[i] = fma(y[i], f[i], c1);
  KAIJU_UNROLL
  for (int i = 0; i < kCount; ++i) y[i] = fma(y[i], f[i], 1.0f);
  // y times 65535 * 2^n: the scaling by 2^n is exact, so this rounds what the contract rounds.
  KAIJU_UNROLL
  for (int i = 0; i < kCount; ++i) weight[i] = bits_of(fma(y[i], float_of(power[i]), kRoundBias));
}

// a b + c, rounded once, and no less than 0 nor more than 1.
KAIJU_HOST_DEVICE inline float saturating_fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  float sum;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(a), "f"(b), "f"(c));
  return sum;
#else
  const float sum = arith::fma(a, b, c);
  return sum < 0.0f ? 0.0f : sum > 1.0f ? 1.0f : sum;
#endif
}

// 65535 * 2^(d z), rounded, as bits of 1.5 * 2^23 more, of a score that lies -d < 2^23 below its maximum.
//
// An integer below 2^24 is the bits of the float 2^-149 times it, so -d needs no conversion. Adding -d z / 2^24 to 1 - 126 / 2^24 rounds
// -d z to an integer, as all sums just below 1 are multiples of 2^-24; and what saturates at 1 is 126, whose weight is 0, whatever f.
struct ScoreWeight {
  static constexpr bool kMaximaFirst = true;
  static constexpr float kMostZ = 8.0f;  // less than that
  static constexpr float kNone = 1.0f - 126 * 0x1p-24f;
  float slope;  // z / 2^24, of floats that are 2^-149 times what they stand for
  KAIJU_HOST_DEVICE explicit ScoreWeight(float z) : slope(z * 0x1p125f) {}
  // What scores of a row are held against.
  KAIJU_HOST_DEVICE static int32_t against(int32_t maximum) { return maximum; }
  template <int kCount>
  KAIJU_HOST_DEVICE inline void operator()(const int32_t (&score)[kCount], const int32_t (&maximum)[kCount],
                                           uint32_t (&weight)[kCount]) const {
    using namespace arith;
    float x[kCount], n[kCount], f[kCount];
    uint32_t power[kCount];
    KAIJU_UNROLL
    for (int i = 0; i < kCount; ++i) x[i] = float_of(static_cast<uint32_t>(maximum[i] - score[i]));
    KAIJU_UNROLL
    for (int i = 0; i < kCount; ++i) n[i] = saturating_fma(x[i], slope, kNone);
    KAIJU_UNROLL
    for (int i = 0; i < kCount; ++i) power[i] = 0x477FFF00u + ((0x3F800000u - 126 - bits_of(n[i])) << 23);
    KAIJU_UNROLL
    for (int i = 0; i < kCount; ++i) f[i] = fma(x[i], -slope, add(n[i], -kNone));
    weights_of(power, f, weight, 0x1p24f);
  }
};

}  // namespace kaiju::cuda

#undef KAIJU_UNROLL
