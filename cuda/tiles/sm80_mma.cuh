// Instructions for products of int8 matrices and vectors on capability 8.0 and newer: ldmatrix, mma.sync, dp4a.
#pragma once

#include <cstdint>

namespace kaiju::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Four 8 x 16-byte matrices; lane l gives the address of row l % 8 of matrix l / 8 and gets bytes 4 (l % 4) ... + 3 of
// row l / 4 of each.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// c [16, 8] += a [16, 32] b [32, 8], exact. With g = lane / 4, t = lane % 4: a holds rows g and g + 8, bytes 4t of both
// halves of k (a[0]: g, a[1]: g + 8, a[2] and a[3]: the same at k + 16); b column g, bytes 4t and 16 + 4t; c columns 2t
// and 2t + 1 of rows g and g + 8. kA, kB: which operand is unsigned.
enum class Sign { kSigned, kUnsigned };
template <Sign kA, Sign kB>
__device__ __forceinline__ void mma(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                    uint32_t b1) {
  static_assert(kA == Sign::kSigned || kB == Sign::kSigned);
  if constexpr (kA == Sign::kUnsigned) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else if constexpr (kB == Sign::kUnsigned) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

// c + the dot product of four unsigned bytes with four signed ones.
__device__ __forceinline__ int32_t dot_unsigned_signed(uint32_t a, uint32_t b, int32_t c) {
  int32_t d;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// The sum of four products more.
template <Sign kActivations>
__device__ __forceinline__ int32_t dot4(uint32_t weights, uint32_t activations, int32_t sum) {
  if constexpr (kActivations == Sign::kUnsigned)
    asm("dp4a.s32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(weights), "r"(activations));
  else
    asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(weights), "r"(activations));
  return sum;
}

}  // namespace kaiju::cuda
