// What a step draws, and how a decode step was started, across backends.

#include <cstring>
#include <random>

#include "catch.hpp"
#include "kaiju/run/executors.hpp"
#include "kaiju/step/executor.hpp"
#include "random_checkpoint.hpp"
#include "small_config.hpp"
#include "world.hpp"

namespace {

using namespace kaiju;

SamplingSpec spec_of(int32_t s) {
  SamplingSpec spec;
  spec.seed = 77 + static_cast<uint64_t>(s);
  if (s % 4 != 0) spec.temperature = 0.5f + 0.1f * static_cast<float>(s % 5);
  if (s % 3 == 1) spec.top_p = 0.9f;
  if (s % 5 == 2) spec.top_k = 20;
  if (s % 4 == 3) spec.repetition_penalty = 1.3f;
  if (s % 6 == 5) spec.logit_bias = {{3, 4.0f}, {7, -2.5f}};
  if (s == 0) spec.logit_bias = {{11, 1000.0f}};  // the shortest, whose rows fill up steps of recorded sizes
  return spec;
}

// What the token at a position may be: of every third sequence, the shortest included, at every other position.
std::shared_ptr<const TokenGuide> guide_of(int32_t s, int32_t position, int32_t vocab_size) {
  if (s % 3 != 0 || position % 2 == 0) return nullptr;
  std::mt19937_64 random(static_cast<uint64_t>(s) * 1000 + static_cast<uint64_t>(position));
  auto guide = std::make_shared<TokenGuide>();
  if (position % 4 == 1)
    for (int32_t i = 0; i < mask_words(vocab_size); ++i)
      guide->allowed.push_back(static_cast<uint32_t>(random() & random()) | 1u << random() % 16);
  if (position % 3 == 0) guide->logit_bias = {{11, -990.0f}, {5, 3.0f}};
  return guide;
}

std::vector<SampledToken> operator+(std::vector<SampledToken> a, const std::vector<SampledToken>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Sequences of different lengths, each with blocks of its own.
class Sequences {
 public:
  Sequences(Executor& executor, int32_t count)
      : executor_(executor), position_(static_cast<size_t>(count), 0), next_(position_.size(), 0) {}

  // One step over the first `count` sequences: their prompts at first, the token drawn last from then on.
  std::vector<SampledToken> step(int32_t count) {
    const StepPlan plan = plan_of(count);
    StepResult result;
    told(executor_.run(plan, result));
    return take(result, count);
  }
  // Two such steps, the second started before the first has ended and told of, where the executor can.
  std::vector<SampledToken> two_steps(int32_t count, int32_t behind) {
    if (!executor_.runs_beside_host()) {
      const std::vector<SampledToken> drawn = step(count);
      return drawn + step(behind);
    }
    const StepPlan first = plan_of(count);
    std::fill_n(next_.begin(), count, kSampledToken);
    const StepPlan second = plan_of(behind);
    StepResult result;
    told(executor_.start(first));
    told(executor_.start(second));
    told(executor_.finish(first, result));
    std::vector<SampledToken> drawn = take(result, count);
    told(executor_.finish(second, result));
    return drawn + take(result, behind);
  }

 private:
  StepPlan plan_of(int32_t count) {
    const ExecutorInfo& info = executor_.info();
    StepPlan plan;
    for (int32_t s = 0; s < count; ++s) {
      int32_t& position = position_[static_cast<size_t>(s)];
      Segment segment;
      segment.slot = s;
      segment.position = position;
      segment.first_token = static_cast<int32_t>(plan.tokens.size());
      segment.token_count = position == 0 ? 1 + s * 29 % 90 : 1;
      segment.sample_count = 1;
      segment.top_logprobs = s % 3;
      if (position == 0) plan.starts.push_back({s, spec_of(s), {}});
      for (int32_t kind = 0; kind < kBlockKinds; ++kind)
        for (int32_t i = (position + kBlockTokens - 1) / kBlockTokens;
             i <= (position + segment.token_count - 1) / kBlockTokens; ++i)
          plan.table_edits.push_back(
              {s, static_cast<BlockKind>(kind), i, s * (info.block_count[kind] / info.slot_count) + i});
      for (int32_t i = 0; i < segment.token_count; ++i)
        plan.tokens.push_back(position == 0 ? (s * 31 + i * 7) % info.vocab_size : next_[static_cast<size_t>(s)]);
      position += segment.token_count;
      if (auto guide = guide_of(s, position, info.vocab_size)) {
        segment.guide = static_cast<int32_t>(plan.guides.size());
        plan.guides.push_back(std::move(guide));
      }
      plan.segments.push_back(segment);
    }
    return plan;
  }
  static void told(const Status& status) {
    INFO(status.message());
    REQUIRE(status.ok());
  }
  std::vector<SampledToken> take(const StepResult& result, int32_t count) {
    REQUIRE(result.sampled.size() == static_cast<size_t>(count));
    for (const SampledToken& token : result.sampled) next_[static_cast<size_t>(token.slot)] = token.token;
    return result.sampled;
  }

  Executor& executor_;
  std::vector<int32_t> position_, next_;
};

bool same(const SampledToken& a, const SampledToken& b) {
  const auto same_float = [](float x, float y) { return std::memcmp(&x, &y, sizeof x) == 0; };
  if (a.slot != b.slot || a.token != b.token || !same_float(a.logprob, b.logprob) || a.top.size() != b.top.size())
    return false;
  for (size_t i = 0; i < a.top.size(); ++i)
    if (a.top[i].token != b.top[i].token || !same_float(a.top[i].logprob, b.top[i].logprob)) return false;
  return true;
}

// Every batch size, each step started as a whole and launch by launch, and behind another.
void check_decode_steps(bool wide) {
  const int32_t most = test::cases_of_run(21);
  const auto checkpoint = test::random_checkpoint(test::small_config("draws", wide), 5);
  const auto run = [&](const std::string& backend, bool graphs) {
    ExecutorOptions options;
    options.backend = backend;
    options.threads = 1;
    options.slot_count = most;
    options.step_tokens = most * 90;
    options.graphs = graphs;
    auto executor = make_executor(checkpoint, options);
    INFO(executor.status().message());
    REQUIRE(executor.ok());
    Sequences sequences(**executor, most);
    std::vector<SampledToken> drawn = sequences.step(most);
    for (int32_t count = most; count > 0; --count) drawn = drawn + sequences.step(count);
    for (int32_t count = most; count > 0; --count) drawn = drawn + sequences.two_steps(count, (count + 1) / 2);
    return drawn;
  };
  const std::vector<SampledToken> expected = run("reference", true);
  for (const std::string& backend : test::isas())
    for (const bool graphs : {true, false}) {
      if (!graphs && backend != "cuda") continue;
      INFO(backend << ", graphs " << graphs);
      const std::vector<SampledToken> drawn = run(backend, graphs);
      REQUIRE(drawn.size() == expected.size());
      for (size_t i = 0; i < drawn.size(); ++i) {
        INFO("draw " << i << " of slot " << expected[i].slot);
        CHECK(same(drawn[i], expected[i]));
      }
    }
}

}  // namespace

TEST_CASE("decode steps of every batch size draw the reference's tokens, as CUDA graphs or launch by launch") {
  check_decode_steps(false);
}

// To a CPU these are rows like others.
TEST_CASE("rows that a GPU takes through all layers at once draw the reference's tokens") {
  const std::vector<std::string> backends = test::isas();
  if (std::find(backends.begin(), backends.end(), "cuda") != backends.end()) check_decode_steps(true);
}

// More of them than attention kept apart at first. The histories are made of eight blocks again and again: what they
// hold does not matter, as long as all read the same.
TEST_CASE("sequences that see thousands of chunks in total draw the same tokens on every backend") {
  constexpr int32_t kSequences = 40, kTokens = 60000, kBlocks = 8;
  ModelConfig config = test::small_config("chunks", false);
  config.head_dim = 128;
  config.context = 65536;
  config.layers = {{LayerKind::kGlobal, 0, 0, 0}};
  config.kv_slot_count = 1;
  const auto checkpoint = test::random_checkpoint(config, 5);
  std::vector<SampledToken> expected;
  for (const std::string& backend : test::isas()) {
    INFO(backend);
    ExecutorOptions options;
    options.backend = backend;
    options.threads = 1;
    options.slot_count = kSequences;
    options.step_tokens = kBlocks * kBlockTokens;
    options.cache_bytes = 1;
    auto executor = make_executor(checkpoint, options);
    INFO(executor.status().message());
    REQUIRE(executor.ok());
    StepPlan plan;
    StepResult result;
    plan.starts.push_back({0, {}, {}});
    for (int32_t i = 0; i < kBlocks; ++i) plan.table_edits.push_back({0, BlockKind::kGlobal, i, i});
    Segment segment;
    segment.token_count = kBlocks * kBlockTokens;
    plan.segments.push_back(segment);
    for (int32_t i = 0; i < segment.token_count; ++i) plan.tokens.push_back(i * 7 % config.vocab_size);
    REQUIRE((*executor)->run(plan, result).ok());
    plan.clear();
    segment.token_count = 1;
    segment.sample_count = 1;
    segment.top_logprobs = 2;
    for (int32_t s = 0; s < kSequences; ++s) {
      segment.slot = segment.first_token = s;
      segment.position =
          (kTokens / kBlockTokens - s) * kBlockTokens;  // the first of its block, which nobody has written
      const int32_t last = segment.position / kBlockTokens;
      plan.starts.push_back({s, {}, {}});
      for (int32_t i = 0; i <= last; ++i)
        plan.table_edits.push_back({s, BlockKind::kGlobal, i, i < last ? (i + s) % kBlocks : kBlocks + s});
      plan.segments.push_back(segment);
      plan.tokens.push_back(s);
    }
    const Status ran = (*executor)->run(plan, result);
    INFO(ran.message());
    REQUIRE(ran.ok());
    if (expected.empty()) expected = result.sampled;
    REQUIRE(result.sampled.size() == expected.size());
    for (size_t s = 0; s < expected.size(); ++s) CHECK(same(result.sampled[s], expected[s]));
  }
}
