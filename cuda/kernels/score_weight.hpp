// The softmax weights of scores (docs/arithmetic.md, section 5) with fewer instructions than the contract's formula and
// the same bits: tests/cuda/weights.cpp compares every score difference on the host. Host and device use the same
// source, except for the one instruction of bounded_difference(), which the conformance tests and every engine's
// self-check run on the device.
#pragma once

#include <cstdint>

#include "kaiju/arith/exp2.hpp"
#include "kaiju/arith/softmax.hpp"
#include "unroll.hpp"

namespace kaiju::cuda {

// 65535 * 2^(n + f), rounded, as bits of 1.5 * 2^23 more, of `power`, the bits of 65535 * 2^n, and f / unit, where unit
// is a power of two. Step by step for all of them, since each step waits for the one before.
template <int kCount>
KAIJU_HOST_DEVICE inline void weights_of(const uint32_t (&power)[kCount], const float (&f)[kCount],
                                         uint32_t (&weight)[kCount], float unit = 1.0f) {
  using namespace arith;
  const float c1 = kPow2C1 * unit, c2 = kPow2C2 * unit * unit, c3 = kPow2C3 * unit * unit * unit,
              c4 = kPow2C4 * unit * unit * unit * unit;
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

// a - b, no less than 0 nor more than `most`; what runs over wraps first.
KAIJU_HOST_DEVICE inline int32_t bounded_difference(int32_t a, int32_t b, int32_t most) {
  const auto minus = static_cast<int32_t>(0u - static_cast<uint32_t>(b));
#if defined(__CUDA_ARCH__)
  return __viaddmin_s32_relu(a, minus, most);
#else
  const auto difference = static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(minus));
  return difference < 0 ? 0 : difference < most ? difference : most;
#endif
}

// 65535 * 2^(d z), rounded, as bits of 1.5 * 2^23 more, of a score that lies -d < 2^23 below its maximum.
//
// An integer below 2^24 is the bits of the float 2^-149 times it, so -d needs no conversion. d z / 2^24 added to a
// number in [0.5, 1) is rounded to an integer, as all there are multiples of 2^-24; and as the last eight bits of that
// number are the exponent of 65535, those of the sum are the exponent of 65535 * 2^n.
//
// wgmma shares cycles with the units that multiply and add floats, and integers where the compiler uses
// multiplications. So the two steps that need not be floats are what only other units do: a minimum, which bounds -d,
// and a shift with an addition.
struct ScoreWeight {
  static constexpr bool kMaximaFirst = true;
  static constexpr float kMostZ = 8.0f;                                  // less than that
  static constexpr uint32_t kExponent = 127 + 15, kFraction = 0x7FFF00;  // of 65535
  static constexpr float kZero = 0.75f + kExponent * 0x1p-24f;
  float slope;    // z / 2^24, for floats that are 2^-149 times their value
  int32_t bound;  // of -d: from -d z = 17 on weights are 0
  KAIJU_HOST_DEVICE explicit ScoreWeight(float z)
      : slope(z * 0x1p125f), bound(18.0f / z < 0x1p23f ? static_cast<int32_t>(18.0f / z) + 1 : (1 << 23) - 1) {}
  // What scores of a row are held against.
  KAIJU_HOST_DEVICE static int32_t against(int32_t maximum) { return maximum; }
  template <int kCount>
  KAIJU_HOST_DEVICE inline void operator()(const int32_t (&score)[kCount], const int32_t (&maximum)[kCount],
                                           uint32_t (&weight)[kCount]) const {
    using namespace arith;
    float x[kCount], n[kCount], f[kCount];
    uint32_t power[kCount];
    KAIJU_UNROLL
    for (int i = 0; i < kCount; ++i)
      x[i] = float_of(static_cast<uint32_t>(bounded_difference(maximum[i], score[i], bound)));
    KAIJU_UNROLL
    for (int i = 0; i < kCount; ++i) n[i] = fma(x[i], -slope, kZero);
    KAIJU_UNROLL
    for (int i = 0; i < kCount; ++i) power[i] = (bits_of(n[i]) << 23) + kFraction;
    KAIJU_UNROLL
    for (int i = 0; i < kCount; ++i) f[i] = fma(x[i], -slope, add(kZero, -n[i]));
    weights_of(power, f, weight, 0x1p24f);
  }
};

}  // namespace kaiju::cuda
