// Random models: valid in any shape, the same bytes for the same seed, and with activations like a trained model's.
#include <cmath>
#include <random>

#include "catch.hpp"
#include "kaiju/format/presets.hpp"
#include "tiny.hpp"

using kaiju::Checkpoint;
using kaiju::StatusCode;

TEST_CASE("the same seed makes the same file, another seed another") {
  CHECK(tiny::make(tiny::config(), 7) == tiny::make(tiny::config(), 7));
  CHECK(tiny::make(tiny::config(), 7) != tiny::make(tiny::config(), 8));
  CHECK(tiny::make(tiny::config(), 1) != tiny::make(tiny::config(), uint64_t{1} << 32 | 1));
}

TEST_CASE("random models of random shapes pass every check of the reader") {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](std::vector<int> values) { return values[random() % values.size()]; };
    kaiju::ModelConfig config = tiny::config();
    config.vocab_size = pick({16, 48, 256, 1008});
    config.d_model = pick({64, 128, 192, 320});
    config.head_dim = pick({64, 128, 256});
    config.n_kv_heads = pick({1, 2, 3});
    config.n_heads = config.n_kv_heads * pick({1, 2, 5});
    config.d_ff = pick({64, 192, 512});
    config.layers =
        kaiju::repeat_layers(std::vector<std::string>{"s", "g", "sg", "sssg", "ssssssg", "gs"}[random() % 6],
                             pick({1, 2, 3, 9}), pick({1, 5, 1024}));
    config.labels.clear();
    for (int label = pick({0, 0, 1, 6, 16, 64}); label > 0; --label)
      config.labels.push_back("label " + std::to_string(label));
    config.derive_counts();
    const auto status = tiny::load(tiny::make(config, seed));
    INFO("seed " << seed << ": " << status.message());
    CHECK(status.ok());
  }
}

TEST_CASE("random weights use the whole range evenly, and never -128") {
  kaiju::ModelConfig config = tiny::config();
  config.d_model = 512;
  config.d_ff = 2048;
  const tiny::Aligned file(tiny::make(config));
  const auto loaded = Checkpoint::from_memory(file.bytes());
  REQUIRE(loaded.ok());
  std::vector<int> counts(256);
  const auto weights = loaded.value()->view<int8_t>("layers.0.ffn.up.weight");
  for (const int8_t w : weights) ++counts[static_cast<size_t>(w + 128)];
  CHECK(counts[0] == 0);
  for (int w = -127; w <= 127; ++w) {
    const double share = counts[static_cast<size_t>(w + 128)] * 256.0 / static_cast<double>(weights.size());
    INFO(w);
    CHECK(share > (w == 0 ? 1.8 : 0.9));  // 0 takes -128's share
    CHECK(share < (w == 0 ? 2.2 : 1.1));
  }
}

TEST_CASE("every matrix has the gain that its place in the model needs, whatever its fan-in") {
  kaiju::ModelConfig config = tiny::config(3);
  config.d_model = 256;
  config.d_ff = 1024;
  const tiny::Aligned file(tiny::make(config, 3));
  const auto loaded = Checkpoint::from_memory(file.bytes());
  REQUIRE(loaded.ok());
  const Checkpoint& c = *loaded.value();
  // Rms of the output for inputs of rms 1: sqrt(mean over rows of the sum of squares of the real weights).
  const auto gain = [&](const std::string& matrix, const char* scalar) {
    const auto weights = c.view<int8_t>(matrix + ".weight");
    const auto scales = c.view<float>(matrix + ".scale");
    const size_t width = weights.size() / scales.size();
    double sum = 0;
    for (size_t i = 0; i < weights.size(); ++i) sum += std::pow(weights[i] * static_cast<double>(scales[i / width]), 2);
    return std::sqrt(sum / static_cast<double>(scales.size())) * static_cast<double>(c.view<float>(matrix + scalar)[0]);
  };
  const double branch = 1 / std::sqrt(6.0);
  CHECK(gain("layers.0.attn.q", ".scalar") == Approx(2).margin(0.1));
  CHECK(gain("kv.0.k", ".scalar") == Approx(1).margin(0.05));
  CHECK(gain("kv.1.v", ".scalar") == Approx(1).margin(0.05));
  CHECK(gain("layers.1.attn.o", ".scalar") == Approx(branch).margin(0.05));
  CHECK(gain("layers.2.ffn.up", ".scalar") == Approx(1).margin(0.05));
  CHECK(gain("layers.2.ffn.down", ".scalar") == Approx(branch / std::sqrt(1.5)).margin(0.05));
  CHECK(gain("embed", ".in_scalar") == Approx(1).margin(0.1));  // rows of 256 values with rms 1/16
  CHECK(gain("embed", ".out_scalar") == Approx(2.5).margin(0.25));
}

