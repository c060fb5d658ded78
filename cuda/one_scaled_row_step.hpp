// OneScaledRowStep: a step of one row in version 2 of the arithmetic as one kernel (kernels/sm90_scaled_row_step.cuh).
// It owns the kernel's description of the model and its memory on one GPU. OneRowStep is that of version 1.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "device.hpp"
#include "kaiju/model/weights.hpp"
#include "kernels/scaled_row_step.hpp"
#include "memory.hpp"

namespace kaiju::cuda {

class OneScaledRowStep {
 public:
  // Memory of the model's that the kernel reads and writes; all on the GPU.
  struct Places {
    const std::vector<KvSlot>& slots;           // with their pools
    const std::vector<arith::CosSin*>& angles;  // per RoPE table: [1, head_dim / 2]
    float* x;                                   // [d_model] the embedded token; in the end the residual stream
    float* logits;                              // [vocab_size]
  };
  // None where the kernel does not serve the model or the GPU. `weights` on the GPU; they outlive this.
  static Result<std::optional<OneScaledRowStep>> make(std::shared_ptr<Device> device, const Weights& weights,
                                                      const Places& places);

  // Whether a row at `position` sees no more chunks of keys in any KV slot than the kernel has room for.
  bool serves(int32_t position) const;
  // Launches it: from the embedded token to the logits. `segment` on the GPU, of one row.
  void run(const BatchSegment* segment);

 private:
  OneScaledRowStep(std::shared_ptr<Device> device, std::vector<KvSlot> slots)
      : device_(std::move(device)), slots_(std::move(slots)) {}
  Status take_memory(const std::vector<ScaledRowLayer>& layers);

  std::shared_ptr<Device> device_;
  std::vector<KvSlot> slots_;
  DeviceBuffer<ScaledRowLayer> layers_;
  DeviceBuffer<uint64_t> words_;
  DeviceBuffer<int32_t> counters_;
  ScaledRowStep step_{};
};

}  // namespace kaiju::cuda
