// Matrix, Linear: views of weights that backends compute with. They own nothing.
#pragma once

#include <cstdint>

namespace kaiju {

// An int8 weight matrix, row-major, so the inner dimension is contiguous. It is used where it is: in the mapped file or
// in device memory.
struct Matrix {
  const int8_t* weight = nullptr;    // [out, in], never -128
  const int32_t* row_sum = nullptr;  // [out] sum of each row, for kernels that shift one operand to unsigned
  int32_t out = 0;
  int32_t in = 0;
};

// A matrix and the factors of its outputs.
struct Linear : Matrix {
  const float* scale = nullptr;  // [out]
};

}  // namespace kaiju
