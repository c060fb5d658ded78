// Chip: the properties of a GPU that the choice of kernels depends on. Plain host data; needs no CUDA.
#pragma once

#include <cstdint>

namespace kaiju::cuda {

struct Chip {
  int32_t capability = 0;  // 90 for 9.0; the code's, where that is PTX of an older one: it knows no clusters
  int32_t multiprocessors = 0;
  void* encode_tensor_map = nullptr;  // the driver's cuTensorMapEncodeTiled; null where there is none
};

}  // namespace kaiju::cuda
