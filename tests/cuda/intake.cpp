// The intake of plans: what kernels read of a step is checked and gathered on the host alone. Wants no GPU.
#include <algorithm>
#include <string>

#include "catch.hpp"
#include "cuda/graph_rows.hpp"
#include "cuda/step_intake.hpp"
#include "small_executor.hpp"

namespace kaiju::test {
namespace {

using namespace cuda;

ExecutorSizes sizes_of(int32_t slots, bool graphs = true) {
  ExecutorSizes sizes;
  sizes.slot_count = slots;
  sizes.step_tokens = 128;
  sizes.block_count[0] = sizes.block_count[1] = 64;
  sizes.graphs = graphs;
  return sizes;
}

// `slots` sequences with a block of each kind.
StepPlan started(int32_t slots) {
  StepPlan plan;
  for (int32_t slot = 0; slot < slots; ++slot) {
    plan.starts.emplace_back().slot = slot;
    for (const BlockKind kind : {BlockKind::kGlobal, BlockKind::kWindow})
      plan.table_edits.push_back({slot, kind, 0, slot});
  }
  return plan;
}

void add_prompt(StepPlan& plan, int32_t slot, int32_t count) {
  Segment segment;
  segment.slot = slot;
  segment.first_token = static_cast<int32_t>(plan.tokens.size());
  segment.token_count = count;
  plan.segments.push_back(segment);
  for (int32_t i = 0; i < count; ++i) plan.tokens.push_back(i);
}

}  // namespace

TEST_CASE("batch sizes of graphs are 1 to 8, then four for each doubling, up to the requested maximum") {
  CHECK(graph_row_counts(0).empty());
  CHECK(graph_row_counts(1) == std::vector<int32_t>{1});
  CHECK(graph_row_counts(21) == std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 21});
  CHECK(graph_row_counts(64).back() == 64);
}

TEST_CASE("segments of several rows come before segments of one row, and every row has the index of its segment") {
  StepIntake intake(small_model()->config(), sizes_of(3));
  StepPlan plan = started(3);
  add_row(plan, 0, 0, 7);
  add_prompt(plan, 1, 5);
  add_row(plan, 2, 0, 9);
  Result<CheckedStep> step = intake.take(plan);
  INFO(step.status().message());
  REQUIRE(step.ok());
  const StepRows& rows = step->rows;
  CHECK(rows.row_count() == 7);
  CHECK(rows.single_from() == 1);
  CHECK(std::ranges::equal(rows.segment_slot(), std::vector<int32_t>{1, 0, 2}));
  CHECK(std::ranges::equal(rows.row_segment(), std::vector<int32_t>{1, 0, 0, 0, 0, 0, 2}));
  CHECK(std::ranges::equal(rows.sampled_row(), std::vector<int32_t>{0, 6}));
  CHECK(step->graph_rows == 0);  // a prompt is never recorded
}

TEST_CASE("a decode step is padded to the next captured size with copies of its shortest sequence") {
  constexpr int32_t kSlots = 12, kRows = 9;
  for (const bool graphs : {true, false}) {
    StepIntake intake(small_model()->config(), sizes_of(kSlots, graphs));
    StepPlan plan = started(kRows);
    for (int32_t slot = 0; slot < kRows; ++slot) add_row(plan, slot, slot == 4 ? 3 : 10 + slot, slot);
    Result<CheckedStep> step = intake.take(plan);
    INFO(step.status().message());
    REQUIRE(step.ok());
    CHECK(step->graph_rows == (graphs ? 10 : 0));
    REQUIRE(step->rows.row_count() == (graphs ? 10 : kRows));
    if (!graphs) continue;
    CHECK(step->rows.segment_slot()[9] == 4);
    CHECK(step->rows.positions()[9] == 3);
    CHECK(step->rows.segments()[9].first_row == 9);
    CHECK(step->rows.samples().size() == 10);
  }
}

TEST_CASE("padding rows have the biases of the sequence that they copy") {
  StepIntake intake(small_model()->config(), sizes_of(10));
  StepPlan plan = started(9);
  plan.starts[2].sampling.logit_bias = {{5, 1.0f}};
  for (int32_t slot = 0; slot < 9; ++slot) add_row(plan, slot, slot == 2 ? 0 : 20, slot);
  Result<CheckedStep> step = intake.take(plan);
  REQUIRE(step.ok());
  CHECK(step->adjusts);
  REQUIRE(step->biases.size() == 2);
  CHECK(step->biases[0].row == 2);
  CHECK(step->biases[1].row == 9);
}

TEST_CASE("padding rows have the guide of the sequence that they copy") {
  StepIntake intake(small_model()->config(), sizes_of(10));
  StepPlan plan = started(9);
  const auto words = static_cast<size_t>(mask_words(intake.info().vocab_size));
  for (int32_t slot = 0; slot < 9; ++slot) add_row(plan, slot, slot == 2 ? 0 : 20, slot);
  {
    Result<CheckedStep> unguided = intake.take(plan);
    REQUIRE(unguided.ok());
    CHECK_FALSE(unguided->adjusts);
  }
  plan.starts.clear(), plan.table_edits.clear();
  plan.guides.push_back(std::make_shared<TokenGuide>(TokenGuide{std::vector<uint32_t>(words, 5), {{3, 1.0f}}}));
  plan.segments[2].guide = 0;
  Result<CheckedStep> step = intake.take(plan);
  INFO(step.status().message());
  REQUIRE(step.ok());
  CHECK(step->adjusts);
  REQUIRE(step->guide_biases.size() == 2);
  CHECK(step->guide_biases[0].row == 2);
  CHECK(step->guide_biases[1].row == 9);
  REQUIRE(step->masks.size() % 2 == 0);
  const size_t pieces = step->masks.size() / 2;
  CHECK(pieces == (words + MaskPiece::kWords - 1) / MaskPiece::kWords);
  CHECK(step->masks[0].row == 2);
  CHECK(step->masks[0].allowed[0] == 5);
  CHECK(step->masks[pieces].row == 9);
  CHECK(step->rows.samples()[2].adjusted);
  CHECK_FALSE(step->rows.samples()[3].adjusted);
}

TEST_CASE("table writes are the final values of the edited entries") {
  StepIntake intake(small_model()->config(), sizes_of(2));
  StepPlan plan = started(2);
  plan.table_edits.push_back({1, BlockKind::kGlobal, 0, 5});
  Result<CheckedStep> step = intake.take(plan);
  REQUIRE(step.ok());
  REQUIRE(step->table_writes.size() == 5);
  for (const TableWrite& write : step->table_writes)
    if (write.index == table_offset(intake.info(), 1, 0)) CHECK(write.block == 5);
}

TEST_CASE("a plan that asks for more alternatives than the backend reports is refused, with the maximum") {
  StepIntake intake(small_model()->config(), sizes_of(1));
  StepPlan plan = started(1);
  add_row(plan, 0, 0, 1);
  plan.segments[0].top_logprobs = kMostTop + 1;
  const Status refused = intake.take(plan).status();
  CHECK(refused.code() == StatusCode::kInvalidArgument);
  CHECK(refused.message().find("at most " + std::to_string(kMostTop)) != std::string::npos);
}

}  // namespace kaiju::test
