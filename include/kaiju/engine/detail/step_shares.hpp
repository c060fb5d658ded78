// How the tokens of one step are shared out among the running sequences. Arithmetic alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kaiju/engine/step_limits.hpp"

namespace kaiju {

// What one running sequence could compute now: one token and its drafts when it decodes, else the rest of its prompt.
struct Demand {
  int32_t tokens = 0;
  bool decode = false;
};

// Decode rows come first, one token each, starting with row `first` so that a budget below the number of rows still
// serves all in turn; then the drafts of decoding sequences; then prefill, in the order given. grants[i] may be 0.
inline void share_step(const std::vector<Demand>& demands, const StepLimits& limits, size_t first,
                       std::vector<int32_t>& grants) {
  grants.assign(demands.size(), 0);
  int32_t left = limits.step_tokens;
  for (size_t n = 0; n < demands.size() && left > 0; ++n) {
    const size_t i = (first + n) % demands.size();
    if (!demands[i].decode) continue;
    grants[i] = 1;
    --left;
  }
  const bool decodes = left < limits.step_tokens;
  for (size_t i = 0; i < demands.size() && left > 0; ++i) {
    if (grants[i] == 0) continue;
    const int32_t drafts = std::min(demands[i].tokens - 1, left);
    grants[i] += drafts;
    left -= drafts;
  }
  if (decodes) left = std::min(left, limits.prefill_tokens);
  for (size_t i = 0; i < demands.size() && left > 0; ++i) {
    if (demands[i].decode) continue;
    grants[i] = std::min({demands[i].tokens, limits.chunk_tokens, left});
    left -= grants[i];
  }
}

}  // namespace kaiju
