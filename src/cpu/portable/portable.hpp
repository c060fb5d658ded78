// Exact scalar functions for the portable kernels, written so that GCC vectorises loops over them for the baseline
// instruction set.
#pragma once

#include <bit>
#include <cstdint>

#include "../kernels.hpp"
#include "kaiju/arith/quantise.hpp"

namespace kaiju::cpu {
namespace {

inline int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }
inline int32_t most(int32_t a, int32_t b) { return a > b ? a : b; }

// a * b + c rounded once. Without hardware for it: the product is exact in double, its sum with c is rounded to odd
// there (a two-sum tells whether it was inexact, and to which side), and rounding an odd double to float is harmless.
// No branch, so loops vectorise; glibc's fmaf costs a call an element.
inline float fma(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = c;
  const double sum = product + addend;
  const double shadow = sum - product;
  const double error = (product - (sum - shadow)) + (addend - shadow);
  const uint64_t bits = std::bit_cast<uint64_t>(sum), error_bits = std::bit_cast<uint64_t>(error);
  const uint64_t magnitude = error_bits << 1;
  const uint64_t inexact = (magnitude | (0 - magnitude)) >> 63;
  const uint64_t inwards = 0 - ((error_bits ^ bits) >> 63);  // all ones: the exact sum lies nearer to zero than `sum`
  const uint64_t step =
      inexact & ~bits & 1;  // only an even inexact sum moves, to its odd neighbour on the exact one's side
  return static_cast<float>(std::bit_cast<double>(bits + ((step ^ inwards) - inwards)));
#endif
}

inline float pow2(float n, float f) {
  float y = fma(0x1.3a0562p-7f, f, 0x1.c9fbe4p-5f);
  y = fma(y, f, 0x1.ec0366p-3f);
  y = fma(y, f, 0x1.62e12cp-1f);
  y = fma(y, f, 1.0f);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(y) + (static_cast<uint32_t>(static_cast<int32_t>(n)) << 23));
}

constexpr float kRoundBias = 12582912.0f;  // 1.5 * 2^23

// Nearest integer of |x| < 2^22, ties to even, without a call.
inline float nearest(float x) { return (x + kRoundBias) - kRoundBias; }

// Both spelt so that they become one instruction each; a two-sided conditional stays a branch and stops the vectoriser.
inline float at_least(float x, float low) { return x < low ? low : x; }
inline float at_most(float x, float high) { return x > high ? high : x; }

// E(d) of arithmetic.md, section 5, for d * z of at least -126.
inline float exp2_product(float d, float z) {
  const float n = fma(d, z, kRoundBias) - kRoundBias;
  return pow2(n, fma(d, z, -n));
}

// The least d * z for which exp2_product is asked. Anything below it weighs nothing: 65535 * 2^-100 rounds to 0.
constexpr float kLeastExponent = -100.0f;

// The factor of a merge, 0 where n < -126.
inline float merge_factor(float d, float z) {
  return fma(d, z, kRoundBias) - kRoundBias < -126.0f ? 0.0f : exp2_product(d, z);
}

inline int8_t quantise(float x, float inverse) {
  return static_cast<int8_t>(static_cast<int32_t>(nearest(at_most(at_least(x * inverse, -127.0f), 127.0f))));
}

// sums[r * sums_stride] += dot product of row r of a with the bytes.
template <int kRows>
inline void dot(const int16_t* a, int64_t a_stride, const int8_t* bytes, int32_t count, int32_t* sums,
                int32_t sums_stride) {
  int32_t sum[kRows] = {};
  for (int32_t k = 0; k < count; ++k) {
    const int16_t b = bytes[k];
    for (int r = 0; r < kRows; ++r) sum[r] += int32_t{a[r * a_stride + k]} * int32_t{b};
  }
  for (int r = 0; r < kRows; ++r) sums[int64_t{r} * sums_stride] += sum[r];
}

}  // namespace
}  // namespace kaiju::cpu
