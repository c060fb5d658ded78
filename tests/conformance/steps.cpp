// The second rung: the same steps give the same bits on every backend of this machine, however the work is cut.
#include <fmt/format.h>
#include <xxhash.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "catch.hpp"
#include "examples/tools/scorer.hpp"
#include "kaiju/format/random_model.hpp"
#include "kaiju/step/executor.hpp"
#include "one_row_config.hpp"
#include "small_config.hpp"
#include "world.hpp"

namespace {

using namespace kaiju;

struct Run {
  std::string backend;
  int32_t threads;
  int32_t chunk;  // 0: whole
  int32_t batch;
  int32_t prompt = 0;  // tokens of the first step, if not as many as of the others
};

std::string name_of(const Run& run) {
  return fmt::format("{}, {} threads, chunk {}, batch {}", run.backend, run.threads, run.chunk, run.batch);
}

uint64_t digest_of(const std::shared_ptr<const Checkpoint>& checkpoint, const std::vector<int32_t>& tokens,
                   const Run& run) {
  const int32_t chunk = run.chunk > 0 ? run.chunk : static_cast<int32_t>(tokens.size());
  ExecutorOptions options;
  options.backend = run.backend;
  options.threads = run.threads;
  options.slot_count = run.batch;
  options.step_tokens = std::max(chunk, run.prompt) * run.batch;
  auto executor = make_executor(checkpoint, options);
  INFO(executor.status().message());
  REQUIRE(executor.ok());
  std::vector<std::vector<int32_t>> sequences{tokens};
  for (int32_t s = 1; s < run.batch; ++s) {  // strangers of other lengths and contents
    std::vector<int32_t> stranger(tokens.size() - std::min<size_t>(tokens.size() - 1, static_cast<size_t>(s) * 5));
    for (size_t i = 0; i < stranger.size(); ++i)
      stranger[i] =
          static_cast<int32_t>((tokens[i] * 7 + s * 13 + static_cast<int32_t>(i)) % checkpoint->config().vocab_size);
    sequences.push_back(std::move(stranger));
  }
  XXH3_state_t* hash = XXH3_createState();
  XXH3_64bits_reset(hash);
  tools::Scorer scorer(std::move(executor).value());
  const auto add = [&](std::span<const float> rows, int64_t) -> Status {
    XXH3_64bits_update(hash, rows.data(), rows.size_bytes());
    return {};
  };
  const Status status = scorer.score(sequences, chunk, add, run.prompt);
  INFO(status.message());
  REQUIRE(status.ok());
  const uint64_t digest = XXH3_64bits_digest(hash);
  XXH3_freeState(hash);
  return digest;
}

// Every backend and thread count, chunk size and batch, against `expected`.
void check_all(const std::shared_ptr<const Checkpoint>& checkpoint, const std::vector<int32_t>& tokens,
               uint64_t expected, int32_t batch = 8) {
  std::vector<Run> runs;
  for (const std::string& backend : test::isas()) {
    for (int32_t threads = 1; threads <= (backend == "cuda" ? 1 : 2); ++threads)  // a GPU is driven by one
      for (const int32_t chunk : {1, 7, 64, 0}) runs.push_back({backend, threads, chunk, 1});
    runs.push_back({backend, 2, 7, batch});
    runs.push_back({backend, 1, 64, batch});
  }
  for (const Run& run : runs) {
    INFO(name_of(run));
    CHECK(digest_of(checkpoint, tokens, run) == expected);
  }
}

std::vector<int32_t> random_tokens(std::mt19937& random, int32_t vocab_size, size_t count) {
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab_size));
  return tokens;
}

// Shapes that stress window edges, slot sharing, several KV heads and every head_dim.
ModelConfig random_config(std::mt19937& random, int index) {
  const auto pick = [&](std::initializer_list<int32_t> of) { return *(of.begin() + random() % of.size()); };
  ModelConfig config;
  config.name = fmt::format("random-{}", index);
  config.vocab_size = pick({32, 48, 272});
  config.d_model = pick({64, 128, 320});
  config.head_dim = pick({64, 64, 128, 256});
  config.n_kv_heads = pick({1, 1, 2, 3});
  config.n_heads = config.n_kv_heads * pick({1, 2, 4});
  config.d_ff = pick({64, 192, 256});
  config.context = 1024;
  config.rope_count = 2;
  int32_t slot = -1;
  const int32_t groups = pick({1, 2, 3});
  for (int32_t group = 0; group < groups; ++group) {
    const bool global = random() % 3 == 0;
    const int32_t window = pick({1, 2, 63, 64, 65, 100, 128, 511, 512, 513});
    ++slot;
    const int32_t sharers = pick({1, 2});
    for (int32_t i = 0; i < sharers; ++i)
      config.layers.push_back({global ? LayerKind::kGlobal : LayerKind::kWindow, global ? 0 : window, slot, group % 2});
  }
  if (groups == 1) config.rope_count = 1;
  config.kv_slot_count = slot + 1;
  return config;
}

