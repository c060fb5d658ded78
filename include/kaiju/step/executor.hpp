// Executor: the one virtual call between deciding what to compute and computing it.
#pragma once

#include "kaiju/base/buffer.hpp"
#include "kaiju/base/status.hpp"
#include "kaiju/step/plan.hpp"
#include "kaiju/step/result.hpp"

namespace kaiju {

// Owns KV memory, workspaces and slots, all allocated at creation. One thread at a time.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual const ExecutorInfo& info() const = 0;
  // Runs a step. Order within it: starts, table edits, transfers down, copies, transfers up, then all segments as one
  // batch. Clears `result` first. A plan without segments may contain transfers. The result lists transfers that
  // failed; the rest of the step is still computed. An error means that the step was not computed. After kOutOfMemory,
  // kBusy or kIo the same plan may be run again; every other error is final for this executor, and the engine stops.
  virtual Status run(const StepPlan& plan, StepResult& result) = 0;
  // The same in two halves, with no other call in between: start begins a step; finish waits for its end and gives the
  // result.
  virtual Status start(const StepPlan&) { return {}; }
  virtual Status finish(const StepPlan& plan, StepResult& result) { return run(plan, result); }
  // Whether a step is computed between start and finish without the host. Then a second step may be started before the
  // first is finished, if neither contains transfers, and its tokens may be kSampledToken; both are finished in order.
  // An error after which the plan may be run again must come from start.
  virtual bool runs_beside_host() const { return false; }
  // Allocates memory that transfers reach fastest: pinned memory, for a GPU. Transfers may also use other memory.
  // Called at most once, before the first plan. The memory may outlive the executor. kOutOfMemory says what `what`
  // needed.
  virtual Result<HostMemory> host_memory(size_t bytes, const char* what) { return plain_memory(bytes, what); }
};

}  // namespace kaiju
