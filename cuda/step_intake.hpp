// StepIntake: checks step plans and turns them into steps that kernels can run without accessing memory out of range.
// Host data only, the same for every device of a step.
#pragma once

#include <span>
#include <vector>

#include "kaiju/run/slots.hpp"
#include "step_rows.hpp"

namespace kaiju::cuda {

// A plan that was checked, with what is derived from it. Views into the plan and the intake: valid until the next one.
struct CheckedStep {
  const StepPlan& plan;
  const StepRows& rows;
  std::span<const BatchSegment> segments;    // in the plan's order, with the host's block tables
  std::span<const TokenMark> history;        // tokens that started slots have seen
  std::span<const TableWrite> table_writes;  // what edited table entries ended as, in any order
  std::span<const Bias> biases;              // of requests, by row of the samples
  std::span<const Bias> guide_biases;        // likewise, of guides; they are added after those of requests
  std::span<const MaskPiece> masks;          // likewise
  int32_t graph_rows = 0;                    // the rows were filled up for the graph of so many; 0: no graph serves
  bool adjusts = false;                      // whether penalties, biases or masks change any row's logits
};

class StepIntake {
 public:
  StepIntake(const ModelConfig& config, const ExecutorSizes& sizes);

  const ExecutorInfo& info() const { return slots_.info(); }
  const Slots& slots() const { return slots_; }
  // Of every KV slot of the model, without pools.
  const std::vector<KvSlot>& kv_slots() const { return slots_.kv_slots(); }

  // Checks a plan and derives what kernels read of it; the slots take over its starts and table edits. kInvalidArgument
  // and kInternal name what the plan asks for that does not exist.
  Result<CheckedStep> take(const StepPlan& plan);

 private:
  Status check_alternatives(const StepPlan& plan) const;
  int32_t graph_rows(const StepPlan& plan) const;
  void gather_history(const StepPlan& plan);
  void gather_table_writes(const StepPlan& plan);
  bool gather_biases(const StepPlan& plan);

  Slots slots_;
  StepRows rows_;
  std::vector<int32_t> graph_row_counts_;
  std::vector<TokenMark> history_;
  std::vector<TableWrite> table_writes_;
  std::vector<Bias> biases_, guide_biases_;
  std::vector<MaskPiece> masks_;
};

}  // namespace kaiju::cuda
