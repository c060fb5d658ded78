// check_sampling: checks a caller's SamplingParams and converts them to the SamplingSpec that an executor uses without
// further checks. The code that draws the tokens is in arith/sampling.hpp (arithmetic.md, section 6).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
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

namespace detail {

inline Status check_sampler(const Sampler& sampler) {
  const SamplerInfo* info = sampler_info(sampler.kind);
  if (!info) return invalid_argument("there is no sampler " + std::to_string(static_cast<int32_t>(sampler.kind)));
  for (size_t i = 0; i < info->value_count; ++i) {
    const SamplerValue& wanted = info->values[i];
    const double value = sampler.values[i];
    if (sampler.kind == SamplerKind::kTemperature) KAIJU_TRY(check_temperature(wanted.name, value));
    KAIJU_TRY(check_range(wanted.name, value, wanted.low, wanted.high));
    if (wanted.whole && value != static_cast<double>(static_cast<int64_t>(value)))
      return invalid_argument(std::string(wanted.name) + " is " + number_text(value) + "; it must be a whole number");
  }
  return {};
}

// Whether the chain is the order of arithmetic.md, section 6, in which every executor draws. If so, writes it to
// `spec`.
inline bool is_plain_order(std::span<const Sampler> samplers, SamplingSpec& spec) {
  SamplingSpec plain;
  plain.temperature = 1.0f;
  auto before = SamplerKind{};
  for (const Sampler& sampler : samplers) {
    if (sampler.kind <= before || sampler.kind > SamplerKind::kTopP) return false;
    before = sampler.kind;
    const double value = sampler.values[0];
    if (sampler.kind == SamplerKind::kRepetitionPenalty && sampler.values[1] != 0.0) return false;
    if (sampler.kind == SamplerKind::kRepetitionPenalty) plain.repetition_penalty = static_cast<float>(value);
    if (sampler.kind == SamplerKind::kTemperature) plain.temperature = static_cast<float>(value);
    if (sampler.kind == SamplerKind::kTopK) plain.top_k = static_cast<int32_t>(value);
    if (sampler.kind == SamplerKind::kMinP) plain.min_p = static_cast<float>(value);
    if (sampler.kind == SamplerKind::kTopP) plain.top_p = static_cast<float>(value);
  }
  spec = plain;
  return true;
}

inline Status check_chain(const SamplingParams& params, SamplingSpec& spec) {
  if (params.samplers.empty()) {
    if (params.breakers.empty()) return {};
    return invalid_argument("breakers are set without a chain of samplers: add the sampler dry");
  }
  if (params.samplers.size() > kMaxSamplers)
    return invalid_argument("a chain has " + std::to_string(params.samplers.size()) + " samplers; at most " +
                            std::to_string(kMaxSamplers));
  const SamplingParams defaults;
  if (params.temperature != defaults.temperature || params.top_k != defaults.top_k || params.top_p != defaults.top_p ||
      params.min_p != defaults.min_p || params.repetition_penalty != defaults.repetition_penalty)
    return invalid_argument(
        "temperature, top_k, top_p, min_p or repetition_penalty is set beside a chain of samplers, which has to have "
        "all of them");
  for (const Sampler& sampler : params.samplers) {
    KAIJU_TRY(check_sampler(sampler));
    if (sampler.kind == SamplerKind::kMirostat && &sampler != &params.samplers.back())
      return invalid_argument("a sampler follows mirostat, which has to be the last one of a chain");
  }
  if (params.breakers.size() > kMaxBreakers)
    return invalid_argument(std::to_string(params.breakers.size()) + " breakers; at most " +
                            std::to_string(kMaxBreakers));
  for (const std::string& breaker : params.breakers)
    if (breaker.empty() || breaker.size() > kMaxBreakerBytes)
      return invalid_argument("a breaker must have 1 to " + std::to_string(kMaxBreakerBytes) + " bytes");
  if (!is_plain_order(params.samplers, spec))
    spec.chain = std::make_shared<SamplerChain>(SamplerChain{params.samplers, {}});
  return {};
}

}  // namespace detail

// Returns the checked sampling parameters. The breakers of a chain are left out: the engine adds them, which knows the
// tokens' texts. If a field is out of range, returns kInvalidArgument, and the message names
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
  KAIJU_TRY(detail::check_chain(params, spec));
  spec.seed = params.seed;
  spec.stream = params.variant;
  spec.logit_bias = params.logit_bias;
  KAIJU_TRY(check_logit_bias(spec.logit_bias, vocab_size));
  return spec;
}

}  // namespace kaiju
