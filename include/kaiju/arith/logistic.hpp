// Exponentials, logarithms and the logistic function in double precision by the contract's own series: the same bits on
// every machine, which those of C's library are not.
#pragma once

#include <cmath>
#include <cstdint>

#include "kaiju/arith/exp2.hpp"
#include "kaiju/arith/sampling.hpp"

namespace kaiju::arith {

// The power of two that exp_of computes.
inline float power_of(double x) { return static_cast<float>(x * 1.4426950408889634); }

// exp(x) for x <= 0, in the precision of exp2.
inline double exp_of(double x) {
  const float power = power_of(x);
  return power < -126.0f ? 0.0 : static_cast<double>(exp2(power));
}

// ln(x) for x > 0.
inline double log_of(double x) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);  // exact
  const double shift = KAIJU_ROUNDED((exponent - 53) * 0.6931471805599453);
  return natural_log(static_cast<uint64_t>(fraction * 0x1p53)) + shift;
}

// The probability that a label holds, by the classifier's score of it (arithmetic.md, section 9): 1 / (1 +
// exp(-score)).
inline double probability_of(float score) {
  const double small = exp_of(-std::fabs(static_cast<double>(score)));
  return (score < 0.0f ? small : 1.0) / (1.0 + small);
}

}  // namespace kaiju::arith
