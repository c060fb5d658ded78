// Worker: owns everything on one GPU that steps need: device and stream, the model with its weights, KV pool and
// workspaces, the captured graphs, and the buffers for copies to and from the host. It runs checked steps; the executor
// decides which. Code outside the Worker assumes no device.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "host_sampling.hpp"
#include "kaiju/step/executor.hpp"
#include "model_runner.hpp"
#include "step_graphs.hpp"
#include "step_outputs.hpp"
#include "transfers.hpp"
#include "weight_sums.hpp"

namespace kaiju::cuda {

class Worker {
 public:
  // Takes all memory of computing on the GPU and copies the weights there. kOutOfMemory names what wanted how much.
  // `intake` is not kept.
  static Result<std::unique_ptr<Worker>> make(std::shared_ptr<Device> device, Weights weights, const StepIntake& intake,
                                              const ExecutorSizes& sizes);
  // Waits for steps under way, which write to the host's memory.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Ok, or the first failure on the device.
  const Status& status() const { return device_->status(); }
  // Launches a step in turn 0 or 1; `alone`: the step before it has been finished. Returned logits go to `answer`,
  // which stays where it is until finish(). Failures are told by finish().
  void start(const CheckedStep& step, int32_t turn, bool alone, StepResult& answer);
  // Takes memory that only steps like this one need; kOutOfMemory if there is none. Before start().
  Status have_room(const StepPlan& plan) {
    const CurrentDevice current(device_->index());
    return host_sampling_.have_room(plan);
  }
  // Waits for the step started in that turn and completes its answer. `slots`: as the step left them.
  Status finish(const StepPlan& plan, const Slots& slots, int32_t turn, const FloatState& float_state,
                StepResult& answer);
  // As Executor::set_head().
  Status set_head(const std::shared_ptr<const Checkpoint>& checkpoint);
  // As Executor::set_scales().
  Status set_scales(const std::shared_ptr<const Checkpoint>& checkpoint);
  // As Executor::count_kv().
  Status count_kv(BlockKind kind, BlockId block, KvCounts& counts);
  // As Executor::scrub().
  Result<Scrubbed> scrub(size_t most_bytes);
  // As Executor::host_memory().
  Result<HostMemory> host_memory(size_t bytes, const char* what);

 private:
  struct Parts {
    std::shared_ptr<Device> device;
    ModelRunner runner;
    StepInputs inputs;
    StepLists lists;
    StepOutputs outputs;
    StepGraphs graphs;
    WeightSums sums;
    Event ended[2];
  };
  Worker(Parts parts, const ExecutorInfo& info, int32_t draw_threads);

  Status sum_weights();
  void run_rows(const CheckedStep& step, int32_t turn, StepResult& answer);
  void return_logits(const CheckedStep& step, bool there, StepResult& answer);
  void return_scores(const StepPlan& plan, int32_t turn);

  std::optional<CurrentDevice> leaving_;  // the first member: set by the destructor, until all others are destroyed
  std::shared_ptr<Device> device_;
  ExecutorInfo info_;
  ModelRunner runner_;
  StepInputs inputs_;
  StepLists lists_;
  StepOutputs outputs_;
  HostSampling host_sampling_;
  Transfers transfers_;
  StepGraphs graphs_;
  WeightSums sums_;
  std::vector<std::byte> counted_;  // a block whose keys and values are counted
  Event ended_[2];                  // recorded after the last step started in each turn
};

}  // namespace kaiju::cuda
