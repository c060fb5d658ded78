// Kernel launches, with programmatic dependent launch if the chip has it (capability 9.0 and newer): a kernel starts
// while the previous kernels end, so its launch costs only the wait for its inputs.
#pragma once

#include <cuda_runtime.h>

#include <span>
#include <utility>

#include "../kernels.hpp"

namespace kaiju::cuda {

// Waits until all earlier kernels have ended and what they wrote can be read. Every kernel that launch() starts calls
// it in every block, before it reads what others write and before it writes anything: the next kernel relies on that.
__device__ __forceinline__ void wait_for_inputs() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel may start where there is room.
__device__ __forceinline__ void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

struct LaunchShape {
  int64_t blocks = 0;
  int32_t threads = 0;
  int32_t shared_bytes = 0;
  int32_t cluster = 1;
};

// Not by `<<<>>>`, whose error has to be read by cudaGetLastError(), which also reports failures of earlier calls.
template <class... Parameters, class... Arguments>
cudaError_t launch_with(std::span<cudaLaunchAttribute> attributes, cudaStream_t stream, void (*kernel)(Parameters...),
                        const LaunchShape& shape, Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = stream;
  config.attrs = attributes.data();
  config.numAttrs = static_cast<unsigned>(attributes.size());
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

// A kernel that begins when all earlier ones have ended, on every chip.
template <class... Parameters, class... Arguments>
cudaError_t launch_in_order(cudaStream_t stream, void (*kernel)(Parameters...), const LaunchShape& shape,
                            Arguments&&... arguments) {
  return launch_with({}, stream, kernel, shape, std::forward<Arguments>(arguments)...);
}

// A kernel whose blocks wait for one another: all of them run at once, or the launch fails.
template <class... Parameters, class... Arguments>
cudaError_t launch_together(cudaStream_t stream, void (*kernel)(Parameters...), const LaunchShape& shape,
                            Arguments&&... arguments) {
  cudaLaunchAttribute together{};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  return launch_with({&together, 1}, stream, kernel, shape, std::forward<Arguments>(arguments)...);
}

template <class... Parameters, class... Arguments>
cudaError_t launch(cudaStream_t stream, const Chip& chip, void (*kernel)(Parameters...), const LaunchShape& shape,
                   Arguments&&... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (chip.capability >= 90) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = static_cast<unsigned>(shape.cluster);
    attributes[count].val.clusterDim.y = attributes[count].val.clusterDim.z = 1;
    ++count;
  }
  return launch_with({attributes, count}, stream, kernel, shape, std::forward<Arguments>(arguments)...);
}

}  // namespace kaiju::cuda
