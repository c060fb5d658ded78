// HostSampling: samples the rows of a step that have a hook or a chain of samplers. Their logits are copied to the
// host, and the CPU backend's sampler draws from them after the step has ended: the same bits on every device. The host
// knows the token before it can plan the sequence's next step, so such steps never overlap.
#pragma once

#include <memory>

#include "device.hpp"
#include "kaiju/backend/row_sampler.hpp"
#include "kaiju/run/hooked_row.hpp"
#include "kaiju/run/slots.hpp"
#include "memory.hpp"

namespace kaiju::cuda {

class HostSampling {
 public:
  HostSampling(std::shared_ptr<Device> device, const ExecutorInfo& info) : device_(std::move(device)), info_(info) {}

  // Takes pinned memory for as many rows as the plan samples on the host, if it samples more than any before it.
  // kOutOfMemory if there is none.
  Status have_room(const StepPlan& plan);
  // Copies these rows of a step's logits, asynchronous on the device's stream. logits: [samples, vocab_size].
  void send_rows(const StepPlan& plan, const float* logits);
  // After the step has ended: replaces the samples of these rows in its answer.
  void sample(const StepPlan& plan, const Slots& slots, const FloatState& float_state, StepResult& answer);

 private:
  size_t row_bytes() const { return static_cast<size_t>(info_.vocab_size) * sizeof(float); }

  std::shared_ptr<Device> device_;
  ExecutorInfo info_;
  PinnedBuffer rows_;  // [rows of the largest step so far, vocab_size] float
  RowSampler sampler_;
  HookedRow hooked_;
};

}  // namespace kaiju::cuda
