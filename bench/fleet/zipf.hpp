// Zipf: ranks by Zipf's law, without a table of them.
#pragma once

#include <cmath>
#include <cstdint>

#include "bench/dice.hpp"

namespace kaiju::fleet {

// Ranks 1 to `count`, rank r as often as r^-exponent says. Needs no memory, whatever the count: rejection by inversion
// of the integral, Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone discrete
// distributions", ACM TOMACS 6 (1996).
class Zipf {
 public:
  Zipf(uint64_t count, double exponent)
      : count_(static_cast<double>(count)),
        exponent_(exponent),
        low_(integral(1.5) - 1),
        high_(integral(count_ + 0.5)),
        always_(2 - inverse(integral(2.5) - weight(2))) {}

  uint64_t draw(Dice& dice) const {
    for (;;) {
      const double area = high_ + dice.uniform() * (low_ - high_);
      const double point = inverse(area);
      const double rank = std::fmin(std::fmax(std::floor(point + 0.5), 1), count_);
      if (rank - point <= always_ || area >= integral(rank + 0.5) - weight(rank)) return static_cast<uint64_t>(rank);
    }
  }

 private:
  double weight(double x) const { return std::exp(-exponent_ * std::log(x)); }
  // Of x^-exponent, from 1 to x. Written so that it is exact near exponent 1 too.
  double integral(double x) const {
    const double log = std::log(x), power = (1 - exponent_) * log;
    return std::fabs(power) < 1e-9 ? log : log * std::expm1(power) / power;
  }
  double inverse(double area) const {
    const double power = (1 - exponent_) * area;
    return std::exp(std::fabs(power) < 1e-9 ? area : area * std::log1p(power) / power);
  }

  double count_, exponent_, low_, high_, always_;
};

// Spreads what is alike over all 64 bits (the finaliser of SplitMix64: Steele, Lea, Flood, OOPSLA 2014).
inline uint64_t mixed(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace kaiju::fleet
