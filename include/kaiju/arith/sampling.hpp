// This file draws a token from a row of logits (arithmetic.md, section 6). Probabilities are added up as integers, so
// any order of summation gives the same token.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kaiju/arith/exp2.hpp"

namespace kaiju::arith {

// Returns log2(e) / temperature, the factor from a difference of logits to an exponent of two.
inline float temperature_factor(float temperature) {
  return static_cast<float>(1.4426950408889634 / static_cast<double>(temperature));
}

// Returns the probability of the token with this logit divided by the probability of the token with the row's largest
// logit, as an integer in units of 2^-30.
KAIJU_HOST_DEVICE inline uint32_t mass(float logit, float maximum, float factor) {
  const float t = mul(add(logit, -maximum), factor);
  return t < -31.0f ? 0u : static_cast<uint32_t>(rint(mul(0x1p30f, exp2(t))));
}

KAIJU_HOST_DEVICE inline float penalise(float logit, float penalty) {
  return logit > 0.0f ? divide(logit, penalty) : mul(logit, penalty);
}

// Returns the natural logarithm of a positive integer. The logarithm is computed by a fixed series in double precision,
// so that log-probabilities are the same on every machine.
inline double natural_log(uint64_t total) {
  int exponent = 63 - std::countl_zero(total);
  double fraction = static_cast<double>(total) / static_cast<double>(uint64_t{1} << exponent);  // [1, 2)
  if (fraction >= 1.5) fraction = fraction / 2.0, ++exponent;
  const double s = (fraction - 1.0) / (fraction + 1.0);
  const double y = s * s;
  double sum = 1.0 / 25.0;
  for (int k = 23; k >= 1; k -= 2) {
    const double product = KAIJU_ROUNDED(sum * y);
    sum = product + 1.0 / k;
  }
  const double whole = KAIJU_ROUNDED(exponent * 0.6931471805599453);
  const double rest = KAIJU_ROUNDED((2.0 * s) * sum);
  return whole + rest;
}

// Returns the natural logarithm of the sum of exp(logit - maximum) over all logits, which is the softmax denominator.
// `logits` must be the logits that the model computed, without repetition penalty, bias or temperature.
inline double log_total(std::span<const float> logits, float maximum) {
  uint64_t total = 0;
  for (const float logit : logits) total += mass(logit, maximum, kLog2E);
  return natural_log(total) - 20.79441541679836;  // 30 ln 2
}

inline float logprob(float logit, float maximum, double log_total) {
  return static_cast<float>((static_cast<double>(logit) - static_cast<double>(maximum)) - log_total);
}

// A Candidate is a token that may be drawn. Candidates are ordered by descending logit, and candidates with equal
// logits are ordered by ascending token id.
struct Candidate {
  float logit;
  int32_t token;
  uint32_t mass;
  bool operator<(const Candidate& other) const {
    return logit != other.logit ? logit > other.logit : token < other.token;
  }
};

// Applies top-k, min-p and top-p to `candidates`, in the order that docs/arithmetic.md defines. truncate() leaves at
// least one candidate.
inline void truncate(std::vector<Candidate>& candidates, int32_t top_k, float top_p, float min_p) {
  if (top_k > 0 && static_cast<size_t>(top_k) < candidates.size()) {
    std::nth_element(candidates.begin(), candidates.begin() + top_k, candidates.end());
    candidates.resize(static_cast<size_t>(top_k));
  }
  if (min_p > 0.0f) {
    const auto least = static_cast<uint32_t>(__builtin_rint(static_cast<double>(min_p) * 1073741824.0));
    std::erase_if(candidates, [least](const Candidate& c) { return c.mass < least; });
  }
  if (top_p < 1.0f) {
    std::sort(candidates.begin(), candidates.end());
    unsigned __int128 total = 0, sum = 0;
    for (const Candidate& c : candidates) total += c.mass;
    const auto share = static_cast<uint64_t>(__builtin_rint(static_cast<double>(top_p) * 4294967296.0));
    size_t kept = 0;
    while (kept < candidates.size()) {
      sum += candidates[kept++].mass;
      if ((sum << 32) >= share * total) break;
    }
    candidates.resize(kept);
  }
}

// Adds up the masses (relative probabilities) of the candidates in the order of ascending token id, and returns the
// first token whose cumulative mass exceeds floor(random * total / 2^64). In this formula, `total` is the sum of the
// masses of all candidates.
inline int32_t draw(std::vector<Candidate>& candidates, uint64_t random) {
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  uint64_t total = 0;
  for (const Candidate& c : candidates) total += c.mass;
  const auto target = static_cast<uint64_t>((static_cast<unsigned __int128>(random) * total) >> 64);
  uint64_t sum = 0;
  for (const Candidate& c : candidates) {
    sum += c.mass;
    if (sum > target) return c.token;
  }
  return candidates.back().token;
}

}  // namespace kaiju::arith
