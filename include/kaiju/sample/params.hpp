// check_sampling: checks a caller's SamplingParams and converts them to the SamplingSpec that an executor uses without
// further checks. The code that draws the tokens is in arith/sampling.hpp (arithmetic.md, section 6).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kaiju/base/detail/number_text.hpp"
#include "kaiju/base/float_state.hpp"
#include "kaiju/base/status.hpp"
#include "kaiju/sample/sampling_params.hpp"
#include "kaiju/step/plan.hpp"

namespace kaiju {

namespace detail {

// A value of NaN is refused too, because NaN fails every comparison.
template <class Number>
Status check_range(const char* name, Number value, double low, double high) {
  if (value >= low && value <= high) return {};
  return invalid_argument(std::string(name) + " is " + number_text(value) + "; it must be from " + number_text(low) +
                          " to " + number_text(high));
}

}  // namespace detail

// A temperature of 0 means greedy sampling. A temperature between 0 and 0.001 is refused, because its inverse could
// overflow.
inline Status check_temperature(const char* name, double value) {
  if (value == 0.0 || (value >= 0.001 && value <= 100.0)) return {};
  return invalid_argument(std::string(name) + " is " + number_text(value) +
                          "; it must be 0 (greedy) or from 0.001 to 100");
}

// Returns the checked sampling parameters. If a field is out of range, returns kInvalidArgument, and the message names
// the field and its range.
inline Result<SamplingSpec> check_sampling(const SamplingParams& params, int32_t vocab_size) {
  const FloatState float_state;
  KAIJU_TRY(check_temperature("temperature", params.temperature));
  if (params.top_k < 0 || params.top_k > INT32_MAX)
    return invalid_argument("top_k is " + std::to_string(params.top_k) + "; it must be 0 (off) to 2147483647");
  KAIJU_TRY(detail::check_range("top_p", params.top_p, 1e-6, 1.0));
  KAIJU_TRY(detail::check_range("min_p", params.min_p, 0.0, 1.0));
  KAIJU_TRY(detail::check_range("repetition_penalty", params.repetition_penalty, 0.01, 100.0));

  SamplingSpec spec;
  spec.temperature = static_cast<float>(params.temperature);
  spec.top_k = static_cast<int32_t>(params.top_k);
  spec.top_p = static_cast<float>(params.top_p);
  spec.min_p = static_cast<float>(params.min_p);
  spec.repetition_penalty = static_cast<float>(params.repetition_penalty);
  spec.seed = params.seed;
  spec.stream = params.variant;
  spec.logit_bias = params.logit_bias;
  // The entries are compared by token only, because a bias may be NaN before the check below.
  std::sort(spec.logit_bias.begin(), spec.logit_bias.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < spec.logit_bias.size(); ++i) {
    const auto [token, bias] = spec.logit_bias[i];
    if (token < 0 || token >= vocab_size)
      return invalid_argument("logit_bias names token " + std::to_string(token) + "; tokens are 0 to " +
                              std::to_string(vocab_size - 1));
    if (i > 0 && spec.logit_bias[i - 1].first == token)
      return invalid_argument("logit_bias names token " + std::to_string(token) + " twice");
    KAIJU_TRY(detail::check_range(("logit_bias of token " + std::to_string(token)).c_str(), bias, -10000.0, 10000.0));
  }
  return spec;
}

}  // namespace kaiju
