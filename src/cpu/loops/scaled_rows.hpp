// The row operations of version 2 of the arithmetic in vectors; arith/rows.hpp defines their bits. Widths are multiples
// of 16, except those of logits. Bound: a decode step spends a few microseconds of each layer here, and a prefill step
// less than a tenth of its time.
#pragma once

#include <utility>

#include "attention.hpp"
#include "rows.hpp"

namespace kaiju::cpu {
namespace {

constexpr float kLeastMagnitude = 0x1p-100f;
constexpr float kWideSteps = 32512.0f;

KAIJU_INLINE Floats magnitude(Floats x) { return (Floats)((Ints)x & 0x7FFFFFFF); }

// Lane i becomes lane i ^ stride. GCC 11 lacks Clang's built-in function, and Clang lacks GCC's.
#ifdef __clang__
template <int kStride, int... kLane>
KAIJU_INLINE Floats swapped(Floats x, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(x, x, (kLane ^ kStride)...);
}
template <int kStride>
KAIJU_INLINE Floats swapped(Floats x) {
  return swapped<kStride>(x, std::make_integer_sequence<int, kLanes>());
}
#else
template <int kStride>
KAIJU_INLINE Floats swapped(Floats x) {
  Ints partner;
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) partner[i] = i ^ kStride;
  return __builtin_shuffle(x, partner);
}
#endif

// Lane i becomes x[i] + x[i + stride], or x[i - stride] - x[i] where the bit `stride` of i is set.
template <int kStride>
KAIJU_INLINE Floats butterfly(Floats x) {
  Ints sign;
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) sign[i] = i & kStride ? INT32_MIN : 0;
  return swapped<kStride>(x) + (Floats)((Ints)x ^ sign);
}

// The Hadamard transform of one block in registers.
template <int kStride, int kVectors>
KAIJU_INLINE void transform(Floats (&x)[kVectors]) {
  if constexpr (kStride < kLanes * kVectors) {
    if constexpr (kStride < kLanes) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) x[v] = butterfly<kStride>(x[v]);
    } else {
      constexpr int kStep = kStride / kLanes;
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        if (v & kStep) continue;
        const Floats low = x[v], high = x[v + kStep];
        x[v] = low + high;
        x[v + kStep] = low - high;
      }
    }
    transform<2 * kStride>(x);
  }
}

KAIJU_INLINE float largest_lane(Floats x) {
  float largest = 0.0f;
  for (int lane = 0; lane < kLanes; ++lane) largest = x[lane] > largest ? x[lane] : largest;
  return largest < kLeastMagnitude ? 0.0f : largest;
}

// Transforms a row, rounds it to bf16 if asked for, and returns its largest magnitude.
template <int kBlockValues, bool kRounds>
float transform_blocks(float* x, int32_t width) {
  constexpr int kVectors = kBlockValues / kLanes;
  Floats best{};
  for (int32_t first = 0; first < width; first += kBlockValues) {
    Floats block[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) block[v] = load<Floats>(x + first + kLanes * v);
    transform<1>(block);
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kRounds) block[v] = from_bf16(to_bf16(block[v]));
      best = most(best, magnitude(block[v]));
      store(x + first + kLanes * v, block[v]);
    }
  }
  return largest_lane(best);
}
template <bool kRounds>
float transform_row(float* x, int32_t width, int32_t block) {
  if (block == 64) return transform_blocks<64, kRounds>(x, width);
  if (block == 32) return transform_blocks<32, kRounds>(x, width);
  if (block == 16) return transform_blocks<16, kRounds>(x, width);
  Floats best{};
  for (int32_t i = 0; i < width; i += kLanes) {
    Floats value = load<Floats>(x + i);
    if constexpr (kRounds) store(x + i, value = from_bf16(to_bf16(value)));
    best = most(best, magnitude(value));
  }
  return largest_lane(best);
}

KAIJU_INLINE void store_bytes(const float* x, int32_t width, float inverse, float low, int8_t* to) {
  const Floats factor = floats(inverse);
  for (int32_t i = 0; i < width; i += kLanes)
    store(to + i, to_bytes(round_saturate(load<Floats>(x + i) * factor, low, 127.0f)));
}

void quantise_row(float* x, int32_t width, const Quantiser& to, int64_t row) {
  const float largest =
      to.bf16 ? transform_row<true>(x, width, to.hadamard) : transform_row<false>(x, width, to.hadamard);
  const float steps = to.wide ? kWideSteps : 127.0f;
  const bool is_constant = to.inverse != 0.0f;
  const float inverse = is_constant ? to.inverse : largest > 0.0f ? steps / largest : 0.0f;
  to.scale[row] = is_constant ? 1.0f : largest / steps;
  if (!to.wide) return store_bytes(x, width, inverse, is_constant ? -128.0f : -127.0f, to.bytes + row * width);
  int8_t* high = to.bytes + 2 * row * width;
  const Floats factor = floats(inverse);
  for (int32_t i = 0; i < width; i += kLanes) {
    const Ints value = round_saturate(load<Floats>(x + i) * factor, -kWideSteps, kWideSteps);
    const Ints upper = (value + 128) >> 8;
    store(high + i, to_bytes(upper));
    store(high + width + i, to_bytes(value - (upper << 8)));
  }
}

