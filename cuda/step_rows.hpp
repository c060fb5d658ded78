// StepRows: the rows of one step on the host, in the order and form in which kernels read them: segments of several
// rows first, then segments of one row. It knows no device; slots identify block tables.
#pragma once

#include <span>
#include <vector>

#include "kaiju/run/slots.hpp"
#include "kernels.hpp"

namespace kaiju::cuda {

// The block tables of all slots as they lie on a GPU, [slots, kinds, table_blocks()]: where a slot's begins.
inline int32_t table_blocks(const ExecutorInfo& info) { return (info.context + kBlockTokens - 1) / kBlockTokens; }
inline int64_t table_offset(const ExecutorInfo& info, int32_t slot, int32_t kind) {
  return (int64_t{slot} * kBlockKinds + kind) * table_blocks(info);
}

class StepRows {
 public:
  StepRows() = default;
  // With memory for a step of the largest size.
  explicit StepRows(const ExecutorInfo& info);
  // For a recording: so many rows, segments and samples, all of them zeros.
  static StepRows blank(int32_t rows, int32_t segments, int32_t samples);

  // Takes the rows of a plan that `slots` has taken over.
  void gather(const StepPlan& plan, const Slots& slots);
  // Adds copies of a decode step's shortest sequence until there are `rows` rows. A copy computes the same bits and
  // stores them in the same places.
  void fill_up(int32_t rows);

  int32_t row_count() const { return static_cast<int32_t>(tokens_.size()); }
  int32_t single_from() const { return single_from_; }  // segments from this one on have one row each

  std::span<const int32_t> tokens() const { return tokens_; }            // [rows]
  std::span<const int32_t> positions() const { return positions_; }      // [rows]
  std::span<const int32_t> row_segment() const { return row_segment_; }  // [rows]
  std::span<const BatchSegment> segments() const { return segments_; }   // without block tables
  std::span<const int32_t> segment_slot() const { return segment_slot_; }
  std::span<const int32_t> sampled_row() const { return sampled_row_; }  // [samples] the row sampled from
  std::span<const SampleRow> samples() const { return samples_; }        // SampleRow::answer is not set
  std::span<const int32_t> guides() const { return guides_; }            // [samples] of StepPlan::guides, or -1

 private:
  void add_segment(const Segment& segment, const BatchSegment& rows);

  std::vector<int32_t> tokens_, positions_, row_segment_, segment_slot_, sampled_row_, guides_;
  std::vector<BatchSegment> segments_;
  std::vector<SampleRow> samples_;
  int32_t single_from_ = 0;
};

}  // namespace kaiju::cuda
