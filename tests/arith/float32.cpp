// Single operations, bytes and powers of two: exactly what docs/arithmetic.md says.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "catch.hpp"
#include "kaiju/arith/quantise.hpp"
#include "kaiju/arith/rms.hpp"
#include "kaiju/arith/softmax.hpp"

namespace kaiju::arith {

// tests/arith/contracted.cpp, built with -ffp-contract=fast and fma instructions.
float contracted_mul_add(float a, float b, float c);
float contracted_fold(float* partials);

TEST_CASE("mul followed by add rounds twice even if the compiler may contract") {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> value(-2.0f, 2.0f);
  int told_apart = 0;
  for (int i = 0; i < 100000; ++i) {
    const float a = value(random), b = value(random), c = value(random);
    volatile float product = a * b;
    const float two_roundings = product + c;
    REQUIRE(bits_of(contracted_mul_add(a, b, c)) == bits_of(two_roundings));
    told_apart += bits_of(std::fma(a, b, c)) != bits_of(two_roundings);
  }
  CHECK(told_apart > 1000);  // the inputs would have shown a contraction
}

TEST_CASE("partial sums are added in the same order whatever the compiler flags") {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> value(0.0f, 1.0f);
  float ours[kRmsPartials], theirs[kRmsPartials];
  for (size_t j = 0; j < kRmsPartials; ++j) ours[j] = theirs[j] = value(random);
  CHECK(bits_of(fold_partials(ours)) == bits_of(contracted_fold(theirs)));
}

TEST_CASE("exp2 is exact at integers") {
  for (int n = -126; n <= 126; ++n) CHECK(exp2(static_cast<float>(n)) == std::ldexp(1.0f, n));
}

TEST_CASE("exp2 has a relative error of at most 2.9e-6") {
  double worst = 0;
  for (float x = -126.0f; x <= 126.0f; x += 0.00037f) {
    const double truth = std::exp2(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(exp2(x)) - truth) / truth);
  }
  CHECK(worst < 2.9e-6);
  CHECK(worst > 1e-6);  // otherwise this sweep tests nothing
}

TEST_CASE("exp2_product does not round the product") {
  // Relative error of a rounded product would be |d z| * 2^-24, far above the polynomial's at |d z| = 100.
  std::mt19937 random(3);
  for (int i = 0; i < 100000; ++i) {
    const auto d = -static_cast<int32_t>(random() % 4000000);
    const float z = 0x1p-16f * (1.0f + static_cast<float>(random() % 8388608) * 0x1p-23f);
    const double exact = static_cast<double>(d) * static_cast<double>(z);
    const double found = exp2_product(d, z);
    if (exact < -126.6)
      CHECK(found == 0);
    else if (exact > -126.4)
      REQUIRE(std::abs(found - std::exp2(exact)) <= 3e-6 * std::exp2(exact));
  }
  CHECK(exp2_product(0, 1e-3f) == 1.0f);
  CHECK(exp2_product(-1, 200.0f) == 0.0f);
  CHECK(exp2_product(-8000000, 1.0f) == 0.0f);
}

TEST_CASE("a key's weight runs from 65535 down to 0 and is 0 below 2^-17") {
  CHECK(key_weight(0, 1e-3f) == 65535);
  CHECK(key_weight(-1, 1.0f) == 32768);  // 32767.5, ties to even
  CHECK(key_weight(-16, 1.0f) == 1);
  CHECK(key_weight(-17, 1.0f) == 0);  // just under a half
  CHECK(key_weight(-1700000, 1e-5f) == 0);
  CHECK(key_weight(-4129024, 1e30f) == 0);
}

TEST_CASE("quantise rounds ties to even and saturates at 127 both ways") {
  CHECK(quantise(0.5f, 1.0f) == 0);
  CHECK(quantise(1.5f, 1.0f) == 2);
  CHECK(quantise(2.5f, 1.0f) == 2);
  CHECK(quantise(-0.5f, 1.0f) == 0);
  CHECK(quantise(-1.5f, 1.0f) == -2);
  CHECK(quantise(126.5f, 1.0f) == 126);
  CHECK(quantise(127.5f, 1.0f) == 127);
  CHECK(quantise(-127.5f, 1.0f) == -127);
  CHECK(quantise(3e38f, 1.0f) == 127);
  CHECK(quantise(-3e38f, 1e9f) == -127);
  CHECK(quantise(std::numeric_limits<float>::infinity(), 1.0f) == 127);
}

TEST_CASE("up_byte saturates at 0 and at 255") {
  CHECK(up_byte(0, 1.0f) == 0);
  CHECK(up_byte(-5, 1.0f) == 0);
  CHECK(up_byte(255, 1.0f) == 255);
  CHECK(up_byte(256, 1.0f) == 255);
  CHECK(up_byte(2000000000, 1e30f) == 255);
  CHECK(up_byte(-2000000000, 1e30f) == 0);
  CHECK(up_byte(1, 0.5f) == 0);  // -127.5 to -128
  CHECK(up_byte(3, 0.5f) == 2);  // -126.5 to -126
}

TEST_CASE("square_byte is rint of the square over 255 for every byte") {
  for (int u = 0; u < 256; ++u)
    CHECK(square_byte(static_cast<uint8_t>(u)) == static_cast<int>(std::nearbyint(u * u / 255.0)));
}

TEST_CASE("conversion to bf16 rounds ties to even, and conversion back is exact") {
  CHECK(to_bf16(1.0f) == 0x3F80);
  CHECK(to_bf16(float_of(0x3F808000)) == 0x3F80);  // tie, even below
  CHECK(to_bf16(float_of(0x3F818000)) == 0x3F82);  // tie, even above
  CHECK(to_bf16(float_of(0x3F808001)) == 0x3F81);
  CHECK(to_bf16(float_of(0x3F807FFF)) == 0x3F80);
  CHECK(to_bf16(-0.0f) == 0x8000);
  CHECK(to_bf16(float_of(0x00018000)) == 0x0002);  // subnormals round too
  for (uint32_t bits = 0; bits < 0x7F80; ++bits) REQUIRE(to_bf16(from_bf16(static_cast<bf16>(bits))) == bits);
}

TEST_CASE("adding to the residual stream rounds once to f32 and once to bf16") {
  std::mt19937 random(4);
  for (int i = 0; i < 20000; ++i) {
    const auto acc = static_cast<int32_t>(random()) >> (random() % 24);
    const float scale =
        std::ldexp(1.0f + static_cast<float>(random() % 1000) * 0.001f, -static_cast<int>(random() % 30));
    const bf16 x = static_cast<bf16>(random() % 0x5000);
    const float sum = std::fma(static_cast<float>(acc), scale, from_bf16(x));
    REQUIRE(residual_add(x, acc, scale) == to_bf16(sum));
  }
}

TEST_CASE("norm multiplies by the inverse root mean square and the inverse scale") {
  std::vector<bf16> x(320, to_bf16(2.0f));
  std::vector<int8_t> out(x.size());
  norm_quantise(x.data(), x.size(), 0.0f, 50.0f, out.data());
  for (const int8_t byte : out) CHECK(byte == 50);
}

}  // namespace kaiju::arith
