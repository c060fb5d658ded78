// What a step asks of CUDA when nothing fails. Wants a GPU, as faults.cpp.
#include "../conformance/one_row_config.hpp"
#include "../conformance/small_config.hpp"
#include "small_executor.hpp"

namespace kaiju::test {

TEST_CASE("a decode step is one copy, one launch and one wait, and no step allocates memory") {
  if (!has_gpu()) return;
  Made made_now = make(small_model());
  REQUIRE(made_now.status.ok());
  StepPlan plan;
  StepResult result;
  for (int32_t slot = 0; slot < 2; ++slot) {
    SlotStart start;
    start.slot = slot;
    start.sampling.temperature = 0.8f;
    start.sampling.top_p = 0.9f;
    plan.starts.push_back(start);
    for (const BlockKind kind : {BlockKind::kGlobal, BlockKind::kWindow})
      plan.table_edits.push_back({slot, kind, 0, slot});
    Segment segment;
    segment.slot = slot;
    segment.first_token = slot * 20;
    segment.token_count = 20;
    segment.sample_count = 1;
    plan.segments.push_back(segment);
  }
  for (int32_t i = 0; i < 40; ++i) plan.tokens.push_back(i);
  fail_at(0);
  REQUIRE(made_now.executor->run(plan, result).ok());
  CHECK(made_of["cudaEventSynchronize"] == 1);
  for (const char* call : {"cudaMalloc", "cudaMallocHost", "cudaMemcpy", "cudaStreamSynchronize",
                           "cudaDeviceSynchronize", "cudaGraphInstantiate"}) {
    INFO(call);
    CHECK(made_of[call] == 0);
  }
  for (int32_t position = 20; position < 23; ++position) {
    plan.clear();
    for (int32_t slot = 0; slot < 2; ++slot)
      add_row(plan, slot, position, result.sampled.at(static_cast<size_t>(slot)).token);
    fail_at(0);
    REQUIRE(made_now.executor->run(plan, result).ok());
    CHECK(made_of ==
          std::map<std::string, int64_t>{
              {"cudaMemcpyAsync", 1}, {"cudaGraphLaunch", 1}, {"cudaEventRecord", 1}, {"cudaEventSynchronize", 1}});
  }
}

// Separate kernels give the same bits, so no digest tells whether the one kernel served.
TEST_CASE("a step of one row of the models that one kernel serves is that kernel, on a chip that has it") {
  if (!has_gpu()) return;
  cudaDeviceProp chip;
  REQUIRE(cudaGetDeviceProperties(&chip, 0) == cudaSuccess);
  const bool is_served = !older_chip && chip.major == 9 && chip.minor == 0;
  std::vector<ModelConfig> configs{small_config("one-row", true)};  // of version 1
  for (const Like like : {Like::kLlama, Like::kQwen, Like::kGemma, Like::kOther, Like::kManyHeads})
    configs.push_back(one_row_config(like, 513));
  for (ModelConfig& config : configs) {
    CAPTURE(config.name);
    config.derive_counts();
    ExecutorOptions options = two_slots();
    options.graphs = false;
    auto executor = make_executor(test::random_checkpoint(config, 3), options);
    REQUIRE(executor.ok());
    StepPlan plan;
    StepResult result;
    const auto launches_of = [&](int32_t position, int32_t rows) {
      plan.clear();
      if (position == 0) {
        plan.starts.emplace_back();
        for (const BlockKind kind : {BlockKind::kGlobal, BlockKind::kWindow})
          if ((*executor)->info().block_count[kind] > 0) plan.table_edits.push_back({0, kind, 0, 0});
      }
      add_row(plan, 0, position, 1);
      plan.segments[0].token_count = rows;
      plan.tokens.resize(static_cast<size_t>(rows), 2);
      fail_at(0);
      const Status ran = (*executor)->run(plan, result);
      INFO(ran.message());
      REQUIRE(ran.ok());
      return made_of["cudaLaunchKernelExC"];
    };
    launches_of(0, 1);
    const int64_t two = launches_of(1, 2), one = launches_of(3, 1);
    CHECK(one > 1);
    // The embedding and the draw are the same; a layer by itself is more than four kernels.
    CHECK((one + 4 * static_cast<int64_t>(config.layers.size()) < two) == is_served);
  }
}

// Their biases together are longer than the memory for a step's lists: it is used again, but not before it was read.
TEST_CASE("steps that are started one after another never wait for the stream, and draw the tokens of separate steps") {
  if (!has_gpu()) return;
  const auto checkpoint = small_model();
  const auto plan_at = [&](int32_t position, int32_t token) {
    StepPlan plan;
    for (int32_t slot = 0; slot < 2; ++slot) {
      if (position == 0) {
        SlotStart start;
        start.slot = slot;
        start.sampling.temperature = 0.9f;
        for (int32_t t = 0; t < 96; ++t)
          start.sampling.logit_bias.push_back({t, static_cast<float>((t * 37 + slot * 11) % 19) - 9.0f});
        plan.starts.push_back(start);
      }
      if (position % kBlockTokens == 0)
        for (const BlockKind kind : {BlockKind::kGlobal, BlockKind::kWindow})
          plan.table_edits.push_back({slot, kind, position / kBlockTokens, slot * 8 + position / kBlockTokens});
      add_row(plan, slot, position, token);
    }
    return plan;
  };
  constexpr int32_t kSteps = 512;
  const auto draw = [&](bool overlapped) {
    Made made_now = make(checkpoint);
    REQUIRE(made_now.status.ok());
    std::vector<int32_t> tokens;
    StepResult result;
    StepPlan plan = plan_at(0, 1);
    const auto take = [&] {
      for (const SampledToken& sampled : result.sampled) tokens.push_back(sampled.token);
    };
    fail_at(0);
    if (overlapped) REQUIRE(made_now.executor->start(plan).ok());
    for (int32_t position = 1; position < kSteps; ++position) {
      StepPlan next = plan_at(position, kSampledToken);
      if (!overlapped) {
        REQUIRE(made_now.executor->run(plan, result).ok());
      } else {
        REQUIRE(made_now.executor->start(next).ok());
        REQUIRE(made_now.executor->finish(plan, result).ok());
      }
      take();
      plan = std::move(next);
    }
    REQUIRE((overlapped ? made_now.executor->finish(plan, result) : made_now.executor->run(plan, result)).ok());
    take();
    CHECK(made_of["cudaStreamSynchronize"] == 0);
    return tokens;
  };
  const std::vector<int32_t> overlapped = draw(true);
  CHECK(overlapped.size() == 2 * kSteps);
  CHECK(overlapped == draw(false));
}

// The driver loads a kernel, and takes memory for it, when it is first launched or recorded.
TEST_CASE("no step launches a kernel that was not loaded when the executor was created") {
  if (!has_gpu()) return;
  ModelConfig config;
  config.name = "loads";
  config.vocab_size = 2048;
  config.d_model = 1024;
  config.n_heads = GENERATE(4, 8, 48);
  config.n_kv_heads = 1;
  config.head_dim = 128;
  config.d_ff = 4096;
  config.context = 2048;
  config.labels = {"one", "two", "three"};
  config.layers = {{LayerKind::kWindow, 512, 0, 0}};
  std::vector<BlockKind> kinds{BlockKind::kWindow};
  const bool only_windows = GENERATE(false, true);
  if (!only_windows) config.layers.push_back({LayerKind::kGlobal, 0, 1, 1}), kinds.push_back(BlockKind::kGlobal);
  if (GENERATE(1, 2) == 2) {
    if (config.n_heads != 8 || only_windows) return;  // of version 2 one model
    config.shape = test::small_scaled_shape();
  }
  config.derive_counts();
  const auto checkpoint = test::random_checkpoint(config, 3);
  ExecutorOptions options;
  options.backend = "cuda";
  options.slot_count = 170;  // more windows than go by pairs of blocks (cuda/kernels/sm90_attention_decode_window.cuh)
  options.step_tokens = 1200;
  options.graphs = GENERATE(false, true);
  launched.clear();
  fail_at(0);
  auto executor = make_executor(checkpoint, options);
  REQUIRE(executor.ok());
  const std::set<const void*> loaded = launched;
  CHECK(loaded.size() > 20);

  StepPlan plan;
  StepResult result;
  const auto step_launches_what_is_loaded = [&] {
    launched.clear();
    REQUIRE((*executor)->run(plan, result).ok());
    for (const void* kernel : launched) CHECK(loaded.contains(kernel));
  };
  for (const int32_t rows :
       {1, 2, 7, 33, 64, 65, 96, 97, 129, 200, 257, 300, 385, 500, 600, 685, 800, 900, 1025, 1200}) {
    CAPTURE(config.n_heads, only_windows, options.graphs, rows);
    plan.clear();
    plan.starts.emplace_back();
    for (const BlockKind kind : kinds)
      for (int32_t i = 0; i * kBlockTokens < rows; ++i) plan.table_edits.push_back({0, kind, i, i});
    Segment segment;
    segment.token_count = rows;
    segment.sample_count = 1;
    segment.all_logits = rows < 300;
    plan.segments.push_back(segment);
    for (int32_t i = 0; i < rows; ++i) plan.tokens.push_back(i);
    step_launches_what_is_loaded();
  }
  for (const int32_t count : {1, 2, 5, 16, 33, 80, 84, 100, 160, 170}) {
    CAPTURE(config.n_heads, only_windows, options.graphs, count);
    for (const bool first : {true, false}) {  // a token each, all at position 0, then at 1
      plan.clear();
      for (int32_t slot = 0; slot < count; ++slot) {
        if (first) {
          plan.starts.emplace_back();
          plan.starts.back().slot = slot;
          for (const BlockKind kind : kinds) plan.table_edits.push_back({slot, kind, 0, slot});
        }
        add_row(plan, slot, first ? 0 : 1, slot);
      }
      step_launches_what_is_loaded();
    }
  }
}

}  // namespace kaiju::test
