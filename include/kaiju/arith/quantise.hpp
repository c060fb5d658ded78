// Quantisation of floats to bytes (arithmetic.md, sections 1 and 4).
#pragma once

#include "kaiju/arith/float32.hpp"

namespace kaiju::arith {

// Returns clamp(rint(x), low, high) as an integer. The code clamps before it rounds, so that the conversion to an
// integer never gets a huge float. Clamping first and rounding first give the same result, because the limits are
// integers.
KAIJU_HOST_DEVICE inline int32_t round_saturate(float x, float low, float high) {
  const float clamped = x < low ? low : (x > high ? high : x);
  return static_cast<int32_t>(rint(clamped));
}

// Quantises a float to an int8 in [-127, 127]; the result is never -128.
KAIJU_HOST_DEVICE inline int8_t quantise(float x, float inverse_scale) {
  return static_cast<int8_t>(round_saturate(mul(x, inverse_scale), -127.0f, 127.0f));
}

// Returns the output byte of the up projection. The lower limit of the byte acts as the ReLU, and the upper limit of
// the byte acts as the clip.
KAIJU_HOST_DEVICE inline uint8_t up_byte(int32_t acc, float alpha) {
  const float shifted = add(mul(static_cast<float>(acc), alpha), -128.0f);
  return static_cast<uint8_t>(round_saturate(shifted, -128.0f, 127.0f) + 128);
}

// Returns the squared ReLU of a byte, which is rint(u * u / 255). Ties cannot occur in this rounding, so the integer
// arithmetic is exact.
KAIJU_HOST_DEVICE inline uint8_t square_byte(uint8_t u) { return static_cast<uint8_t>((2u * u * u + 255u) / 510u); }

// Returns an element x of the residual stream plus acc * scale, rounded to bf16.
KAIJU_HOST_DEVICE inline bf16 residual_add(bf16 x, int32_t acc, float scale) {
  return to_bf16(fma(static_cast<float>(acc), scale, from_bf16(x)));
}

}  // namespace kaiju::arith
