// How CpuBackend divides attention: sizes that its constructor and cpu_attention.cpp share.
#pragma once

#include "kernels.hpp"

namespace kaiju::cpu {

inline constexpr int32_t kPartsPerThread = 4;

constexpr int64_t up_to_unit(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }
constexpr int32_t ceil_div(int64_t value, int64_t by) { return static_cast<int32_t>((value + by - 1) / by); }

// Memory of the sums of one piece of attention.
inline constexpr size_t kSumsBytes =
    up_to_unit(2 * kMaxQueryRows * sizeof(float), 64) + sizeof(float) * kMaxQueryRows * kMaxHeadDim;

inline AttentionSums sums_at(std::byte* memory) {
  auto* maximum = reinterpret_cast<float*>(memory);
  float* total = maximum + kMaxQueryRows;
  return {maximum, total, reinterpret_cast<float*>(memory + up_to_unit(2 * kMaxQueryRows * sizeof(float), 64))};
}

// One chunk of the keys of one piece.
struct ChunkTask {
  int32_t piece = 0;
  int32_t chunk = 0;  // its first position
};

}  // namespace kaiju::cpu
