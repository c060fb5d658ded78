// StepIntake: checks plans. See step_intake.hpp.
#include "step_intake.hpp"

#include <algorithm>
#include <string>

#include "backend.hpp"
#include "graph_rows.hpp"

namespace kaiju::cuda {

StepIntake::StepIntake(const ModelConfig& config, const ExecutorSizes& sizes) {
  slots_.create(config, sizes);
  rows_ = StepRows(info());
  table_writes_.reserve(static_cast<size_t>(info().slot_count) * kBlockKinds);
  graph_row_counts_ = graph_row_counts(most_graph_rows(sizes));
}

Result<CheckedStep> StepIntake::take(const StepPlan& plan) {
  KAIJU_TRY(check_alternatives(plan));
  KAIJU_TRY(slots_.apply(plan, true));
  gather_history(plan);
  gather_table_writes(plan);
  rows_.gather(plan, slots_);
  const int32_t rows = graph_rows(plan);
  if (rows > 0) rows_.fill_up(rows);
  const bool adjusts = gather_biases(plan);
  return CheckedStep{plan, rows_,  slots_.segments(), history_, table_writes_, biases_, guide_biases_, masks_,
                     rows, adjusts};
}

Status StepIntake::check_alternatives(const StepPlan& plan) const {
  for (const Segment& segment : plan.segments)
    if (segment.top_logprobs > kMostTop)
      return invalid_argument("a plan asks for " + std::to_string(segment.top_logprobs) +
                              " alternatives of a token; the CUDA backend reports at most " + std::to_string(kMostTop));
  return {};
}

// 0 unless every segment is one row that is sampled from, and not more rows than the largest graph has.
int32_t StepIntake::graph_rows(const StepPlan& plan) const {
  if (plan.segments.empty()) return 0;
  for (const Segment& segment : plan.segments)
    if (segment.token_count != 1 || segment.sample_count == 0 || segment.all_logits) return 0;
  const auto found = std::lower_bound(graph_row_counts_.begin(), graph_row_counts_.end(), slots_.row_count());
  return found == graph_row_counts_.end() ? 0 : *found;
}

void StepIntake::gather_history(const StepPlan& plan) {
  history_.clear();
  for (const SlotStart& start : plan.starts)
    for (const int32_t token : start.history) history_.push_back({start.slot, token});
}

// The slots have taken the edits, in order: entries go to the GPU as they ended, so the order of writes there does not
// matter. Entries that a start cleared stay as they were on the GPU; no row reads an entry that the slot's own table
// lacks.
void StepIntake::gather_table_writes(const StepPlan& plan) {
  table_writes_.clear();
  for (const TableEdit& edit : plan.table_edits) {
    const auto kind = static_cast<int32_t>(edit.kind);
    table_writes_.push_back(
        {table_offset(info(), edit.slot, kind) + edit.index, slots_[edit.slot].table[kind][edit.index], 0});
  }
}

// Rows that fill a step up need them too: a copy's token overwrites the slot's last token, which the row that it
// repeats has written. Returns whether any row's logits are adjusted.
bool StepIntake::gather_biases(const StepPlan& plan) {
  biases_.clear();
  guide_biases_.clear();
  masks_.clear();
  bool adjusts = false;
  int32_t row = 0;
  for (const SampleRow& sample : rows_.samples()) {
    adjusts |= sample.adjusted != 0;
    for (const auto& [token, bias] : slots_[sample.slot].sampling.logit_bias) biases_.push_back({row, token, bias});
    if (const int32_t index = rows_.guides()[static_cast<size_t>(row)]; index >= 0) {
      const TokenGuide& guide = *plan.guides[static_cast<size_t>(index)];
      for (const auto& [token, bias] : guide.logit_bias) guide_biases_.push_back({row, token, bias});
      append_mask(guide, row, masks_);
    }
    ++row;
  }
  return adjusts;
}

}  // namespace kaiju::cuda
