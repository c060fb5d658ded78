// OneRowStep: a step of one row as one kernel (kernels/sm90_row_step.cuh). It owns the kernel's description of the
// model and its memory on one GPU.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "device.hpp"
#include "kaiju/model/weights.hpp"
#include "memory.hpp"

namespace kaiju::cuda {

class OneRowStep {
 public:
  // Memory of the model's that the kernel reads and writes; all on the GPU.
  struct Places {
    const std::vector<KvSlot>& slots;           // with their pools
    const std::vector<arith::CosSin*>& angles;  // per RoPE table: [1, head_dim / 2]
    arith::bf16* x;                             // [d_model] the embedded token; in the end the residual stream
    float* logits;                              // [vocab_size]
  };
  // None where the kernel does not serve the model or the GPU. `weights` on the GPU; they outlive this.
  static Result<std::optional<OneRowStep>> make(std::shared_ptr<Device> device, const Weights& weights,
                                                const Places& places);

  // Whether a row at `position` sees no more chunks of keys in any KV slot than the kernel has room for.
  bool serves(int32_t position) const;
  // Launches it: from the embedded token to the logits. `segment` on the GPU, of one row.
  void run(const BatchSegment* segment);

 private:
  OneRowStep(std::shared_ptr<Device> device, std::vector<KvSlot> slots)
      : device_(std::move(device)), slots_(std::move(slots)) {}
  Status take_memory(const ModelConfig& config, const std::vector<RowLayer>& layers);

  std::shared_ptr<Device> device_;
  std::vector<KvSlot> slots_;
  DeviceBuffer<RowLayer> layers_;
  DeviceBuffer<uint64_t> words_;
  DeviceBuffer<int32_t> counters_;
  RowStep step_{};
};

}  // namespace kaiju::cuda