// Likewise of version 2 of the arithmetic: every choice of a structure, and layers with dimensions of their own.
ModelConfig random_scaled_config(std::mt19937& random, int index) {
  const auto pick = [&](std::initializer_list<int32_t> of) { return *(of.begin() + random() % of.size()); };
  const auto chance = [&](uint32_t percent) { return random() % 100 < percent; };
  ModelConfig config = random_config(random, index);
  LayerShape& shape = config.shape;
  shape.activations = index % 4 == 3 ? Activations::kStaticScales : Activations::kTokenScales;
  shape.hadamard = index % 4 == 3 ? 0 : pick({0, 16, 32, 64, 64});
  shape.ffn = static_cast<Ffn>(index % 3);
  shape.residual = static_cast<Residual>(pick({0, 1}));
  shape.output = static_cast<OutputMatrix>(pick({0, 1}));
  shape.biases = static_cast<Biases>(pick({0, 1, 2}));
  shape.norm_gains = chance(80);
  shape.norms_after = shape.norm_gains && chance(40);
  shape.head_norms = chance(50);
  shape.value_norms = chance(30);
  shape.static_kv = chance(30);
  shape.wide_logits = chance(40);
  shape.logit_cap = chance(30) ? 30.3f : 0.0f;
  config.score_scale = chance(30) ? 0.13f : 0.0f;
  const int32_t own_head_dim = pick({0, 0, 128, 512});
  for (LayerConfig& layer : config.layers) {
    const LayerConfig& owner = config.layers[static_cast<size_t>(config.owner_of(layer.kv_slot))];
    if (layer.rope == 1 || config.rope_count == 1) {
      layer.head_dim = own_head_dim;
      layer.n_kv_heads = &layer != &owner ? owner.n_kv_heads : chance(30) ? 1 : 0;
    }
    layer.values_from_keys = &layer == &owner && chance(20);
    if (chance(30)) layer.d_ff = pick({64, 320});
    if (chance(20)) layer.factor = 0.7f;
  }
  return config;
}

// Likewise of Gemma's shapes: windows, then a global layer with wider heads; the last layers read the keys and values
// of the last layer of their kind that has some, and may be twice as wide.
ModelConfig random_gemma_config(std::mt19937& random, int index) {
  const auto pick = [&](std::initializer_list<int32_t> of) { return *(of.begin() + random() % of.size()); };
  ModelConfig config = random_config(random, index);
  config.head_dim = pick({64, 128});
  config.n_kv_heads = pick({1, 2});
  config.n_heads = config.n_kv_heads * pick({1, 2, 4});
  config.score_scale = pick({0, 1}) == 1 ? 1.0f : 0.0f;
  LayerShape& shape = config.shape;
  shape = test::small_scaled_shape();
  if (index % 2 == 1) shape.activations = Activations::kStaticScales, shape.hadamard = 0;
  shape.ffn = Ffn::kGatedGelu;
  shape.output = static_cast<OutputMatrix>(pick({0, 1}));
  shape.biases = Biases::kNone;
  shape.norms_after = true;
  shape.value_norms = pick({0, 1}) == 1;
  shape.static_kv = pick({0, 1}) == 1;
  shape.logit_cap = pick({0, 1}) == 1 ? 30.0f : 0.0f;

  LayerConfig window{LayerKind::kWindow, pick({1, 24, 64, 65}), 0, 0};
  LayerConfig global{LayerKind::kGlobal, 0, 0, 1};
  global.head_dim = pick({256, 512});
  global.n_kv_heads = 1;
  global.values_from_keys = pick({0, 1}) == 1;
  window.factor = global.factor = shape.value_norms ? 0.7f : 1.0f;
  const int32_t own = pick({2, 3, 4}), shared = pick({0, 1, 2, 3});
  config.layers.assign(static_cast<size_t>(own), window);
  config.layers.back() = global;
  for (int32_t i = 0; i < own; ++i) config.layers[static_cast<size_t>(i)].kv_slot = i;
  for (int32_t i = 0; i < shared; ++i) {
    LayerConfig layer = config.layers[static_cast<size_t>(own - 1 - (i + 1) % 2)];
    layer.values_from_keys = false;  // which counts in the layer that has them
    layer.d_ff = 2 * config.d_ff;
    config.layers.push_back(layer);
  }
  config.derive_counts();
  return config;
}

