// KAIJU_TEST_ONE_GPU_AS=2: CUDA's calls show the first GPU as two (or 3 to 8), so that what several GPUs share can be
// tested on one. All memory is that GPU's; its kernels run beside each other, and none starts before those ahead of it
// in its stream have ended. It tells whether bits and the order of calls are right; it gives no figures of speed, and
// nothing of NVLink.
#pragma once

#include <cuda_runtime_api.h>

namespace kaiju::test {

// What __wrap_cudaSetDevice and so on do; for programs that wrap these calls themselves.
cudaError_t set_shown_device(int index);
cudaError_t get_shown_device(int* index);
cudaError_t enable_shown_peer(int other, unsigned flags);
cudaError_t launch_on_shown(const cudaLaunchConfig_t* config, const void* kernel, void** arguments);

}  // namespace kaiju::test
