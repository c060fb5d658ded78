// The worked example of docs/arithmetic.md, section 10, from the specification in code.
#include <openssl/evp.h>
#include <xxhash.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "catch.hpp"
#include "examples/tools/scorer.hpp"
#include "kaiju/backend/reference.hpp"
#include "kaiju/run/executor_for.hpp"

namespace {

using namespace kaiju;

// The page's lines, "name: value", of the block that follows the section's heading.
std::map<std::string, std::string> read_example() {
  std::ifstream page(std::string(KAIJU_SOURCE_DIR) + "/docs/arithmetic.md");
  std::string line;
  while (std::getline(page, line) && line != "## 10. A worked example") continue;
  while (std::getline(page, line) && line != "```text") continue;
  std::map<std::string, std::string> values;
  while (std::getline(page, line) && line != "```")
    values[line.substr(0, line.find(':'))] = line.substr(line.find(' '));
  return values;
}

std::vector<float> floats_of(const std::string& text) {
  std::vector<float> values;
  std::istringstream words(text);
  for (std::string word; words >> word;) values.push_back(std::strtof(word.c_str(), nullptr));
  return values;
}

std::string hexadecimal(std::span<const unsigned char> bytes) {
  std::string text = " ";
  for (const unsigned char byte : bytes) text += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  return text;
}

std::string sha256(std::span<const float> values) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  REQUIRE(EVP_Digest(values.data(), values.size_bytes(), digest, &size, EVP_sha256(), nullptr) == 1);
  return hexadecimal({digest, size});
}

// Keeps x as it is after the first layer.
class Recording : public ReferenceBackend {
 public:
  explicit Recording(std::vector<float>& x) : recorded_(x) {}
  void add_down(const Matrix& w, const uint8_t* h, int32_t rows, const float* scale, arith::bf16* x) {
    ReferenceBackend::add_down(w, h, rows, scale, x);
    if (!recorded_.empty()) return;
    for (int32_t i = 0; i < rows * w.out; ++i) recorded_.push_back(arith::from_bf16(x[i]));
  }

 private:
  std::vector<float>& recorded_;
};

}  // namespace

TEST_CASE("the worked example of docs/arithmetic.md is what the reference backend computes") {
  const auto said = read_example();
  REQUIRE(said.size() == 9);
  auto checkpoint = Checkpoint::open(std::string(KAIJU_SOURCE_DIR) + "/examples/chat/model/kaiju-nano.safetensors");
  REQUIRE(checkpoint.ok());
  auto weights = Weights::from(*checkpoint);
  REQUIRE(weights.ok());
  ExecutorSizes sizes;
  sizes.slot_count = 1;
  sizes.step_tokens = 4;
  for (int32_t& blocks : sizes.block_count) blocks = 1;
  std::vector<float> x, logits;
  auto executor = ExecutorFor<Recording>::create(std::make_unique<Recording>(x), std::move(weights).value(), sizes);
  INFO(executor.status().message());
  REQUIRE(executor.ok());
  tools::Scorer scorer(std::move(executor).value());
  std::vector<int32_t> tokens;
  for (const float token : floats_of(said.at("tokens"))) tokens.push_back(static_cast<int32_t>(token));
  REQUIRE(tokens == std::vector<int32_t>{1, 2, 3, 4});
  REQUIRE(scorer
              .score({tokens}, 4,
                     [&](std::span<const float> rows, int64_t) -> Status {
                       logits.assign(rows.begin(), rows.end());
                       return {};
                     })
              .ok());

  const size_t width = x.size() / tokens.size(), vocab_size = logits.size() / tokens.size();
  for (size_t position = 0; position < tokens.size(); ++position) {
    INFO("position " << position);
    const std::vector<float> first = floats_of(said.at("x[" + std::to_string(position) + "]"));
    REQUIRE(first.size() == 4);
    CHECK(std::equal(first.begin(), first.end(), x.data() + position * width));
  }
  CHECK(said.at("x.sha256") == sha256(x));
  const std::vector<float> first = floats_of(said.at("logits[3]"));
  REQUIRE(first.size() == 4);
  CHECK(std::equal(first.begin(), first.end(), logits.data() + 3 * vocab_size));
  CHECK(said.at("logits.sha256") == sha256(logits));
  XXH128_canonical_t bits;
  XXH128_canonicalFromHash(&bits, XXH3_128bits(logits.data(), logits.size() * sizeof(float)));
  CHECK(said.at("bits") == hexadecimal(bits.digest));
}
