// RMS normalisation with a fixed order of summation. The squares are first added into 256 partial sums, and then a tree
// of additions halves the number of sums in each round (arithmetic.md, section 4).
#pragma once

#include <cstddef>

#include "kaiju/arith/quantise.hpp"

namespace kaiju::arith {

inline constexpr size_t kRmsPartials = 256;

// Adds up the 256 partial sums, overwriting the array, and returns their total.
inline float fold_partials(float* partials) {
  for (size_t width = kRmsPartials / 2; width > 0; width /= 2)
    for (size_t j = 0; j < width; ++j) partials[j] = add(partials[j], partials[j + width]);
  return partials[0];
}

// Returns the factor by which every element of a row is multiplied: 1/rms of the row times `inverse_scale`, the factor
// from float to byte.
KAIJU_HOST_DEVICE inline float norm_multiplier(float sum_of_squares, float width, float eps, float inverse_scale) {
  const float mean = add(divide(sum_of_squares, width), eps);
  return mul(divide(1.0f, square_root(mean)), inverse_scale);
}

// Normalises and quantises one row from `x` [width], bf16, to `out` [width], int8.
inline void norm_quantise(const bf16* x, size_t width, float eps, float inverse_scale, int8_t* out) {
  float partials[kRmsPartials] = {};
  for (size_t i = 0; i < width; ++i) {
    const float value = from_bf16(x[i]);
    float& partial = partials[i % kRmsPartials];
    partial = fma(value, value, partial);
  }
  const float m = norm_multiplier(fold_partials(partials), static_cast<float>(width), eps, inverse_scale);
  for (size_t i = 0; i < width; ++i) out[i] = quantise(from_bf16(x[i]), m);
}

}  // namespace kaiju::arith
