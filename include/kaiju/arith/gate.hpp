// The nonlinear functions of version 2 of the arithmetic (docs/arithmetic-2.md, section 2): sigmoid, SiLU, GELU and the
// soft cap of logits. All of them are the sigmoid, and the sigmoid is exp2 and one division.
#pragma once

#include "kaiju/arith/exp2.hpp"

namespace kaiju::arith {

// Returns 1 / (1 + e^-x). The exponent of two is limited to [-126, 126].
KAIJU_HOST_DEVICE inline float sigmoid(float x) {
  const float t = mul(x, -kLog2E);
  const float bounded = t < -126.0f ? -126.0f : (t > 126.0f ? 126.0f : t);
  return divide(1.0f, add(1.0f, exp2(bounded)));
}

KAIJU_HOST_DEVICE inline float silu(float x) { return mul(x, sigmoid(x)); }

// Returns the GELU in the form with tanh: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), which is x times a
// sigmoid of twice the argument.
KAIJU_HOST_DEVICE inline float gelu(float x) {
  const float cubic = mul(x, fma(mul(x, x), 0.044715f, 1.0f));
  return mul(x, sigmoid(mul(cubic, 1.5957691216057308f)));
}

// Returns cap * tanh(x / cap).
KAIJU_HOST_DEVICE inline float soft_cap(float x, float cap) {
  return mul(cap, fma(2.0f, sigmoid(mul(2.0f, divide(x, cap))), -1.0f));
}

// The largest magnitude of a gated value. Values beyond it are set to it, so that no later sum becomes infinite.
inline constexpr float kMostGated = 0x1p50f;

KAIJU_HOST_DEVICE inline float bounded(float x) {
  return x < -kMostGated ? -kMostGated : (x > kMostGated ? kMostGated : x);
}

}  // namespace kaiju::arith
