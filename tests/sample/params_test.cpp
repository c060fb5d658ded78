// Sampling parameters: what is refused, and how it is said.
#include "kaiju/sample/params.hpp"

#include <cmath>
#include <limits>
#include <string>

#include "catch.hpp"

using namespace kaiju;

namespace {

std::string refusal(const SamplingParams& params) {
  const auto checked = check_sampling(params, 100);
  if (!checked.ok()) CHECK(checked.status().code() == StatusCode::kInvalidArgument);
  return checked.status().message();
}

}  // namespace

TEST_CASE("valid parameters pass unchanged") {
  SamplingParams params;
  CHECK(refusal(params) == "");
  params.temperature = 0.7;
  params.top_k = 40;
  params.top_p = 0.9;
  params.min_p = 0.05;
  params.repetition_penalty = 1.1;
  params.seed = ~uint64_t{0};
  params.variant = 7;
  params.logit_bias = {{9, -10.0f}, {3, 2.5f}};
  const auto checked = check_sampling(params, 100);
  REQUIRE(checked.ok());
  const SamplingSpec& spec = checked.value();
  CHECK(spec.temperature == 0.7f);
  CHECK(spec.top_k == 40);
  CHECK(spec.top_p == 0.9f);
  CHECK(spec.min_p == 0.05f);
  CHECK(spec.repetition_penalty == 1.1f);
  CHECK(spec.seed == ~uint64_t{0});
  CHECK(spec.stream == 7);
  CHECK(spec.logit_bias == std::vector<std::pair<int32_t, float>>{{3, 2.5f}, {9, -10.0f}});
}

TEST_CASE("the ends of every range pass") {
  const auto passes = [](auto change) {
    SamplingParams params;
    change(params);
    return refusal(params) == "";
  };
  for (const double t : {0.0, -0.0, 0.001, 100.0}) CHECK(passes([&](SamplingParams& p) { p.temperature = t; }));
  for (const double t : {1e-6, 1.0}) CHECK(passes([&](SamplingParams& p) { p.top_p = t; }));
  for (const double t : {0.0, 1.0}) CHECK(passes([&](SamplingParams& p) { p.min_p = t; }));
  for (const double t : {0.01, 100.0}) CHECK(passes([&](SamplingParams& p) { p.repetition_penalty = t; }));
  for (const int64_t k : {int64_t{0}, int64_t{INT32_MAX}}) CHECK(passes([&](SamplingParams& p) { p.top_k = k; }));
}

TEST_CASE("NaN, infinities, negative and huge values are refused by name and range") {
  const double bad[] = {std::nan(""),
                        std::numeric_limits<double>::infinity(),
                        -std::numeric_limits<double>::infinity(),
                        -1.0,
                        -1e-300,
                        1e38,
                        1e308};
  for (const double value : bad) {
    INFO(value);
    SamplingParams params;
    params.temperature = value;
    CHECK(refusal(params).find("temperature is ") == 0);
    CHECK(refusal(params).find("from 0.001 to 100") != std::string::npos);
    params = {};
    params.top_p = value;
    CHECK(refusal(params).find("top_p is ") == 0);
    CHECK(refusal(params).find("from 1e-06 to 1") != std::string::npos);
    params = {};
    params.min_p = value;
    CHECK(refusal(params).find("min_p is ") == 0);
    params = {};
    params.repetition_penalty = value;
    CHECK(refusal(params).find("repetition_penalty is ") == 0);
  }
  SamplingParams params;
  params.temperature = 1e-40;
  CHECK(refusal(params).find("temperature is 1e-40") == 0);
  params = {};
  params.top_p = 0;
  CHECK(refusal(params).find("top_p is 0;") == 0);
  params = {};
  params.top_k = -1;
  CHECK(refusal(params).find("top_k is -1") == 0);
  params.top_k = int64_t{1} << 40;
  CHECK(refusal(params).find("top_k is 1099511627776") == 0);
}

TEST_CASE("a bad logit bias is refused by token") {
  const auto with = [](std::vector<std::pair<int32_t, float>> bias) {
    SamplingParams params;
    params.logit_bias = std::move(bias);
    return refusal(params);
  };
  CHECK(with({{-1, 0.0f}}).find("token -1; tokens are 0 to 99") != std::string::npos);
  CHECK(with({{100, 0.0f}}).find("token 100") != std::string::npos);
  CHECK(with({{5, 1.0f}, {5, 2.0f}}).find("token 5 twice") != std::string::npos);
  CHECK(with({{5, std::nanf("")}}).find("logit_bias of token 5 is nan") == 0);
  CHECK(with({{5, std::nanf("")}, {5, std::nanf("")}, {4, std::nanf("")}}) != "");
  CHECK(with({{5, 1e38f}}).find("from -10000 to 10000") != std::string::npos);
}
