// Arm with NEON and the dot-product extension: 4 lanes, 32 registers. sdot multiplies signed bytes and adds four
// products to each lane. With i8mm, smmla multiplies two rows by two outputs and adds eight products to each lane.
#pragma once

#include <arm_neon.h>

#include "no_tiles.hpp"

namespace kaiju::cpu {
namespace {
constexpr int kLanes = 4;
}
}  // namespace kaiju::cpu

#include "vectors.hpp"
#if !defined(__ARM_FEATURE_MATMUL_INT8)
#include "no_pairs.hpp"
#endif

namespace kaiju::cpu {
namespace {

#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr const char* kIsa = "i8mm";
constexpr bool kHasPairs = true;
#else
constexpr const char* kIsa = "neon";
#endif

// Shapes of the loops' tiles, by registers. Products: vectors of rows, and outputs beside so many; attention: query
// rows, vectors of keys or channels.
constexpr int kMostVectors = 4;
constexpr int kMostVectorsOfFew = kMostVectors;
constexpr int tile_outs(int vectors) { return vectors == 1 ? 16 : vectors == 2 ? 8 : 4; }
constexpr int kScoreRows = 4, kScoreVectors = 4;
constexpr int kValueRows = 2, kValueVectors = 4;

KAIJU_INLINE Floats fma(Floats a, Floats b, Floats c) {
  return (Floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
KAIJU_INLINE Floats fms(Floats a, Floats b, Floats c) { return fma(a, b, -c); }
KAIJU_INLINE Floats most(Floats a, Floats b) { return (Floats)vmaxq_f32((float32x4_t)a, (float32x4_t)b); }
KAIJU_INLINE Floats least(Floats a, Floats b) { return (Floats)vminq_f32((float32x4_t)a, (float32x4_t)b); }
KAIJU_INLINE Ints most(Ints a, Ints b) { return (Ints)vmaxq_s32((int32x4_t)a, (int32x4_t)b); }
KAIJU_INLINE Doubles fma(Doubles a, Doubles b, Doubles c) {
  return (Doubles)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
}
KAIJU_INLINE Doubles to_doubles(HalfInts x) { return (Doubles)vcvtq_f64_s64(vmovl_s32((int32x2_t)x)); }
KAIJU_INLINE Ints nearest(Floats x) { return (Ints)vcvtnq_s32_f32((float32x4_t)x); }  // ties to even
KAIJU_INLINE Floats rounded(Floats x) {
  return (Floats)vrndnq_f32((float32x4_t)x);
}  // to the nearest integer, likewise
KAIJU_INLINE int32_t sum_of(Ints x) { return vaddvq_s32((int32x4_t)x); }
KAIJU_INLINE int32_t most_of(Ints x) { return vmaxvq_s32((int32x4_t)x); }

// Adds the upper half of the lanes to the lower one until one is left.
KAIJU_INLINE float fold_lanes(Floats x) { return (x[0] + x[2]) + (x[1] + x[3]); }

KAIJU_INLINE Ints to_ints(Bytes x) {
  int32_t four;
  __builtin_memcpy(&four, &x, 4);
  return (Ints)vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)))));
}
KAIJU_INLINE Ints to_ints(Words x) { return (Ints)vmovl_u16((uint16x4_t)x); }
// The low bytes or 16 bits of each lane.
KAIJU_INLINE Words to_words(Ints x) { return (Words)vmovn_s32((int32x4_t)x); }
KAIJU_INLINE Bytes to_bytes(Ints x) {
  const int8x8_t eight = vmovn_s16(vcombine_s16(vmovn_s32((int32x4_t)x), vdup_n_s16(0)));
  return load<Bytes>(&eight);
}

// Lanes for which a condition holds: all bits of a lane, or none.
using Mask = Ints;
KAIJU_INLINE Mask at_least(Floats x, Floats low) { return x >= low; }
KAIJU_INLINE bool any(Ints x) { return vmaxvq_u32((uint32x4_t)x) != 0; }
KAIJU_INLINE Ints where(Mask mask, Ints x) { return x & mask; }
// Writes the lanes of the mask one after another, and returns how many; what follows them, up to a vector, is
// undefined.
KAIJU_INLINE int32_t append(int32_t* to, Ints x, Mask mask) {
  int32_t count = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    to[count] = x[lane];
    count -= mask[lane];
  }
  return count;
}

// y in [0.5, 2) times 2^n, for n of at least -126.
constexpr bool kScalesByAny = false;
KAIJU_INLINE Floats scale(Floats y, Floats n) { return (Floats)((Ints)y + (nearest(n) << 23)); }

