// arith::quantise() for finite x * c without a conversion instruction: adding 1.5 * 2^23 to a float below 2^22 rounds
// it to an integer, which is then the last byte of the sum's bits.
#pragma once

#include "kaiju/arith/quantise.hpp"

namespace kaiju::cuda {

// In the lowest byte; the others are meaningless.
__device__ __forceinline__ uint32_t quantised(float x, float c) {
  return arith::bits_of(arith::add(fminf(fmaxf(arith::mul(x, c), -127.0f), 127.0f), 12582912.0f));
}
__device__ __forceinline__ uint32_t four_quantised(const float4& x, const float4& c) {
  const uint32_t first = __byte_perm(quantised(x.x, c.x), quantised(x.y, c.y), 0x0040),
                 second = __byte_perm(quantised(x.z, c.z), quantised(x.w, c.w), 0x0040);
  return __byte_perm(first, second, 0x5410);
}

}  // namespace kaiju::cuda
