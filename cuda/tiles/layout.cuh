// Where a key's value stands among the 64 of its block: within each 32, the order in which the scores of a tensor-core product lie in the registers of a thread, so
// that weights go from the first product of attention to the second without leaving them.
#pragma once

#include <cstdint>

namespace kaiju::cuda {

// place 16 h + 4 t + i of 32 holds key 16 h + 8 (i / 2) + 2 t + i % 2.
__host__ __device__ constexpr int32_t place_of_key(int32_t key) {
  const int32_t h = key / 16 % 2, upper = key / 8 % 2, t = key / 2 % 4, low = key % 2;
  return key / 32 * 32 + 16 * h + 4 * t + 2 * upper + low;
}
__host__ __device__ constexpr int32_t key_of_place(int32_t place) {
  const int32_t h = place / 16 % 2, t = place / 4 % 4, i = place % 4;
  return place / 32 * 32 + 16 * h + 8 * (i / 2) + 2 * t + i % 2;
}

}  // namespace kaiju::cuda
