// AVX512 with VNNI: 16 lanes, 32 registers. vpdpbusd multiplies unsigned by signed bytes and adds four products to each
// lane. With AMX, tiles take the products of 16 rows; everything else is the same.
#pragma once

#include <immintrin.h>

#if defined(KAIJU_TILES)
#include KAIJU_TILES
#else
#include "no_tiles.hpp"
#endif

namespace kaiju::cpu {
namespace {
constexpr int kLanes = 16;
}
}  // namespace kaiju::cpu

#include "no_pairs.hpp"
#include "vectors.hpp"

namespace kaiju::cpu {
namespace {

#if defined(KAIJU_TILES)
constexpr const char* kIsa = "amx";
constexpr bool kHasTiles = true;
constexpr int kMostVectors = 2;
constexpr int kMostVectorsOfFew = 2;
#else
constexpr const char* kIsa = "avx512";
constexpr int kMostVectors = 3;
constexpr int kMostVectorsOfFew = 4;
#endif

// Shapes of the loops' tiles, by registers. Products: vectors of rows, and outputs beside so many; attention: query
// rows, vectors of keys or channels.
constexpr int tile_outs(int vectors) { return vectors == 1 ? 16 : vectors == 4 ? 4 : 8; }
constexpr int kScoreRows = 6, kScoreVectors = 4;
constexpr int kValueRows = 3, kValueVectors = 4;

KAIJU_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
KAIJU_INLINE Floats fms(Floats a, Floats b, Floats c) { return _mm512_fmsub_ps(a, b, c); }
KAIJU_INLINE Floats most(Floats a, Floats b) { return _mm512_max_ps(a, b); }
KAIJU_INLINE Floats least(Floats a, Floats b) { return _mm512_min_ps(a, b); }
KAIJU_INLINE Ints most(Ints a, Ints b) { return (Ints)_mm512_max_epi32((__m512i)a, (__m512i)b); }
KAIJU_INLINE Doubles fma(Doubles a, Doubles b, Doubles c) { return _mm512_fmadd_pd(a, b, c); }
KAIJU_INLINE Doubles to_doubles(HalfInts x) { return _mm512_cvtepi32_pd((__m256i)x); }
KAIJU_INLINE Ints nearest(Floats x) { return (Ints)_mm512_cvtps_epi32(x); }   // by MXCSR: ties to even
KAIJU_INLINE Floats rounded(Floats x) { return _mm512_roundscale_ps(x, 0); }  // to the nearest integer, likewise
KAIJU_INLINE int32_t sum_of(Ints x) { return _mm512_reduce_add_epi32((__m512i)x); }
KAIJU_INLINE int32_t most_of(Ints x) { return _mm512_reduce_max_epi32((__m512i)x); }

// Adds the upper half of the lanes to the lower one until one is left.
KAIJU_INLINE float fold_lanes(Floats x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

KAIJU_INLINE Ints to_ints(Bytes x) { return (Ints)_mm512_cvtepi8_epi32((__m128i)x); }
KAIJU_INLINE Ints to_ints(Words x) { return (Ints)_mm512_cvtepu16_epi32((__m256i)x); }
// The low bytes or 16 bits of each lane.
KAIJU_INLINE Bytes to_bytes(Ints x) { return (Bytes)_mm512_cvtepi32_epi8((__m512i)x); }
KAIJU_INLINE Words to_words(Ints x) { return (Words)_mm512_cvtepi32_epi16((__m512i)x); }

// Lanes for which a condition holds.
using Mask = __mmask16;
KAIJU_INLINE Mask at_least(Floats x, Floats low) { return _mm512_cmp_ps_mask(x, low, _CMP_GE_OQ); }
KAIJU_INLINE bool any(Mask mask) { return mask != 0; }
KAIJU_INLINE bool any(Ints x) { return _mm512_test_epi32_mask((__m512i)x, (__m512i)x) != 0; }
KAIJU_INLINE Ints where(Mask mask, Ints x) { return (Ints)_mm512_maskz_mov_epi32(mask, (__m512i)x); }
// Writes the lanes of the mask one after another, and returns how many; what follows them, up to a vector, is
// undefined.
KAIJU_INLINE int32_t append(int32_t* to, Ints x, Mask mask) {
  store(to, (Ints)_mm512_maskz_compress_epi32(mask, (__m512i)x));
  return __builtin_popcount(mask);
}

// y times 2^n for any n, however small.
constexpr bool kScalesByAny = true;
KAIJU_INLINE Floats scale(Floats y, Floats n) { return _mm512_scalef_ps(y, n); }

// Transposes by steps: of the lanes of a and b, those with one bit of their number clear, and those with it set. The
// steps take bits 1, 0, 2, 3.
template <int kStep>
KAIJU_INLINE void split(Ints a, Ints b, Ints& clear, Ints& set) {
  const auto x = (__m512i)a, y = (__m512i)b;
  if constexpr (kStep == 0)
    clear = (Ints)_mm512_unpacklo_epi32(x, y), set = (Ints)_mm512_unpackhi_epi32(x, y);
  else if constexpr (kStep == 1)
    clear = (Ints)_mm512_unpacklo_epi64(x, y), set = (Ints)_mm512_unpackhi_epi64(x, y);
  else
    clear = (Ints)_mm512_shuffle_i32x4(x, y, 0x88), set = (Ints)_mm512_shuffle_i32x4(x, y, 0xDD);
}

KAIJU_INLINE void load_angles(const Angle* angles, Floats& cos, Floats& sin) {
  const Floats a = load<Floats>(angles), b = load<Floats>(angles + 8);
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  cos = _mm512_permutex2var_ps(a, even, b);
  sin = _mm512_permutex2var_ps(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
}

// ---- products of bytes ----

// Panels (activations, keys) are the unsigned operand: signed bytes are stored with 128 added, which the loops take out
// again.
constexpr bool kUnsignedPanel = true;
using Panel = Ints;
KAIJU_INLINE Panel load_panel(const uint8_t* from) { return load<Ints>(from); }

// kBytes of memory, repeated over the vector.
template <int kBytes>
KAIJU_INLINE Ints spread(const void* from) {
  if constexpr (kBytes == 4) {
    return ints(*static_cast<const int32_t __attribute__((aligned(1), may_alias))*>(from));
  } else if constexpr (kBytes == 8) {
    long long eight;
    __builtin_memcpy(&eight, from, 8);
    return (Ints)_mm512_set1_epi64(eight);
  } else if constexpr (kBytes == 16) {
    return (Ints)_mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(from)));
  } else if constexpr (kBytes == 32) {
    return (Ints)_mm512_broadcast_i64x4(_mm256_loadu_si256(static_cast<const __m256i*>(from)));
  } else {
    return load<Ints>(from);
  }
}

// As assembly because GCC 12 copies the intrinsic's accumulators in every round of a loop and spills them: 24
// accumulators ran at 40% of the peak, this way at 95% (bench/ops, up, 512 rows).
KAIJU_INLINE void dot4(Ints& sum, Ints unsigned_bytes, Ints signed_bytes) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(unsigned_bytes), "v"(signed_bytes));
}
KAIJU_INLINE void add_products(Ints& sum, Panel panel, Ints signed_bytes) { dot4(sum, panel, signed_bytes); }

