// A small executor on the GPU and two steps of it that between them use all that a step can ask for.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "../conformance/random_checkpoint.hpp"
#include "calls.hpp"
#include "catch.hpp"
#include "cuda/device.hpp"
#include "kaiju/kaiju.hpp"
#include "kaiju/step/executor.hpp"

namespace kaiju::test {

// KAIJU_TEST_CAPABILITY, as in tests/conformance/world.hpp.
inline const bool older_chip = [] {
  const char* capability = std::getenv("KAIJU_TEST_CAPABILITY");
  if (capability) cuda::Device::limit_capability(std::atoi(capability));
  return capability != nullptr;
}();

inline bool has_gpu() {
  const std::vector<std::string> names = backend_names();
  if (names.front() == "cuda") return true;
  const char* required = std::getenv("KAIJU_REQUIRE_BACKENDS");
  CHECK_FALSE((required && std::string(required).find("cuda") != std::string::npos));
  return false;
}

inline std::shared_ptr<const Checkpoint> small_model(int32_t d_ff = 64) {
  ModelConfig config;
  config.name = "faults";
  config.vocab_size = 96;
  config.d_model = 64;
  config.n_heads = 2;
  config.n_kv_heads = 1;
  config.head_dim = 64;
  config.d_ff = d_ff;
  config.context = 512;
  config.layers = {{LayerKind::kWindow, 150, 0, 0}, {LayerKind::kGlobal, 0, 1, 1}};
  config.derive_counts();
  return test::random_checkpoint(config, 3);
}

// An executor with what travels beside its steps.
struct Made {
  Status status;
  std::unique_ptr<Executor> executor;
  HostMemory host;
};
inline ExecutorOptions two_slots() {
  ExecutorOptions options;
  options.backend = "cuda";
  options.slot_count = 2;
  options.step_tokens = 128;
  return options;
}
inline Made make(const std::shared_ptr<const Checkpoint>& checkpoint, const std::vector<int32_t>& devices = {}) {
  Made made;
  ExecutorOptions options = two_slots();
  options.devices = devices;
  auto executor = make_executor(checkpoint, options);
  if (!executor.ok()) return made.status = executor.status(), std::move(made);
  made.executor = std::move(executor).value();
  auto host = made.executor->host_memory(1 << 20, "a test's host memory");
  if (!host.ok()) return made.status = host.status(), std::move(made);
  made.host = std::move(host).value();
  return made;
}

// A sequence's next token, which draws the one behind it.
inline void add_row(StepPlan& plan, int32_t slot, int32_t position, int32_t token) {
  Segment segment;
  segment.slot = slot;
  segment.position = position;
  segment.first_token = static_cast<int32_t>(plan.tokens.size());
  segment.token_count = 1;
  segment.sample_count = 1;
  plan.segments.push_back(segment);
  plan.tokens.push_back(token);
}

// A prefill with everything drawing can ask for, and a decode step with a block going down and one coming up beside it.
inline Status two_steps(Made& made, std::vector<int32_t>& tokens) {
  StepPlan plan;
  StepResult result;
  SlotStart start;
  start.sampling.temperature = 0.8f;
  start.sampling.repetition_penalty = 1.1f;
  start.sampling.logit_bias = {{5, 1.0f}};
  start.history = {1, 2, 3};
  plan.starts.push_back(start);
  for (const BlockKind kind : {BlockKind::kGlobal, BlockKind::kWindow})
    for (int32_t i = 0; i < 2; ++i) plan.table_edits.push_back({0, kind, i, i});
  Segment segment;
  segment.token_count = 100;
  segment.sample_count = 1;
  segment.top_logprobs = 2;
  plan.segments.push_back(segment);
  for (int32_t i = 0; i < 100; ++i) plan.tokens.push_back(i % 96);
  KAIJU_TRY(made.executor->run(plan, result));
  tokens.push_back(result.sampled.at(0).token);

  plan.clear();
  plan.transfers.push_back({BlockTransfer::Way::kDown, BlockKind::kGlobal, 2, made.host.get()});
  plan.transfers.push_back({BlockTransfer::Way::kUp, BlockKind::kGlobal, 3, made.host.get() + (512 << 10)});
  plan.copies.push_back({BlockKind::kGlobal, 2, 4, 64});
  add_row(plan, 0, 100, result.sampled[0].token);
  KAIJU_TRY(made.executor->run(plan, result));
  tokens.push_back(result.sampled.at(0).token);
  return {};
}

// What may be told of a failure that was met.
inline void check_told(const Status& status) {
  INFO(status.message());
  if (failed_with == cudaErrorMemoryAllocation) {
    CHECK(status.code() == StatusCode::kOutOfMemory);
    CHECK(status.message().find("needs") != std::string::npos);
  } else {
    CHECK(status.code() == StatusCode::kDeviceLost);
  }
}

}  // namespace kaiju::test
