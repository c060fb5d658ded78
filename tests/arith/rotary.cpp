// Sine and cosine of positions: exact reduction, small error, symmetric quadrants.
#include "kaiju/arith/rotary.hpp"

#include <cmath>
#include <random>

#include "catch.hpp"

namespace kaiju::arith {

TEST_CASE("cosine and sine of a position match long double within 2e-7") {
  std::mt19937_64 random(1);
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const uint64_t frequency = random() >> (random() % 40), position = random() % (1u << 24);
    const uint64_t angle = position * frequency;
    const long double turns = static_cast<long double>(angle) * 0x1p-64L;
    const long double radians = turns * 6.283185307179586476925286766559L;
    const CosSin found = cos_sin(position, frequency);
    worst = std::max({worst, static_cast<double>(std::abs(found.cos - std::cos(radians))),
                      static_cast<double>(std::abs(found.sin - std::sin(radians)))});
  }
  CHECK(worst < 2e-7);
}

TEST_CASE("quarter turns are exact") {
  const uint64_t quarter = uint64_t{1} << 62;
  CHECK((cos_sin(0, quarter).cos == 1 && cos_sin(0, quarter).sin == 0));
  CHECK((cos_sin(1, quarter).cos == 0 && cos_sin(1, quarter).sin == 1));
  CHECK((cos_sin(2, quarter).cos == -1 && cos_sin(2, quarter).sin == 0));
  CHECK((cos_sin(3, quarter).cos == 0 && cos_sin(3, quarter).sin == -1));
  CHECK((cos_sin(4, quarter).cos == 1 && cos_sin(4, quarter).sin == 0));
}

TEST_CASE("angles that differ by whole turns are equal, however many turns") {
  const uint64_t frequency = 0x28BE60DB9391054Au;
  for (const uint64_t position : {1u, 77u, 4095u, 1u << 23}) {
    const CosSin a = cos_sin(position, frequency), b = cos_sin(1, position * frequency);
    CHECK(bits_of(a.cos) == bits_of(b.cos));
    CHECK(bits_of(a.sin) == bits_of(b.sin));
  }
}

TEST_CASE("each output of a rotation is one product and one fma") {
  float low = 0.7f, high = -1.3f;
  const CosSin at = cos_sin(5, 0x28BE60DB9391054Au);
  rotate(low, high, at);
  volatile float high_sin = -1.3f * at.sin, low_sin = 0.7f * at.sin;
  CHECK(bits_of(low) == bits_of(std::fma(0.7f, at.cos, -high_sin)));
  CHECK(bits_of(high) == bits_of(std::fma(-1.3f, at.cos, low_sin)));
}

}  // namespace kaiju::arith
