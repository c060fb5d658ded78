// Code that the matmul kernels for every chip share.
#pragma once

#include "../launch/tiles.hpp"
#include "../tiles/dependent_launch.cuh"
#include "../tiles/epilogue.cuh"
#include "../tiles/sm80_mma.cuh"

namespace kaiju::cuda {
namespace {

constexpr int32_t kThreads = 256;
constexpr int32_t kWarps = kThreads / 32;
constexpr int32_t kStep = 64;  // summed index of one step; divides every `in`

template <MatmulKind kKind>
constexpr Sign kActivation = kHasUnsignedInput<kKind> ? Sign::kUnsigned : Sign::kSigned;

// 16 bytes of weights, past the L1 cache.
__device__ __forceinline__ uint4 load_once(const int8_t* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

}  // namespace
}  // namespace kaiju::cuda
