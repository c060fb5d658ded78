// Epilogues: compute a matmul's results from its exact int32 sums. There are four kinds (docs/arithmetic.md, section
// 4), and two that send the sums to the GPUs that share the model.
#pragma once

#include "../kernels.hpp"
#include "kaiju/arith/quantise.hpp"

namespace kaiju::cuda {

// Stores neighbouring sums, one or four, where the GPUs want them; they begin at `at` = row * out + first output.
template <class Sums>
__device__ __forceinline__ void send_sums(const MatmulArgs& args, int32_t row, int64_t at, const Sums& sums) {
  const SumTargets& targets = args.sums;
  if (targets.spread) {
    const uint32_t run = static_cast<uint32_t>(row) / kOwnedRun, count = static_cast<uint32_t>(targets.count);
    const auto owned = static_cast<int32_t>(run / count * kOwnedRun) + row % kOwnedRun;
    *reinterpret_cast<Sums*>(targets.to[run % count] + at - int64_t{row - owned} * args.out) = sums;
  } else {
    for (int32_t p = 0; p < targets.count; ++p) *reinterpret_cast<Sums*>(targets.to[p] + at) = sums;
  }
}

// Stores the sum of output n of a row.
template <MatmulKind kKind>
__device__ __forceinline__ void store_sum(const MatmulArgs& args, int32_t row, int32_t n, int32_t sum) {
  const int64_t at = int64_t{row} * args.out;
  if constexpr (kStoresSums<kKind>) return send_sums(args, row, at + n, sum);
  const float scale = args.scale[n];
  if constexpr (kKind == MatmulKind::kLinear) {
    static_cast<float*>(args.result)[at + n] = arith::mul(static_cast<float>(sum), scale);
  } else if constexpr (kKind == MatmulKind::kUp) {
    static_cast<uint8_t*>(args.result)[at + n] = arith::square_byte(arith::up_byte(sum, scale));
  } else {
    arith::bf16& x = static_cast<arith::bf16*>(args.result)[at + n];
    x = arith::residual_add(x, sum, scale);
  }
}

// square_byte(up_byte(sum, alpha)) in the lowest byte; the others are meaningless. Adding 1.5 * 2^23 rounds to an
// integer, ties to even, and leaves it in the low bits; u^2 is exact in a float, and u^2 / 255 is never nearer than
// 1/510 to a tie, so that its product with a rounded 1/255 rounds to the same integer.
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

// So many neighbouring elements of the residual stream, a multiple of 4.
template <int kCount>
struct alignas(2 * kCount) Bf16Run {
  uint32_t two[kCount / 2];
};
template <int kCount>
__device__ __forceinline__ Bf16Run<kCount>& bf16_run(const MatmulArgs& args, int64_t at) {
  return *reinterpret_cast<Bf16Run<kCount>*>(static_cast<arith::bf16*>(args.result) + at);
}

// Neighbouring residuals and what sums add to them.
template <int kCount>
__device__ __forceinline__ Bf16Run<kCount> residuals_added(const Bf16Run<kCount>& before, const int32_t (&sum)[kCount],
                                                           const float (&scale)[kCount]) {
  Bf16Run<kCount> after;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i)
    after.two[i] = two_bf16(
        arith::fma(static_cast<float>(sum[2 * i]), scale[2 * i], arith::float_of(before.two[i] << 16)),
        arith::fma(static_cast<float>(sum[2 * i + 1]), scale[2 * i + 1], arith::float_of(before.two[i] & 0xFFFF0000u)));
  return after;
}

// store_sum() for kCount neighbouring outputs of `row`; `at` = row * out + first output, a multiple of kCount. `before`
// is what was there, where the matmul adds to it.
template <MatmulKind kKind, int kCount>
__device__ __forceinline__ void store_sums(const MatmulArgs& args, int32_t row, int64_t at,
                                           const int32_t (&sum)[kCount], const float (&scale)[kCount],
                                           const Bf16Run<kCount>& before) {
  if constexpr (kStoresSums<kKind>) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) send_sums(args, row, at + i, int4{sum[i], sum[i + 1], sum[i + 2], sum[i + 3]});
  } else if constexpr (kKind == MatmulKind::kLinear) {
    auto* out = reinterpret_cast<float4*>(static_cast<float*>(args.result) + at);
#pragma unroll
    for (int i = 0; i < kCount; i += 4)
      out[i / 4] = {arith::mul(static_cast<float>(sum[i]), scale[i]),
                    arith::mul(static_cast<float>(sum[i + 1]), scale[i + 1]),
                    arith::mul(static_cast<float>(sum[i + 2]), scale[i + 2]),
                    arith::mul(static_cast<float>(sum[i + 3]), scale[i + 3])};
  } else if constexpr (kKind == MatmulKind::kUp) {
    struct alignas(kCount) {
      uint32_t four[kCount / 4];
    } out;
#pragma unroll
    for (int i = 0; i < kCount; i += 4)
      out.four[i / 4] = low_bytes(up_squared(sum[i], scale[i]), up_squared(sum[i + 1], scale[i + 1]),
                                  up_squared(sum[i + 2], scale[i + 2]), up_squared(sum[i + 3], scale[i + 3]));
    *reinterpret_cast<decltype(out)*>(static_cast<uint8_t*>(args.result) + at) = out;
  } else {
    bf16_run<kCount>(args, at) = residuals_added(before, sum, scale);
  }
}

}  // namespace kaiju::cuda
