// check_sampling: checks a caller's SamplingParams and converts them to the SamplingSpec that an executor uses without
// further checks. The code that draws the tokens is in arith/sampling.hpp (arithmetic.md, section 6).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
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

// Sorts biases by token, and checks tokens and values.
inline Status check_logit_bias(std::vector<std::pair<int32_t, float>>& logit_bias, int32_t vocab_size) {
  // The entries are compared by token only, because a bias may be NaN before the check below.
  std::sort(logit_bias.begin(), logit_bias.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < logit_bias.size(); ++i) {
    const auto [token, bias] = logit_bias[i];
    if (token < 0 || token >= vocab_size)
      return invalid_argument("logit_bias names token " + std::to_string(token) + "; tokens are 0 to " +
                              std::to_string(vocab_size - 1));
    if (i > 0 && logit_bias[i - 1].first == token)
      return invalid_argument("logit_bias names token " + std::to_string(token) + " twice");
    KAIJU_TRY(detail::check_range(("logit_bias of token " + std::to_string(token)).c_str(), bias, -10000.0, 10000.0));
  }
  return {};
}

// Returns a copy of a guide, without a mask if the mask allows every token. The guide is checked: whether the mask has
// the right size and allows a token, and whether the biases are in range.
inline Result<TokenGuide> check_guide(std::span<const uint32_t> allowed,
                                      std::span<const std::pair<int32_t, float>> logit_bias, int32_t vocab_size) {
  const FloatState float_state;
  TokenGuide guide;
  if (!allowed.empty()) {
    const auto words = static_cast<size_t>(mask_words(vocab_size));
    if (allowed.size() != words)
      return invalid_argument("the mask of a guide has " + std::to_string(allowed.size()) + " words; it must have " +
                              std::to_string(words) + " of 32 bits, one bit for each of " + std::to_string(vocab_size) +
                              " tokens");
    const uint32_t last = allowed.back(), known = ~uint32_t{0} >> (words * 32 - static_cast<size_t>(vocab_size));
    const auto all_before_last = [&](uint32_t word) {
      return std::all_of(allowed.begin(), allowed.end() - 1, [word](uint32_t other) { return other == word; });
    };
    if ((last & known) == 0 && all_before_last(0))
      return invalid_argument("the mask of a guide allows no token: cancel the request instead");
    // A mask without effect is left out, so that it costs nothing.
    if ((last & known) != known || !all_before_last(~uint32_t{0})) guide.allowed.assign(allowed.begin(), allowed.end());
  }
  guide.logit_bias.assign(logit_bias.begin(), logit_bias.end());
  KAIJU_TRY(check_logit_bias(guide.logit_bias, vocab_size));
  return guide;
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
  KAIJU_TRY(check_logit_bias(spec.logit_bias, vocab_size));
  return spec;
}

}  // namespace kaiju
