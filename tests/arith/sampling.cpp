// Masses, truncation and draws in integers; the generator against its published vectors.
#include "kaiju/arith/sampling.hpp"

#include <cmath>
#include <random>

#include "catch.hpp"
#include "kaiju/base/random.hpp"

namespace kaiju::arith {
namespace {

std::vector<Candidate> candidates_of(const std::vector<float>& logits, float temperature = 1.0f) {
  const float best = *std::max_element(logits.begin(), logits.end());
  std::vector<Candidate> out;
  for (size_t i = 0; i < logits.size(); ++i)
    out.push_back({logits[i], static_cast<int32_t>(i), mass(logits[i], best, temperature_factor(temperature))});
  return out;
}

std::vector<int32_t> kept(std::vector<float> logits, int32_t top_k, float top_p, float min_p) {
  auto candidates = candidates_of(logits);
  truncate(candidates, top_k, top_p, min_p);
  std::vector<int32_t> tokens;
  for (const Candidate& c : candidates) tokens.push_back(c.token);
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

using Tokens = std::vector<int32_t>;

}  // namespace

TEST_CASE("philox gives the published known answers") {
  using Words = std::array<uint32_t, 4>;
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("random bits depend on seed, stream and position, low word first") {
  const auto words = philox4x32({7, 1, 3, 0}, {0x89ABCDEF, 0x01234567});
  CHECK(random_bits(0x0123456789ABCDEF, 3, 0x100000007) == (words[0] | uint64_t{words[1]} << 32));
}

TEST_CASE("the largest logit has mass 2^30 and the smallest none") {
  CHECK(mass(3.0f, 3.0f, kLog2E) == 1u << 30);
  CHECK(mass(2.0f, 3.0f, 1.0f) == 1u << 29);
  CHECK(mass(-27.0f, 3.0f, 1.0f) == 1);
  CHECK(mass(-28.5f, 3.0f, 1.0f) == 0);
  CHECK(mass(-1e30f, 3.0f, 1.0f) == 0);
  CHECK(bits_of(kLog2E) == bits_of(static_cast<float>(1.4426950408889634)));
}

TEST_CASE("natural_log of integers is within 1e-15 of the library's") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t n = (random() >> (random() % 63)) | 1;
    const double truth = static_cast<double>(std::log(static_cast<long double>(n)));
    REQUIRE(std::abs(natural_log(n) - truth) <= 1e-15 * std::max(1.0, truth));
  }
  CHECK(natural_log(1) == 0.0);
}

TEST_CASE("log-probabilities sum to one") {
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(1000);
  for (float& l : logits) l = normal(random);
  const float best = *std::max_element(logits.begin(), logits.end());
  const double denominator = log_total(logits, best);
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(logprob(l, best, denominator)));
  CHECK(sum == Approx(1.0).epsilon(1e-5));
}

TEST_CASE("top_k keeps the best, ties by the smaller id") {
  CHECK(kept({1, 5, 5, 0, 5}, 2, 1, 0) == Tokens{1, 2});
  CHECK(kept({1, 5, 5, 0, 5}, 1, 1, 0) == Tokens{1});
  CHECK(kept({1, 2}, 9, 1, 0) == Tokens{0, 1});
}

TEST_CASE("top_p keeps the shortest prefix that reaches it, and at least one token") {
  CHECK(kept({0, 0, 0, 0}, 0, 0.5f, 0) == Tokens{0, 1});
  CHECK(kept({0, 0, 0, 0}, 0, 0.50001f, 0) == Tokens{0, 1, 2});
  CHECK(kept({0, 9, 0, 0}, 0, 1e-9f, 0) == Tokens{1});
  CHECK(kept({0, 0, 0, 0}, 3, 0.6f, 0) == Tokens{0, 1});  // of what top_k left
}

TEST_CASE("min_p keeps tokens with enough mass relative to the best") {
  CHECK(kept({3, 3.0f - std::log(2.0f) + 1e-4f, 0}, 0, 1, 0.5f) == Tokens{0, 1});
  CHECK(kept({3, 2, 0}, 0, 1, 1.0f) == Tokens{0});
}

TEST_CASE("a draw accumulates mass by ascending token id") {
  const std::vector<float> logits = {0, 0, 0, 0};
  for (int i = 0; i < 4; ++i) {
    auto candidates = candidates_of(logits);
    CHECK(draw(candidates, (uint64_t{1} << 62) * i) == i);
    candidates = candidates_of(logits);
    CHECK(draw(candidates, (uint64_t{1} << 62) * i + (uint64_t{1} << 62) - 1) == i);
  }
}

TEST_CASE("draws follow the masses") {
  const std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f)};
  int counts[3] = {};
  for (uint64_t position = 0; position < 80000; ++position) {
    auto candidates = candidates_of(logits);
    ++counts[draw(candidates, random_bits(5, 0, position))];
  }
  CHECK(counts[0] == Approx(10000).epsilon(0.05));
  CHECK(counts[1] == Approx(20000).epsilon(0.05));
  CHECK(counts[2] == Approx(50000).epsilon(0.05));
}

TEST_CASE("a penalty moves every logit down") {
  CHECK(penalise(2.0f, 1.25f) == 1.6f);
  CHECK(penalise(-2.0f, 1.25f) == -2.5f);
}

}  // namespace kaiju::arith
