// The classifier's scores: the same bits on every backend, however the rows were cut into steps and steps were started,
// and what the contract says they are.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "catch.hpp"
#include "kaiju/arith/float32.hpp"
#include "kaiju/format/random_model.hpp"
#include "kaiju/model/workspace.hpp"
#include "kaiju/run/executors.hpp"
#include "kaiju/step/executor.hpp"
#include "small_config.hpp"

namespace {

using namespace kaiju;

constexpr int32_t kPrompt = 90, kLength = kPrompt + 12;

ModelConfig with_labels(ModelConfig config, int32_t labels) {
  for (int32_t i = 0; i < labels; ++i) config.labels.push_back(fmt::format("label {}", i));
  return config;
}
ModelConfig config_of(bool wide, int32_t labels) { return with_labels(test::small_config("classifier", wide), labels); }

std::string temporary_path(const char* name) {
  return (std::filesystem::temp_directory_path() /
          fmt::format("kaiju-{}-{}.safetensors", name, static_cast<long>(::getpid())))
      .string();
}

std::shared_ptr<const Checkpoint> opened(const std::string& path) {
  auto checkpoint = Checkpoint::open(path);
  std::filesystem::remove(path);
  INFO(checkpoint.status().message());
  REQUIRE(checkpoint.ok());
  return *checkpoint;
}

std::shared_ptr<const Checkpoint> random_model(const ModelConfig& config) {
  const std::string path = temporary_path("classifier");
  REQUIRE(write_random_checkpoint(path, config, 9).ok());
  return opened(path);
}

// The same model, whose classifier is the first rows of the embedding, as logits matrix.
std::shared_ptr<const Checkpoint> with_rows_of_embedding(const Checkpoint& from) {
  const std::string path = temporary_path("embedding");
  const auto tensors = required_tensors(from.config());
  auto writer = CheckpointWriter::create(path, from.config(), tensors);
  REQUIRE(writer.ok());
  const std::map<std::string, std::string> sources = {{"classifier.weight", "embed.weight"},
                                                      {"classifier.scale", "embed.scale"},
                                                      {"classifier.row_sum", "embed.row_sum"},
                                                      {"classifier.scalar", "embed.out_scalar"}};
  for (const auto& tensor : tensors) {
    const auto source = sources.find(tensor.name);
    const size_t bytes = from.find(tensor.name)->bytes.size();
    REQUIRE(writer.value()
                ->write(from.find(source == sources.end() ? tensor.name : source->second)->bytes.first(bytes))
                .ok());
  }
  REQUIRE(writer.value()->finish().ok());
  return opened(path);
}

struct Run {
  std::string backend;
  int32_t chunk;
  int32_t batch;
  bool graphs = true;
};

// Rows of scores and logits by sequence and position; decode rows have no logits, and every third of them is not asked
// about.
struct Answers {
  std::map<std::pair<int32_t, int32_t>, std::vector<float>> scores, logits;
};

Answers answers_of(const std::shared_ptr<const Checkpoint>& checkpoint, const Run& run) {
  ExecutorOptions options;
  options.backend = run.backend;
  options.threads = 2;
  options.slot_count = run.batch;
  options.step_tokens = run.chunk * run.batch;
  options.graphs = run.graphs;
  auto executor = make_executor(checkpoint, options);
  INFO(executor.status().message());
  REQUIRE(executor.ok());
  const ExecutorInfo& info = (*executor)->info();
  const auto labels = static_cast<size_t>(info.label_count), vocab = static_cast<size_t>(info.vocab_size);
  Answers answers;
  StepPlan plan;
  StepResult result;
  for (int32_t position = 0; position < kLength;) {
    const int32_t count = position < kPrompt ? std::min(run.chunk, kPrompt - position) : 1;
    plan.clear();
    for (int32_t s = 0; s < run.batch; ++s) {
      if (position == 0) plan.starts.push_back({s, {}, {}});
      for (int32_t kind = 0; kind < kBlockKinds; ++kind)
        for (int32_t i = (position + kBlockTokens - 1) / kBlockTokens; i <= (position + count - 1) / kBlockTokens; ++i)
          plan.table_edits.push_back(
              {s, static_cast<BlockKind>(kind), i, s * (info.block_count[kind] / info.slot_count) + i});
      Segment segment;
      segment.slot = s;
      segment.position = position;
      segment.first_token = static_cast<int32_t>(plan.tokens.size());
      segment.token_count = count;
      segment.sample_count = position + count >= kPrompt ? 1 : 0;
      segment.all_logits = position < kPrompt;
      segment.scores = segment.all_logits || (s + position) % 3 != 0;
      plan.segments.push_back(segment);
      for (int32_t i = 0; i < count; ++i) plan.tokens.push_back((s * 31 + (position + i) * (7 + s)) % info.vocab_size);
    }
    const Status ran = (*executor)->run(plan, result);
    INFO(ran.message());
    REQUIRE(ran.ok());
    size_t drawn = 0, row = 0;
    for (const Segment& segment : plan.segments) {
      for (int32_t i = 0; segment.all_logits && i < count; ++i, ++row) {
        REQUIRE(result.scores.size() >= (row + 1) * labels);
        const auto scores = result.scores.begin() + static_cast<std::ptrdiff_t>(row * labels);
        const auto logits = result.logits.begin() + static_cast<std::ptrdiff_t>(row * vocab);
        answers.scores[{segment.slot, position + i}].assign(scores, scores + static_cast<std::ptrdiff_t>(labels));
        answers.logits[{segment.slot, position + i}].assign(logits, logits + static_cast<std::ptrdiff_t>(vocab));
      }
      if (segment.sample_count == 0) continue;
      const std::vector<float>& scores = result.sampled[drawn++].scores;
      CHECK(scores.size() == (segment.scores ? labels : 0));
      if (!segment.scores) continue;
      if (segment.all_logits) CHECK(scores == answers.scores[{segment.slot, position + count - 1}]);
      answers.scores[{segment.slot, position + count - 1}] = scores;
    }
    CHECK(result.scores.size() == row * labels);
    position += count;
  }
  return answers;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return arith::bits_of(x) == arith::bits_of(y); });
}

}  // namespace

