// Exchange: what one GPU needs to add up sums with the other GPUs that share its model, and to collect their logits
// (kernels/exchange.hpp).
#pragma once

#include <memory>
#include <span>

#include "device.hpp"
#include "kernels/exchange.hpp"
#include "memory.hpp"
#include "split.hpp"

namespace kaiju::cuda {

// A flag in host memory that all GPUs of a model see: set by one that waited in vain for another, or by the host.
class LostFlag {
 public:
  static Result<std::shared_ptr<LostFlag>> make();
  bool is_set() const { return *reinterpret_cast<const volatile int32_t*>(memory_.data()) != 0; }
  void set() { *reinterpret_cast<volatile int32_t*>(memory_.data()) = 1; }
  int32_t* address() const { return reinterpret_cast<int32_t*>(memory_.data()); }

 private:
  PinnedBuffer memory_;
};

class Exchange {
 public:
  // `rows`, `logit_rows`: most of a step, and of logits.
  static Result<std::unique_ptr<Exchange>> make(std::shared_ptr<Device> device, const Split& split,
                                                const ModelConfig& config, int32_t rows, int32_t logit_rows,
                                                std::shared_ptr<LostFlag> lost);
  // Makes them known to each other, by rank: `streams` are their residual streams. The GPUs must reach each other's
  // memory; kUnsupported says which do not.
  static Status connect(std::span<Exchange* const> all, std::span<arith::bf16* const> streams);

  // Where the sums of a matmul go, 0 or 1 in turn, and the logits of this GPU's tokens.
  int32_t* sums(int32_t turn) const { return sums_[turn].data(); }
  float* logits() const { return logits_.data(); }

  void add_sums(int32_t turn, int32_t rows, int32_t out, const float* scale);
  void gather_logits(int32_t rows, float* logits);

  // After a step: a GPU that did not come is an error of the device.
  void look_for_lost();
  // So that nobody waits for this GPU, which has failed.
  void leave() { lost_->set(); }

 private:
  Exchange(std::shared_ptr<Device> device, std::shared_ptr<LostFlag> lost)
      : device_(std::move(device)), lost_(std::move(lost)) {}

  std::shared_ptr<Device> device_;
  std::shared_ptr<LostFlag> lost_;
  DeviceBuffer<int32_t> sums_[2];
  DeviceBuffer<float> logits_;
  DeviceBuffer<int32_t> arrived_, state_;
  Peers peers_;
};

}  // namespace kaiju::cuda
