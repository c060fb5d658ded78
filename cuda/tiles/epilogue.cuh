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

}  // namespace kaiju::cuda
