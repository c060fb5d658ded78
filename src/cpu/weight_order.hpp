// WeightOrder: remembers which matrix was multiplied after which, since the steps of a model multiply theirs in the
// same order again and again. So threads that wait for an operation can bring nearer what they will multiply next,
// while memory would be idle.
#pragma once

#include <array>
#include <cstdint>

#include "kaiju/tensor/matrix.hpp"

namespace kaiju::cpu {

class WeightOrder {
 public:
  // Says that `matrix` is multiplied now.
  void pass(const Matrix& matrix) {
    place_of(previous_) = {previous_, matrix};
    previous_ = matrix.weight;
  }
  // What followed a matrix the last time; without weights if that is unknown.
  Matrix next_after(const Matrix& matrix) {
    const Entry& entry = place_of(matrix.weight);
    return matrix.weight && entry.weight == matrix.weight ? entry.next : Matrix();
  }

 private:
  struct Entry {
    const int8_t* weight = nullptr;
    Matrix next;
  };
  // Matrices whose places are the same forget each other, which costs nothing but the time.
  Entry& place_of(const int8_t* weight) {
    const uint64_t mixed = reinterpret_cast<uintptr_t>(weight) * 0x9E3779B97F4A7C15ull;
    return entries_[mixed >> 54];
  }

  std::array<Entry, 1024> entries_;
  const int8_t* previous_ = nullptr;
};

// What one thread will multiply first in the next matrix, in its own line of the cache.
struct alignas(64) NextWeights {
  static constexpr int64_t kMostBytes = 256 << 10;  // a part of the second-level cache
  static constexpr int64_t kAtOnce = 1024;

  const int8_t* at = nullptr;
  const int8_t* end = nullptr;

  // Brings some more of it into the second-level cache. False: all of it has been asked for.
  bool bring_nearer() {
    if (at >= end) return false;
    for (int64_t i = 0; i < kAtOnce; i += 64) __builtin_prefetch(at + i, 0, 2);
    at += kAtOnce;
    return true;
  }
};

}  // namespace kaiju::cpu
