// Executors that threads of one process make and use at the same time, across backends.

#include <thread>

#include "catch.hpp"
#include "kaiju/run/executors.hpp"
#include "kaiju/step/executor.hpp"
#include "random_checkpoint.hpp"
#include "small_config.hpp"
#include "world.hpp"

namespace {

using namespace kaiju;

// What an executor of its own draws after a prompt, one token after the other; also without recorded steps.
Status draw(const std::shared_ptr<const Checkpoint>& checkpoint, const std::string& backend, bool graphs,
            std::vector<int32_t>& drawn) {
  constexpr int32_t kPrompt = 70, kDraws = 20;
  ExecutorOptions options;
  options.backend = backend;
  options.threads = 1;
  options.slot_count = 1;
  options.step_tokens = kPrompt;
  options.graphs = graphs;
  auto executor = make_executor(checkpoint, options);
  if (!executor.ok()) return executor.status();
  StepPlan plan;
  StepResult result;
  plan.starts.emplace_back();
  for (const BlockKind kind : {BlockKind::kGlobal, BlockKind::kWindow})
    for (int32_t i = 0; i < 2; ++i) plan.table_edits.push_back({0, kind, i, i});
  for (int32_t i = 0; i < kPrompt; ++i) plan.tokens.push_back(i * 7 % checkpoint->config().vocab_size);
  Segment segment;
  segment.token_count = kPrompt;
  segment.sample_count = 1;
  for (int32_t i = 0; i < kDraws; ++i) {
    plan.segments.assign(1, segment);
    KAIJU_TRY((*executor)->run(plan, result));
    drawn.push_back(result.sampled.at(0).token);
    plan.clear();
    plan.tokens.push_back(drawn.back());
    segment.position += segment.token_count;
    segment.token_count = 1;
  }
  return {};
}

}  // namespace

TEST_CASE("executors that several threads create and use at once behave as if each were alone") {
  constexpr size_t kThreads = 4;
  std::shared_ptr<const Checkpoint> checkpoint[kThreads];
  std::vector<int32_t> expected[kThreads];
  for (size_t t = 0; t < kThreads; ++t) {  // models of different shapes
    ModelConfig config = t == 2 ? test::small_config_of(2, "threads") : test::small_config("threads", t % 2 == 1);
    if (t == 3) config.d_ff = 2048;
    checkpoint[t] = test::random_checkpoint(config, 5 + t);
    REQUIRE(draw(checkpoint[t], "reference", true, expected[t]).ok());
  }
  for (const std::string& backend : test::isas()) {
    INFO(backend);
    for (int32_t round = 0; round < 3; ++round) {
      std::vector<int32_t> drawn[kThreads];
      Status status[kThreads];
      std::vector<std::thread> threads;
      for (size_t t = 0; t < kThreads; ++t)
        threads.emplace_back(
            [&, t] { status[t] = draw(checkpoint[t], backend, (round + static_cast<int32_t>(t)) % 3 != 0, drawn[t]); });
      for (std::thread& thread : threads) thread.join();
      for (size_t t = 0; t < kThreads; ++t) {
        INFO(status[t].message());
        CHECK(status[t].ok());
        CHECK(drawn[t] == expected[t]);
      }
    }
  }
}
