// Keeps groups from launching on the current GPU while CUDA may wait for all that it runs (QuietGpu, turns.hpp).
#pragma once

#include <cuda_runtime_api.h>

#include "turns.hpp"

namespace kaiju::cuda {

inline QuietGpu quiet_current_gpu() {
  int gpu = 0;
  if (cudaGetDevice(&gpu) != cudaSuccess) cudaGetLastError();  // the call that follows answers with the reason
  return QuietGpu(gpu);
}

}  // namespace kaiju::cuda
