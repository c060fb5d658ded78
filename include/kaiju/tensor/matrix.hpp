// Matrix, Linear: views of the weights that backends compute with. A Matrix or a Linear owns no memory.
#pragma once

#include <cstdint>

namespace kaiju {

// An int8 weight matrix in row-major order, so its inner dimension is contiguous. The weights are used in place, in the
// mapped file or in device memory.
struct Matrix {
  const int8_t* weight = nullptr;    // [out, in], never -128
  const int32_t* row_sum = nullptr;  // [out] sum of each row, for kernels that shift one operand to unsigned
  int32_t out = 0;
  int32_t in = 0;
  bool is_part = false;  // columns of a larger matrix: others have the rest of each sum
};

// A weight matrix and the factors by which its integer outputs are multiplied.
struct Linear : Matrix {
  const float* scale = nullptr;  // [out]
  const float* bias = nullptr;   // [out] or null (version 2 of the arithmetic)
  float step = 0.0f;             // if not 0, the outputs are rounded to multiples of it (version 2)
};

}  // namespace kaiju
