// StepInputs: what a step's kernels read of its plan, gathered and laid out on the host, and copied to the GPU at once.
// Of the host's layouts there are two, in turn: a step may be laid out while the one before it has yet to be copied.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "backend.hpp"
#include "kaiju/backend/batch.hpp"
#include "kaiju/run/slots.hpp"
#include "memory.hpp"

namespace kaiju::cuda {

class StepInputs {
 public:
  // Where they lie on the GPU.
  struct There {
    Batch batch;
    int32_t* tokens = nullptr;  // the batch's
    const int32_t* segment_slot = nullptr;
    const int32_t* draw_row = nullptr;
    int32_t draw_rows = 0;
    const Draw* draws = nullptr;
    size_t bytes = 0;
  };

  // `tables` [slots, kinds, blocks of a context], on the GPU.
  Status take_memory(const Facts& facts, const BlockId* tables) {
    const auto rows = static_cast<size_t>(facts.step_tokens), slots = static_cast<size_t>(facts.slot_count);
    slot_count_ = facts.slot_count;
    tables_ = tables;
    table_blocks_ = (facts.context + kBlockTokens - 1) / kBlockTokens;
    bytes_ = 3 * aligned(rows * sizeof(int32_t)) + aligned(slots * sizeof(BatchSegment)) +
             2 * aligned(slots * sizeof(int32_t)) + aligned(slots * sizeof(Draw));
    KAIJU_TRY(take(there_, bytes_, "a step's inputs"));
    KAIJU_TRY(take(here_, 2 * bytes_, "a step's inputs"));
    segments_.reserve(slots);
    segment_slot_.reserve(slots);
    draws_.reserve(slots);
    draw_row_.reserve(slots);
    tokens_.reserve(rows);
    positions_.reserve(rows);
    row_segment_.reserve(rows);
    return {};
  }

  static constexpr size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }
  int64_t table_offset(int32_t slot, int32_t kind) const {
    return (int64_t{slot} * kBlockKinds + kind) * table_blocks_;
  }
  std::span<const Draw> draws() const { return draws_; }

  // Of a plan that the slots took over.
  void gather(const StepPlan& plan, const Slots& slots) {
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
    draws_.clear();
    draw_row_.clear();
    for (const Segment& segment : plan.segments) {
      if (!segment.sample) continue;
      draws_.push_back(draw_of(slots[segment.slot].sampling, segment.slot,
                               int64_t{segment.position} + segment.token_count, segment.top_logprobs));
      draw_row_.push_back(segment.first_token + segment.token_count - 1);
    }
  }

  // Adds copies of a decode step's shortest sequence up to `rows` rows.
  void fill_up(int32_t rows) {
    const auto shortest =
        static_cast<size_t>(std::min_element(positions_.begin(), positions_.end()) - positions_.begin());
    for (auto row = static_cast<int32_t>(tokens_.size()); row < rows; ++row) {
      tokens_.push_back(tokens_[shortest]);
      positions_.push_back(positions_[shortest]);
      row_segment_.push_back(row);
      segments_.push_back(segments_[shortest]);
      segments_.back().first_row = row;
      segment_slot_.push_back(segment_slot_[shortest]);
      draw_row_.push_back(row);
      draws_.push_back(draws_[shortest]);
    }
  }

  // For recordings: rows in so many segments and draws, of nothing in particular.
  void pretend(int32_t rows, int32_t segments, int32_t draws) {
    tokens_.assign(static_cast<size_t>(rows), 0);
    positions_.assign(static_cast<size_t>(rows), 0);
    row_segment_.assign(static_cast<size_t>(rows), 0);
    segments_.assign(static_cast<size_t>(segments), {});
    single_from_ = segments < rows ? segments : 0;
    segment_slot_.assign(static_cast<size_t>(segments), 0);
    draw_row_.assign(static_cast<size_t>(draws), 0);
    draws_.assign(static_cast<size_t>(draws), {});
  }

  // Lays the inputs out, in turn 0 or 1; the places depend on the counts alone. Its draws are answered in that turn's
  // half of twice the slots.
  There place(int32_t turn) {
    There there;
    std::byte* const here = here_.data() + static_cast<size_t>(turn) * bytes_;
    const auto put = [&]<class T>(const std::vector<T>& items) {
      std::memcpy(here + there.bytes, items.data(), items.size() * sizeof(T));
      const std::span<T> placed(reinterpret_cast<T*>(there_.data() + there.bytes), items.size());
      there.bytes = aligned(there.bytes + items.size() * sizeof(T));
      return placed;
    };
    for (size_t i = 0; i < draws_.size(); ++i) draws_[i].answer = turn * slot_count_ + static_cast<int32_t>(i);
    const auto tokens = put(tokens_);
    const auto positions = put(positions_);
    const auto segments = put(segments_);
    there.batch = {static_cast<int32_t>(tokens_.size()), tokens, positions, segments, put(row_segment_), single_from_};
    there.tokens = tokens.data();
    there.segment_slot = put(segment_slot_).data();
    there.draw_row = put(draw_row_).data();
    there.draw_rows = static_cast<int32_t>(draw_row_.size());
    there.draws = put(draws_).data();
    return there;
  }

  // Everything that was placed, in one copy.
  cudaError_t send(const There& there, int32_t turn, cudaStream_t stream) {
    return cudaMemcpyAsync(there_.data(), here_.data() + static_cast<size_t>(turn) * bytes_, there.bytes,
                           cudaMemcpyHostToDevice, stream);
  }

 private:
  void add_segment(const Segment& segment, const BatchSegment& rows) {
    std::fill_n(row_segment_.begin() + segment.first_token, segment.token_count,
                static_cast<int32_t>(segments_.size()));
    segments_.push_back(rows);
    for (int32_t kind = 0; kind < kBlockKinds; ++kind)
      segments_.back().table[kind] = tables_ + table_offset(segment.slot, kind);
    segment_slot_.push_back(segment.slot);
  }

  int32_t slot_count_ = 0, table_blocks_ = 0;
  const BlockId* tables_ = nullptr;
  size_t bytes_ = 0;  // of a layout
  DeviceBuffer<std::byte> there_;
  PinnedBuffer here_;
  std::vector<BatchSegment> segments_;  // those of several rows first
  int32_t single_from_ = 0;             // the first of the others
  std::vector<int32_t> tokens_, positions_, row_segment_, segment_slot_, draw_row_;
  std::vector<Draw> draws_;
};

}  // namespace kaiju::cuda