TEST_CASE("RoPE frequencies are turns per token times 2^64, rounded to the nearest integer") {
  const auto f = kaiju::rope_frequencies(10'000, 64);
  REQUIRE(f.size() == 32);
  CHECK(f[0] == 2935890503282001226u);  // 2^64 / (2 pi)
  for (size_t i = 0; i < f.size(); ++i)
    CHECK(static_cast<double>(f[i]) / std::pow(2.0, 64) ==
          Approx(std::pow(10'000.0, -2.0 * static_cast<double>(i) / 64) / (2 * std::acos(-1.0))));

  // Found with 60 decimal digits; here 80 bits of an x86 long double give one less.
  CHECK(kaiju::rope_frequencies(10'000, 128)[1] == 2542376433133839919u);
  CHECK(kaiju::rope_frequencies(100'000, 256)[17] == 636322608752368979u);
  CHECK(kaiju::rope_frequencies(500'000, 128)[5] == 1053192657151639409u);

  const tiny::Aligned file(tiny::bytes());
  const auto loaded = Checkpoint::from_memory(file.bytes());
  REQUIRE(loaded.ok());
  const auto sliding = loaded.value()->view<uint64_t>("rope.0");
  const auto global = loaded.value()->view<uint64_t>("rope.1");
  CHECK(std::equal(sliding.begin(), sliding.end(), f.begin()));
  const auto slow = kaiju::rope_frequencies(100'000, 64);
  CHECK(std::equal(global.begin(), global.end(), slow.begin()));
}

TEST_CASE("threads that draw a random model change no byte of it") {
  const tiny::Folder folder;
  REQUIRE(kaiju::write_random_checkpoint(folder / "one", tiny::config(), 4).ok());
  for (const int32_t threads : {2, 3, 64}) {
    REQUIRE(kaiju::write_random_checkpoint(folder / "more", tiny::config(), 4, {}, threads).ok());
    CHECK(tiny::read_file(folder / "more") == tiny::read_file(folder / "one"));
  }
}

TEST_CASE("an impossible random model is refused, and a cancelled one leaves no file") {
  const tiny::Folder folder;
  kaiju::ModelConfig config = tiny::config();
  config.n_kv_heads = 3;
  const auto refused = kaiju::write_random_checkpoint(folder / "model", config, 1);
  CHECK(refused.code() == StatusCode::kInvalidArgument);
  CHECK(tiny::contains(refused.message(), "n_kv_heads"));
  CHECK(kaiju::write_random_checkpoint(folder / "no/where", tiny::config(), 1).code() == StatusCode::kIo);

  config = tiny::config();
  config.d_model = 512;
  config.d_ff = 65536;
  double last = 0;
  CHECK(kaiju::write_random_checkpoint(folder / "model", config, 1, [&](double done) {
          return (last = done) > 0.5;
        }).code() == StatusCode::kCancelled);
  CHECK(last < 1);
  CHECK(folder.file_count() == 0);
}
