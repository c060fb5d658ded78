// Ternary steps: -1, 0 and 1 of int8 weights, or of float32 values by a 128th of them, five to a byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kaiju/base/status.hpp"

namespace kaiju::format {

inline constexpr size_t kStepsPerByte = 5;
inline constexpr size_t ternary_bytes(size_t weights) { return (weights + kStepsPerByte - 1) / kStepsPerByte; }

// Adds the steps to `weights`. A byte is the sum of (step + 1) 3^i of its five weights, the first with i = 0; steps
// after the last weight are 0. kBadModel for a byte above 242, a step after the last weight, or a weight that leaves
// -127 to 127; the weights are then of no use.
Status add_ternary(std::span<const std::byte> steps, std::span<int8_t> weights);

// Whether every weight changes by at most 1.
bool is_ternary(std::span<const int8_t> before, std::span<const int8_t> after);

// Appends the steps from `before` to `after`, which must be ternary.
void append_ternary(std::span<const int8_t> before, std::span<const int8_t> after, std::vector<std::byte>& to);

// Multiplies each value by 1 + step / 128, rounded once. Steps and refusals as above.
Status scale_ternary(std::span<const std::byte> steps, std::span<float> values);

// Whether such steps lead from `before` to `after`, to the bit.
bool is_scaled(std::span<const float> before, std::span<const float> after);

// Appends the steps from `before` to `after`, which must be scaled.
void append_scaled(std::span<const float> before, std::span<const float> after, std::vector<std::byte>& to);

}  // namespace kaiju::format