void quantise_rows(const QuantiseRows& args, int32_t first, int32_t end) {
  for (int64_t row = first; row < end; ++row) {
    float* x = args.values + row * args.width;
    if (args.scratch) {
      float* copy = args.scratch + row * args.width;
      for (int32_t i = 0; i < args.width; i += kLanes) store(copy + i, load<Floats>(x + i));
      x = copy;
    }
    quantise_row(x, args.width, args.to, row);
  }
}

// The values of outputs n to n + kLanes of a row; `count` of them exist.
KAIJU_INLINE Floats outputs_at(const Outputs& y, int64_t row, int32_t n, int32_t count = kLanes) {
  Floats value;
  if (y.wide)
    value = fma(floats(256.0f), load_some<Floats>(y.sums + 2 * row * y.width + n, count),
                load_some<Floats>(y.sums + (2 * row + 1) * y.width + n, count));
  else
    value = load_some<Floats>(y.sums + row * y.width + n, count);
  if (y.scale) value = value * floats(y.scale[row]);
  if (y.bias) value = value + load_some<Floats>(y.bias + n, count);
  if (y.step != 0.0f) value = to_floats(round_saturate(value * floats(y.inverse), -128.0f, 127.0f)) * floats(y.step);
  return value;
}

// to = x / rms(x) * gain
KAIJU_INLINE void norm_row(const float* x, int32_t width, float eps, const float* gain, float* to) {
  const float mean = sum_of_squares(x, width) / static_cast<float>(width) + eps;
  const Floats r = floats(1.0f / __builtin_sqrtf(mean));
  for (int32_t i = 0; i < width; i += kLanes) {
    const Floats normed = load<Floats>(x + i) * r;
    store(to + i, gain ? normed * load<Floats>(gain + i) : normed);
  }
}

KAIJU_INLINE Floats residual(Floats x, bool bf16) { return bf16 ? from_bf16(to_bf16(x)) : x; }

void embed_rows(const EmbedRows& args, int32_t first, int32_t end) {
  for (int64_t row = first; row < end; ++row) {
    const int64_t from = int64_t{args.tokens[row]} * args.each;
    const int8_t* bytes = args.weight + from * args.width;
    float* x = args.x + row * args.width;
    const Floats factor = floats(args.factor[from]);
    for (int32_t i = 0; i < args.width; i += kLanes) store(x + i, to_floats(to_ints(load<Bytes>(bytes + i))) * factor);
    if (args.bf16)
      transform_row<true>(x, args.width, args.hadamard);
    else
      transform_row<false>(x, args.width, args.hadamard);
  }
}

void norm_rows(const NormRows& args, int32_t first, int32_t end) {
  for (int64_t row = first; row < end; ++row) {
    float* y = args.scratch + row * args.width;
    norm_row(args.x + row * args.width, args.width, args.eps, args.gain, y);
    quantise_row(y, args.width, args.to, row);
  }
}

// 1 / (1 + e^-x)
KAIJU_INLINE Floats sigmoid(Floats x) {
  const Floats t = least(most(x * floats(-0x1.715476p+0f), floats(-126.0f)), floats(126.0f));
  const Floats n = to_floats(nearest(t));
  return floats(1.0f) / (floats(1.0f) + scale(pow2_fraction(t - n), n));
}

template <Gate kGate>
KAIJU_INLINE void gate_row(const GateRows& args, int64_t row) {
  const int32_t width = args.ups.width;
  float* h = args.ups.sums + row * width;
  for (int32_t n = 0; n < width; n += kLanes) {
    const Floats up = outputs_at(args.ups, row, n);
    Floats value;
    if constexpr (kGate == Gate::kSquaredRelu) {
      const Floats positive = most(up, Floats{});
      value = positive * positive;
    } else {
      const Floats gate = outputs_at(args.gates, row, n);
      if constexpr (kGate == Gate::kSilu) {
        value = (gate * sigmoid(gate)) * up;
      } else {
        const Floats cubic = gate * fma(gate * gate, floats(0.044715f), floats(1.0f));
        value = (gate * sigmoid(cubic * floats(1.5957691216057308f))) * up;
      }
    }
    store(h + n, least(most(value, floats(-0x1p50f)), floats(0x1p50f)));
  }
  quantise_row(h, width, args.to, row);
}
void gate_rows(const GateRows& args, int32_t first, int32_t end) {
  for (int64_t row = first; row < end; ++row) {
    if (args.gate == Gate::kSilu)
      gate_row<Gate::kSilu>(args, row);
    else if (args.gate == Gate::kGelu)
      gate_row<Gate::kGelu>(args, row);
    else
      gate_row<Gate::kSquaredRelu>(args, row);
  }
}

