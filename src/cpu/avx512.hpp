// Pieces the AVX512 files share. Everything is in an unnamed namespace: each file gets its own copy (see kernels.hpp for why).
#pragma once

#include <immintrin.h>

#include "kernels.hpp"

namespace kaiju::cpu {
namespace {

using Ints = __m512i;
using Floats = __m512;

#define KAIJU_INLINE inline __attribute__((always_inline))

KAIJU_INLINE int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }
KAIJU_INLINE int32_t most(int32_t a, int32_t b) { return a > b ? a : b; }

// The lowest `count` lanes of 16, for any count.
KAIJU_INLINE __mmask16 low_lanes(int32_t count) { return count >= 16 ? 0xFFFF : count <= 0 ? 0 : static_cast<__mmask16>((1u << count) - 1); }

KAIJU_INLINE Floats from_bf16(__m256i bits) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16)); }
KAIJU_INLINE __m256i to_bf16(Floats x) {  // ties to even; finite inputs
  const Ints bits = _mm512_castps_si512(x);
  const Ints odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const Ints rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

// clamp(rint(x), low, high): the conversion rounds by MXCSR, to nearest even.
KAIJU_INLINE Ints round_saturate(Floats x, float low, float high) {
  return _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(low)), _mm512_set1_ps(high)));
}
KAIJU_INLINE __m128i quantise(Floats x, Floats inverse) { return _mm512_cvtepi32_epi8(round_saturate(_mm512_mul_ps(x, inverse), -127.0f, 127.0f)); }

// 2^(n + f) without the 2^n: arithmetic.md, section 1.
KAIJU_INLINE Floats pow2_fraction(Floats f) {
  Floats y = _mm512_set1_ps(0x1.3a0562p-7f);
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0x1.c9fbe4p-5f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0x1.ec0366p-3f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0x1.62e12cp-1f));
  return _mm512_fmadd_ps(y, f, _mm512_set1_ps(1.0f));
}

constexpr float kRoundBias = 12582912.0f;  // 1.5 * 2^23

// E(d) of arithmetic.md, section 5, for d given as exact floats <= 0. Where n < -126 the result is some value below 2^-126: 0 only with exact_zero.
template <bool exact_zero>
KAIJU_INLINE Floats exp2_product(Floats d, Floats z) {
  const Floats bias = _mm512_set1_ps(kRoundBias);
  const Floats n = _mm512_sub_ps(_mm512_fmadd_ps(d, z, bias), bias);
  const Floats y = pow2_fraction(_mm512_fmsub_ps(d, z, n));
  if constexpr (!exact_zero) return _mm512_scalef_ps(y, n);
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(n, _mm512_set1_ps(-126.0f), _CMP_GE_OQ), y, n);
}

// sum += the four products of each lane's unsigned and signed bytes. As assembly because GCC 12 copies the intrinsic's accumulators in every round of a loop and spills
// them: 24 accumulators ran at 40% of the peak, this way at 95% (bench/ops, up, 512 rows).
KAIJU_INLINE void add_products(Ints& sum, Ints unsigned_bytes, Ints signed_bytes) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(unsigned_bytes), "v"(signed_bytes));
}

// acc[r][c] += 4-byte dot products of row r with outputs 16 c ... 16 c + 15. The panel holds, per group of 4 summed bytes, 64 outputs of 4 bytes each,
// `panel_step` bytes apart; rows are `row_stride` bytes apart. One operand is unsigned: the panel or the rows.
template <int kRows, bool kUnsignedPanel>
KAIJU_INLINE void accumulate_tile(const uint8_t* panel, int64_t panel_step, const uint8_t* rows, int64_t row_stride, int32_t groups, Ints (&acc)[kRows][4]) {
  for (int32_t g = 0; g < groups; ++g, panel += panel_step, rows += 4) {
    Ints w[4];
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) w[c] = _mm512_loadu_si512(panel + 64 * c);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      int32_t four;
      __builtin_memcpy(&four, rows + r * row_stride, 4);
      const Ints a = _mm512_set1_epi32(four);
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
        if constexpr (kUnsignedPanel) add_products(acc[r][c], w[c], a);
        else add_products(acc[r][c], a, w[c]);
      }
    }
  }
}

}  // namespace
}  // namespace kaiju::cpu
