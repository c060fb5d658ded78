// Row operations (embedding, norm) and the integer part of sampling. Bound: memory and call overhead; all of them
// together are a few microseconds of a decode step.
#pragma once

#include "rounding.hpp"

namespace kaiju::cpu {
namespace {

// width is a multiple of 16.
void embed(const int8_t* weight, int32_t width, const float* scale, const int32_t* tokens, int32_t rows, Bf16* x) {
  for (int32_t row = 0; row < rows; ++row) {
    const int8_t* bytes = weight + int64_t{tokens[row]} * width;
    const Floats s = floats(scale[tokens[row]]);
    for (int32_t i = 0; i < width; i += kLanes)
      store(x + int64_t{row} * width + i, to_bf16(to_floats(to_ints(load<Bytes>(bytes + i))) * s));
  }
}

KAIJU_INLINE Floats load_floats(const Bf16* x) { return from_bf16(load<Words>(x)); }
KAIJU_INLINE Floats load_floats(const float* x) { return load<Floats>(x); }

// The contract's shape: 256 partial sums are the lanes of some vectors, and halving the width is adding the upper half
// of the vectors, then of the lanes.
template <class T>
KAIJU_INLINE float sum_of_squares(const T* x, int32_t width) {
  constexpr int kPartials = 256 / kLanes;
  Floats partial[kPartials] = {};
  const auto add = [&](int32_t first, int32_t count) __attribute__((always_inline)) {
#pragma GCC unroll 32
    for (int j = 0; j < kPartials; ++j) {
      if (j >= count) continue;
      const Floats value = load_floats(x + first + kLanes * j);
      partial[j] = fma(value, value, partial[j]);
    }
  };
  int32_t first = 0;
  for (; first + 256 <= width; first += 256) add(first, kPartials);
  if (first < width) add(first, (width - first) / kLanes);
#pragma GCC unroll 8
  for (int half = kPartials / 2; half > 0; half /= 2) {
#pragma GCC unroll 32
    for (int j = 0; j < half; ++j) partial[j] = partial[j] + partial[j + half];
  }
  return fold_lanes(partial[0]);
}

void norm(const Bf16* x, int32_t rows, int32_t width, float eps, float inverse, int8_t* a) {
  for (int32_t row = 0; row < rows; ++row, x += width, a += width) {
    const float mean = sum_of_squares(x, width) / static_cast<float>(width) + eps;
    const Floats m = floats((1.0f / __builtin_sqrtf(mean)) * inverse);
    for (int32_t i = 0; i < width; i += kLanes) store(a + i, quantise(from_bf16(load<Words>(x + i)), m));
  }
}

float maximum(const float* logits, int32_t count) {
  constexpr int kVectors = 4;
  Floats bests[kVectors] = {floats(logits[0]), floats(logits[0]), floats(logits[0]), floats(logits[0])};
  int32_t i = 0;
  for (; i + kVectors * kLanes <= count; i += kVectors * kLanes) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) bests[v] = most(bests[v], load<Floats>(logits + i + kLanes * v));
  }
  const Floats best = most(most(bests[0], bests[1]), most(bests[2], bests[3]));
  float result = logits[0];
  for (; i < count; ++i) result = logits[i] > result ? logits[i] : result;
  for (int lane = 0; lane < kLanes; ++lane) result = best[lane] > result ? best[lane] : result;
  return result;
}

// w = 0 if t < -31, else rint(2^30 * exp2(t)), t = (l - m) * factor: arithmetic.md, section 6.
KAIJU_INLINE Ints masses_of(Floats logits, Floats maximum, Floats factor) {
  const Floats t = (logits - maximum) * factor, n = rounded(t);
  return where(at_least(t, floats(-31.0f)), nearest(scale(pow2_fraction(t - n, 0x1p30f), n)));
}

uint64_t masses(const float* logits, int32_t count, float maximum, float factor, uint32_t* mass) {
  const Floats m = floats(maximum), f = floats(factor);
  Longs total{};
  const auto add = [&total](Ints w) { total += ((Longs)w & 0xFFFFFFFF) + ((Longs)w >> 32); };
  int32_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    const Ints first = masses_of(load<Floats>(logits + i), m, f),
               second = masses_of(load<Floats>(logits + i + kLanes), m, f);
    if (mass) {
      store(mass + i, first);
      store(mass + i + kLanes, second);
    }
    add(first + second);  // at most 2^31
  }
  for (; i < count; i += kLanes) {
    const int32_t lanes = count - i;
    Ints w = masses_of(load_some<Floats>(logits + i, lanes), m, f);
    if (lanes < kLanes) w = load_some<Ints>(&w, lanes);
    if (mass) store_some(mass + i, w, lanes);
    add(w);
  }
  uint64_t sum = 0;
  for (int lane = 0; lane < kLanes / 2; ++lane) sum += total[lane];
  return sum;
}

}  // namespace
}  // namespace kaiju::cpu
