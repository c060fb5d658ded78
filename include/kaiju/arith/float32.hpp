// The float operations of this file round exactly once, as IEEE 754 requires, whatever the compiler flags. By default
// GCC contracts a*b+c into an fma instruction if the target has one. The functions mul() and add() prevent that
// contraction.
#pragma once

#if defined(__FAST_MATH__)
#error "kaiju's arithmetic needs IEEE semantics: build without -ffast-math"
#endif

#include <bit>
#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define KAIJU_HOST_DEVICE __host__ __device__
#else
#define KAIJU_HOST_DEVICE
#endif

// These macros prevent the compiler from fusing a multiplication with the addition that uses its product.
#if defined(__clang__)
#define KAIJU_NO_CONTRACT _Pragma("clang fp contract(off)")
#define KAIJU_ROUNDED(x) (x)
#elif defined(__GNUC__) && !defined(__CUDACC__)
#define KAIJU_NO_CONTRACT
#define KAIJU_ROUNDED(x) __builtin_assoc_barrier(x)
#else
#define KAIJU_NO_CONTRACT
#define KAIJU_ROUNDED(x) (x)
#endif

namespace kaiju::arith {

KAIJU_HOST_DEVICE inline float mul(float a, float b) {
  KAIJU_NO_CONTRACT
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return KAIJU_ROUNDED(a * b);
#endif
}

KAIJU_HOST_DEVICE inline float add(float a, float b) {
  KAIJU_NO_CONTRACT
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return KAIJU_ROUNDED(a + b);
#endif
}

KAIJU_HOST_DEVICE inline float fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

KAIJU_HOST_DEVICE inline float divide(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

KAIJU_HOST_DEVICE inline float square_root(float a) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(a);
#else
  return __builtin_sqrtf(a);
#endif
}

KAIJU_HOST_DEVICE inline uint32_t bits_of(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  return std::bit_cast<uint32_t>(x);
#endif
}

KAIJU_HOST_DEVICE inline float float_of(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

// Rounds a float to the nearest integer, with ties to even.
KAIJU_HOST_DEVICE inline float rint(float x) {
#if defined(__CUDA_ARCH__)
  return rintf(x);
#else
  return __builtin_rintf(x);
#endif
}

// A bf16 holds the 16 bits of a bfloat16. The conversion from float to bf16 rounds ties to even and is correct only for
// finite inputs.
using bf16 = uint16_t;

KAIJU_HOST_DEVICE inline bf16 to_bf16(float x) {
  const uint32_t bits = bits_of(x);
  return static_cast<bf16>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

KAIJU_HOST_DEVICE inline float from_bf16(bf16 x) { return float_of(static_cast<uint32_t>(x) << 16); }

}  // namespace kaiju::arith