TEST_CASE(
    "a classifier's scores are the reference's bits, whatever the backend, chunk and batch, and however steps were "
    "started") {
  const std::string kind = GENERATE(as<std::string>{}, "narrow", "wide", "version 2");
  const int32_t labels = GENERATE(1, 6, 64);
  if (kind == "version 2" && labels != 6) return;
  const auto checkpoint = random_model(kind == "version 2" ? with_labels(test::small_config_of(2, "classifier"), labels)
                                                           : config_of(kind == "wide", labels));
  constexpr int32_t kBatch = 5;
  const Answers expected = answers_of(checkpoint, {"reference", kPrompt, kBatch});
  std::vector<Run> runs = {{"reference", 7, kBatch}};
  for (const std::string& backend : backend_names()) {
    if (backend == "reference") continue;
    for (const int32_t chunk : {1, 7, kPrompt})
      for (const int32_t batch : {1, kBatch}) runs.push_back({backend, chunk, batch});
    if (backend == "cuda") runs.push_back({backend, 7, 1, false}), runs.push_back({backend, 7, kBatch, false});
  }
  for (const Run& run : runs) {
    INFO(run.backend << ", " << labels << " labels, " << kind << ", chunk " << run.chunk << ", batch " << run.batch
                     << ", graphs " << run.graphs);
    size_t different = 0;
    for (const auto& [where, scores] : answers_of(checkpoint, run).scores)
      different += !same(scores, expected.scores.at(where));
    CHECK(different == 0);
  }
}

TEST_CASE("a classifier that is rows of the embedding scores their logits, plus its bias") {
  const auto checkpoint = with_rows_of_embedding(*random_model(config_of(false, 6)));
  const auto bias = checkpoint->view<float>("classifier.bias");
  for (const std::string& backend : backend_names()) {
    INFO(backend);
    const Answers answers = answers_of(checkpoint, {backend, kPrompt, 2});
    for (const auto& [where, logits] : answers.logits) {
      std::vector<float> expected;
      for (size_t n = 0; n < bias.size(); ++n) expected.push_back(arith::add(logits[n], bias[n]));
      CHECK(same(answers.scores.at(where), expected));
    }
  }
}

TEST_CASE("a classifier with more labels than the vocabulary has tokens computes wide scores in bounds") {
  ModelConfig config = with_labels(test::small_config_of(2, "labels"), 64);
  config.vocab_size = 16;
  REQUIRE(config.shape.wide_logits);
  const std::vector<RoomSize> rooms = rooms_of(config, true);
  const auto room =
      std::find_if(rooms.begin(), rooms.end(), [](const RoomSize& size) { return size.room == Room::kWideLogits; });
  REQUIRE(room != rooms.end());
  CHECK(room->row_bytes >= 64 * sizeof(float));
  const auto checkpoint = random_model(config);
  const Answers expected = answers_of(checkpoint, {"reference", kPrompt, 2});
  for (const std::string& backend : backend_names()) {
    INFO(backend);
    const Answers found = answers_of(checkpoint, {backend, kPrompt, 2});
    for (const auto& [where, scores] : found.scores) CHECK(same(scores, expected.scores.at(where)));
  }
}

TEST_CASE("scores of a model without a classifier are refused") {
  ExecutorOptions options;
  options.backend = "reference";
  auto executor = make_executor(random_model(config_of(false, 0)), options);
  REQUIRE(executor.ok());
  StepPlan plan;
  plan.segments.emplace_back().token_count = 1;
  plan.segments[0].scores = true;
  plan.segments[0].sample_count = 1;
  plan.tokens = {1};
  StepResult result;
  const Status ran = (*executor)->run(plan, result);
  CHECK(ran.code() == StatusCode::kInternal);
  CHECK(ran.message().find("classifier") != std::string::npos);
}
