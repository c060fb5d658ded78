// How the tokens of one step are shared out among the running sequences. Arithmetic alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kaiju/engine/step_limits.hpp"

namespace kaiju {

// What one running sequence could compute now: one token and its drafts when it decodes, else the rest of its prompt.
struct Demand {
  int32_t tokens = 0;
  bool decode = false;
  int32_t share = 0;  // which of the shares it belongs to
};

// What a share gets of a step's tokens: `floor` if it asks for so many, and `ceiling` at most.
struct StepShare {
  int32_t floor = 0, ceiling = 0;
};

// A step that is being shared out.
class StepSharing {
 public:
  StepSharing(const std::vector<Demand>& demands, const StepLimits& limits, std::span<const StepShare> shares,
              std::vector<int32_t>& grants)
      : demands_(demands), limits_(limits), shares_(shares), grants_(grants), taken_(shares.size()) {
    grants_.assign(demands.size(), 0);
    left_ = limits.step_tokens;
    prefill_left_ = std::any_of(demands.begin(), demands.end(), [](const Demand& demand) { return demand.decode; })
                        ? limits.prefill_tokens
                        : limits.step_tokens;
  }

  // Decode rows come first, one token each, starting with row `first` so that a budget below the number of rows still
  // serves all in turn; then the drafts of decoding sequences; then prefill, in the order given. `to_floors`: only what
  // floors promise.
  void share_out(size_t first, bool to_floors) {
    const size_t count = demands_.size();
    for (size_t n = 0; n < count && left_ > 0; ++n) {
      const size_t i = (first + n) % count;
      if (demands_[i].decode && grants_[i] == 0) grant(i, 1, to_floors);
    }
    for (size_t i = 0; i < count && left_ > 0; ++i)
      if (demands_[i].decode && grants_[i] > 0) grant(i, demands_[i].tokens - grants_[i], to_floors);
    for (size_t i = 0; i < count && left_ > 0; ++i) {
      if (demands_[i].decode) continue;
      const int32_t wanted = std::min(demands_[i].tokens, limits_.chunk_tokens) - grants_[i];
      prefill_left_ -= grant(i, std::min(wanted, prefill_left_), to_floors);
    }
  }

 private:
  int32_t grant(size_t i, int32_t wanted, bool to_floor) {
    int32_t tokens = std::max(0, std::min(wanted, left_));
    if (!shares_.empty()) {
      const auto share = static_cast<size_t>(demands_[i].share);
      const int32_t most = to_floor ? shares_[share].floor : shares_[share].ceiling;
      tokens = std::max(0, std::min(tokens, most - taken_[share]));
      taken_[share] += tokens;
    }
    grants_[i] += tokens;
    left_ -= tokens;
    return tokens;
  }

  const std::vector<Demand>& demands_;
  const StepLimits& limits_;
  std::span<const StepShare> shares_;
  std::vector<int32_t>& grants_;
  std::vector<int32_t> taken_;  // by share
  int32_t left_ = 0, prefill_left_ = 0;
};

// grants[i] may be 0. `shares`: by Demand::share; empty: there are no limits.
inline void share_step(const std::vector<Demand>& demands, const StepLimits& limits, size_t first,
                       std::vector<int32_t>& grants, std::span<const StepShare> shares = {}) {
  StepSharing sharing(demands, limits, shares, grants);
  if (!shares.empty()) sharing.share_out(first, true);
  sharing.share_out(first, false);
}

}  // namespace kaiju
