// The weights of scores, as attention finds them on tensor cores.
#pragma once

#include <cstdint>

#include "kaiju/arith/softmax.hpp"

namespace kaiju::cuda {

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

}  // namespace kaiju::cuda
