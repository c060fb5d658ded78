// Slots: what an executor checks of a plan before anything of it is computed.
#include "kaiju/run/slots.hpp"

#include "catch.hpp"

namespace kaiju {
namespace {

ModelConfig one_layer_of_each_kind() {
  ModelConfig config;
  config.vocab_size = 64, config.context = 1024, config.n_kv_heads = 1, config.head_dim = 64, config.kv_slot_count = 2;
  config.layers.resize(2);
  config.layers[0].kind = LayerKind::kGlobal, config.layers[0].kv_slot = 0;
  config.layers[1].kind = LayerKind::kWindow, config.layers[1].kv_slot = 1, config.layers[1].window = 128;
  return config;
}

// A token of slot 0 at `position`.
StepPlan plan_at(int32_t position) {
  StepPlan plan;
  plan.tokens.push_back(1);
  Segment segment;
  segment.position = position;
  segment.token_count = 1;
  plan.segments.push_back(segment);
  return plan;
}

}  // namespace

TEST_CASE("a plan whose rows lack a block is refused, even if an earlier step had that block") {
  Slots slots;
  ExecutorSizes sizes;
  sizes.block_count[0] = sizes.block_count[1] = 8;
  slots.create(one_layer_of_each_kind(), sizes);
  const auto edit = [](StepPlan plan, BlockKind kind, int32_t index, BlockId block) {
    plan.table_edits.push_back({0, kind, index, block});
    return plan;
  };
  CHECK_FALSE(slots.apply(plan_at(0)).ok());
  CHECK_FALSE(slots.apply(edit(plan_at(0), BlockKind::kGlobal, 0, 3)).ok());
  CHECK(slots.apply(edit(plan_at(0), BlockKind::kWindow, 0, 3)).ok());
  CHECK(slots.apply(plan_at(63)).ok());
  CHECK_FALSE(slots.apply(plan_at(64)).ok());
  CHECK(slots.apply(plan_at(5)).ok());
  for (const BlockKind kind : {BlockKind::kGlobal, BlockKind::kWindow}) {
    CHECK_FALSE(slots.apply(edit(plan_at(5), kind, 0, kNoBlock)).ok());
    CHECK_FALSE(slots.apply(plan_at(5)).ok());
    CHECK(slots.apply(edit(plan_at(5), kind, 0, 4)).ok());
  }
  StepPlan again = plan_at(5);
  again.starts.push_back({0, {}, {}});
  CHECK_FALSE(slots.apply(again).ok());
}

TEST_CASE("a plan with numbers out of range is refused") {
  Slots slots;
  ExecutorSizes sizes;
  sizes.block_count[0] = sizes.block_count[1] = 16;
  slots.create(one_layer_of_each_kind(), sizes);
  StepPlan whole = plan_at(0);
  for (const BlockKind kind : {BlockKind::kGlobal, BlockKind::kWindow})
    for (int32_t i = 0; i < 16; ++i) whole.table_edits.push_back({0, kind, i, i});
  REQUIRE(slots.apply(whole).ok());
  REQUIRE(slots.apply(plan_at(1023)).ok());
  const auto refuses = [&](const auto& change) {
    StepPlan plan = plan_at(0);
    change(plan.segments[0]);
    return !slots.apply(plan).ok();
  };
  for (const int32_t position : {1024, INT32_MAX, -1, INT32_MIN}) CHECK_FALSE(slots.apply(plan_at(position)).ok());
  for (const int32_t count : {2, 64, 65, INT32_MAX, 0, -1, INT32_MIN})
    CHECK(refuses([&](Segment& segment) { segment.token_count = count; }));
  for (const int32_t first : {1, INT32_MAX, -1}) CHECK(refuses([&](Segment& segment) { segment.first_token = first; }));
  for (const int32_t slot : {1, INT32_MAX, -1}) CHECK(refuses([&](Segment& segment) { segment.slot = slot; }));
  CHECK(refuses([](Segment& segment) { segment.top_logprobs = -1; }));
}

TEST_CASE("a plan whose guide or hook does not fit is refused") {
  Slots slots;
  ExecutorSizes sizes;
  sizes.block_count[0] = sizes.block_count[1] = 8;
  slots.create(one_layer_of_each_kind(), sizes);
  const LogitsHook hook = [](std::span<float>, std::span<const int32_t>) {};
  StepPlan good = plan_at(0);
  for (const BlockKind kind : {BlockKind::kGlobal, BlockKind::kWindow}) good.table_edits.push_back({0, kind, 0, 3});
  good.segments[0].sample_count = 1;
  good.segments[0].guide = 0;
  const auto with_guide = [&](const TokenGuide& guide) {
    StepPlan plan = good;
    plan.guides.push_back(std::make_shared<TokenGuide>(guide));
    return plan;
  };
  CHECK(slots.apply(with_guide({{1, 0}, {{63, 1.0f}}})).ok());
  CHECK(slots.apply(with_guide({{}, {}})).ok());
  CHECK_FALSE(slots.apply(good).ok());
  CHECK_FALSE(slots.apply(with_guide({{1}, {}})).ok());
  CHECK_FALSE(slots.apply(with_guide({{1, 0, 0}, {}})).ok());
  CHECK_FALSE(slots.apply(with_guide({{}, {{64, 1.0f}}})).ok());
  CHECK_FALSE(slots.apply(with_guide({{}, {{-1, 1.0f}}})).ok());
  StepPlan unsampled = with_guide({});
  unsampled.segments[0].sample_count = 0;
  CHECK_FALSE(slots.apply(unsampled).ok());
  for (const int32_t index : {-2, 1, INT32_MAX}) {
    StepPlan plan = with_guide({});
    plan.segments[0].guide = index;
    CHECK_FALSE(slots.apply(plan).ok());
  }
  StepPlan hooked = with_guide({});
  hooked.segments[0].hook = 0;
  CHECK_FALSE(slots.apply(hooked).ok());
  hooked.hooks.push_back({&hook, {}});
  CHECK(slots.apply(hooked).ok());
}

TEST_CASE(
    "a plan may use the token that its slot drew last only if the executor supports it and the slot has drawn one") {
  Slots slots;
  ExecutorSizes sizes;
  sizes.block_count[0] = sizes.block_count[1] = 8;
  slots.create(one_layer_of_each_kind(), sizes);
  StepPlan plan = plan_at(0);
  for (const BlockKind kind : {BlockKind::kGlobal, BlockKind::kWindow}) plan.table_edits.push_back({0, kind, 0, 3});
  CHECK(slots.apply(plan, true).ok());
  StepPlan drawn = plan_at(1);
  drawn.tokens[0] = kSampledToken;
  CHECK_FALSE(slots.apply(drawn, true).ok());
  plan.segments[0].sample_count = 1;
  CHECK(slots.apply(plan, true).ok());
  CHECK(slots.apply(drawn, true).ok());
  CHECK(slots.apply(drawn, true).ok());  // still
  CHECK_FALSE(slots.apply(drawn).ok());
  plan.starts.push_back({0, {}, {}});
  plan.segments[0].sample_count = 0;
  CHECK(slots.apply(plan, true).ok());
  CHECK_FALSE(slots.apply(drawn, true).ok());
}

TEST_CASE("in version 2 a block has each slot's keys and values, of that slot's heads, and their scales") {
  ModelConfig config = one_layer_of_each_kind();
  config.shape.activations = Activations::kTokenScales;
  config.n_heads = 4;
  config.layers.push_back(config.layers[0]);
  config.layers[2].kv_slot = 2;
  config.layers[2].head_dim = 256;
  config.layers[2].n_kv_heads = 2;
  config.derive_counts();
  Slots slots;
  ExecutorSizes sizes;
  sizes.block_count[0] = sizes.block_count[1] = 4;
  slots.create(config, sizes);
  const int64_t small = 2 * 64 * (64 + 2), large = 2 * (2 * 64 * (256 + 2));  // keys and values of 64 tokens
  CHECK(slots.info().block_bytes[BlockKind::kGlobal] == small + large);
  CHECK(slots.info().block_bytes[BlockKind::kWindow] == small);
  const std::vector<KvSlot> kv = slots.kv_slots();
  REQUIRE(kv.size() == 3);
  CHECK(kv[2].slot_offset == small);
  CHECK(kv[2].kv_heads == 2);
  CHECK(kv[2].head_dim == 256);
  CHECK(kv[2].scaled);
}

}  // namespace kaiju
