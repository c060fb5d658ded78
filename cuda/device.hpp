// Device: one GPU, one stream on it, and the first error anything there answered with. After an error nothing more is
// launched: the latch stands for the whole life of what uses the device, since whatever failed has left something
// undone that the rest relies on.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

#include "kaiju/base/status.hpp"
#include "kernels.hpp"

namespace kaiju::cuda {

// Makes a GPU the calling thread's current one, which calls and what they make belong to, and puts the one before back
// when it goes: a host may use others on the same thread. Until then the thread may also call what takes memory or
// waits while a host records a graph of its own (cudaStreamCaptureModeGlobal): CUDA forbids that to every thread, lest
// it were meant to be recorded, and ends the recording.
class CurrentDevice {
 public:
  explicit CurrentDevice(int32_t index) : index_(index) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = index;  // whatever is asked next says why
    if (before_ != index) cudaSetDevice(index);
    cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  ~CurrentDevice() {
    cudaThreadExchangeStreamCaptureMode(&mode_);
    if (before_ != index_) cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int index_, before_ = 0;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // then the thread's before
};

class Device {
 public:
  // Whether the backend can run on GPU `index`. kUnsupported when there is no such GPU, no driver, or it is older than
  // compute capability 8.0; the message says which. kDeviceLost, as open(), once CUDA has given this process up.
  static Status fit(int32_t index);
  // Makes its context. Whoever uses it makes it current.
  static Result<std::shared_ptr<Device>> open(int32_t index = 0);
  // For tests: GPUs that are opened from now on are taken for chips of at most this compute capability (80 for 8.0), so
  // that one shows what serves older ones.
  static void limit_capability(int32_t capability);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int32_t index() const { return index_; }
  cudaStream_t stream() const { return stream_; }
  const std::string& name() const { return name_; }
  const Chip& chip() const { return chip_; }

  // Records the first failure; `what` names the call. Returns whether everything has been well so far. Until made(),
  // the driver's own want of memory (for kernels, for recorded steps) is kOutOfMemory, and a recording that somebody
  // else's call broke off kBusy.
  bool check(cudaError_t error, const char* what);
  // What uses the device has been made, and takes no more memory.
  void made() { made_ = true; }
  // The same of what CUDA's libraries answer.
  bool fail(const char* what, const char* answered);
  bool ok() const { return status_.ok(); }
  // kDeviceLost, or of what is being made kOutOfMemory or kBusy, with the call that failed first, or ok.
  const Status& status() const { return status_; }

 private:
  Device() = default;

  int32_t index_ = 0;
  cudaStream_t stream_ = nullptr;
  std::string name_;
  Chip chip_;
  bool made_ = false;
  Status status_;
};

}  // namespace kaiju::cuda
