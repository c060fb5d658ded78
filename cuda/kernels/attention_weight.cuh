// The weights of scores, as attention finds them on tensor cores: the contract's; and in the programs that measure what exactness costs
// (bench/CMakeLists.txt), which say so by KAIJU_INEXACT, others in their place, that give other bits.
#pragma once

#include <cstdint>
#include <type_traits>

#include "attention_work.cuh"
#include "kaiju/arith/softmax.hpp"

namespace kaiju::cuda {

constexpr int32_t kBiasBits = 0x4B400000;  // of 1.5 * 2^23: an integer added to these bits is added to the float

// 65535 * 2^(n + f), rounded, as bits of 1.5 * 2^23 more; `rounded` is n + 1.5 * 2^23. Step by step for all of them, since each step waits
// for the one before.
template <int kCount>
__device__ __forceinline__ void weights_of(const float (&rounded)[kCount], const float (&f)[kCount], uint32_t (&weight)[kCount]) {
  using namespace arith;
  float y[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) y[i] = fma(kPow2C4, f[i], kPow2C3);
#pragma unroll
  for (int i = 0; i < kCount; ++i) y[i] = fma(y[i], f[i], kPow2C2);
#pragma unroll
  for (int i = 0; i < kCount; ++i) y[i] = fma(y[i], f[i], kPow2C1);
#pragma unroll
  for (int i = 0; i < kCount; ++i) y[i] = fma(y[i], f[i], 1.0f);
    // y times 65535 * 2^n: the scaling by 2^n is exact, so this rounds what the contract rounds.
#pragma unroll
  for (int i = 0; i < kCount; ++i) weight[i] = bits_of(fma(y[i], float_of(0x477FFF00u + (bits_of(rounded[i]) << 23)), kRoundBias));
}

// 65535 * 2^(d z), rounded, as bits of 1.5 * 2^23 more. `shift` is kBiasBits minus the maximum.
struct ContractWeight {
  static constexpr bool kMaximaFirst = true;
  float z;
  int32_t floor;  // kBiasBits + least_difference
  __device__ explicit ContractWeight(const AttentionWork& work) : z(work.args.z), floor(kBiasBits + work.least_difference) {}
  template <int kCount>
  __device__ __forceinline__ void operator()(const int32_t (&score)[kCount], const int32_t (&shift)[kCount],
                                             uint32_t (&weight)[kCount]) const {
    using namespace arith;
    float d[kCount], rounded[kCount], f[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) d[i] = add(__int_as_float(__viaddmax_s32(score[i], shift[i], floor)), -kRoundBias);
#pragma unroll
    for (int i = 0; i < kCount; ++i) rounded[i] = fma(d[i], z, kRoundBias);
#pragma unroll
    for (int i = 0; i < kCount; ++i) f[i] = add(rounded[i], -kRoundBias);
#pragma unroll
    for (int i = 0; i < kCount; ++i) f[i] = fma(d[i], z, -f[i]);
    weights_of(rounded, f, weight);
  }
};

__device__ __forceinline__ float hardware_exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
// By the hardware's exponential: approximate, and rounded as it comes.
struct HardwareWeight {
  static constexpr bool kMaximaFirst = true;
  static constexpr float kMost = 65280.0f;  // with room for what the rounding of `offset` makes of it, the same for all keys of a row
  float z, offset;
  int32_t floor;
  __device__ HardwareWeight(float of_scores, int32_t least_difference, float power_taken = 0.0f)
      : z(of_scores), offset(-arith::kRoundBias * z - power_taken), floor(kBiasBits + least_difference) {}
  __device__ explicit HardwareWeight(const AttentionWork& work) : HardwareWeight(work.args.z, work.least_difference) {}
  template <int kCount>
  __device__ __forceinline__ void operator()(const int32_t (&score)[kCount], const int32_t (&shift)[kCount],
                                             uint32_t (&weight)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float power = hardware_exp2(arith::fma(__int_as_float(__viaddmax_s32(score[i], shift[i], floor)), z, offset));
      weight[i] = arith::bits_of(arith::fma(power, kMost, arith::kRoundBias));
    }
  }
};

// And with the scores found once, weighed against a maximum that is taken for granted, 12 / z: less than any order of summation can cost.
struct OnePassWeight : HardwareWeight {
  static constexpr bool kMaximaFirst = false;
  __device__ explicit OnePassWeight(const AttentionWork& work) : HardwareWeight(work.args.z, work.least_difference, 12.0f) {}
};

enum class Inexact { kNo, kHardwareExp2, kOnePass };
#if defined(KAIJU_INEXACT)
inline constexpr Inexact kInexact = Inexact::KAIJU_INEXACT;
#else
inline constexpr Inexact kInexact = Inexact::kNo;
#endif

// Where rows or tiles are few; where tiles are many.
using FewWeight = std::conditional_t<kInexact == Inexact::kNo, ContractWeight, HardwareWeight>;
using TileWeight = std::conditional_t<kInexact == Inexact::kOnePass, OnePassWeight, FewWeight>;
// Of a key whose score lies `difference` below the maximum; and the factor of what is folded, whose maximum does.
__device__ __forceinline__ uint32_t key_weight(int32_t difference, float z) {
  if constexpr (kInexact == Inexact::kNo) return arith::key_weight(difference, z);
  constexpr int32_t kLeast = -4194303;  // that the bias can be added to
  uint32_t weight[1];
  HardwareWeight(z, kLeast)({difference}, {kBiasBits}, weight);
  return weight[0] - static_cast<uint32_t>(kBiasBits);
}
__device__ __forceinline__ float fold_factor(int32_t difference, float z) {
  if constexpr (kInexact == Inexact::kNo) return arith::exp2_product(difference, z);
  return hardware_exp2(arith::mul(static_cast<float>(difference), z));
}

}  // namespace kaiju::cuda
