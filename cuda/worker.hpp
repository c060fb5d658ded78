// Worker: owns everything on one GPU that steps need: device and stream, the model with its weights, KV pool and
// workspaces, the captured graphs, and the buffers for copies to and from the host. It launches the parts of checked
// steps in the order that its WorkerGroup gives. Code outside the Worker assumes no device.
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
  // `intake` is not kept. `split`: which part of the model it has; `lost` belongs to all GPUs that share it.
  static Result<std::unique_ptr<Worker>> make(std::shared_ptr<Device> device, Weights weights, const StepIntake& intake,
                                              const ExecutorSizes& sizes, const Split& split,
                                              std::shared_ptr<LostFlag> lost);
  // After that, and after the exchanges are connected: loads all kernels. Then records the graphs.
  void load();
  Status record(const ExecutorSizes& sizes);
  // Waits for steps under way, which write to the host's memory.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Ok, or the first failure on the device.
  const Status& status() const { return device_->status(); }
  Exchange* exchange() const { return runner_.exchange(); }  // null where the model is not shared
  Exchange::Rooms exchanged_rooms() const { return runner_.exchanged_rooms(); }

  // ---- the launches of a step ----
  // In turn 0 or 1; `alone`: the step before it has been finished. Failures are told by finish().
  // All that comes before the rows.
  void begin(const CheckedStep& step, int32_t turn, bool alone);
  // Whether the rows are computed as one kernel; whether a graph was recorded of them, and its launch.
  bool is_one_kernel(const CheckedStep& step) const;
  bool is_recorded(const CheckedStep& step) const { return graph_of(step) != nullptr; }
  void launch_graph(const CheckedStep& step);
  // Otherwise, in this order: marks, the rows through all layers (or as one kernel), logits.
  void mark_rows() { outputs_.mark_rows(placed_); }
  void run_one_row() { runner_.run_one_row(placed_); }
  void run_embedding() { runner_.run_embedding(placed_); }
  int32_t layer_count() const { return runner_.layer_count(); }
  void run_layer(int32_t layer) { runner_.run_layer(placed_, layer); }
  int32_t logit_rows() const { return runner_.logit_rows(); }
  void run_logits(int32_t first, int32_t count) { runner_.run_logits(first, count); }
  void run_scores(int32_t first, int32_t count, int32_t at) { runner_.run_scores(first, count, at); }
  void return_logits(int32_t count, float* to) { outputs_.return_logits(runner_.logits(), count, to); }
  void run_sampled_logits() { runner_.run_sampled_logits(placed_); }
  // What a graph did not sample.
  void sample(const CheckedStep& step);
  // To the host: what it samples itself, and scores.
  void return_rows(const CheckedStep& step, int32_t turn);
  void end(int32_t turn);
  // Takes memory that only steps like this one need; kOutOfMemory if there is none. Before start().
  Status have_room(const StepPlan& plan) {
    const CurrentDevice current(device_->index());
    return host_sampling_.have_room(plan);
  }
  // Waits for the step started in that turn.
  Status wait(int32_t turn);
  // After that completes its answer. `slots`: as the step left them.
  void answer(const StepPlan& plan, const Slots& slots, int32_t turn, const FloatState& float_state,
              StepResult& answer);
  // As Executor::set_head().
  Status set_head(const std::shared_ptr<const Checkpoint>& checkpoint);
  // As Executor::set_weights() and set_scales(), with what was read of the checkpoint: every error is final, but for
  // that of a model whose scales cannot change.
  Status set_weights(Weights read);
  Status set_scales(Weights read);
  // As Executor::count_kv(), of the KV heads that this GPU has, and no GPU before it.
  Status count_kv(BlockKind kind, BlockId block, KvCounts& counts);
  // As Executor::scrub().
  Result<Scrubbed> scrub(size_t most_bytes);
  const ExecutorInfo& info() const { return info_; }
  // So that blocks travel between GPU and host beside steps.
  Status travel_beside_steps() {
    const CurrentDevice current(device_->index());
    return transfers_.travel_beside_steps();
  }
  // As Executor::host_memory(). Takes what travelling beside steps needs.
  Result<HostMemory> host_memory(size_t bytes, const char* what);

 private:
  struct Parts {
    std::shared_ptr<Device> device;
    ModelRunner runner;
    StepInputs inputs;
    StepLists lists;
    StepOutputs outputs;
    WeightSums sums;
    Event ended[2];
  };
  Worker(Parts parts, const ExecutorInfo& info, const ExecutorSizes& sizes);

  Status record_graphs();
  const Graph* graph_of(const CheckedStep& step) const {
    return step.graph_rows > 0 && graphs_ ? graphs_->find(step.graph_rows, is_one_kernel(step)) : nullptr;
  }

  std::optional<CurrentDevice> leaving_;  // the first member: set by the destructor, until all others are destroyed
  std::shared_ptr<Device> device_;
  ExecutorInfo info_;
  ModelRunner runner_;
  StepInputs inputs_;
  StepLists lists_;
  StepOutputs outputs_;
  HostSampling host_sampling_;
  Transfers transfers_;
  int32_t graph_rows_ = 0;  // of the largest graph
  std::optional<StepGraphs> graphs_;
  StepInputs::Placed placed_;  // of the step being launched
  WeightSums sums_;
  std::vector<std::byte> counted_;  // a block whose keys and values are counted
  Event ended_[2];                  // recorded after the last step started in each turn
};

}  // namespace kaiju::cuda
