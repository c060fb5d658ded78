// What the checks of the self-check share: their table's rows, pseudo-random inputs, and hashes of results
// (self_check.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kaiju/arith/float32.hpp"
#include "kaiju/base/random.hpp"

namespace kaiju::golden {

struct Check {
  const char* operation;
  uint64_t hash;
};

enum class Shapes {
  kPlain,
  kAll
};  // kAll: also the shapes of a GPU's kernels for one row, for tiles of rows and for other head_dims

// Inputs generates the pseudo-random inputs of the checks. The pseudo-random inputs are made by exact operations from
// words of the Philox generator with a fixed key.
class Inputs {
 public:
  uint32_t word() {
    if (next_ % 4 == 0) words_ = philox4x32({next_ / 4, 0, 0, 0}, {0x6B61696A, 0x75});
    return words_[next_++ % 4];
  }
  int32_t below(int32_t n) { return static_cast<int32_t>(word() % static_cast<uint32_t>(n)); }
  std::vector<int8_t> bytes(size_t count) {
    return fill<int8_t>(count, [this] { return static_cast<int8_t>(below(255) - 127); });
  }
  std::vector<uint8_t> unsigned_bytes(size_t count) {
    return fill<uint8_t>(count, [this] { return static_cast<uint8_t>(below(256)); });
  }
  // Returns `count` positive floats in [low, 2 * low), whose mantissas use all bits. `low` must be a power of two.
  std::vector<float> scales(size_t count, float low) {
    return fill<float>(
        count, [=, this] { return arith::mul(low, static_cast<float>((1 << 23) + below(1 << 23)) * 0x1p-23f); });
  }
  // Returns a random float of random sign, whose magnitude lies in one of the eight binades below `high`.
  float spread(float high) {
    const uint32_t bits = word();
    const float magnitude =
        static_cast<float>((1u << 23) + (bits & 0x7FFFFF)) * 0x1p-24f / static_cast<float>(1u << (bits >> 23 & 7));
    return (bits >> 31 ? -high : high) * magnitude;
  }
  std::vector<float> floats(size_t count, float high) {
    return fill<float>(count, [=, this] { return spread(high); });
  }
  std::vector<arith::bf16> stream(size_t count, float high) {
    return fill<arith::bf16>(count, [=, this] { return arith::to_bf16(spread(high)); });
  }

 private:
  template <class T, class Make>
  static std::vector<T> fill(size_t count, Make make) {
    std::vector<T> out(count);
    for (T& x : out) x = make();
    return out;
  }
  uint32_t next_ = 0;
  std::array<uint32_t, 4> words_{};
};

// Returns the FNV-1a hash of the values, each padded to an 8-byte word. The hash does not depend on the addresses of
// the values.
template <class T>
uint64_t hash_of(const std::vector<T>& values) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const T& value : values) {
    uint64_t word = 0;
    std::memcpy(&word, &value, sizeof(T));
    hash = (hash ^ word) * 0x100000001B3u;
  }
  return hash;
}

}  // namespace kaiju::golden
