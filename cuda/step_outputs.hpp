// StepOutputs: copies a step's results from one GPU to the host: sampled tokens, logits and classifier scores. It also
// owns the state of sampling on the GPU: the tokens that each slot has seen, and the token that it drew last. Host
// memory that the GPU writes exists twice, for steps in turn.
#pragma once

#include <memory>
#include <span>

#include "device.hpp"
#include "kaiju/model/weights.hpp"
#include "kaiju/step/plan.hpp"
#include "kaiju/step/result.hpp"
#include "memory.hpp"
#include "step_inputs.hpp"
#include "step_intake.hpp"
#include "step_lists.hpp"

namespace kaiju::cuda {

class StepOutputs {
 public:
  using Inputs = StepInputs::Placed;

  static Result<StepOutputs> make(std::shared_ptr<Device> device, const ExecutorInfo& info);

  // Launches and copies, asynchronous on the device's stream.
  // Clears the seen tokens of slots that start, and marks those of their histories.
  void start_slots(const CheckedStep& step, StepLists& lists);
  // Replaces tokens sampled by the step before, which the host does not know yet, and marks all tokens of the batch as
  // seen.
  void mark_rows(const Inputs& inputs);
  // Penalties, biases and masks: fills adjusted logits of the rows that have any.
  void adjust(const float* logits, const Inputs& inputs, const CheckedStep& step, StepLists& lists);
  // Samples from all rows; without `adjusted` not from those whose logits penalties, biases or masks change.
  void sample(const float* logits, const Inputs& inputs, bool adjusted);
  void return_logits(const float* logits, int64_t rows, float* to);
  // The first `rows` rows of the step's scores.
  void return_scores(const float* scores, int32_t rows, int32_t turn);

  // After the step has ended: its answer in that turn.
  void read_samples(const StepPlan& plan, int32_t turn, StepResult& answer) const;
  void read_scores(const StepPlan& plan, const Weights& weights, int32_t turn, StepResult& answer) const;

  // Every kernel that is launched here, in a recording that never runs.
  void load_kernels(const float* logits, const Inputs& inputs, const StepLists& lists);

 private:
  StepOutputs(std::shared_ptr<Device> device, const ExecutorInfo& info) : device_(std::move(device)), info_(info) {}
  Sampled* sampled() const { return reinterpret_cast<Sampled*>(sampled_.data()); }
  Alternative* top() const { return reinterpret_cast<Alternative*>(top_.data()); }
  size_t score_count() const { return static_cast<size_t>(info_.slot_count + info_.step_tokens) * labels(); }
  size_t labels() const { return static_cast<size_t>(info_.label_count); }

  std::shared_ptr<Device> device_;
  ExecutorInfo info_;
  DeviceBuffer<uint8_t> seen_;          // [slots, vocab_size]
  DeviceBuffer<int32_t> last_sampled_;  // [slots]
  DeviceBuffer<float> adjusted_;        // [slots, vocab_size]
  PinnedBuffer sampled_;                // [2, slots] Sampled, written by the GPU
  PinnedBuffer top_;                    // [2, slots, kMostTop] Alternative, written by the GPU
  PinnedBuffer scores_;                 // [2, score_count()] float
};

}  // namespace kaiju::cuda
