// Packs and adds ternary steps: see ternary.hpp.
#include "ternary.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace kaiju::format {
namespace {

constexpr int kBytes = 243;  // 3^5

using Steps = std::array<int8_t, kStepsPerByte>;

constexpr std::array<Steps, kBytes> kSteps = [] {
  std::array<Steps, kBytes> steps{};
  for (int byte = 0; byte < kBytes; ++byte) {
    int rest = byte;
    for (int8_t& step : steps[static_cast<size_t>(byte)]) {
      step = static_cast<int8_t>(rest % 3 - 1);
      rest /= 3;
    }
  }
  return steps;
}();

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }

float scaled(float value, int step) { return value * (1.0f + static_cast<float>(step) / 128); }

// The only step that can lead there.
int scale_step(float before, float after) {
  const float least = std::abs(before), most = std::abs(after);
  return (most > least) - (most < least);
}

Status bad_byte() { return bad_model("its ternary steps have a byte above 242"); }

}  // namespace

Status add_ternary(std::span<const std::byte> steps, std::span<int8_t> weights) {
  const size_t whole = weights.size() / kStepsPerByte;
  int least = 0, most = 0;
  for (size_t i = 0; i < whole; ++i) {
    const auto byte = static_cast<size_t>(steps[i]);
    if (byte >= kBytes) return bad_byte();
    int8_t* const own = weights.data() + i * kStepsPerByte;
    for (size_t k = 0; k < kStepsPerByte; ++k) {
      const int value = own[k] + kSteps[byte][k];
      least = std::min(least, value), most = std::max(most, value);
      own[k] = static_cast<int8_t>(value);
    }
  }
  if (const size_t rest = weights.size() % kStepsPerByte; rest > 0) {
    const auto byte = static_cast<size_t>(steps[whole]);
    if (byte >= kBytes) return bad_byte();
    for (size_t k = 0; k < kStepsPerByte; ++k) {
      const int step = kSteps[byte][k];
      if (k >= rest) {
        if (step != 0) return bad_model("it has ternary steps after the last weight");
        continue;
      }
      int8_t& weight = weights[whole * kStepsPerByte + k];
      const int value = weight + step;
      least = std::min(least, value), most = std::max(most, value);
      weight = static_cast<int8_t>(value);
    }
  }
  if (least < -127 || most > 127) return bad_model("it moves a weight out of -127 to 127");
  return {};
}

bool is_ternary(std::span<const int8_t> before, std::span<const int8_t> after) {
  bool is = true;
  for (size_t i = 0; i < before.size(); ++i) is &= std::abs(after[i] - before[i]) <= 1;
  return is;
}

void append_ternary(std::span<const int8_t> before, std::span<const int8_t> after, std::vector<std::byte>& to) {
  for (size_t i = 0; i < before.size(); i += kStepsPerByte) {
    int byte = 0;
    for (size_t k = kStepsPerByte; k-- > 0;)
      byte = byte * 3 + 1 + (i + k < before.size() ? after[i + k] - before[i + k] : 0);
    to.push_back(static_cast<std::byte>(byte));
  }
}

Status scale_ternary(std::span<const std::byte> steps, std::span<float> values) {
  std::vector<int8_t> own(values.size(), 0);
  KAIJU_TRY(add_ternary(steps, own));
  for (size_t i = 0; i < values.size(); ++i) values[i] = scaled(values[i], own[i]);
  return {};
}

bool is_scaled(std::span<const float> before, std::span<const float> after) {
  bool is = true;
  for (size_t i = 0; i < before.size(); ++i)
    is &= bits_of(scaled(before[i], scale_step(before[i], after[i]))) == bits_of(after[i]);
  return is;
}

void append_scaled(std::span<const float> before, std::span<const float> after, std::vector<std::byte>& to) {
  std::vector<int8_t> steps(before.size());
  for (size_t i = 0; i < steps.size(); ++i) steps[i] = static_cast<int8_t>(scale_step(before[i], after[i]));
  append_ternary(std::vector<int8_t>(steps.size(), 0), steps, to);
}

}  // namespace kaiju::format
