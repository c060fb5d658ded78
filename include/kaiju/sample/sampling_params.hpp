// SamplingParams: the sampling parameters of a request. The code that checks them is in params.hpp, and the code that
// draws the tokens is in arith/sampling.hpp (arithmetic.md, section 6) and arith/chain.hpp (section 12).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kaiju/base/sampler.hpp"

namespace kaiju {

// The fields of SamplingParams have wide types on purpose: the check must see the value that a C caller passed, not the
// result of a narrowing conversion.
struct SamplingParams {
  double temperature = 0.0;         // 0: greedy; else 0.001 to 100
  int64_t top_k = 0;                // 0: off
  double top_p = 1.0;               // 1: off
  double min_p = 0.0;               // 0: off
  double repetition_penalty = 1.0;  // 1: off
  uint64_t seed = 0;
  // Another variant draws other tokens from the same seed, for retries of a request: the stream of the random numbers
  // (arithmetic.md, section 6).
  uint32_t variant = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;  // (token, bias); each token at most once
  // A chain of at most kMaxSamplers samplers, which work in this order. A chain takes the place of temperature, top_k,
  // top_p, min_p and repetition_penalty: those must then have their defaults.
  std::vector<Sampler> samplers;
  // For the sampler kDry: the tokens whose text contains one of these strings are breakers, across which no repetition
  // is found. At most kMaxBreakers strings of 1 to kMaxBreakerBytes bytes.
  std::vector<std::string> breakers;

  bool operator==(const SamplingParams&) const = default;
};
inline constexpr size_t kMaxBreakers = 64;
inline constexpr size_t kMaxBreakerBytes = 64;

}  // namespace kaiju
