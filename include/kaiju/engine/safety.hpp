// SafetyOptions: what the scores of the model's classifier do to a reply. A score s says that its label holds with
// probability 1 / (1 + exp(-s)); docs/safety.md.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace kaiju {

using LabelValues = std::vector<std::pair<std::string, double>>;  // by the label's name; each at most once

// A verdict says that the probability of a label has reached the label's limit. The scores of a row judge the text
// before the token that is sampled from it, the prompt included; so a verdict of the first row is about the prompt.
struct SafetyOptions {
  std::string tier;      // the limits that Engine::set_limit gave this tier, as they are at each token; empty: no tier
  LabelValues limits;    // beside those of the tier, from 0 to 1; the lower of two counts
  int32_t run = 1;       // a verdict needs so many tokens in a row at the limit
  bool reports = false;  // true: a verdict is an event, and the reply goes on; false: it also ends the reply (kRefused)
  // A token is told when the text that ends with it and `hold_back - 1` more tokens have been judged. What a verdict
  // that ends the reply finds untold is never told. 0: at once, and a verdict comes one token late.
  int32_t hold_back = 0;

  bool active() const { return !tier.empty() || !limits.empty(); }
};
inline constexpr int32_t kMaxHoldBack = 64;

// What the texts of a reply were judged to be, for one label. Three floats, which the C interface shows as such.
struct LabelStatistics {
  float maximum = 0.0f;      // largest probability of any text
  float mean = 0.0f;         // of the probabilities
  float longest_run = 0.0f;  // of tokens in a row at the label's limit
};

}  // namespace kaiju
