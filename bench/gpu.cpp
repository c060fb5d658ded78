// Reads the properties of a GPU. See gpu.hpp.
#include "gpu.hpp"

#if KAIJU_CUDA
#include <cuda_runtime_api.h>
#endif

namespace kaiju::bench {

GpuCeilings gpu_ceilings(const std::string& name) {
  return name.find("H200") != std::string::npos ? GpuCeilings{4.40e12, 1.5e15, 1.0e15, 450e9} : GpuCeilings{};
}

Gpu first_gpu() {
#if KAIJU_CUDA
  cudaDeviceProp properties{};
  size_t free = 0, total = 0;
  if (cudaGetDeviceProperties(&properties, 0) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess)
    return {properties.name, static_cast<int64_t>(free)};
#endif
  return {};
}

}  // namespace kaiju::bench