// Likewise of Gemma's shapes whose layers have an input of their own of each token.
ModelConfig random_layer_inputs_config(std::mt19937& random, int index) {
  const auto pick = [&](std::initializer_list<int32_t> of) { return *(of.begin() + random() % of.size()); };
  ModelConfig config = random_gemma_config(random, index);
  LayerShape& shape = config.shape;
  shape.layer_inputs = pick({64, 128, 192, 256});  // more than the feed-forward has in some
  shape.hadamard = has_static_steps(shape) ? 0 : pick({0, 16, 32, 64});
  shape.f32_rows = has_static_steps(shape) && pick({0, 1}) == 1;
  shape.ffn = pick({0, 1}) == 1 ? Ffn::kGatedSilu : Ffn::kGatedGelu;
  shape.residual = static_cast<Residual>(pick({0, 1}));
  shape.biases = static_cast<Biases>(pick({0, 0, 2}));
  for (LayerConfig& layer : config.layers) layer.factor = pick({0, 1}) == 1 ? 0.6f : 1.0f;
  return config;
}

// Who says what the bits are, where the reference would take long, and who is held to it.
const char* const kJudge = "portable";
std::vector<std::string> judged() {
  std::vector<std::string> names = test::isas();
  std::erase(names, kJudge);
  return names;
}

// Two layers of a window, then two global ones, each pair on one slot.
ModelConfig attention_config(int32_t head_dim, int32_t kv_heads, int32_t heads, int32_t d_ff, int32_t window) {
  ModelConfig config;
  config.name = fmt::format("attention-{}-{}", head_dim, heads);
  config.vocab_size = 272;
  config.d_model = 1024;
  config.head_dim = head_dim;
  config.n_kv_heads = kv_heads;
  config.n_heads = heads;
  config.d_ff = d_ff;
  config.context = 2048;
  config.rope_count = 2;
  config.kv_slot_count = 2;
  config.layers = {{LayerKind::kWindow, window, 0, 0},
                   {LayerKind::kWindow, window, 0, 0},
                   {LayerKind::kGlobal, 0, 1, 1},
                   {LayerKind::kGlobal, 0, 1, 1}};
  return config;
}

std::string temporary_path(const std::string& name) {
  return (std::filesystem::temp_directory_path() /
          fmt::format("kaiju-steps-{}-{}.safetensors", static_cast<long>(::getpid()), name))
      .string();
}

struct TemporaryModel {
  TemporaryModel(const ModelConfig& config, uint64_t seed) : path(temporary_path(config.name)) {
    const Status written = write_random_checkpoint(path, config, seed);
    INFO(written.message());
    REQUIRE(written.ok());
    auto opened = Checkpoint::open(path);
    INFO(opened.status().message());
    REQUIRE(opened.ok());
    checkpoint = *opened;
  }
  ~TemporaryModel() { std::filesystem::remove(path); }
  std::string path;
  std::shared_ptr<const Checkpoint> checkpoint;
};

}  // namespace

TEST_CASE("the backends that this build must have are listed") {
  // KAIJU_REQUIRE_BACKENDS names them, separated by commas; one that is missing fails here instead of being skipped.
  const char* required = std::getenv("KAIJU_REQUIRE_BACKENDS");
  std::string names = required ? required : "portable,reference";
  const std::vector<std::string> present = backend_names();
  for (size_t start = 0; start <= names.size();) {
    const size_t end = std::min(names.find(',', start), names.size());
    const std::string name = names.substr(start, end - start);
    INFO(name);
    CHECK(std::find(present.begin(), present.end(), name) != present.end());
    start = end + 1;
  }
}

#if !KAIJU_CUDA
TEST_CASE("a build without the CUDA backend says how to get it") {
  auto checkpoint = Checkpoint::open(KAIJU_SOURCE_DIR "/examples/chat/model/kaiju-nano.safetensors", Verify::kNone);
  REQUIRE(checkpoint.ok());
  ExecutorOptions options;
  options.backend = "cuda";
  const Status refused = make_executor(*checkpoint, options).status();
  CHECK(refused.code() == StatusCode::kUnsupported);
  CHECK(refused.message().find("-DKAIJU_CUDA=ON") != std::string::npos);
}
#endif

