// Dice: one stream of a seed's random numbers, for generated traffic and the simulated fleet.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kaiju/base/random.hpp"

namespace kaiju {

class Dice {
 public:
  Dice(uint64_t seed, uint32_t stream) : seed_(seed), stream_(stream) {}
  // In [0, 1).
  double uniform() { return static_cast<double>(random_bits(seed_, stream_, drawn_++) >> 11) * 0x1p-53; }
  uint64_t below(uint64_t count) { return static_cast<uint64_t>(uniform() * static_cast<double>(count)); }
  double exponential(double mean) { return -mean * std::log1p(-uniform()); }
  bool chance(double probability) { return uniform() < probability; }
  int32_t between(int32_t least, int32_t most) { return least + static_cast<int32_t>(uniform() * (most - least + 1)); }
  // Box and Muller, "A note on the generation of random normal deviates", 1958.
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }
  double log_normal(double median, double sigma) { return median * std::exp(sigma * normal()); }
  // 1, 2, ...
  int32_t geometric(double mean) {
    return 1 + static_cast<int32_t>(std::log(1 - uniform()) / std::log(1 - 1 / std::max(mean, 1.0001)));
  }

 private:
  uint64_t seed_;
  uint32_t stream_;
  uint64_t drawn_ = 0;
};

}  // namespace kaiju
