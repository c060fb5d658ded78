// Stream and Event: a CUDA stream and a CUDA event of the current device, destroyed with their owner.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

namespace kaiju::cuda {

namespace detail {
struct DestroyStream {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
}  // namespace detail

class Stream {
 public:
  // One that does not wait for the legacy default stream.
  static cudaError_t make(Stream& stream) {
    cudaStream_t made = nullptr;
    const cudaError_t error = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
    if (error == cudaSuccess) stream.stream_.reset(made);
    return error;
  }
  cudaStream_t get() const { return stream_.get(); }

 private:
  std::unique_ptr<std::remove_pointer_t<cudaStream_t>, detail::DestroyStream> stream_;
};

class Event {
 public:
  // One without timing.
  static cudaError_t make(Event& event) {
    cudaEvent_t made = nullptr;
    const cudaError_t error = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
    if (error == cudaSuccess) event.event_.reset(made);
    return error;
  }
  cudaEvent_t get() const { return event_.get(); }

 private:
  std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, detail::DestroyEvent> event_;
};

}  // namespace kaiju::cuda