void add_rows(const AddRows& args, int32_t first, int32_t end) {
  const int32_t width = args.y.width;
  const Floats factor = floats(args.factor);
  for (int64_t row = first; row < end; ++row) {
    float* x = args.x + row * width;
    float* y = args.y.sums + row * width;
    if (args.norms) {
      for (int32_t n = 0; n < width; n += kLanes) store(y + n, outputs_at(args.y, row, n));
      norm_row(y, width, args.eps, args.gain, y);
    }
    for (int32_t n = 0; n < width; n += kLanes) {
      const Floats more = args.norms ? load<Floats>(y + n) : outputs_at(args.y, row, n);
      store(x + n, residual((load<Floats>(x + n) + more) * factor, args.bf16));
    }
  }
}

void logit_rows(const LogitRows& args, int32_t first, int32_t end) {
  const int32_t width = args.y.width;
  for (int64_t row = first; row < end; ++row)
    for (int32_t n = 0; n < width; n += kLanes) {
      Floats value = outputs_at(args.y, row, n, width - n);
      if (args.cap != 0.0f) {
        const Floats sigma = sigmoid(floats(2.0f) * (value / floats(args.cap)));
        value = floats(args.cap) * fma(floats(2.0f), sigma, floats(-1.0f));
      }
      store_some(args.out + row * width + n, value, width - n);
    }
}

// ---- heads ----

KAIJU_INLINE void head_row(const Outputs& y, int64_t row, int32_t first, int32_t head_dim, bool norms,
                           const float* gain, float eps, float* head) {
  for (int32_t i = 0; i < head_dim; i += kLanes) store(head + i, outputs_at(y, row, first + i));
  if (norms) norm_row(head, head_dim, eps, gain, head);
}

// Rotates a head and multiplies it by a factor for each channel.
KAIJU_INLINE void rotate_head(float* head, int32_t head_dim, const Angle* angles, const float* factor) {
  const int32_t middle = head_dim / 2;
  for (int32_t i = 0; i < middle; i += kLanes) {
    const Floats low = load<Floats>(head + i), high = load<Floats>(head + middle + i);
    Floats cos, sin;
    load_angles(angles + i, cos, sin);
    store(head + i, fms(low, cos, high * sin) * load<Floats>(factor + i));
    store(head + middle + i, fma(high, cos, low * sin) * load<Floats>(factor + middle + i));
  }
}

void query_rows(const QueryRows& args, int32_t first, int32_t end) {
  alignas(64) float head[kMaxHeadDim];
  const int32_t d = args.head_dim;
  for (int64_t row = first; row < end; ++row)
    for (int32_t h = 0; h < args.heads; ++h) {
      head_row(args.q, row, h * d, d, args.norms, args.gain, args.eps, head);
      rotate_head(head, d, args.angles + row * (d / 2), args.key_step + int64_t{h} * args.kv_heads / args.heads * d);
      const float largest = transform_row<false>(head, d, args.hadamard);
      store_bytes(head, d, largest > 0.0f ? 127.0f / largest : 0.0f, -127.0f, args.bytes + (row * args.heads + h) * d);
      args.z[row * args.heads + h] = largest * args.factor;
    }
}

// Quantises a key or value of one head; returns its scale.
KAIJU_INLINE Bf16 quantise_kept(const float* head, int32_t head_dim, float largest, bool constant_scale,
                                int8_t* bytes) {
  constexpr Bf16 kOne = 0x3F80;
  if (constant_scale) {
    store_bytes(head, head_dim, 1.0f, -127.0f, bytes);
    return kOne;
  }
  const Bf16 kept = to_bf16(floats(largest / 127.0f))[0];
  const Words words = Words{} + kept;
  store_bytes(head, head_dim, kept != 0 ? 1.0f / from_bf16(words)[0] : 0.0f, -127.0f, bytes);
  return kept;
}

void append_rows(const KeyValueRows& args, int32_t row, int32_t g, int32_t token, std::byte* keys, std::byte* values,
                 Bf16* key_scale, Bf16* value_scale) {
  alignas(64) float head[kMaxHeadDim];
  alignas(64) int8_t key[kMaxHeadDim], value[kMaxHeadDim];
  const int32_t d = args.head_dim;
  head_row(args.k, row, g * d, d, args.key_norms, args.key_gain, args.eps, head);
  rotate_head(head, d, args.angles + int64_t{row} * (d / 2), args.key_inverse + int64_t{g} * d);
  const float largest_key = transform_row<false>(head, d, args.hadamard);
  *key_scale = quantise_kept(head, d, largest_key, args.constant_scales, key);

  head_row(args.v, row, g * d, d, args.value_norms, nullptr, args.eps, head);
  for (int32_t i = 0; i < d; i += kLanes)
    store(head + i, load<Floats>(head + i) * load<Floats>(args.value_inverse + int64_t{g} * d + i));
  const float largest_value = transform_row<false>(head, d, 1);
  *value_scale = quantise_kept(head, d, largest_value, args.constant_scales, value);
  store_token(key, value, d, token, keys, values);
}

}  // namespace
}  // namespace kaiju::cpu
