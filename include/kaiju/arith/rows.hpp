// The row operations of version 2 of the arithmetic (docs/arithmetic-2.md), in scalar code: this file defines every bit
// of them. A function computes one row (the arguments are in arith/row_args.hpp).
#pragma once

#include "kaiju/arith/gate.hpp"
#include "kaiju/arith/quantise.hpp"
#include "kaiju/arith/rms.hpp"
#include "kaiju/arith/rotary.hpp"
#include "kaiju/arith/row_args.hpp"

namespace kaiju::arith {

// The Walsh-Hadamard transform of each block, without a factor: strides 1, 2, 4, ... and (u, v) -> (u + v, u - v).
inline void hadamard(float* x, int32_t width, int32_t block) {
  for (int32_t first = 0; first < width; first += block)
    for (int32_t stride = 1; stride < block; stride *= 2)
      for (int32_t i = first; i < first + block; i += 2 * stride)
        for (int32_t j = i; j < i + stride; ++j) {
          const float u = x[j], v = x[j + stride];
          x[j] = add(u, v);
          x[j + stride] = add(u, -v);
        }
}

// Magnitudes below this one count as 0, so that no factor from float to byte becomes infinite.
inline constexpr float kLeastMagnitude = 0x1p-100f;

// Returns the largest magnitude of the values, 0 if it is below kLeastMagnitude.
inline float largest_magnitude(const float* x, int32_t width) {
  float most = 0.0f;
  for (int32_t i = 0; i < width; ++i) {
    const float magnitude = float_of(bits_of(x[i]) & 0x7FFFFFFFu);
    most = magnitude > most ? magnitude : most;
  }
  return most < kLeastMagnitude ? 0.0f : most;
}

inline constexpr float kWideSteps = 32512.0f;  // 127 * 256: the largest magnitude of a value of two bytes

// Transforms and quantises one row, which is overwritten.
inline void quantise_row(float* x, int32_t width, const Quantiser& to, int64_t row) {
  hadamard(x, width, to.hadamard);
  if (to.bf16)
    for (int32_t i = 0; i < width; ++i) x[i] = from_bf16(to_bf16(x[i]));
  float inverse = to.inverse;
  to.scale[row] = 1.0f;
  if (inverse == 0.0f) {
    const float most = largest_magnitude(x, width), steps = to.wide ? kWideSteps : 127.0f;
    inverse = most > 0.0f ? divide(steps, most) : 0.0f;
    to.scale[row] = divide(most, steps);
  }
  if (to.wide) {
    int8_t* high = to.bytes + 2 * row * width;
    for (int32_t i = 0; i < width; ++i) {
      const int32_t value = round_saturate(mul(x[i], inverse), -kWideSteps, kWideSteps);
      const int32_t upper = (value + 128) >> 8;  // floor: the low byte is in [-128, 127]
      high[i] = static_cast<int8_t>(upper);
      high[width + i] = static_cast<int8_t>(value - 256 * upper);
    }
    return;
  }
  const float least = to.inverse == 0.0f ? -127.0f : -128.0f;
  for (int32_t i = 0; i < width; ++i)
    to.bytes[row * width + i] = static_cast<int8_t>(round_saturate(mul(x[i], inverse), least, 127.0f));
}

KAIJU_HOST_DEVICE inline float output(const Outputs& y, int64_t row, int32_t n) {
  const int64_t stride = y.stride > 0 ? y.stride : y.width;
  const float sum =
      y.wide ? fma(256.0f, y.sums[2 * row * stride + n], y.sums[(2 * row + 1) * stride + n]) : y.sums[row * stride + n];
  float value = y.scale ? mul(sum, y.scale[row]) : sum;
  if (y.bias) value = add(value, y.bias[n]);
  if (y.step != 0.0f) value = mul(static_cast<float>(round_saturate(mul(value, y.inverse), -128.0f, 127.0f)), y.step);
  return value;
}

// Returns 1/rms of a row.
inline float inverse_rms(const float* x, int32_t width, float eps) {
  float partials[kRmsPartials] = {};
  for (int32_t i = 0; i < width; ++i) {
    float& partial = partials[static_cast<size_t>(i) % kRmsPartials];
    partial = fma(x[i], x[i], partial);
  }
  return norm_multiplier(fold_partials(partials), static_cast<float>(width), eps, 1.0f);
}

// to = x / rms(x) * gain; the two may be the same row.
inline void norm_row(const float* x, int32_t width, float eps, const float* gain, float* to) {
  const float r = inverse_rms(x, width, eps);
  for (int32_t i = 0; i < width; ++i) to[i] = gain ? mul(mul(x[i], r), gain[i]) : mul(x[i], r);
}

KAIJU_HOST_DEVICE inline float residual(float x, bool bf16) { return bf16 ? from_bf16(to_bf16(x)) : x; }

inline void embed_row(const EmbedRows& args, int64_t row) {
  const int64_t from = int64_t{args.tokens[row]} * args.each;
  const int8_t* bytes = args.weight + from * args.width;
  float* x = args.x + row * args.width;
  for (int32_t i = 0; i < args.width; ++i) x[i] = mul(static_cast<float>(bytes[i]), args.factor[from]);
  hadamard(x, args.width, args.hadamard);
  for (int32_t i = 0; i < args.width; ++i) x[i] = residual(x[i], args.bf16);
}

inline void quantise_row(const QuantiseRows& args, int64_t row) {
  float* x = args.values + row * args.width;
  if (args.scratch) {
    const float* from = x;
    x = args.scratch + row * args.width;
    for (int32_t i = 0; i < args.width; ++i) x[i] = from[i];
  }
  quantise_row(x, args.width, args.to, row);
}

inline void norm_quantise_row(const NormRows& args, int64_t row) {
  float* y = args.scratch + row * args.width;
  norm_row(args.x + row * args.width, args.width, args.eps, args.gain, y);
  quantise_row(y, args.width, args.to, row);
}

KAIJU_HOST_DEVICE inline float gated(const GateRows& args, int64_t row, int32_t n) {
  const float up = output(args.ups, row, n);
  if (args.gate == Gate::kSquaredRelu) {
    const float positive = up > 0.0f ? up : 0.0f;
    return bounded(mul(positive, positive));
  }
  const float gate = output(args.gates, row, n);
  return bounded(mul(args.gate == Gate::kSilu ? silu(gate) : gelu(gate), up));
}

inline void gate_row(const GateRows& args, int64_t row) {
  const int32_t width = args.ups.width;
  float* h = args.ups.sums + row * width;
  for (int32_t n = 0; n < width; ++n) h[n] = gated(args, row, n);
  quantise_row(h, width, args.to, row);
}

inline void add_row(const AddRows& args, int64_t row) {
  const int32_t width = args.y.width;
  float* x = args.x + row * width;
  float* y = args.y.sums + row * width;
  for (int32_t n = 0; n < width; ++n) y[n] = output(args.y, row, n);
  if (args.norms) norm_row(y, width, args.eps, args.gain, y);
  for (int32_t n = 0; n < width; ++n) x[n] = residual(mul(add(x[n], y[n]), args.factor), args.bf16);
}

inline void logit_row(const LogitRows& args, int64_t row) {
  const int32_t width = args.y.width;
  float* to = args.out + row * width;
  for (int32_t n = 0; n < width; ++n) {
    const float value = output(args.y, row, n);
    to[n] = args.cap != 0.0f ? soft_cap(value, args.cap) : value;
  }
}

inline constexpr int32_t kMostHeadDim = 512;

// A head's outputs, normed if asked for.
inline void head_row(const Outputs& y, int64_t row, int32_t first, int32_t head_dim, bool norms, const float* gain,
                     float eps, float* head) {
  for (int32_t i = 0; i < head_dim; ++i) head[i] = output(y, row, first + i);
  if (norms) norm_row(head, head_dim, eps, gain, head);
}

inline void rotate_head(float* head, int32_t head_dim, const CosSin* angles) {
  for (int32_t i = 0; i < head_dim / 2; ++i) rotate(head[i], head[i + head_dim / 2], angles[i]);
}

inline void query_row(const QueryRows& args, int64_t row, int32_t h) {
  float head[kMostHeadDim];
  const int32_t d = args.head_dim;
  const float* step = args.key_step + int64_t{h} * args.kv_heads / args.heads * d;
  head_row(args.q, row, h * d, d, args.norms, args.gain, args.eps, head);
  rotate_head(head, d, args.angles + row * (d / 2));
  for (int32_t i = 0; i < d; ++i) head[i] = mul(head[i], step[i]);
  hadamard(head, d, args.hadamard);
  const float most = largest_magnitude(head, d);
  const float inverse = most > 0.0f ? divide(127.0f, most) : 0.0f;
  int8_t* to = args.bytes + (row * args.heads + h) * d;
  for (int32_t i = 0; i < d; ++i) to[i] = quantise(head[i], inverse);
  args.z[row * args.heads + h] = mul(most, args.factor);
}

// Quantises a key or value of one head; returns its scale, a bf16.
inline bf16 quantise_kept(const float* head, int32_t head_dim, bool constant_scale, int8_t* bytes) {
  bf16 scale = to_bf16(1.0f);
  float inverse = 1.0f;
  if (!constant_scale) {
    scale = to_bf16(divide(largest_magnitude(head, head_dim), 127.0f));
    inverse = scale != 0 ? divide(1.0f, from_bf16(scale)) : 0.0f;
  }
  for (int32_t i = 0; i < head_dim; ++i) bytes[i] = quantise(head[i], inverse);
  return scale;
}

// The key of one token and KV head, as it is kept: bytes [head_dim]; returns its scale.
inline bf16 key_row(const KeyValueRows& args, int64_t row, int32_t g, int8_t* bytes) {
  float head[kMostHeadDim];
  const int32_t d = args.head_dim;
  head_row(args.k, row, g * d, d, args.key_norms, args.key_gain, args.eps, head);
  rotate_head(head, d, args.angles + row * (d / 2));
  for (int32_t i = 0; i < d; ++i) head[i] = mul(head[i], args.key_inverse[g * d + i]);
  hadamard(head, d, args.hadamard);
  return quantise_kept(head, d, args.constant_scales, bytes);
}

inline bf16 value_row(const KeyValueRows& args, int64_t row, int32_t g, int8_t* bytes) {
  float head[kMostHeadDim];
  const int32_t d = args.head_dim;
  head_row(args.v, row, g * d, d, args.value_norms, nullptr, args.eps, head);
  for (int32_t i = 0; i < d; ++i) head[i] = mul(head[i], args.value_inverse[g * d + i]);
  return quantise_kept(head, d, args.constant_scales, bytes);
}

}  // namespace kaiju::arith
