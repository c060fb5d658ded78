// ScriptedReplies: an executor that computes nothing. It returns the tokens of the trace, and reports how long the step
// would have taken. It checks no plans; tests/engine and tests/cache test that plans read the right KV.
#pragma once

#include <vector>

#include "bench/replay/machine.hpp"
#include "bench/replay/trace.hpp"
#include "kaiju/step/executor.hpp"

namespace kaiju::replay {

// A reply's content is its request's seed, and its tokens are named by their positions.
class ScriptedReplies final : public Executor {
 public:
  ScriptedReplies(const ExecutorInfo& info, const StepCost& cost)
      : info_(info), cost_(cost), contents_(static_cast<size_t>(info.slot_count), 0) {}

  const ExecutorInfo& info() const override { return info_; }
  Status run(const StepPlan& plan, StepResult& result) override {
    result.clear();
    for (const SlotStart& start : plan.starts)
      contents_[static_cast<size_t>(start.slot)] = static_cast<int32_t>(start.sampling.seed);
    int64_t global_tokens = 0, window_tokens = 0, transfer_bytes = 0;
    for (const BlockTransfer& transfer : plan.transfers) transfer_bytes += info_.block_bytes[transfer.kind];
    for (const Segment& segment : plan.segments) {
      const int32_t next = segment.position + segment.token_count;
      if (segment.token_count == 1) global_tokens += next, window_tokens += std::min(next, cost_.window);
      if (segment.sample_count == 0) continue;
      result.sampled.emplace_back();
      result.sampled.back().slot = segment.slot;
      result.sampled.back().token = token_of(contents_[static_cast<size_t>(segment.slot)], next, info_.vocab_size);
    }
    seconds_ = cost_.seconds(static_cast<int32_t>(plan.tokens.size()), global_tokens, window_tokens, transfer_bytes);
    return {};
  }

  // Of the last step that ran.
  double seconds() const { return seconds_; }

 private:
  ExecutorInfo info_;
  StepCost cost_;
  std::vector<int32_t> contents_;  // of the reply that a slot generates
  double seconds_ = 0;
};

}  // namespace kaiju::replay