// Transposes by steps: of the lanes of a and b, those with one bit of their number clear, and those with it set. The
// steps take bits 1, 0.
template <int kStep>
KAIJU_INLINE void split(Ints a, Ints b, Ints& clear, Ints& set) {
  const auto x = (int32x4_t)a, y = (int32x4_t)b;
  if constexpr (kStep == 0) {
    clear = (Ints)vzip1q_s32(x, y), set = (Ints)vzip2q_s32(x, y);
  } else {
    const int64x2_t x2 = vreinterpretq_s64_s32(x), y2 = vreinterpretq_s64_s32(y);
    clear = (Ints)vzip1q_s64(x2, y2), set = (Ints)vzip2q_s64(x2, y2);
  }
}

KAIJU_INLINE void load_angles(const Angle* angles, Floats& cos, Floats& sin) {
  const float32x4x2_t pairs = vld2q_f32(&angles[0].cos);
  cos = (Floats)pairs.val[0];
  sin = (Floats)pairs.val[1];
}

// ---- products of bytes ----

// Both operands are signed: unsigned bytes (of the feed-forward, of weights of keys) are used with 128 taken off, which
// the loops put back.
constexpr bool kUnsignedPanel = false;
using Panel = Ints;
KAIJU_INLINE Panel load_panel(const uint8_t* from) { return load<Ints>(from); }

// kBytes of memory, repeated over the vector.
template <int kBytes>
KAIJU_INLINE Ints spread(const void* from) {
  if constexpr (kBytes == 4)
    return (Ints)vreinterpretq_s32_s8(vreinterpretq_s8_s32(vld1q_dup_s32(static_cast<const int32_t*>(from))));
  else if constexpr (kBytes == 8)
    return (Ints)vreinterpretq_s32_s64(vld1q_dup_s64(static_cast<const int64_t*>(from)));
  else
    return load<Ints>(from);
}

KAIJU_INLINE void add_products(Ints& sum, Ints a, Ints b) {
  sum = (Ints)vdotq_s32((int32x4_t)sum, (int8x16_t)a, (int8x16_t)b);
}

#if defined(__ARM_FEATURE_MATMUL_INT8)
// 16 bytes of two outputs: 8 bytes of each, and the next 8 of each.
struct OutPairs {
  Ints low, high;
};
KAIJU_INLINE OutPairs load_pairs(const int8_t* first, const int8_t* second) {
  const int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(first)), b = vreinterpretq_s64_s8(vld1q_s8(second));
  return {(Ints)vzip1q_s64(a, b), (Ints)vzip2q_s64(a, b)};
}
// Lanes [row][output].
KAIJU_INLINE void add_pair_products(Ints& sum, Ints rows, Ints outs) {
  sum = (Ints)vmmlaq_s32((int32x4_t)sum, (int8x16_t)rows, (int8x16_t)outs);
}
#endif

constexpr int kSkipColumns = 0;  // its products of bytes are signed: channels go one by one
template <class Four>
void side_by_side(const Four& rows, Four& out);

// ---- weighted values ----

// A weight of 16 bits goes as two bytes less 128 in two rows, high and low; 128 * sum(v) comes back at the end. A lane
// of a vector of values holds one channel of four keys.
constexpr int kValueKeys = 4, kDigits = 2;
constexpr int32_t kDigitBytes = kChunk;  // of one row
constexpr bool kSumsValues = true;
constexpr int32_t kOnes = 0x01010101;

struct WeightSum {
  Ints high{}, low{};
};
// Stores the weights of keys [key, key + 16), four vectors of them in the low halves of lanes.
KAIJU_INLINE void store_weights(const Ints (&p)[4], uint8_t* row, int32_t key, WeightSum& sum) {
  const auto pair = [](Ints a, Ints b) { return vtrn1q_u16((uint16x8_t)a, (uint16x8_t)b); };
  const auto even = (uint8x16_t)pair(p[0], p[1]), odd = (uint8x16_t)pair(p[2], p[3]);
  const auto low = (Ints)vtrn1q_u8(even, odd) ^ ints(static_cast<int32_t>(0x80808080)),
             high = (Ints)vtrn2q_u8(even, odd) ^ ints(static_cast<int32_t>(0x80808080));
  store(row + key, high);
  store(row + kDigitBytes + key, low);
  add_products(sum.high, high, ints(kOnes));
  add_products(sum.low, low, ints(kOnes));
}
KAIJU_INLINE int32_t total_of(const WeightSum& sum, int32_t keys) {
  return sum_of(sum.high * 256 + sum.low) + 257 * 128 * keys;
}

KAIJU_INLINE Ints load_values(const uint8_t* from) { return load<Ints>(from); }
KAIJU_INLINE void add_values(Ints& sum, Ints values, Ints weights) { add_products(sum, values, weights); }
// Both sums are exact as floats, so this is the sum rounded once.
KAIJU_INLINE Floats weighted(const Ints* digits, int stride, Ints value_sum) {
  const Ints offset = value_sum * 128;
  return fma(floats(256.0f), to_floats(digits[0] + offset), to_floats(digits[stride] + offset));
}

}  // namespace
}  // namespace kaiju::cpu
