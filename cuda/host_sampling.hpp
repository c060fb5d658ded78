// HostSampling: samples the rows of a step that have a hook or a chain of samplers. Their logits are copied to the
// host, and the CPU backend's sampler draws from them after the step has ended: the same bits on every device. The host
// knows the token before it can plan the sequence's next step, so such steps never overlap.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device.hpp"
#include "kaiju/backend/row_sampler.hpp"
#include "kaiju/base/detail/thread_pool.hpp"
#include "kaiju/run/hooked_row.hpp"
#include "kaiju/run/slots.hpp"
#include "memory.hpp"

namespace kaiju::cuda {

class HostSampling {
 public:
  // At most `threads` threads draw, the calling one included. The others are the host's, or are started by the first
  // plan that samples several rows on the host.
  HostSampling(std::shared_ptr<Device> device, const ExecutorInfo& info, int32_t threads, const HostThreads& host)
      : device_(std::move(device)), info_(info), threads_(threads), host_threads_(host) {}

  // Takes what drawing needs, and pinned memory for as many rows as the plan samples on the host, if it samples more
  // than any before it. kOutOfMemory if there is none.
  Status have_room(const StepPlan& plan);
  // Copies these rows of a step's logits, asynchronous on the device's stream. logits: [samples, vocab_size].
  void send_rows(const StepPlan& plan, const float* logits);
  // After the step has ended: replaces the samples of these rows in its answer.
  void sample(const StepPlan& plan, const Slots& slots, const FloatState& float_state, StepResult& answer);

 private:
  // What a thread draws with.
  struct Drawer {
    RowSampler sampler;
    HookedRow hooked;
  };
  struct Row {
    const Segment* segment;
    const float* logits;
    SampledToken* token;
  };

  size_t row_bytes() const { return static_cast<size_t>(info_.vocab_size) * sizeof(float); }
  void have_drawers(bool many);
  void draw(const StepPlan& plan, const Slots& slots, const FloatState& float_state, const Row& row,
            Drawer& drawer) const;

  std::shared_ptr<Device> device_;
  ExecutorInfo info_;
  int32_t threads_;
  HostThreads host_threads_;
  PinnedBuffer memory_;  // [rows of the largest step so far, vocab_size] float
  std::unique_ptr<ThreadPool> pool_;
  std::vector<std::unique_ptr<Drawer>> drawers_;  // one for each thread, once a row has been drawn on the host
  std::vector<Row> drawn_, hooked_;
};

}  // namespace kaiju::cuda
