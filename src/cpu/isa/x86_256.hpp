// AVX2, and AVX-VNNI in 256 bits: 8 lanes, 16 registers. The two differ only in how bytes and pairs of 16-bit numbers
// are multiplied and added, and in the tile size that the remaining registers allow.
#pragma once

#include <immintrin.h>

#include "no_tiles.hpp"

namespace kaiju::cpu {
namespace {
constexpr int kLanes = 8;
}
}  // namespace kaiju::cpu

#include "no_pairs.hpp"
#include "vectors.hpp"

namespace kaiju::cpu {
namespace {

// Shapes of the loops' tiles, by registers. Products: vectors of rows, and outputs beside so many; attention: query
// rows, vectors of keys or channels.
#if defined(__AVXVNNI__)
constexpr int kMostVectors = 3;
constexpr int kMostVectorsOfFew = kMostVectors;
constexpr int tile_outs(int vectors) { return vectors == 1 ? 8 : 4; }
#else  // a product needs two registers more
constexpr int kMostVectors = 2;
constexpr int kMostVectorsOfFew = kMostVectors;
constexpr int tile_outs(int vectors) { return 8 / vectors; }
#endif
constexpr int kScoreRows = 4, kScoreVectors = 2;
constexpr int kValueRows = 4, kValueVectors = 2;

KAIJU_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
KAIJU_INLINE Floats fms(Floats a, Floats b, Floats c) { return _mm256_fmsub_ps(a, b, c); }
KAIJU_INLINE Floats most(Floats a, Floats b) { return _mm256_max_ps(a, b); }
KAIJU_INLINE Floats least(Floats a, Floats b) { return _mm256_min_ps(a, b); }
KAIJU_INLINE Ints most(Ints a, Ints b) { return (Ints)_mm256_max_epi32((__m256i)a, (__m256i)b); }
KAIJU_INLINE Doubles fma(Doubles a, Doubles b, Doubles c) { return _mm256_fmadd_pd(a, b, c); }
KAIJU_INLINE Doubles to_doubles(HalfInts x) { return _mm256_cvtepi32_pd((__m128i)x); }
KAIJU_INLINE Ints nearest(Floats x) { return (Ints)_mm256_cvtps_epi32(x); }  // by MXCSR: ties to even
KAIJU_INLINE Floats rounded(Floats x) {                                      // to the nearest integer, likewise
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
KAIJU_INLINE int32_t sum_of(Ints x) {
  int32_t sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += x[i];
  return sum;
}
KAIJU_INLINE int32_t most_of(Ints x) {
  int32_t best = x[0];
  for (int i = 1; i < kLanes; ++i) best = most(best, x[i]);
  return best;
}

// Adds the upper half of the lanes to the lower one until one is left.
KAIJU_INLINE float fold_lanes(Floats x) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

KAIJU_INLINE Ints to_ints(Bytes x) {
  long long eight;
  __builtin_memcpy(&eight, &x, 8);
  return (Ints)_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(eight));
}
KAIJU_INLINE Ints to_ints(Words x) { return (Ints)_mm256_cvtepu16_epi32((__m128i)x); }
// The low bytes or 16 bits of each lane.
KAIJU_INLINE Bytes to_bytes(Ints x) {
  const __m256i fours = _mm256_shuffle_epi8((__m256i)x, _mm256_set1_epi32(0x0C080400));
  const __m128i eight = _mm_unpacklo_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
  return load<Bytes>(&eight);
}
KAIJU_INLINE Words to_words(Ints x) {
  const __m256i pairs = _mm256_shuffle_epi8((__m256i)x, _mm256_set1_epi64x(0x0D0C090805040100));
  return (Words)_mm256_castsi256_si128(_mm256_permute4x64_epi64(pairs, 0x88));
}

// Lanes for which a condition holds: all bits of a lane, or none.
using Mask = Ints;
KAIJU_INLINE Mask at_least(Floats x, Floats low) { return x >= low; }
KAIJU_INLINE bool any(Ints x) { return !_mm256_testz_si256((__m256i)x, (__m256i)x); }
KAIJU_INLINE Ints where(Mask mask, Ints x) { return x & mask; }

// For each set of lanes: their numbers in ascending order, a byte each.
struct LaneOrders {
  uint8_t of[256][8];
};
constexpr LaneOrders lane_orders() {
  LaneOrders made{};
  for (int bits = 0; bits < 256; ++bits)
    for (int lane = 0, n = 0; lane < 8; ++lane)
      if ((bits >> lane & 1) != 0) made.of[bits][n++] = static_cast<uint8_t>(lane);
  return made;
}
constexpr LaneOrders kLaneOrders = lane_orders();

// Writes the lanes of the mask one after another, and returns how many; what follows them, up to a vector, is
// undefined.
KAIJU_INLINE int32_t append(int32_t* to, Ints x, Mask mask) {
  const int bits = _mm256_movemask_ps((__m256)mask);
  long long order;
  __builtin_memcpy(&order, kLaneOrders.of[bits], 8);
  store(to, (Ints)_mm256_permutevar8x32_epi32((__m256i)x, _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(order))));
  return __builtin_popcount(static_cast<unsigned>(bits));
}

// y in [0.5, 2) times 2^n, for n of at least -126.
constexpr bool kScalesByAny = false;
KAIJU_INLINE Floats scale(Floats y, Floats n) { return (Floats)((Ints)y + (nearest(n) << 23)); }

// Transposes by steps: of the lanes of a and b, those with one bit of their number clear, and those with it set. The
// steps take bits 1, 0, 2.
template <int kStep>
KAIJU_INLINE void split(Ints a, Ints b, Ints& clear, Ints& set) {
  const auto x = (__m256i)a, y = (__m256i)b;
  if constexpr (kStep == 0)
    clear = (Ints)_mm256_unpacklo_epi32(x, y), set = (Ints)_mm256_unpackhi_epi32(x, y);
  else if constexpr (kStep == 1)
    clear = (Ints)_mm256_unpacklo_epi64(x, y), set = (Ints)_mm256_unpackhi_epi64(x, y);
  else
    clear = (Ints)_mm256_permute2x128_si256(x, y, 0x20), set = (Ints)_mm256_permute2x128_si256(x, y, 0x31);
}

KAIJU_INLINE void load_angles(const Angle* angles, Floats& cos, Floats& sin) {
  const Floats a = load<Floats>(angles), b = load<Floats>(angles + 4);
  const auto in_order = [](__m256 x) { return (Floats)_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xD8); };
  cos = in_order(_mm256_shuffle_ps(a, b, 0x88));
  sin = in_order(_mm256_shuffle_ps(a, b, 0xDD));
}

