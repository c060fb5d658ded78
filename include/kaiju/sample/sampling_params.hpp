// SamplingParams: what a caller may ask of sampling. params.hpp checks it; the drawing itself is arith/ (arithmetic.md,
// section 6).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace kaiju {

// Wide types on purpose: values arrive from a C caller, and the check must see what was said, not what a conversion
// made of it.
struct SamplingParams {
  double temperature = 0.0;         // 0: greedy; else 0.001 to 100
  int64_t top_k = 0;                // 0: off
  double top_p = 1.0;               // 1: off
  double min_p = 0.0;               // 0: off
  double repetition_penalty = 1.0;  // 1: off
  uint64_t seed = 0;
  uint32_t stream = 0;                                // tells retries of one request apart: same seed, another draw
  std::vector<std::pair<int32_t, float>> logit_bias;  // (token, bias); a token at most once
};

}  // namespace kaiju
