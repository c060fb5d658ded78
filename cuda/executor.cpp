// The executor on one or several GPUs: StepIntake checks step plans on the host, and a WorkerGroup runs them.
//
// A step may be started while the previous one still runs. The GPU itself uses the tokens that the previous step
// samples. Host memory that the GPU reads or writes during a step exists twice, and steps use the two copies in turn.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda.hpp"
#include "kaiju/backend/self_check.hpp"
#include "kaiju/base/float_state.hpp"
#include "staged_backend.hpp"
#include "worker_group.hpp"

namespace kaiju::cuda {
namespace {

class CudaExecutor final : public Executor {
 public:
  CudaExecutor(StepIntake intake, std::unique_ptr<WorkerGroup> workers)
      : intake_(std::move(intake)), workers_(std::move(workers)) {}

  const ExecutorInfo& info() const override { return intake_.info(); }
  bool runs_beside_host() const override { return true; }

  Status run(const StepPlan& plan, StepResult& result) override {
    result.clear();
    KAIJU_TRY(start(plan));
    return finish(plan, result);
  }

  Status start(const StepPlan& plan) override {
    KAIJU_TRY(workers_->status());
    const FloatState float_state;
    KAIJU_TRY(check_order(plan));
    KAIJU_TRY(workers_->have_room(plan));
    Result<CheckedStep> step = intake_.take(plan);
    if (!step.ok()) return step.status();
    const int32_t turn = turn_of(started_);
    StepResult& answer = under_way_[turn].answer;
    answer.clear();
    under_way_[turn].alone = runs_alone(plan);
    workers_->start(*step, turn, started_ == finished_, answer);
    ++started_;
    return {};
  }

  Status finish(const StepPlan& plan, StepResult& result) override {
    const FloatState float_state;
    const int32_t turn = turn_of(finished_);
    KAIJU_TRY(workers_->finish(plan, intake_.slots(), turn, float_state, under_way_[turn].answer));
    ++finished_;
    std::swap(result, under_way_[turn].answer);
    return {};
  }

  Status set_head(const std::shared_ptr<const Checkpoint>& checkpoint) override {
    return workers_->set_head(checkpoint);
  }
  Status set_scales(const std::shared_ptr<const Checkpoint>& checkpoint) override {
    return workers_->set_scales(checkpoint);
  }
  Status set_weights(const std::shared_ptr<const Checkpoint>& checkpoint) override {
    return workers_->set_weights(checkpoint);
  }
  Status count_kv(BlockKind kind, BlockId block, KvCounts& counts) override {
    return workers_->count_kv(kind, block, counts);
  }
  Result<Scrubbed> scrub(size_t most_bytes) override { return workers_->scrub(most_bytes); }

  Result<HostMemory> host_memory(size_t bytes, const char* what) override { return workers_->host_memory(bytes, what); }

 private:
  // A step that was started and has not been finished: at most two, in turn.
  struct UnderWay {
    StepResult answer;
    bool alone = false;
  };

  static int32_t turn_of(int64_t step) { return static_cast<int32_t>(step % 2); }

  // Whether no other step may run beside it.
  static bool runs_alone(const StepPlan& plan) { return !plan.transfers.empty() || !plan.hooks.empty(); }

  Status check_order(const StepPlan& plan) const {
    if (started_ == finished_ ||
        (started_ == finished_ + 1 && !runs_alone(plan) && !under_way_[turn_of(finished_)].alone))
      return {};
    return internal_error("a step is started after one that it cannot follow");
  }

  StepIntake intake_;
  std::unique_ptr<WorkerGroup> workers_;
  int64_t started_ = 0, finished_ = 0;  // steps so far
  UnderWay under_way_[2];
};

// Attention counts the blocks of keys that a step's rows see in 32 bits.
Status check_sizes(const ModelConfig& config, const ExecutorSizes& sizes) {
  const int32_t sequences = std::min(sizes.slot_count, sizes.step_tokens);
  const int64_t seen_blocks =
      int64_t{config.most_kv_heads()} * ((config.context + kBlockTokens - 1) / kBlockTokens);  // of a sequence
  if (sequences * seen_blocks <= kMostSeenBlocks) return {};
  return invalid_argument("a step of " + std::to_string(sequences) + " sequences of " + std::to_string(config.context) +
                          " tokens and " + std::to_string(config.most_kv_heads()) +
                          " KV heads is more than the CUDA backend supports: ask for at most " +
                          std::to_string(kMostSeenBlocks / seen_blocks) + " sequences");
}

#if !defined(KAIJU_INEXACT)
Status check_bits(const std::shared_ptr<Device>& device) {
  StagedBackend checked(device);
  const Status same_bits = self_check(checked, golden::Shapes::kAll);
  KAIJU_TRY(checked.status());
  return same_bits;
}
#endif

}  // namespace

bool present() { return Device::fit(0).ok(); }

Result<std::unique_ptr<Executor>> make_executor(Weights weights, const ExecutorSizes& sizes) {
  std::vector<std::shared_ptr<Device>> devices;
  for (const int32_t gpu : sizes.gpus) {
    Result<std::shared_ptr<Device>> device = Device::open(gpu);
    if (!device.ok()) return device.status();
    devices.push_back(std::move(device).value());
  }
  const CurrentDevice current(devices.front()->index());
  ExecutorSizes own_sizes = sizes;
#if defined(KAIJU_INEXACT)  // its attention gives other bits (kernels/attention_weight.cuh): no other executor may read
                            // its KV blocks
  own_sizes.kv_layout += ", inexact";
#else
  for (const std::shared_ptr<Device>& device : devices) {
    const CurrentDevice checked(device->index());
    const QuietGpu quiet(device->index());  // kernels are loaded
    KAIJU_TRY(check_bits(device));
  }
#endif
  KAIJU_TRY(check_sizes(weights.config, sizes));
  StepIntake intake(weights.config, own_sizes);
  Result<std::unique_ptr<WorkerGroup>> workers = WorkerGroup::make(devices, std::move(weights), intake, own_sizes);
  if (!workers.ok()) return workers.status();
  return std::unique_ptr<Executor>(std::make_unique<CudaExecutor>(std::move(intake), std::move(workers).value()));
}

}  // namespace kaiju::cuda
