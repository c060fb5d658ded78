// StepRows: orders the rows of a step. See step_rows.hpp.
#include "step_rows.hpp"

#include <algorithm>

#include "backend.hpp"

namespace kaiju::cuda {

StepRows::StepRows(const ExecutorInfo& info) {
  const auto rows = static_cast<size_t>(info.step_tokens), slots = static_cast<size_t>(info.slot_count);
  for (auto* of_rows : {&tokens_, &positions_, &row_segment_}) of_rows->reserve(rows);
  for (auto* of_slots : {&segment_slot_, &sampled_row_, &guides_}) of_slots->reserve(slots);
  segments_.reserve(slots);
  samples_.reserve(slots);
}

StepRows StepRows::blank(int32_t rows, int32_t segments, int32_t samples) {
  StepRows blank;
  for (auto* of_rows : {&blank.tokens_, &blank.positions_, &blank.row_segment_})
    of_rows->assign(static_cast<size_t>(rows), 0);
  blank.segments_.assign(static_cast<size_t>(segments), {});
  blank.segment_slot_.assign(static_cast<size_t>(segments), 0);
  blank.sampled_row_.assign(static_cast<size_t>(samples), 0);
  blank.samples_.assign(static_cast<size_t>(samples), {});
  blank.guides_.assign(static_cast<size_t>(samples), -1);
  blank.single_from_ = segments < rows ? segments : 0;
  return blank;
}

void StepRows::gather(const StepPlan& plan, const Slots& slots) {
  tokens_.assign(plan.tokens.begin(), plan.tokens.begin() + slots.row_count());
  positions_.assign(slots.positions().begin(), slots.positions().end());
  row_segment_.resize(tokens_.size());
  segments_.clear();
  segment_slot_.clear();
  for (size_t s = 0; s < plan.segments.size(); ++s)
    if (plan.segments[s].token_count > 1) add_segment(plan.segments[s], slots.segments()[s]);
  single_from_ = static_cast<int32_t>(segments_.size());
  for (size_t s = 0; s < plan.segments.size(); ++s)
    if (plan.segments[s].token_count == 1) add_segment(plan.segments[s], slots.segments()[s]);
  samples_.clear();
  sampled_row_.clear();
  guides_.clear();
  for (const Segment& segment : plan.segments) {
    if (segment.sample_count == 0) continue;
    const TokenGuide* const guide =
        segment.guide >= 0 ? plan.guides[static_cast<size_t>(segment.guide)].get() : nullptr;
    samples_.push_back(sample_row_of(slots[segment.slot].sampling, guide, segment.slot,
                                     int64_t{segment.position} + segment.token_count, segment.top_logprobs));
    guides_.push_back(segment.guide);
    sampled_row_.push_back(segment.first_token + segment.token_count - 1);
  }
}

void StepRows::fill_up(int32_t rows) {
  const auto shortest =
      static_cast<size_t>(std::min_element(positions_.begin(), positions_.end()) - positions_.begin());
  for (int32_t row = row_count(); row < rows; ++row) {
    tokens_.push_back(tokens_[shortest]);
    positions_.push_back(positions_[shortest]);
    row_segment_.push_back(row);
    segments_.push_back(segments_[shortest]);
    segments_.back().first_row = row;
    segment_slot_.push_back(segment_slot_[shortest]);
    sampled_row_.push_back(row);
    samples_.push_back(samples_[shortest]);
    guides_.push_back(guides_[shortest]);
  }
}

void StepRows::add_segment(const Segment& segment, const BatchSegment& rows) {
  std::fill_n(row_segment_.begin() + segment.first_token, segment.token_count, static_cast<int32_t>(segments_.size()));
  segments_.push_back(rows);
  segments_.back().table[0] = segments_.back().table[1] = nullptr;
  segment_slot_.push_back(segment.slot);
}

}  // namespace kaiju::cuda
