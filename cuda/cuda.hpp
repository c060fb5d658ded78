// The interface of the CUDA backend to the rest of the library: it makes executors on an NVIDIA GPU. Includes no header
// of CUDA.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kaiju/model/weights.hpp"
#include "kaiju/run/slots.hpp"
#include "kaiju/step/executor.hpp"

namespace kaiju::cuda {

struct Gpu {
  std::string name;                            // the product's
  bool fit = false;                            // whether the backend runs on it
  uint64_t memory_total = 0, memory_free = 0;  // bytes; 0: not known
};
// The GPUs that CUDA shows, in its order; none without a driver.
std::vector<Gpu> gpus();
// Whether the first of them is one the backend runs on.
bool present();

// Bytes that each of `count` GPUs that share a model takes at most for what they tell each other, in steps of so many
// tokens of so many slots; 0 for one GPU. kUnsupported where a model cannot be divided so, with what could be.
Result<int64_t> exchange_bytes(const ModelConfig& config, int32_t count, int32_t step_tokens, int32_t slot_count);

// Takes all memory of computing on the GPUs sizes.gpus and copies the weights there. kUnsupported without a fit GPU or
// when it fails the golden self-check, kOutOfMemory with what was wanted by what. The executor answers kDeviceLost from
// the first failed CUDA call on; a new one may then be made, where the driver allows.
Result<std::unique_ptr<Executor>> make_executor(Weights weights, const ExecutorSizes& sizes);

}  // namespace kaiju::cuda