// kBytes of memory, repeated over the vector.
template <int kBytes>
KAIJU_INLINE Ints spread(const void* from) {
  if constexpr (kBytes == 4) {
    int32_t four;
    __builtin_memcpy(&four, from, 4);
    return (Ints)_mm256_set1_epi32(four);
  } else if constexpr (kBytes == 8) {
    long long eight;
    __builtin_memcpy(&eight, from, 8);
    return (Ints)_mm256_set1_epi64x(eight);
  } else if constexpr (kBytes == 16) {
    return (Ints)_mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(from)));
  } else {
    return load<Ints>(from);
  }
}

#if defined(__AVXVNNI__)

constexpr const char* kIsa = "avxvnni";

// vpdpbusd, whose unsigned operand is the panel (activations, keys): signed bytes are stored there with 128 added,
// which the loops take out again. Assembly, because GCC 12 copies the intrinsics' accumulators and spills them.
constexpr bool kUnsignedPanel = true;
using Panel = Ints;
KAIJU_INLINE Panel load_panel(const uint8_t* from) { return load<Ints>(from); }
KAIJU_INLINE void add_products(Ints& sum, Panel panel, Ints signed_bytes) {
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(panel), "x"(signed_bytes));
}
KAIJU_INLINE void add_pairs(Ints& sum, Ints a, Ints b) {
  asm("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
}

// Brings the bytes of four rows side by side: lane e of the 128-bit part l of out[j] has those of column 16 l + 4 j +
// e.
constexpr int kSkipColumns = 2;  // vectors of columns of one row that are summed at a time
KAIJU_INLINE void side_by_side(const Ints (&rows)[4], Ints (&out)[4]) {
  const auto a = (__m256i)rows[0], b = (__m256i)rows[1], c = (__m256i)rows[2], d = (__m256i)rows[3];
  const __m256i low_ab = _mm256_unpacklo_epi8(a, b), high_ab = _mm256_unpackhi_epi8(a, b);
  const __m256i low_cd = _mm256_unpacklo_epi8(c, d), high_cd = _mm256_unpackhi_epi8(c, d);
  out[0] = (Ints)_mm256_unpacklo_epi16(low_ab, low_cd), out[1] = (Ints)_mm256_unpackhi_epi16(low_ab, low_cd);
  out[2] = (Ints)_mm256_unpacklo_epi16(high_ab, high_cd), out[3] = (Ints)_mm256_unpackhi_epi16(high_ab, high_cd);
}

#else

constexpr const char* kIsa = "avx2";

// vpmaddubsw multiplies unsigned by signed bytes and adds two products with saturation to 16 bits. Here it gets |panel|
// <= 128 and, with the panel's sign, the other operand, which is a weight or a query: never -128 (the loader and
// quantise() see to it), so |other| <= 127 and its sign can be changed. Two products are at most 2 * 128 * 127 = 32,512
// in size, below 2^15: nothing saturates. The panel may hold -128 (128 taken off an unsigned 0, or memory never
// written): its magnitude 128 fits an unsigned byte.
constexpr bool kUnsignedPanel = false;
struct Panel {
  Ints bytes, magnitude;
};
KAIJU_INLINE Panel load_panel(const uint8_t* from) {
  const Ints bytes = load<Ints>(from);
  return {bytes, (Ints)_mm256_abs_epi8((__m256i)bytes)};
}
KAIJU_INLINE void add_products(Ints& sum, const Panel& panel, Ints bytes) {
  const __m256i pairs =
      _mm256_maddubs_epi16((__m256i)panel.magnitude, _mm256_sign_epi8((__m256i)bytes, (__m256i)panel.bytes));
  sum += (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
KAIJU_INLINE void add_pairs(Ints& sum, Ints a, Ints b) { sum += (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b); }

constexpr int kSkipColumns = 0;  // its products of an unsigned byte above 128 would not fit: channels go one by one
template <class Four>
void side_by_side(const Four& rows, Four& out);

#endif

// ---- weighted values ----

// Values are widened to 16 bits: products of 16-bit weights with bytes would not fit vpmaddubsw. A weight p goes as the
// signed number p - 32768, and 32768 * sum(v) comes back at the end. A lane of a vector of values holds one channel of
// two keys. The sums fit: |p - 32768| * |v| over 512 keys stays below 2^31, because at least one key, the largest, has
// p = 65535 and so less than 32768.
constexpr int kValueKeys = 2, kDigits = 1;
constexpr int32_t kDigitBytes = 2 * kChunk;  // of one row
constexpr bool kSumsValues = true;
constexpr int32_t kOnes = 0x00010001;

struct WeightSum {
  Ints sum{};
};
// Stores the weights of keys [key, key + 32), four vectors of them in the low halves of lanes.
KAIJU_INLINE void store_weights(const Ints (&p)[4], uint8_t* row, int32_t key, WeightSum& sum) {
#pragma GCC unroll 2
  for (int i = 0; i < 4; i += 2) {
    const auto pairs = (Ints)_mm256_blend_epi16((__m256i)p[i], _mm256_slli_epi32((__m256i)p[i + 1], 16), 0xAA) ^
                       ints(static_cast<int32_t>(0x80008000));
    store(row + 2 * key + 4 * kLanes / 2 * i, pairs);
    add_pairs(sum.sum, pairs, ints(kOnes));
  }
}
KAIJU_INLINE int32_t total_of(const WeightSum& sum, int32_t keys) { return sum_of(sum.sum) + 32768 * keys; }

KAIJU_INLINE Ints load_values(const uint8_t* from) {
  return (Ints)_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
KAIJU_INLINE void add_values(Ints& sum, Ints values, Ints weights) { add_pairs(sum, values, weights); }
// 32768 * (value_sum + high) + low, rounded once: both are exact as floats.
KAIJU_INLINE Floats weighted(const Ints* digits, int, Ints value_sum) {
  const Ints high = digits[0] >> 15, low = digits[0] & 32767;
  return fma(floats(32768.0f), to_floats(value_sum + high), to_floats(low));
}

}  // namespace
}  // namespace kaiju::cpu
