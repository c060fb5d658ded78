// Executor: the one virtual call between deciding what to compute and computing it.
#pragma once

#include "kaiju/base/buffer.hpp"
#include "kaiju/base/status.hpp"
#include "kaiju/step/plan.hpp"
#include "kaiju/step/result.hpp"

namespace kaiju {

// Owns KV memory, workspaces and slots, all taken at creation. One thread at a time.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual const ExecutorInfo& info() const = 0;
  // Order within a step: starts, table edits, transfers down, copies, transfers up, then all segments as one batch.
  // `result` is cleared first. A plan without segments may carry transfers alone. A transfer that fails is told in the
  // result; the step happens all the same. An error means the step did not happen as a whole. After kOutOfMemory, kBusy
  // or kIo the same plan may be run again; every other error is final for this executor, and the engine stops.
  virtual Status run(const StepPlan& plan, StepResult& result) = 0;
  // The same in two halves, with no other call in between: start puts a step under way, finish waits for its end and
  // answers.
  virtual Status start(const StepPlan&) { return {}; }
  virtual Status finish(const StepPlan& plan, StepResult& result) { return run(plan, result); }
  // Whether steps go on by themselves between the two. Then one more may be started behind the one under way, if
  // neither carries transfers, and tokens may be kDrawnToken; both are finished in their order. What may be run again,
  // start has to tell.
  virtual bool runs_beside_host() const { return false; }
  // Memory that transfers reach fastest: pinned, for a GPU. They may name any other. Before the first plan, and once;
  // it may outlive the executor. kOutOfMemory tells what `what` wanted.
  virtual Result<HostMemory> host_memory(size_t bytes, const char* what) { return plain_memory(bytes, what); }
};

}  // namespace kaiju
