// Exchange: what one GPU needs to add up sums with the other GPUs that share its model, and to collect their logits
// (kernels/exchange.hpp).
#pragma once

#include <memory>
#include <span>

#include "device.hpp"
#include "kernels/exchange.hpp"
#include "memory.hpp"
#include "split.hpp"
#include "stream.hpp"
#include "turns.hpp"

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
  // Memory of a GPU's workspace that the others write to.
  struct Rooms {
    arith::bf16* stream;  // [rows, d_model] of version 1 of the arithmetic
    int8_t* bytes;        // [rows, d_model] what the matmul after a norm reads, in version 1
    float* floats;        // [rows, d_model] results of matmuls, in version 2
  };
  // Makes them known to each other, by rank. The GPUs must reach each other's memory; kUnsupported says which do not.
  static Status connect(std::span<Exchange* const> all, std::span<const Rooms> rooms);

  // Where a matmul sends its sums. They are to be added up with those of the other GPUs, times `scale`, before anything
  // else reads the residual stream or its results. Rows have d_model values.
  SumTargets begin(int32_t rows, const float* scale);
  bool has_begun() const { return begun_.sums != nullptr; }
  // Adds up what was begun: for a norm of all rows, whose bytes go to Rooms::bytes, after which the stream may be
  // stale; to the whole stream of all GPUs, nothing where nothing was begun; or to Rooms::floats.
  void finish_norm(const NormArgs& norm);
  void finish_stream();
  void finish_floats();
  // For rows of which each GPU has a part.
  const SharedMost& shared_most() const { return most_; }

  float* logits() const { return logits_.data(); }  // of this GPU's tokens
  void gather_logits(int32_t rows, float* logits);

  // For turns: what is launched from now on waits for a mark; a mark behind what was launched.
  void wait_for(Mark mark);
  Mark mark();

  // After a step: a GPU that did not come is an error of the device.
  void look_for_lost();
  // So that nobody waits for this GPU, which has failed.
  void leave() { lost_->set(); }

 private:
  Exchange(std::shared_ptr<Device> device, std::shared_ptr<LostFlag> lost)
      : device_(std::move(device)), lost_(std::move(lost)) {}

  void add_sums(ReceivedSums::To to);

  std::shared_ptr<Device> device_;
  std::shared_ptr<LostFlag> lost_;
  int32_t width_ = 0;   // d_model
  int32_t result_ = 0;  // bytes that become of a value
  int64_t part_ = 0;    // of the sums: values of each GPU
  DeviceBuffer<int32_t> sums_[2];
  int32_t* sums_of_[2][kMostGpus] = {};  // where this GPU's go, in memory of each
  int32_t turn_ = 0;                     // which of the two the next sums use
  ReceivedSums begun_{};
  DeviceBuffer<uint64_t> most_there_;
  SharedMost most_;
  DeviceBuffer<float> logits_;
  DeviceBuffer<int32_t> arrived_, state_;
  Peers peers_;
  Event turn_ended_;
};

}  // namespace kaiju::cuda