// Brings the bytes of four rows side by side: lane e of the 128-bit part l of out[j] has those of column 16 l + 4 j +
// e.
constexpr int kSkipColumns = 4;  // vectors of columns of one row that are summed at a time
KAIJU_INLINE void side_by_side(const Ints (&rows)[4], Ints (&out)[4]) {
  const auto a = (__m512i)rows[0], b = (__m512i)rows[1], c = (__m512i)rows[2], d = (__m512i)rows[3];
  const __m512i low_ab = _mm512_unpacklo_epi8(a, b), high_ab = _mm512_unpackhi_epi8(a, b);
  const __m512i low_cd = _mm512_unpacklo_epi8(c, d), high_cd = _mm512_unpackhi_epi8(c, d);
  out[0] = (Ints)_mm512_unpacklo_epi16(low_ab, low_cd), out[1] = (Ints)_mm512_unpackhi_epi16(low_ab, low_cd);
  out[2] = (Ints)_mm512_unpacklo_epi16(high_ab, high_cd), out[3] = (Ints)_mm512_unpackhi_epi16(high_ab, high_cd);
}

// ---- weighted values ----

// A weight of 16 bits goes as two bytes in two rows, high and low; a lane of a vector of values holds one channel of
// four keys.
constexpr int kValueKeys = 4, kDigits = 2;
constexpr int32_t kDigitBytes = kChunk;  // of one row
constexpr bool kSumsValues = false;
constexpr int32_t kOnes = 0x01010101;

struct WeightSum {
  Ints high{}, low{};
};
// Stores the weights of keys [key, key + 64), four vectors of them in the low halves of lanes.
KAIJU_INLINE void store_weights(const Ints (&p)[4], uint8_t* row, int32_t key, WeightSum& sum) {
  const auto pair = [](Ints a, Ints b) {
    return _mm512_mask_mov_epi16((__m512i)a, 0xAAAAAAAA, _mm512_slli_epi32((__m512i)b, 16));
  };
  const __m512i even = pair(p[0], p[1]), odd = pair(p[2], p[3]);
  const auto low = (Ints)_mm512_mask_mov_epi8(even, 0xAAAAAAAAAAAAAAAA, _mm512_slli_epi16(odd, 8));
  const auto high = (Ints)_mm512_mask_mov_epi8(_mm512_srli_epi16(even, 8), 0xAAAAAAAAAAAAAAAA, odd);
  store(row + key, high);
  store(row + kDigitBytes + key, low);
  dot4(sum.high, high, ints(kOnes));
  dot4(sum.low, low, ints(kOnes));
}
KAIJU_INLINE int32_t total_of(const WeightSum& sum, int32_t) { return sum_of((sum.high << 8) + sum.low); }

KAIJU_INLINE Ints load_values(const uint8_t* from) { return load<Ints>(from); }
KAIJU_INLINE void add_values(Ints& sum, Ints values, Ints weights) { dot4(sum, weights, values); }
// Both sums are exact as floats, so this is the sum rounded once.
KAIJU_INLINE Floats weighted(const Ints* digits, int stride, Ints) {
  return fma(floats(256.0f), to_floats(digits[0]), to_floats(digits[stride]));
}

}  // namespace
}  // namespace kaiju::cpu
