// Models that several GPUs share: the bits of one. KAIJU_TEST_GPUS=4 requires so many; without it, all that are there.
#include "world.hpp"
#if KAIJU_CUDA
#include <future>
#include <map>
#include <stdexcept>

#include "examples/tools/scorer.hpp"
#include "kaiju/engine/engine.hpp"
#include "kaiju/run/executors.hpp"
#include "kaiju/run/memory_need.hpp"
#include "kaiju/step/executor.hpp"
#include "random_checkpoint.hpp"
#include "small_config.hpp"

namespace kaiju::test {
namespace {

// Numbers of GPUs to share a model among.
std::vector<int32_t> gpu_counts() {
  const std::vector<std::string> names = isas();
  const char* const required = std::getenv("KAIJU_TEST_GPUS");
  const auto there =
      std::find(names.begin(), names.end(), "cuda") == names.end() ? 0 : static_cast<int32_t>(cuda::gpus().size());
  if (required) REQUIRE(there >= std::atoi(required));
  std::vector<int32_t> counts;
  for (const int32_t count : {2, 4, 8})
    if (count <= there) counts.push_back(count);
  if (counts.empty()) WARN("fewer than two GPUs here");
  return counts;
}

std::vector<int32_t> first_gpus(int32_t count) {
  std::vector<int32_t> devices;
  for (int32_t i = 1; i <= count; ++i) devices.push_back(i);
  return devices;
}

// That 2, 4 and 8 GPUs can share.
ModelConfig random_shared_config(Random& random, int32_t number) {
  ModelConfig config;
  config.name = "shared" + std::to_string(number);
  config.vocab_size = 16 * (8 + random.below(40));
  config.head_dim = random.below(2) == 0 ? 64 : 128;
  config.n_kv_heads = random.pick({1, 1, 1, 2, 4, 8});
  config.n_heads = 8 * (1 + random.below(3));
  config.d_model = 64 * (1 + random.below(12));
  config.d_ff = 512 * (1 + random.below(3));
  config.context = 512;
  config.layers = {{LayerKind::kWindow, 33 + random.below(150), 0, 0}, {LayerKind::kGlobal, 0, 1, 0}};
  if (random.below(2) == 0) config.layers.push_back({LayerKind::kGlobal, 0, 1, 0});
  if (random.below(2) == 0) config.labels = {"violence", "self_harm"};
  config.derive_counts();
  return config;
}

// Likewise in version 2 of the arithmetic.
ModelConfig random_shared_scaled_config(Random& random, int32_t number) {
  ModelConfig config = random_shared_config(random, number);
  LayerShape& shape = config.shape;
  shape = small_scaled_shape();
  if (number % 4 == 3) shape.activations = Activations::kStaticScales, shape.hadamard = 0;
  shape.ffn = static_cast<Ffn>(number % 3);
  shape.residual = static_cast<Residual>(random.below(2));
  shape.output = static_cast<OutputMatrix>(random.below(2));
  shape.biases = static_cast<Biases>(random.below(3));
  shape.norms_after = random.chance(50);
  shape.value_norms = random.chance(30);
  shape.static_kv = random.chance(40);
  shape.wide_logits = random.chance(40);
  shape.logit_cap = random.chance(30) ? 30.0f : 0.0f;
  if (number % 4 == 1) {
    shape.ffn = Ffn::kGatedGelu;
    shape.norms_after = true;
    shape.layer_inputs = random.pick({64, 192});
  }
  for (LayerConfig& layer : config.layers) {
    if (layer.kind == LayerKind::kGlobal)
      layer.rope = 1, layer.n_kv_heads = number % 2, layer.head_dim = number % 2 * 256;
    if (random.chance(40)) layer.d_ff = 1024;
  }
  config.layers[0].values_from_keys = random.chance(30);
  config.derive_counts();
  return config;
}

struct Run {
  std::string backend;
  std::vector<int32_t> devices;
  int32_t chunk = 200, batch = 1;
  bool graphs = true;
};

Result<std::vector<float>> logits_of(const std::shared_ptr<const Checkpoint>& checkpoint, const Run& run) {
  ExecutorOptions options;
  options.backend = run.backend;
  options.devices = run.devices;
  options.slot_count = run.batch;
  options.step_tokens = run.chunk * run.batch;
  options.graphs = run.graphs;
  auto executor = make_executor(checkpoint, options);
  if (!executor.ok()) return executor.status();
  std::vector<std::vector<int32_t>> texts;
  for (int32_t text = 0; text < run.batch; ++text) {
    std::vector<int32_t>& tokens = texts.emplace_back();
    for (int32_t i = 0; i < 300; ++i) tokens.push_back((i * 7 + text * 31) % checkpoint->config().vocab_size);
  }
  std::vector<float> logits;
  tools::Scorer scorer(std::move(executor).value());
  KAIJU_TRY(scorer.score(texts, run.chunk, [&](std::span<const float> rows, int64_t) -> Status {
    logits.insert(logits.end(), rows.begin(), rows.end());
    return {};
  }));
  return logits;
}

// On any thread, where assertions are not allowed.
void must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

// The tokens of several conversations of two turns each, at once, with sampling and penalties; then of one that was
// saved after them and restored. `saved`: what was saved.
std::vector<int32_t> replies_of(const std::shared_ptr<const Checkpoint>& checkpoint, const Run& run,
                                std::vector<std::byte>& saved) {
  ExecutorOptions options;
  options.backend = run.backend;
  options.devices = run.devices;
  options.slot_count = 6;
  options.step_tokens = 96;
  options.graphs = run.graphs;
  options.share_memory = true;
  auto executor = make_executor(checkpoint, options);
  must(executor.status());
  const auto engine = Engine::create(std::move(executor).value(), nullptr, {}).value();
  const int32_t vocab = checkpoint->config().vocab_size;
  std::vector<std::vector<int32_t>> said(9);
  std::vector<int32_t> all;
  saved.clear();
  for (int32_t turn = 0; turn < 3; ++turn) {
    std::vector<SessionId> sessions;
    if (turn == 2) {
      said.resize(1);
      size_t read = 0;
      const auto restored = engine->restore_session({}, [&](std::span<std::byte> piece) -> Status {
        if (read + piece.size() > saved.size()) return {StatusCode::kIo, "more is read than was saved"};
        std::copy_n(saved.begin() + static_cast<int64_t>(read), piece.size(), piece.begin());
        read += piece.size();
        return {};
      });
      must(restored.status());
      sessions.push_back(*restored);
    }
    for (size_t talk = 0; talk < said.size(); ++talk) {
      for (int32_t i = 0; i < 40 + 7 * static_cast<int32_t>(talk); ++i)
        said[talk].push_back((turn * 131 + i * 11 + static_cast<int32_t>(talk % 3) * 5) % vocab);
      if (turn < 2) sessions.push_back(engine->create_session().value());
      RequestOptions request;
      request.max_tokens = 20;
      request.user_data = &said[talk];
      request.sampling.temperature = talk % 2 == 0 ? 0.0f : 0.9f;
      request.sampling.repetition_penalty = talk % 3 == 0 ? 1.2f : 1.0f;
      request.sampling.seed = talk;
      must(engine->submit(sessions.back(), said[talk], request).status());
    }
    while (engine->pending() > 0) {
      must(engine->step());
      for (Event event; engine->poll(event);)
        if (event.kind == EventKind::kToken)
          static_cast<std::vector<int32_t>*>(event.user_data)->push_back(event.token);
    }
    for (const std::vector<int32_t>& one : said) all.insert(all.end(), one.begin(), one.end());
    if (turn == 1)
      must(engine->save_session(sessions[0], {}, [&](std::span<const std::byte> piece) {
        saved.insert(saved.end(), piece.begin(), piece.end());
        return Status();
      }));
    for (const SessionId session : sessions) must(engine->destroy_session(session));
  }
  return all;
}

}  // namespace

// In chunks, batches, with graphs or not. Steps of 8 x 200 rows are spread over GPUs where rows are wide enough.
void check_bits(const ModelConfig& config, uint64_t seed, const std::vector<int32_t>& counts) {
  const auto checkpoint = random_checkpoint(config, seed);
  for (const int32_t batch : {1, 3, 8}) {
    const auto expected = logits_of(checkpoint, {batch > 3 ? "cuda" : "portable", {}, 64, batch});
    REQUIRE(expected.ok());
    for (const int32_t count : counts)
      for (const int32_t chunk : {1, 7, 64, 200}) {
        if (batch > 3 && chunk < 200) continue;
        INFO("KAIJU_TEST_SEED=" << seed_of_run() << ", model " << seed << ", " << count << " GPUs, chunk " << chunk
                                << ", batch " << batch);
        const auto logits = logits_of(checkpoint, {"cuda", first_gpus(count), chunk, batch, chunk % 2 == 0});
        INFO(logits.status().message());
        REQUIRE(logits.ok());
        CHECK(differences(*logits, *expected) == 0);
      }
  }
}

TEST_CASE("several GPUs that share a model give the bits of one processor, in any chunks, batches, graphs or not") {
  const std::vector<int32_t> counts = gpu_counts();
  if (counts.empty()) return;
  Random random(seed_of_run());
  for (int32_t number = 0; number < 12; ++number)
    check_bits(random_shared_config(random, number), static_cast<uint64_t>(number) + 1, counts);
}

TEST_CASE("several GPUs that share a model of version 2 give the bits of one processor") {
  const std::vector<int32_t> counts = gpu_counts();
  if (counts.empty()) return;
  Random random(seed_of_run() + 1);
  for (int32_t number = 0; number < 12; ++number)
    check_bits(random_shared_scaled_config(random, number), static_cast<uint64_t>(number) + 80, counts);
}

TEST_CASE("conversations at once on several GPUs get the replies of one processor, and are saved as by one GPU") {
  const std::vector<int32_t> counts = gpu_counts();
  if (counts.empty()) return;
  Random random(seed_of_run());
  for (int32_t number = 0; number < 6; ++number) {
    const ModelConfig config =
        number < 3 ? random_shared_config(random, number) : random_shared_scaled_config(random, number);
    const auto checkpoint = random_checkpoint(config, static_cast<uint64_t>(number) + 40);
    std::vector<std::byte> saved, saved_by_one;
    const std::vector<int32_t> expected = replies_of(checkpoint, {"portable", {}}, saved);
    CHECK(replies_of(checkpoint, {"cuda", {1}}, saved_by_one) == expected);
    for (const int32_t count : counts)
      for (const bool graphs : {true, false}) {
        INFO("KAIJU_TEST_SEED=" << seed_of_run() << ", model " << number << ", " << count << " GPUs, graphs "
                                << graphs);
        CHECK(replies_of(checkpoint, {"cuda", first_gpus(count), 0, 0, graphs}, saved) == expected);
        CHECK(saved == saved_by_one);
      }
  }
}

TEST_CASE("engines on several GPUs share one checkpoint, step beside each other and reply as one") {
  const std::vector<int32_t> counts = gpu_counts();
  if (counts.empty()) return;
  Random random(seed_of_run());
  const auto checkpoint = random_checkpoint(random_shared_config(random, 0), 60);
  std::vector<std::byte> saved;
  const std::vector<int32_t> expected = replies_of(checkpoint, {"portable", {}}, saved);
  std::vector<std::future<std::vector<int32_t>>> replies;
  for (int32_t gpu = 1; gpu <= counts.back(); ++gpu)
    replies.push_back(std::async(std::launch::async, [&checkpoint, gpu] {
      std::vector<std::byte> own;
      return replies_of(checkpoint, {"cuda", {gpu}}, own);
    }));
  for (auto& reply : replies) CHECK(reply.get() == expected);
}

// Steps of 8 x 200 rows fill a GPU with blocks that wait for the other one.
TEST_CASE("engines that have GPUs in common take turns there, and each replies as if it were alone") {
  const std::vector<int32_t> counts = gpu_counts();
  if (counts.empty()) return;
  Random random(seed_of_run());
  ModelConfig config = random_shared_config(random, 0);
  config.d_model = 1024;
  const auto checkpoint = random_checkpoint(config, 62);
  std::vector<std::byte> saved;
  const std::vector<int32_t> expected = replies_of(checkpoint, {"portable", {}}, saved);
  const auto expected_logits = logits_of(checkpoint, {"cuda", {1}, 200, 8});
  REQUIRE(expected_logits.ok());
  std::vector<std::vector<int32_t>> groups{{1, 2}, {2, 1}, {1, 2}};
  if (counts.back() >= 4) groups.insert(groups.end(), {{2, 3}, {3, 1}, first_gpus(4)});
  std::vector<std::future<bool>> same;
  for (const std::vector<int32_t>& gpus : groups)
    same.push_back(std::async(std::launch::async, [&, gpus] {
      bool all = true;
      for (int32_t time = 0; time < 5; ++time) {
        std::vector<std::byte> own;
        const auto logits = logits_of(checkpoint, {"cuda", gpus, 200, 8, time % 2 == 0});
        must(logits.status());
        all = all && differences(*logits, *expected_logits) == 0 &&
              replies_of(checkpoint, {"cuda", gpus, 0, 0, time % 2 == 0}, own) == expected;
      }
      return all;
    }));
  for (auto& each : same) CHECK(each.get());
}

// Hidden: 100,000 steps, which take minutes.
TEST_CASE("several GPUs meet again and again without waiting for ever", "[.long]") {
  const std::vector<int32_t> counts = gpu_counts();
  if (counts.empty()) return;
  Random random(seed_of_run());
  const auto checkpoint = random_checkpoint(random_shared_config(random, 0), 61);
  for (const int32_t count : counts) {
    ExecutorOptions options;
    options.backend = "cuda";
    options.devices = first_gpus(count);
    options.slot_count = 8;
    options.step_tokens = 96;
    auto executor = make_executor(checkpoint, options);
    REQUIRE(executor.ok());
    const auto engine = Engine::create(std::move(executor).value(), nullptr, {}).value();
    std::map<std::vector<int32_t>, int32_t> replies;  // the same request again and again
    int64_t steps = 0;
    while (steps < 100'000) {
      std::vector<std::vector<int32_t>> said(8, {1, 2, 3});
      std::vector<SessionId> sessions;
      for (std::vector<int32_t>& one : said) {
        sessions.push_back(engine->create_session().value());
        RequestOptions request;
        request.max_tokens = 400;
        request.user_data = &one;
        request.sampling.temperature = 0.9f;
        REQUIRE(engine->submit(sessions.back(), one, request).ok());
      }
      for (; engine->pending() > 0; ++steps) {
        REQUIRE(engine->step().ok());
        for (Event event; engine->poll(event);)
          if (event.kind == EventKind::kToken)
            static_cast<std::vector<int32_t>*>(event.user_data)->push_back(event.token);
      }
      for (const std::vector<int32_t>& one : said) ++replies[one];
      for (const SessionId session : sessions) REQUIRE(engine->destroy_session(session).ok());
    }
    CHECK(replies.size() == 1);
  }
}

TEST_CASE("GPUs that cannot share a model refuse it, and say how many could") {
  const std::vector<int32_t> counts = gpu_counts();
  if (counts.empty()) return;
  Random random(seed_of_run());
  ModelConfig config = random_shared_config(random, 0);
  config.n_heads = 3;
  config.n_kv_heads = 1;
  config.d_ff = 1152;
  config.derive_counts();
  const Status refused = logits_of(random_checkpoint(config, 1), {"cuda", first_gpus(2)}).status();
  CHECK(refused.code() == StatusCode::kUnsupported);
  CHECK(refused.message().find("among 3") != std::string::npos);
  ExecutorOptions options;
  options.backend = "cuda";
  options.devices = first_gpus(2);
  const auto unfit = random_checkpoint(config, 1);
  CHECK(memory_need(*unfit, options).status().message() == refused.message());
  const Status twice = logits_of(random_checkpoint(config, 1), {"cuda", {1, 1}}).status();
  CHECK(twice.code() == StatusCode::kInvalidArgument);
  CHECK(twice.message().find("twice") != std::string::npos);
}

}  // namespace kaiju::test
#endif
