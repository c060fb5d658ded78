// The interface of the CUDA backend to the rest of the library: it makes executors on an NVIDIA GPU. Includes no header
// of CUDA.
#pragma once

#include <memory>

#include "kaiju/model/weights.hpp"
#include "kaiju/run/slots.hpp"
#include "kaiju/step/executor.hpp"

namespace kaiju::cuda {

// Whether this machine has a GPU the backend runs on.
bool present();

// Takes all memory of computing on the GPU and copies the weights there. kUnsupported without a fit GPU or when it
// fails the golden self-check, kOutOfMemory with what was wanted by what. The executor answers kDeviceLost from the
// first failed CUDA call on; a new one may then be made, where the driver allows.
Result<std::unique_ptr<Executor>> make_executor(Weights weights, const ExecutorSizes& sizes);

}  // namespace kaiju::cuda
