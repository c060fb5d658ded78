// WorkerGroup: the GPUs that compute one model, mostly a single one. Where several share a model (tensor parallelism),
// all of them run the same step, each with its part of the matrices, and meet twice in every layer (exchange.hpp). One
// thread launches for all of them, layer by layer in turn: a GPU that waits for the others must not fill its queue of
// launches before theirs are there. Groups that have a GPU in common compute rows in turns (turns.hpp).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "turns.hpp"
#include "worker.hpp"

namespace kaiju::cuda {

class WorkerGroup {
 public:
  // Takes all memory and copies the weights of `checkpoint`, to each GPU its part. kUnsupported if the model cannot be
  // divided among so many, or they do not reach each other's memory.
  static Result<std::unique_ptr<WorkerGroup>> make(std::span<const std::shared_ptr<Device>> devices, Weights weights,
                                                   const StepIntake& intake, const ExecutorSizes& sizes);

  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  // Ok, or the first failure on any GPU.
  Status status() const;
  // As Worker::have_room().
  Status have_room(const StepPlan& plan) { return first().have_room(plan); }
  // Launches a step in turn 0 or 1; `alone`: the step before it has been finished. Returned logits go to `answer`,
  // which stays where it is until finish(). Failures are told by finish().
  void start(const CheckedStep& step, int32_t turn, bool alone, StepResult& answer);
  // Waits for the step started in that turn and completes its answer. `slots`: as the step left them.
  Status finish(const StepPlan& plan, const Slots& slots, int32_t turn, const FloatState& float_state,
                StepResult& answer);

  // As the functions of Executor.
  Status set_head(const std::shared_ptr<const Checkpoint>& checkpoint);
  Status set_scales(const std::shared_ptr<const Checkpoint>& checkpoint);
  Status set_weights(const std::shared_ptr<const Checkpoint>& checkpoint);
  Status count_kv(BlockKind kind, BlockId block, KvCounts& counts);
  Result<Scrubbed> scrub(size_t most_bytes);
  Result<HostMemory> host_memory(size_t bytes, const char* what);

 private:
  struct Member {
    int32_t index;  // of its GPU
    std::unique_ptr<Worker> worker;
  };

  WorkerGroup() = default;
  Worker& first() const { return *members_.front().worker; }
  // Calls work(worker) with each GPU as the current one.
  template <class Work>
  void each(Work&& work) const {
    for (const Member& member : members_) {
      const CurrentDevice current(member.index);
      work(*member.worker);
    }
  }
  Status connect();
  template <class Change>
  Status change_by(const std::shared_ptr<const Checkpoint>& checkpoint, Change&& change);
  void run_rows(const CheckedStep& step, int32_t turn, StepResult& answer);
  void return_logits(const CheckedStep& step, bool are_there, Turns::Turn& turn, StepResult& answer);
  void release_if_failed();
  // What waits for peers is launched in between.
  Turns::Turn begin_turn();
  void end_turn(Turns::Turn& turn);

  std::vector<Member> members_;  // by rank
  std::optional<Turns> turns_;   // of several GPUs
  size_t scrubbed_ = 0;          // the member that scrub() looks at next
};

}  // namespace kaiju::cuda
