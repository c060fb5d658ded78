// Gated values of a feed-forward (docs/arithmetic-2.md, sections 2 and 5) from the int32 sums of its matmuls, without a
// branch for each value and with the bits of arith/rows.hpp: tests/cuda/gate.cpp compares them on the host. Host and
// device use the same source, except for reciprocal(), which tests/conformance/gated.cpp compares on the device.
//
// A division branches, so values whose divisions follow one another wait for each other. The functions here take
// several values through each step together.
#pragma once

#include <cstdint>

#include "kaiju/arith/gate.hpp"
#include "kaiju/arith/quantise.hpp"
#include "kaiju/arith/row_args.hpp"
#include "unroll.hpp"

namespace kaiju::cuda {

// 1 / x, rounded once, for x from 1 to 2^126: there one step of Newton's method rounds the chip's approximation
// correctly, as the compiler's own division has it.
KAIJU_HOST_DEVICE inline float reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return arith::fma(r, arith::fma(-x, r, 1.0f), r);
#else
  return arith::divide(1.0f, x);
#endif
}

// arith::sigmoid() of values that are not NaN. Adding 1.5 * 2^23 rounds to an integer, ties to even, and leaves it in
// the low bits.
template <int kCount>
KAIJU_HOST_DEVICE inline void sigmoids(const float (&x)[kCount], float (&y)[kCount]) {
  using namespace arith;
  constexpr float kRound = 12582912.0f;
  KAIJU_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const float t = fminf(fmaxf(mul(x[i], -kLog2E), -126.0f), 126.0f), shifted = add(t, kRound),
                f = add(t, -add(shifted, -kRound));
    const float power = fma(fma(fma(fma(kPow2C4, f, kPow2C3), f, kPow2C2), f, kPow2C1), f, 1.0f);
    y[i] = reciprocal(add(1.0f, float_of(bits_of(power) + (bits_of(shifted) << 23))));
  }
}

// arith::gated() of outputs that are finite. Not for Gate::kSquaredRelu.
template <int kCount>
KAIJU_HOST_DEVICE inline void gate_values(Gate gate, const float (&x)[kCount], const float (&up)[kCount],
                                          float (&h)[kCount]) {
  using namespace arith;
  float of[kCount], s[kCount];
  KAIJU_UNROLL
  for (int i = 0; i < kCount; ++i) of[i] = x[i];
  if (gate == Gate::kGelu) {
    KAIJU_UNROLL
    for (int i = 0; i < kCount; ++i) of[i] = mul(mul(x[i], fma(mul(x[i], x[i]), 0.044715f, 1.0f)), 1.5957691216057308f);
  }
  sigmoids(of, s);
  KAIJU_UNROLL
  for (int i = 0; i < kCount; ++i) h[i] = fminf(fmaxf(mul(mul(x[i], s[i]), up[i]), -kMostGated), kMostGated);
}

// arith::output() of sums of a row: scale[i] are the factors of the matrix, bias[i] the biases if y has any.
template <int kCount>
KAIJU_HOST_DEVICE inline void outputs_of(const Outputs& y, const int32_t (&sum)[kCount], const float (&scale)[kCount],
                                         float row_scale, const float (&bias)[kCount], float (&out)[kCount]) {
  using namespace arith;
  KAIJU_UNROLL
  for (int i = 0; i < kCount; ++i) out[i] = mul(mul(static_cast<float>(sum[i]), scale[i]), row_scale);
  if (y.bias) {
    KAIJU_UNROLL
    for (int i = 0; i < kCount; ++i) out[i] = add(out[i], bias[i]);
  }
  if (y.step != 0.0f) {
    KAIJU_UNROLL
    for (int i = 0; i < kCount; ++i)
      out[i] = mul(static_cast<float>(round_saturate(mul(out[i], y.inverse), -128.0f, 127.0f)), y.step);
  }
}

// ---- the Hadamard transform of 64 neighbours that four lanes hold ----

// Lane t of four has values 8 t to 8 t + 7, and after them 32 + 8 t to 32 + 8 t + 7. Strides 1, 2 and 4 lie within
// eight values of a lane, 8 and 16 between lanes, 32 within a lane again. Blocks of 16 or 32 end earlier.
inline constexpr int kGateRun = 8, kGateEach = 2 * kGateRun, kGateBlock = 4 * kGateEach;

KAIJU_HOST_DEVICE constexpr int place_in_block(int lane, int i) {
  return i / kGateRun * (kGateBlock / 2) + kGateRun * lane + i % kGateRun;
}

// (u, v) -> (u + v, u - v) of all pairs of a lane's values at this distance.
template <int kStride>
KAIJU_HOST_DEVICE inline void transform_pairs(float (&x)[kGateEach]) {
  KAIJU_UNROLL
  for (int i = 0; i < kGateEach; ++i) {
    if ((i & kStride) != 0) continue;
    const float u = x[i], v = x[i + kStride];
    x[i] = arith::add(u, v), x[i + kStride] = arith::add(u, -v);
  }
}

// What becomes of `own` in a pair of lanes: `sign` is -1 in the upper lane and 1 in the lower. The product is exact.
KAIJU_HOST_DEVICE inline float transform_pair(float own, float other, float sign) {
  return arith::fma(sign, own, other);
}

}  // namespace kaiju::cuda
