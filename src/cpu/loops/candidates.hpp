// The loops of chains of samplers over a row of logits or masses. Bound: reading the row from the level-2 cache, except
// for the logarithms.
#pragma once

#include "rounding.hpp"

namespace kaiju::cpu {
namespace {

KAIJU_INLINE Ints lane_numbers() {
  Ints numbers{};
  for (int lane = 0; lane < kLanes; ++lane) numbers[lane] = lane;
  return numbers;
}

int32_t collect(const float* x, int32_t count, float low, float high, int32_t* out) {
  static_assert(kLanes <= kCollectRoom);
  constexpr int kVectors = 4;  // looked at together: most have nothing
  const Floats from = floats(low), to = floats(high);
  const Ints numbers = lane_numbers();
  int32_t found = 0, i = 0;
  for (; i + kVectors * kLanes <= count; i += kVectors * kLanes) {
    Floats value[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) value[v] = load<Floats>(x + i + kLanes * v);
    if (!any(at_least(most(most(value[0], value[1]), most(value[2], value[3])), from))) continue;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      found += append(out + found, numbers + (i + kLanes * v), at_least(value[v], from) & at_least(to, value[v]));
  }
  for (; i < count; ++i)
    if (x[i] >= low && x[i] <= high) out[found++] = i;
  return found;
}

void buckets(const float* x, int32_t count, float centre, float scale, uint16_t* bucket) {
  const auto of = [&](Floats value) {
    const Floats difference = value - floats(centre);
    return to_words(nearest(least(most(difference, -difference) * floats(scale), floats(kLastBucket))));
  };
  int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(bucket + i, of(load<Floats>(x + i)));
  if (i < count) store_some(bucket + i, of(load_some<Floats>(x + i, count - i)), count - i);
}

int32_t maxima(const float* x, int32_t count, float* out) {
  constexpr int32_t kVectors = 16;
  int32_t groups = 0, i = 0;
  for (; i + kVectors * kLanes <= count; i += kVectors * kLanes, groups += kLanes) {
    Floats best = load<Floats>(x + i);
#pragma GCC unroll 16
    for (int v = 1; v < kVectors; ++v) best = most(best, load<Floats>(x + i + kLanes * v));
    store(out + groups, best);
  }
  if (i == count) return groups;
  float best = x[i];
  for (; i < count; ++i) best = x[i] > best ? x[i] : best;
  out[groups++] = best;
  return groups;
}

KAIJU_INLINE double sum_of(Doubles x) {
  double sum = 0;
  for (int lane = 0; lane < kLanes / 2; ++lane) sum += x[lane];
  return sum;
}

Moments moments(const float* logits, int32_t count) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  Doubles sum[2]{}, squares[2]{};
  Ints dropped{};
  int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Ints none = load<Floats>(logits + i) == floats(kNone);
    const bool all = !any(none);
    if (!all) dropped += none;
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      auto l = __builtin_convertvector(load<HalfFloats>(logits + i + kLanes / 2 * half), Doubles);
      if (!all) l = l == doubles(kNone) ? Doubles{} : l;
      sum[half] += l;
      squares[half] = fma(l, l, squares[half]);
    }
  }
  Moments of{count + sum_of(dropped), sum_of(sum[0] + sum[1]), sum_of(squares[0] + squares[1])};
  for (; i < count; ++i) {
    if (logits[i] == kNone) {
      --of.count;
      continue;
    }
    const auto l = static_cast<double>(logits[i]);
    of.sum += l;
    of.squares += l * l;
  }
  return of;
}

// ln(x) of integers in [1, 2^31], within 2^-32 and of 2^30 within 2^-47, by the contract's series with fewer terms. Of
// 0 some finite number.
KAIJU_INLINE Doubles logarithm(Doubles x) {
  constexpr uint64_t kThreeQuarters = 0x3FE8000000000000, kTwoTo52 = 0x4330000000000000;
  const Longs exponent = ((Longs)x - kThreeQuarters) >> 52;  // x = fraction * 2^exponent, fraction in [0.75, 1.5)
  const auto fraction = (Doubles)((Longs)x - (exponent << 52));
  const Doubles whole = (Doubles)(exponent | kTwoTo52) - doubles(0x1p52);
  const Doubles s = (fraction - doubles(1.0)) / (fraction + doubles(1.0)), y = s * s;
  Doubles series = doubles(1.0 / 11);
#pragma GCC unroll 8
  for (int k = 9; k >= 1; k -= 2) series = fma(series, y, doubles(1.0 / k));
  return fma(whole, doubles(0.6931471805599453), (s + s) * series);
}

double surprise(const uint32_t* mass, int32_t count, double log_of_total, float* log) {
  constexpr int32_t kHalf = kLanes / 2;
  Doubles sum{};
  int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto none = load<Ints>(mass + i) == Ints{};
    if (!any(~none)) {
      store(log + i, floats(kLogOfNothing));
      continue;
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const Doubles w = to_doubles(load<HalfInts>(mass + i + kHalf * half));
      const Doubles ln = logarithm(w);
      sum = fma(w, doubles(log_of_total) - ln, sum);
      store(log + i + kHalf * half, __builtin_convertvector(ln, HalfFloats));
    }
    if (any(none)) store(log + i, none ? floats(kLogOfNothing) : load<Floats>(log + i));
  }
  double total = sum_of(sum);
  for (; i < count; ++i) {
    const double w = static_cast<double>(mass[i]), ln = logarithm(doubles(w))[0];
    total += w * (log_of_total - ln);
    log[i] = mass[i] == 0 ? kLogOfNothing : static_cast<float>(ln);
  }
  return total;
}

}  // namespace
}  // namespace kaiju::cpu
