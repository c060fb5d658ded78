// Graph: a CUDA graph, that is, launches that were captured once on a stream and are started together.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

#include "quiet.hpp"

namespace kaiju::cuda {

class Graph {
 public:
  // Records what `work` launches on `stream` without running it. Takes the memory that starting it needs.
  template <class Work>
  static cudaError_t record(cudaStream_t stream, Graph& graph, Work&& work) {
    if (const cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed); error != cudaSuccess)
      return error;
    work();
    cudaGraph_t recorded = nullptr;
    cudaGraphExec_t ready = nullptr;
    cudaError_t error = cudaStreamEndCapture(stream, &recorded);
    const QuietGpu quiet = quiet_current_gpu();
    if (error == cudaSuccess) error = cudaGraphInstantiate(&ready, recorded, 0);
    if (recorded) cudaGraphDestroy(recorded);
    graph.ready_.reset(ready);
    return error == cudaSuccess ? cudaGraphUpload(ready, stream) : error;
  }

  cudaError_t launch(cudaStream_t stream) const { return cudaGraphLaunch(ready_.get(), stream); }

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t ready) const { cudaGraphExecDestroy(ready); }
  };
  std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroy> ready_;
};

}  // namespace kaiju::cuda
