// What becomes of an exact sum: the four endings of a product (docs/arithmetic.md, section 4).
#pragma once

#include "../kernels.hpp"
#include "kaiju/arith/quantise.hpp"

namespace kaiju::cuda {

// Stores the sum of output n of the row that begins at `at` = row * out.
template <Product kProduct>
__device__ __forceinline__ void store_sum(const ProductArgs& args, int64_t at, int32_t n, int32_t sum) {
  const float scale = args.scale[n];
  if constexpr (kProduct == Product::kLinear) {
    static_cast<float*>(args.result)[at + n] = arith::mul(static_cast<float>(sum), scale);
  } else if constexpr (kProduct == Product::kUp) {
    static_cast<uint8_t*>(args.result)[at + n] = arith::square_byte(arith::up_byte(sum, scale));
  } else {
    arith::bf16& x = static_cast<arith::bf16*>(args.result)[at + n];
    x = arith::residual_add(x, sum, scale);
  }
}

// square_byte(up_byte(sum, alpha)) in the lowest byte; above it there is rubbish. Adding 1.5 * 2^23 rounds to an integer, ties to even, and
// leaves it in the low bits; u^2 is exact in a float, and u^2 / 255 is never nearer than 1/510 to a tie, so that its product with a rounded
// 1/255 rounds to the same integer.
__device__ __forceinline__ uint32_t up_squared(int32_t sum, float alpha) {
  constexpr float kRound = 12582912.0f;
  const float shifted = fminf(fmaxf(arith::add(arith::mul(static_cast<float>(sum), alpha), -128.0f), -128.0f), 127.0f);
  const float u = arith::add(arith::add(shifted, kRound), 128.0f - kRound);
  return arith::bits_of(arith::fma(arith::mul(u, u), 1.0f / 255.0f, kRound));
}

__device__ __forceinline__ uint32_t low_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

// Two floats to bf16, ties to even, `low` in the lower half.
__device__ __forceinline__ uint32_t two_bf16(float low, float high) {
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// The same for eight neighbouring outputs; `at` = row * out + first output, a multiple of 8.
template <Product kProduct>
__device__ __forceinline__ void store_sums(const ProductArgs& args, int64_t at, const int32_t (&sum)[8], const float (&scale)[8]) {
  if constexpr (kProduct == Product::kLinear) {
    auto* out = reinterpret_cast<float4*>(static_cast<float*>(args.result) + at);
#pragma unroll
    for (int i = 0; i < 8; i += 4)
      out[i / 4] = {arith::mul(static_cast<float>(sum[i]), scale[i]), arith::mul(static_cast<float>(sum[i + 1]), scale[i + 1]),
                    arith::mul(static_cast<float>(sum[i + 2]), scale[i + 2]), arith::mul(static_cast<float>(sum[i + 3]), scale[i + 3])};
  } else if constexpr (kProduct == Product::kUp) {
    uint32_t u[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) u[i] = up_squared(sum[i], scale[i]);
    *reinterpret_cast<uint2*>(static_cast<uint8_t*>(args.result) + at) = {low_bytes(u[0], u[1], u[2], u[3]),
                                                                          low_bytes(u[4], u[5], u[6], u[7])};
  } else {
    auto* out = reinterpret_cast<uint4*>(static_cast<arith::bf16*>(args.result) + at);
    const uint4 x = *out;
    const uint32_t before[4] = {x.x, x.y, x.z, x.w};
    uint32_t after[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      after[i] = two_bf16(arith::fma(static_cast<float>(sum[2 * i]), scale[2 * i], arith::float_of(before[i] << 16)),
                          arith::fma(static_cast<float>(sum[2 * i + 1]), scale[2 * i + 1], arith::float_of(before[i] & 0xFFFF0000u)));
    *out = {after[0], after[1], after[2], after[3]};
  }
}

}  // namespace kaiju::cuda
