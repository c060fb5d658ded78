// Computes RoPE frequencies with integers only. The math library's pow differs in the last bits between processors, and
// so would a checkpoint's bytes.
#include <cmath>

#include "kaiju/format/random_model.hpp"

namespace kaiju {
namespace {

using Fraction = unsigned __int128;  // in units of 2^-128, below 1

constexpr Fraction kOneTurn = (Fraction{0x28be60db9391054a} << 64) | 0x7f09d5f47d4d3770;  // 1 / (2 pi)

// Rounded down; less than 3 units too little.
Fraction product(Fraction a, Fraction b) {
  const Fraction a_high = a >> 64, a_low = static_cast<uint64_t>(a), b_high = b >> 64, b_low = static_cast<uint64_t>(b);
  return a_high * b_high + ((a_high * b_low) >> 64) + ((a_low * b_high) >> 64);
}

Fraction power(Fraction base, int32_t exponent) {  // exponent >= 1
  Fraction result = base;
  for (int32_t i = 1; i < exponent; ++i) result = product(result, base);
  return result;
}

Fraction inverse(double theta) {  // theta > 1
  int exponent;
  auto mantissa = static_cast<uint64_t>(std::ldexp(std::frexp(theta, &exponent), 53));
  for (exponent -= 53; mantissa % 2 == 0; ++exponent) mantissa /= 2;
  const Fraction of_mantissa = ~Fraction{0} / mantissa;
  return exponent < 0 ? of_mantissa << -exponent : of_mantissa >> exponent;
}

}  // namespace

std::vector<uint64_t> rope_frequencies(double theta, int32_t head_dim) {
  const int32_t count = head_dim / 2;
  // theta^(-2 / head_dim), bit by bit: the largest whose power is no more than 1 / theta.
  const Fraction least = inverse(theta);
  Fraction ratio = 0;
  for (Fraction bit = Fraction{1} << 127; bit > 0; bit >>= 1)
    if (power(ratio | bit, count) <= least) ratio |= bit;

  std::vector<uint64_t> out;
  Fraction turns = kOneTurn;
  for (int32_t i = 0; i < count; ++i, turns = product(turns, ratio))
    out.push_back(static_cast<uint64_t>((turns + (Fraction{1} << 63)) >> 64));
  return out;
}

}  // namespace kaiju
