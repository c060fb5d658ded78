// Counter-based random numbers: each number is a pure function of (seed, stream, position), so the order of a batch
// cannot change the number. The random number generator is Philox-4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace kaiju {

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// Returns the 64 random bits that select the token at `position` (arithmetic.md, section 6).
inline uint64_t random_bits(uint64_t seed, uint32_t stream, uint64_t position) {
  const auto out = philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), stream, 0},
                              {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return out[0] | (uint64_t{out[1]} << 32);
}

}  // namespace kaiju
