// The softmax weights of scores in the attention kernels on tensor cores, with the bits of the numeric contract.
// Programs that measure the cost of exactness (bench/CMakeLists.txt) define KAIJU_INEXACT and get approximate weights
// with other bits.
#pragma once

#include <cstdint>
#include <type_traits>

#include "attention_work.cuh"
#include "score_weight.hpp"

namespace kaiju::cuda {

constexpr int32_t kBiasBits = 0x4B400000;  // of 1.5 * 2^23: an integer added to these bits is added to the float

struct ContractWeight : ScoreWeight {
  __device__ explicit ContractWeight(const AttentionWork& work) : ScoreWeight(work.args.z) {}
};

__device__ __forceinline__ float hardware_exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
// By the hardware's exponential: approximate, and rounded as it comes.
struct HardwareWeight {
  static constexpr bool kMaximaFirst = true;
  static constexpr float kMost =
      65280.0f;  // with room for what the rounding of `offset` makes of it, the same for all keys of a row
  float z, offset;
  int32_t floor;
  __device__ HardwareWeight(float of_scores, int32_t least_difference, float power_taken = 0.0f)
      : z(of_scores), offset(-arith::kRoundBias * z - power_taken), floor(kBiasBits + least_difference) {}
  __device__ explicit HardwareWeight(const AttentionWork& work) : HardwareWeight(work.args.z, work.least_difference) {}
  static __device__ int32_t against(int32_t maximum) {
    return static_cast<int32_t>(kBiasBits - static_cast<uint32_t>(maximum));
  }
  template <int kCount>
  __device__ __forceinline__ void operator()(const int32_t (&score)[kCount], const int32_t (&against)[kCount],
                                             uint32_t (&weight)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float power =
          hardware_exp2(arith::fma(__int_as_float(__viaddmax_s32(score[i], against[i], floor)), z, offset));
      weight[i] = arith::bits_of(arith::fma(power, kMost, arith::kRoundBias));
    }
  }
};

// And with the scores found once, weighed against a maximum that is taken for granted, 12 / z: less than any order of
// summation can cost.
struct OnePassWeight : HardwareWeight {
  static constexpr bool kMaximaFirst = false;
  __device__ explicit OnePassWeight(const AttentionWork& work)
      : HardwareWeight(work.args.z, work.least_difference, 12.0f) {}
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
  HardwareWeight(z, kLeast)({difference}, {HardwareWeight::against(0)}, weight);
  return weight[0] - static_cast<uint32_t>(kBiasBits);
}
__device__ __forceinline__ float fold_factor(int32_t difference, float z) {
  if constexpr (kInexact == Inexact::kNo) return arith::exp2_product(difference, z);
  return hardware_exp2(arith::mul(static_cast<float>(difference), z));
}

}  // namespace kaiju::cuda
