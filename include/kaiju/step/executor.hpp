// Executor: the interface between the engine, which decides what a step computes, and the code that computes the step.
#pragma once

#include <memory>

#include "kaiju/base/buffer.hpp"
#include "kaiju/base/status.hpp"
#include "kaiju/step/kv_counts.hpp"
#include "kaiju/step/plan.hpp"
#include "kaiju/step/result.hpp"
#include "kaiju/step/scrubbed.hpp"

namespace kaiju {

class Checkpoint;

// An Executor owns the KV memory, the workspaces and the slots (the places of running sequences), which are all
// allocated at its creation. An Executor allows one thread at a time.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual const ExecutorInfo& info() const = 0;
  // Runs one step. The executor carries out the parts of a plan in this order: starts, table edits, transfers down,
  // copies, transfers up, then all segments as one batch. The function run clears `result` first. A plan without
  // segments may contain transfers. If transfers fail, the result lists them and the rest of the step is still
  // computed. If run returns an error, the step was not computed. After the errors kOutOfMemory, kBusy and kIo, the
  // same plan may be run again; every other error is final for this executor, and the engine stops.
  virtual Status run(const StepPlan& plan, StepResult& result) = 0;
  // The functions start and finish do the work of run in two halves: start begins a step; finish waits for the end of
  // the step and writes its result. No other call may come between start and finish.
  virtual Status start(const StepPlan&) { return {}; }
  virtual Status finish(const StepPlan& plan, StepResult& result) { return run(plan, result); }
  // Returns whether a step is computed between start and finish without the host (on a GPU). If runs_beside_host is
  // true, a second step may be started before the first one is finished, provided that neither step contains transfers.
  // The tokens of the second step may be kSampledToken. The two steps are finished in the order in which they were
  // started. Errors after which a plan may be run again must come from start, not from finish.
  virtual bool runs_beside_host() const { return false; }
  // Looks at the next part of the weights as they are in memory, of `most_bytes` or somewhat more, round and round, and
  // compares their digest. kBadModel, which names the place, if they are not what they were: memory is damaged. Not
  // between start and finish.
  virtual Result<Scrubbed> scrub(size_t most_bytes) {
    (void)most_bytes;
    return Status(StatusCode::kUnsupported, "this executor cannot look at its weights");
  }
  // Scores with the classifier of `checkpoint` from now on, which is the executor's own but for its classifier, and has
  // the same labels (Engine::set_head checks that). Not between start and finish. An error that is not final leaves the
  // classifier as it was: kDeviceLost and kInternal are.
  virtual Status set_head(const std::shared_ptr<const Checkpoint>& checkpoint) {
    (void)checkpoint;
    return Status(StatusCode::kUnsupported, "this executor cannot change its classifier");
  }
  // Computes with the scales of keys and values of `checkpoint` from now on, which is the executor's own but for these.
  // KV that was written before is of no use then. Not between start and finish. An error that is not final leaves the
  // scales as they were.
  virtual Status set_scales(const std::shared_ptr<const Checkpoint>& checkpoint) {
    (void)checkpoint;
    return Status(StatusCode::kUnsupported, "this executor cannot change the scales of keys and values");
  }
  // Computes with the weights of `checkpoint` from now on, which has the config, the rotary frequencies and the
  // tokenizer of the executor's own; kInvalidArgument otherwise. Its classifier and its scales take the place of those
  // that set_head and set_scales gave. KV that was written before is of no use then. Not between start and finish. An
  // error that is not final leaves the weights as they were.
  virtual Status set_weights(const std::shared_ptr<const Checkpoint>& checkpoint) {
    (void)checkpoint;
    return Status(StatusCode::kUnsupported, "this executor cannot change its weights");
  }
  // Adds the keys and values of one block, all of whose tokens are written, to `counts`, which has a slot for each KV
  // slot of the model. Not between start and finish. kUnsupported if each key and value has a scale of its own.
  virtual Status count_kv(BlockKind kind, BlockId block, KvCounts& counts) {
    (void)kind, (void)block, (void)counts;
    return Status(StatusCode::kUnsupported, "this executor cannot count its keys and values");
  }
  // Allocates host memory that transfers access fastest: pinned memory, for a GPU. Transfers may also use other host
  // memory. The engine calls host_memory at most once, before the first plan. Memory from host_memory may outlive the
  // executor. A kOutOfMemory error names `what` and the number of bytes.
  virtual Result<HostMemory> host_memory(size_t bytes, const char* what) { return plain_memory(bytes, what); }
};

}  // namespace kaiju
