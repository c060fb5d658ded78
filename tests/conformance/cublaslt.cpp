// matmuls by cuBLASLt, which serves chips without tiles of their own: on any GPU, taken for one of compute
// capability 8.0. And by choice, on the GPU as it is.
#include "world.hpp"
#if KAIJU_CUDA
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cuda/launch/cublaslt.hpp"
#include "examples/tools/scorer.hpp"
#include "random_checkpoint.hpp"

namespace kaiju::test {
namespace {

// While it lives GPUs that are opened are taken for older ones.
struct OlderChip {
  OlderChip() { cuda::Device::limit_capability(80); }
  ~OlderChip() { cuda::Device::limit_capability(older_chip ? 80 : INT32_MAX); }
};

// Whether there is a GPU under test, and cuBLASLt for it.
bool has_cublaslt() {
  const std::vector<std::string> names = isas();
  if (std::find(names.begin(), names.end(), "cuda") == names.end()) return false;
  const OlderChip older;
  auto device = cuda::Device::open();
  REQUIRE(device.ok());
  auto cublaslt = cuda::CublasLt::open(*device);
  REQUIRE(cublaslt.ok());
  if (!*cublaslt) {
    WARN("no cuBLASLt here, or a build without it");
    return false;
  }
  CHECK((*cublaslt)->serves(64, 64, 64));
  CHECK((*cublaslt)->serves(5000, 80, 128));
  CHECK_FALSE((*cublaslt)->serves(1, 64, 64));
  CHECK_FALSE((*cublaslt)->serves(64, 72, 64));
  return true;
}

std::string text_in(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::shared_ptr<const Checkpoint> small_model() {
  ModelConfig config;
  config.name = "cublaslt";
  config.vocab_size = 96;
  config.d_model = 128;
  config.n_heads = 2;
  config.n_kv_heads = 1;
  config.head_dim = 64;
  config.d_ff = 192;
  config.context = 512;
  config.layers = {{LayerKind::kWindow, 150, 0, 0}, {LayerKind::kGlobal, 0, 1, 1}, {LayerKind::kGlobal, 0, 1, 1}};
  config.derive_counts();
  return random_checkpoint(config, 3);
}

Result<std::vector<float>> logits_of(const std::shared_ptr<const Checkpoint>& checkpoint, const std::string& backend,
                                     const std::string& products_file, const std::string& products = "auto") {
  ExecutorOptions options;
  options.backend = backend;
  options.slot_count = 1;
  options.step_tokens = 200;
  options.products_file = products_file;
  options.products = products;
  auto executor = make_executor(checkpoint, options);
  if (!executor.ok()) return executor.status();
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 400; ++i) tokens.push_back(i * 7 % 96);
  std::vector<float> logits;
  tools::Scorer scorer(std::move(executor).value());
  const Status scored = scorer.score({tokens}, 200, [&](std::span<const float> rows, int64_t) -> Status {
    logits.insert(logits.end(), rows.begin(), rows.end());
    return {};
  });
  if (!scored.ok()) return scored;
  return logits;
}

}  // namespace

TEST_CASE("matmuls of more rows than cuBLASLt computes at once give the reference's bits with every epilogue") {
  if (!has_cublaslt()) return;
  const OlderChip older;
  auto device = cuda::Device::open();
  REQUIRE(device.ok());
  cuda::StagedBackend gpu(*device);
  ReferenceBackend reference;
  Random random(seed_of_run());
  for (const int32_t rows : {33, 4097, 5003}) {
    INFO("KAIJU_TEST_SEED=" << seed_of_run() << ", rows " << rows);
    const OwnedMatrix w(random, 80, 192);
    const std::vector<int8_t> a = random.bytes(static_cast<size_t>(rows) * w.in);
    std::vector<uint8_t> h(a.size());
    for (uint8_t& byte : h) byte = static_cast<uint8_t>(random.below(256));
    const size_t count = static_cast<size_t>(rows) * w.out;
    const std::vector<float> scale = random.scales(w.out, 1e-4f);
    std::vector<float> floats(count), expected_floats(count);
    std::vector<uint8_t> bytes(count), expected_bytes(count);
    gpu.linear(w.view(), a.data(), rows, scale.data(), floats.data());
    reference.linear(w.view(), a.data(), rows, scale.data(), expected_floats.data());
    CHECK(differences(floats, expected_floats) == 0);
    gpu.up(w.view(), a.data(), rows, scale.data(), bytes.data());
    reference.up(w.view(), a.data(), rows, scale.data(), expected_bytes.data());
    CHECK(differences(bytes, expected_bytes) == 0);
    std::vector<arith::bf16> x = random.stream(count, 1.0f), expected_x = x;
    gpu.add_linear(w.view(), a.data(), rows, scale.data(), x.data());
    reference.add_linear(w.view(), a.data(), rows, scale.data(), expected_x.data());
    CHECK(differences(x, expected_x) == 0);
    gpu.add_down(w.view(), h.data(), rows, scale.data(), x.data());
    reference.add_down(w.view(), h.data(), rows, scale.data(), expected_x.data());
    CHECK(differences(x, expected_x) == 0);
    REQUIRE(gpu.status().ok());
  }
}

TEST_CASE("searched algorithms are kept in a file, read by the next executor, and change no bit") {
  if (!has_cublaslt()) return;
  const OlderChip older;
  const auto checkpoint = small_model();
  const std::string path =
      (std::filesystem::temp_directory_path() / ("kaiju-products-" + std::to_string(::getpid()))).string();
  std::filesystem::remove(path);
  auto expected = logits_of(checkpoint, "portable", "");
  REQUIRE(expected.ok());
  const auto same = [&](const std::string& file) {
    auto logits = logits_of(checkpoint, "cuda", file);
    INFO(logits.status().message());
    REQUIRE(logits.ok());
    CHECK(differences(*logits, *expected) == 0);
  };
  same("");
  CHECK_FALSE(std::filesystem::exists(path));
  same(path);
  const std::string written = text_in(path);
  INFO(written);
  CHECK(written.find("\n192 128 256 ") != std::string::npos);
  const auto time = std::filesystem::last_write_time(path);
  same(path);
  CHECK(std::filesystem::last_write_time(path) == time);

  // Of another machine: searched anew. A choice that cuBLASLt does not take: so is that.
  std::ofstream(path) << "kaiju products 1\nanother machine\n192 128 256 own\n";
  same(path);
  CHECK(text_in(path).find("another machine") == std::string::npos);
  const size_t line = written.find("\n192 128 256 ") + 1;
  std::ofstream(path) << written.substr(0, line) << "192 128 256 ff ff ff ff ff ff ff ff"
                      << written.substr(written.find('\n', line));
  same(path);
  CHECK(text_in(path).find("ff ff") == std::string::npos);

  // Of something else: left alone.
  std::ofstream(path) << "dear diary\n";
  const Status refused = logits_of(checkpoint, "cuda", path).status();
  INFO(refused.message());
  CHECK(refused.code() == StatusCode::kInvalidArgument);
  CHECK(refused.message().find(path) == 0);
  CHECK(text_in(path) == "dear diary\n");
  std::filesystem::remove(path);
}

TEST_CASE("products by cuBLASLt and by our own kernels, by choice, give the same bits on the chip as it is") {
  if (!has_cublaslt()) return;
  auto device = cuda::Device::open();
  REQUIRE(device.ok());
  auto cublaslt = cuda::CublasLt::open(*device, true);
  REQUIRE(cublaslt.ok());
  CHECK((*cublaslt)->serves(2, 64, 64));
  CHECK_FALSE((*cublaslt)->serves(1, 64, 64));
  const auto checkpoint = small_model();
  const auto expected = logits_of(checkpoint, "portable", "");
  REQUIRE(expected.ok());
  for (const char* const products : {"own", "cublaslt"}) {
    INFO(products);
    const auto logits = logits_of(checkpoint, "cuda", "", products);
    INFO(logits.status().message());
    REQUIRE(logits.ok());
    CHECK(differences(*logits, *expected) == 0);
  }
}

}  // namespace kaiju::test
#endif
