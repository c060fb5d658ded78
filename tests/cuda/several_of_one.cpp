// See several_of_one.hpp. Linked with --wrap for each of the calls (several_of_one.cmake).
#include "several_of_one.hpp"

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace kaiju::test {
namespace {

// How many GPUs the first one is shown as; 0: CUDA's own answers.
int shown_gpus() {
  static const int count = [] {
    const char* const asked = std::getenv("KAIJU_TEST_ONE_GPU_AS");
    const int wanted = asked ? std::atoi(asked) : 0;
    if (wanted < 2) return 0;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);  // a stream that waits shares its queue with no other
    return std::min(wanted, 8);
  }();
  return count;
}
const bool asked_before_cuda_begins = shown_gpus() > 0;

thread_local int current = 0;

// The real index; -1: there is none.
int real(int index) { return shown_gpus() == 0 ? index : index >= 0 && index < shown_gpus() ? 0 : -1; }

}  // namespace
}  // namespace kaiju::test

using kaiju::test::real;
using kaiju::test::shown_gpus;

#if CUDART_VERSION < 13000  // a macro of the header
#define __real_cudaGetDeviceProperties __real_cudaGetDeviceProperties_v2
#define __wrap_cudaGetDeviceProperties __wrap_cudaGetDeviceProperties_v2
#endif

extern "C" {
cudaError_t __real_cudaGetDeviceCount(int* count);
cudaError_t __wrap_cudaGetDeviceCount(int* count) {
  const cudaError_t error = __real_cudaGetDeviceCount(count);
  if (error == cudaSuccess && *count > 0 && shown_gpus() > 0) *count = shown_gpus();
  return error;
}

// Three blocks for each multiprocessor wait at most for other GPUs. All but one GPU may wait, in a third of those that
// are there, and leave room for the kernel that they wait for.
cudaError_t __real_cudaGetDeviceProperties(cudaDeviceProp* of, int index);
cudaError_t __wrap_cudaGetDeviceProperties(cudaDeviceProp* of, int index) {
  const cudaError_t error = __real_cudaGetDeviceProperties(of, real(index));
  if (error == cudaSuccess && shown_gpus() > 0)
    of->multiProcessorCount = std::max(1, of->multiProcessorCount / (9 * (shown_gpus() - 1)));
  return error;
}
cudaError_t __real_cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int index);
cudaError_t __wrap_cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int index) {
  return __real_cudaDeviceGetAttribute(value, attribute, real(index));
}
cudaError_t __real_cudaDeviceGetPCIBusId(char* id, int size, int index);
cudaError_t __wrap_cudaDeviceGetPCIBusId(char* id, int size, int index) {
  return __real_cudaDeviceGetPCIBusId(id, size, real(index));
}

cudaError_t __real_cudaSetDevice(int index);
cudaError_t __real_cudaGetDevice(int* index);
cudaError_t __real_cudaDeviceEnablePeerAccess(int other, unsigned flags);
cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments);
__attribute__((weak)) cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                                             void** arguments) {
  return kaiju::test::launch_on_shown(config, kernel, arguments);
}
__attribute__((weak)) cudaError_t __wrap_cudaSetDevice(int index) { return kaiju::test::set_shown_device(index); }
__attribute__((weak)) cudaError_t __wrap_cudaGetDevice(int* index) { return kaiju::test::get_shown_device(index); }
__attribute__((weak)) cudaError_t __wrap_cudaDeviceEnablePeerAccess(int other, unsigned flags) {
  return kaiju::test::enable_shown_peer(other, flags);
}
}

namespace kaiju::test {

cudaError_t set_shown_device(int index) {
  const cudaError_t error = __real_cudaSetDevice(real(index));
  if (error == cudaSuccess) current = index;
  return error;
}
cudaError_t get_shown_device(int* index) {
  const cudaError_t error = __real_cudaGetDevice(index);
  if (error == cudaSuccess && shown_gpus() > 0) *index = current;
  return error;
}
cudaError_t enable_shown_peer(int other, unsigned flags) {
  if (shown_gpus() == 0) return __real_cudaDeviceEnablePeerAccess(other, flags);
  return real(other) < 0 || other == current ? cudaErrorInvalidDevice : cudaSuccess;
}

// A kernel that starts early waits in all multiprocessors that are free, behind one that waits for another GPU.
cudaError_t launch_on_shown(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
  if (shown_gpus() == 0) return __real_cudaLaunchKernelExC(config, kernel, arguments);
  std::vector<cudaLaunchAttribute> attributes(config->attrs, config->attrs + config->numAttrs);
  std::erase_if(attributes, [](const cudaLaunchAttribute& attribute) {
    return attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization;
  });
  cudaLaunchConfig_t in_order = *config;
  in_order.attrs = attributes.data();
  in_order.numAttrs = static_cast<unsigned>(attributes.size());
  return __real_cudaLaunchKernelExC(&in_order, kernel, arguments);
}

}  // namespace kaiju::test
