// Device: opens a GPU and turns CUDA errors into Status values. See device.hpp.
#include "device.hpp"

#include <algorithm>
#include <atomic>

namespace kaiju::cuda {
namespace {

std::atomic<int32_t> most_capability = INT32_MAX;

Status refuse(const std::string& why) { return {StatusCode::kUnsupported, "the CUDA backend cannot run: " + why}; }

// Whether CUDA refuses to serve the process from now on: every later call answers with the same error.
bool beyond_repair(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
      return true;
    default:
      break;
  }
  constexpr int kContained = 226,
                kTensorMemoryLeak =
                    721;  // cudaErrorContained, cudaErrorTensorMemoryLeak: not all versions of CUDA's headers name them
  return error == kContained || error == kTensorMemoryLeak;
}

Status answer(cudaError_t error) {
  if (error == cudaSuccess) return {};
  if (beyond_repair(error))
    return {StatusCode::kDeviceLost, std::string("the GPU failed earlier in this process (\"") +
                                         cudaGetErrorString(error) +
                                         "\") and CUDA cannot be used in it any more; start a new process"};
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return {StatusCode::kOutOfMemory,
            "the CUDA driver needs more of the GPU's memory than is free, before kaiju has allocated anything"};
  }
  if (error == cudaErrorInsufficientDriver)  // also where there is none
    return refuse("there is no NVIDIA driver here that knows CUDA " + std::to_string(CUDART_VERSION / 1000) + "." +
                  std::to_string(CUDART_VERSION % 1000 / 10));
  const char* const hint = error == cudaErrorInitializationError
                               ? ", as it does in a child of fork() whose parent used CUDA: fork before the parent "
                                 "creates an engine, or exec"
                               : "";
  return refuse(std::string("the driver answers \"") + cudaGetErrorString(error) + "\"" + hint);
}

}  // namespace

Status Device::fit(int32_t index) {
  int count = 0, major = 0, minor = 0;
  KAIJU_TRY(answer(cudaGetDeviceCount(&count)));
  if (index < 0 || index >= count)
    return refuse("there is no GPU number " + std::to_string(index) + " among " + std::to_string(count));
  KAIJU_TRY(answer(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index)));
  KAIJU_TRY(answer(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index)));
  if (major < 8)
    return refuse("the GPU has compute capability " + std::to_string(major) + "." + std::to_string(minor) +
                  "; 8.0 or newer is needed");
  return {};
}

void Device::limit_capability(int32_t capability) { most_capability = capability; }

Result<std::shared_ptr<Device>> Device::open(int32_t index) {
  KAIJU_TRY(fit(index));
  const CurrentDevice current(index);
  std::shared_ptr<Device> device(new Device);
  device->index_ = index;
  cudaDeviceProp properties{};
  KAIJU_TRY(answer(cudaGetDeviceProperties(&properties, index)));
  device->name_ = properties.name;
  device->chip_.capability = properties.major * 10 + properties.minor;
  device->chip_.multiprocessors = properties.multiProcessorCount;
  cudaDriverEntryPointQueryResult found{};
  KAIJU_TRY(answer(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &device->chip_.encode_tensor_map, 12000,
                                                    cudaEnableDefault, &found)));
  if (found != cudaDriverEntryPointSuccess) device->chip_.encode_tensor_map = nullptr;
  KAIJU_TRY(answer(cudaSetDevice(index)));  // again: this time the answer counts
  KAIJU_TRY(answer(cudaFree(nullptr)));     // makes the context, or tells what became of it
  int32_t compiled_for = 0;
  KAIJU_TRY(answer(find_capability(compiled_for)));
  device->chip_.capability = std::min({device->chip_.capability, compiled_for, most_capability.load()});
  KAIJU_TRY(answer(cudaStreamCreateWithFlags(&device->stream_, cudaStreamNonBlocking)));
  return device;
}

Device::~Device() {
  if (!stream_) return;
  const CurrentDevice current(index_);
  cudaStreamDestroy(stream_);
}

bool Device::check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return ok();
  if (error == cudaErrorStreamCaptureInvalidated && !created_ && ok()) {
    status_ = {StatusCode::kBusy,
               "another thread waited for the whole GPU (cudaDeviceSynchronize) while steps were captured, which CUDA "
               "does not allow; try again"};
    return false;
  }
  if (error != cudaErrorMemoryAllocation || created_ || !ok()) return fail(what, cudaGetErrorString(error));
  cudaGetLastError();  // running out of memory is not sticky
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  status_ = Status(StatusCode::kOutOfMemory,
                   std::string("the CUDA driver needs more of the GPU's memory than is free for ") + what + ": " +
                       std::to_string(free) + " of " + std::to_string(total) + " bytes are free");
  return false;
}

bool Device::fail(const char* what, const char* answered) {
  if (ok())
    status_ = Status(StatusCode::kDeviceLost,
                     std::string("the GPU failed: ") + what + " answered \"" + answered + "\"; create a new engine");
  return false;
}

}  // namespace kaiju::cuda
