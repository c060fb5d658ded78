// Buffers of device memory and of pinned host memory: zeroed, of fixed size, allocated once.
#pragma once

#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <string>

#include "kaiju/base/status.hpp"
#include "quiet.hpp"

namespace kaiju::cuda {

namespace detail {
struct FreeDevice {
  void operator()(void* p) const {
    const QuietGpu quiet = quiet_current_gpu();
    cudaFree(p);
  }
};
struct FreePinned {
  void operator()(void* p) const {
    const QuietGpu quiet = quiet_current_gpu();
    cudaFreeHost(p);
  }
};
}  // namespace detail

inline Status lost(const char* what, cudaError_t error) {
  return {StatusCode::kDeviceLost,
          std::string("the GPU failed while memory was allocated for ") + what + ": " + cudaGetErrorString(error)};
}

template <class T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;

  // kOutOfMemory names `what`, the bytes wanted and the bytes free; kDeviceLost for every other failure.
  static Result<DeviceBuffer> make(size_t count, const char* what) {
    DeviceBuffer buffer;
    buffer.count_ = count;
    if (count == 0) return buffer;
    const QuietGpu quiet = quiet_current_gpu();
    void* memory = nullptr;
    cudaError_t error = cudaMalloc(&memory, count * sizeof(T));
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // running out of memory is not sticky
      size_t free = 0, total = 0;
      cudaMemGetInfo(&free, &total);
      return Status(StatusCode::kOutOfMemory, std::string(what) + " needs " + std::to_string(count * sizeof(T)) +
                                                  " bytes of the GPU's memory, of which " + std::to_string(free) +
                                                  " of " + std::to_string(total) + " are free");
    }
    buffer.memory_.reset(memory);
    // Not by the legacy stream, which waits for the host's own and breaks off what it records.
    if (error == cudaSuccess) error = cudaMemsetAsync(memory, 0, count * sizeof(T), cudaStreamPerThread);
    if (error == cudaSuccess) error = cudaStreamSynchronize(cudaStreamPerThread);
    if (error != cudaSuccess) return lost(what, error);
    return buffer;
  }

  T* data() const { return static_cast<T*>(memory_.get()); }
  size_t size() const { return count_; }
  size_t bytes() const { return count_ * sizeof(T); }

 private:
  std::unique_ptr<void, detail::FreeDevice> memory_;
  size_t count_ = 0;
};

class PinnedBuffer {
 public:
  PinnedBuffer() = default;

  static Result<PinnedBuffer> make(size_t bytes, const char* what) {
    PinnedBuffer buffer;
    const QuietGpu quiet = quiet_current_gpu();
    void* memory = nullptr;
    const cudaError_t error = cudaMallocHost(&memory, bytes);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return Status(StatusCode::kOutOfMemory, std::string(what) + " needs " + std::to_string(bytes) +
                                                  " bytes of pinned host memory, which the system did not give");
    }
    if (error != cudaSuccess) return lost(what, error);
    buffer.memory_.reset(memory);
    buffer.bytes_ = bytes;
    std::memset(memory, 0, bytes);
    return buffer;
  }

  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
  size_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<void, detail::FreePinned> memory_;
  size_t bytes_ = 0;
};

// Takes a buffer over, or says why there is none.
template <class T>
Status take(DeviceBuffer<T>& buffer, size_t count, const char* what) {
  Result<DeviceBuffer<T>> made = DeviceBuffer<T>::make(count, what);
  if (!made.ok()) return made.status();
  buffer = std::move(made).value();
  return {};
}
inline Status take(PinnedBuffer& buffer, size_t bytes, const char* what) {
  Result<PinnedBuffer> made = PinnedBuffer::make(bytes, what);
  if (!made.ok()) return made.status();
  buffer = std::move(made).value();
  return {};
}

}  // namespace kaiju::cuda