// Compares `models` random models with the reference. `make` makes a config, `length` says how many tokens a model
// gets, and `batch` how many sequences are computed at once.
template <class Make, class Length>
void check_random_models(int models, Make&& make, Length&& length, int32_t batch) {
  const unsigned seed = std::getenv("KAIJU_TEST_SEED")
                            ? static_cast<unsigned>(std::atol(std::getenv("KAIJU_TEST_SEED")))
                            : std::random_device{}();
  INFO("KAIJU_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < models; ++i) {
    const ModelConfig config = make(random, i);
    INFO("config " << config_to_json(config));
    const TemporaryModel model(config, random());
    const std::vector<int32_t> tokens = random_tokens(random, config.vocab_size, length(random, i));
    check_all(model.checkpoint, tokens, digest_of(model.checkpoint, tokens, {"reference", 1, 0, 1}), batch);
  }
}

TEST_CASE("every backend, thread count, chunk size and batch gives the reference's bits, on 24 random models") {
  check_random_models(
      24, random_config,
      [](std::mt19937& random, int i) -> size_t {
        return i % 6 == 0 ? 700 : 60 + random() % 100;  // now and then past a chunk of 512 keys
      },
      8);
}

TEST_CASE("every backend, thread count, chunk size and batch gives the reference's bits, on 12 models of version 2") {
  check_random_models(
      12, random_scaled_config,
      [](std::mt19937& random, int i) -> size_t { return i % 8 == 0 ? 530 : 30 + random() % 50; }, 3);
}

TEST_CASE("every backend, thread count, chunk size and batch gives the reference's bits, on 20 models like Gemma") {
  check_random_models(
      20, random_gemma_config,
      [](std::mt19937& random, int i) -> size_t { return i % 10 == 0 ? 530 : 30 + random() % 50; }, 3);
}

TEST_CASE(
    "every backend, thread count, chunk size and batch gives the reference's bits, on 20 models with layer inputs") {
  check_random_models(
      20, random_layer_inputs_config,
      [](std::mt19937& random, int i) -> size_t {
        return i % 7 == 0 ? 70 : 10 + random() % 30;  // now and then past a window
      },
      3);
}

TEST_CASE("one row in each step gives the reference's bits over chunks, windows and shared slots") {
  // Widths that a GPU may take all layers of as one kernel (cuda/kernels/sm90_row_step.cuh).
  struct Shape {
    int32_t head_dim, kv_heads, heads, d_ff, window;
    size_t tokens;
  };
  std::mt19937 random(11);
  for (const Shape& shape : {Shape{64, 1, 16, 2048, 65, 600}, Shape{128, 2, 8, 1024, 513, 1100},
                             Shape{128, 1, 40, 2048, 1024, 1600}, Shape{64, 4, 16, 3072, 1, 130}}) {
    const ModelConfig config = attention_config(shape.head_dim, shape.kv_heads, shape.heads, shape.d_ff, shape.window);
    INFO("config " << config_to_json(config));
    const TemporaryModel model(config, random());
    const std::vector<int32_t> tokens = random_tokens(random, config.vocab_size, shape.tokens);
    const uint64_t expected = digest_of(model.checkpoint, tokens, {kJudge, 2, 0, 1});
    for (const std::string& backend : judged()) {
      INFO(backend);
      CHECK(digest_of(model.checkpoint, tokens, {backend, 1, 1, 1}) == expected);
    }
  }
}

TEST_CASE("rows after a prompt give the reference's bits at the ends of blocks, windows and chunks") {
  // Much of what the test before looks at (widths of multiples of 1,024 too), in few steps of few layers: for tools
  // under which each takes seconds.
  struct Shape {
    int32_t head_dim, kv_heads, heads, window, prompt;
  };
  std::mt19937 random(14);
  for (const Shape& shape : {Shape{64, 1, 16, 64, 63}, Shape{128, 2, 8, 100, 511}}) {
    ModelConfig config = attention_config(shape.head_dim, shape.kv_heads, shape.heads, 1024, shape.window);
    config.layers.pop_back();
    INFO("config " << config_to_json(config));
    const TemporaryModel model(config, random());
    const std::vector<int32_t> tokens = random_tokens(random, config.vocab_size, static_cast<size_t>(shape.prompt) + 2);
    const uint64_t expected = digest_of(model.checkpoint, tokens, {kJudge, 2, 0, 1});
    for (const std::string& backend : judged()) {
      INFO(backend);
      CHECK(digest_of(model.checkpoint, tokens, {backend, 1, 1, 1, shape.prompt}) == expected);
    }
  }
}

