// Views the device tower computes on. They own nothing; shapes stand beside every pointer.
#pragma once

#include <cstdint>

namespace kaiju {

// An int8 weight matrix, row-major with the summed index contiguous, used where it lies (the mapped file, device
// memory).
struct Matrix {
  const int8_t* weight = nullptr;    // [out, in], never -128
  const int32_t* row_sum = nullptr;  // [out]: sum of each row, for kernels that shift one operand to unsigned
  int32_t out = 0;
  int32_t in = 0;
};

// A matrix and what the sums of its rows are multiplied by.
struct Linear : Matrix {
  const float* scale = nullptr;  // [out]
};

}  // namespace kaiju
