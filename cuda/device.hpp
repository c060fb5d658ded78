// Device: one GPU, the stream of its steps, and the first error that a CUDA call returned. The error stays for the life
// of the device and nothing is launched after it, because later calls rely on the work of the failed one.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

#include "kaiju/base/status.hpp"
#include "kernels.hpp"

namespace kaiju::cuda {

// Makes a GPU the calling thread's current device while it lives, and restores the previous one: a host may use other
// GPUs on the same thread. It also allows calls that take memory or wait while the host records a graph of its own
// (cudaStreamCaptureModeGlobal): by default CUDA forbids these calls to every thread and ends the recording.
class CurrentDevice {
 public:
  explicit CurrentDevice(int32_t index) : index_(index) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = index;  // the next call answers with the reason
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
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // after the exchange: the thread's previous mode
};

class Device {
 public:
  // Whether the backend can run on GPU `index`. kUnsupported when there is no such GPU, no driver, or it is older than
  // compute capability 8.0; the message says which. kDeviceLost, as open(), once CUDA refuses to serve this process.
  static Status fit(int32_t index);
  // Creates its context. The caller makes it current (CurrentDevice) before every use.
  static Result<std::shared_ptr<Device>> open(int32_t index = 0);
  // For tests: GPUs opened from now on are treated as having at most this compute capability (80 for 8.0), so that the
  // kernels for older chips run.
  static void limit_capability(int32_t capability);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int32_t index() const { return index_; }
  cudaStream_t stream() const { return stream_; }
  const std::string& name() const { return name_; }
  const Chip& chip() const { return chip_; }

  // Records the first failure; `what` names the call. Returns whether every call so far has succeeded. Until
  // creation_done(), a driver that lacks memory (for kernels, for graphs) is kOutOfMemory, and a recording that another
  // thread's call broke off is kBusy.
  bool check(cudaError_t error, const char* what);
  // Makes a call and checks it, unless an earlier one failed: its inputs may be missing then, and a kernel that follows
  // stale block numbers would fault the whole context.
  template <class Call>
  void attempt(const char* what, Call&& call) {
    if (ok()) check(call(), what);
  }
  // The owner has taken all its memory: from now on a failure is kDeviceLost.
  void creation_done() { created_ = true; }
  // As check(), for an answer of a CUDA library.
  bool fail(const char* what, const char* answered);
  bool ok() const { return status_.ok(); }
  // Ok, or the first failure with the name of its call: kDeviceLost, during creation also kOutOfMemory or kBusy.
  const Status& status() const { return status_; }

 private:
  Device() = default;

  int32_t index_ = 0;
  cudaStream_t stream_ = nullptr;
  std::string name_;
  Chip chip_;
  bool created_ = false;
  Status status_;
};

}  // namespace kaiju::cuda