TEST_CASE("one row in each step gives the reference's bits in version 2 of the arithmetic") {
  struct Shape {
    test::Like like;
    int32_t window;
    size_t tokens;
  };
  std::mt19937 random(17);
  for (const Shape& shape :
       {Shape{test::Like::kLlama, 0, 1100}, Shape{test::Like::kQwen, 0, 560}, Shape{test::Like::kGemma, 513, 1100},
        Shape{test::Like::kGemma, 1, 70}, Shape{test::Like::kOther, 0, 560}}) {
    const ModelConfig config = test::one_row_config(shape.like, shape.window);
    INFO("config " << config_to_json(config));
    const TemporaryModel model(config, random());
    const std::vector<int32_t> tokens = random_tokens(random, config.vocab_size, shape.tokens);
    const uint64_t expected = digest_of(model.checkpoint, tokens, {kJudge, 2, 0, 1});
    for (const std::string& backend : judged()) {
      INFO(backend);
      CHECK(digest_of(model.checkpoint, tokens, {backend, 1, 1, 1}) == expected);
    }
  }
}

TEST_CASE("rows after a prompt give the reference's bits in version 2 of the arithmetic, also with many heads") {
  // In few steps, for tools under which each takes seconds. With three chunks and 24 KV heads a thread block takes
  // all five heads of a chunk.
  struct Shape {
    test::Like like;
    int32_t window, prompt;
  };
  std::mt19937 random(18);
  for (const Shape& shape : {Shape{test::Like::kLlama, 0, 511}, Shape{test::Like::kGemma, 100, 63},
                             Shape{test::Like::kManyHeads, 0, 1030}}) {
    if (shape.prompt > 1000 && test::cases_of_run(10) < 10) continue;
    const ModelConfig config = test::one_row_config(shape.like, shape.window);
    INFO("config " << config_to_json(config));
    const TemporaryModel model(config, random());
    const std::vector<int32_t> tokens = random_tokens(random, config.vocab_size, static_cast<size_t>(shape.prompt) + 2);
    const uint64_t expected = digest_of(model.checkpoint, tokens, {kJudge, 2, 0, 1});
    for (const std::string& backend : judged()) {
      INFO(backend);
      CHECK(digest_of(model.checkpoint, tokens, {backend, 1, 1, 1, shape.prompt}) == expected);
    }
  }
}

TEST_CASE(
    "layers of different windows give the reference's bits, of several rows of a sequence and of many sequences") {
  ModelConfig config = attention_config(64, 1, 2, 64, 0);
  config.d_model = 64;
  config.kv_slot_count = 3;
  config.layers = {{LayerKind::kWindow, 65, 0, 0},
                   {LayerKind::kWindow, 513, 1, 0},
                   {LayerKind::kWindow, 130, 2, 1},
                   {LayerKind::kWindow, 513, 1, 0}};
  std::mt19937 random(16);
  const TemporaryModel model(config, random());
  const std::vector<int32_t> tokens = random_tokens(random, config.vocab_size, 1060);
  const uint64_t expected = digest_of(model.checkpoint, tokens, {kJudge, 2, 0, 1});
  for (const std::string& backend : judged()) {
    INFO(backend);
    CHECK(digest_of(model.checkpoint, tokens, {backend, 1, 7, 1}) == expected);
    if (backend == "cuda")
      CHECK(digest_of(model.checkpoint, tokens, {backend, 1, 1, 170, 200}) ==
            expected);  // more than 160 rows for 60 steps
  }
}

TEST_CASE("two prompts in a step that decodes nothing give the reference's bits, every time") {
  // A GPU starts kernels while the ones in front end: one that has nothing to do (here that of decoding rows) must wait
  // for those in front all the same, or what follows reads attention's results too early.
  ModelConfig config = attention_config(128, 1, 40, 512, 1024);
  config.layers.resize(2);  // the window's
  config.kv_slot_count = config.rope_count = 1;
  std::mt19937 random(12);
  const TemporaryModel model(config, random());
  const std::vector<int32_t> tokens = random_tokens(random, config.vocab_size, 1000);
  const uint64_t expected = digest_of(model.checkpoint, tokens, {kJudge, 2, 0, 1});
  for (const std::string& backend : judged())
    for (int32_t time = 0; time < (backend == "cuda" ? test::cases_of_run(10) : 1); ++time) {
      INFO(backend << ", time " << time);
      CHECK(digest_of(model.checkpoint, tokens, {backend, 1, 0, 2}) == expected);
    }
}

TEST_CASE("the bundled model gives the reference's bits") {
  const std::string path = KAIJU_SOURCE_DIR "/examples/chat/model/kaiju-nano.safetensors";
  auto checkpoint = Checkpoint::open(path);
  REQUIRE(checkpoint.ok());
  std::mt19937 random(1);
  const std::vector<int32_t> tokens = random_tokens(random, (*checkpoint)->config().vocab_size, 66);
  check_all(*checkpoint, tokens, digest_of(*checkpoint, tokens, {"reference", 1, 0, 1}));
}
