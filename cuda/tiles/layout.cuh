// The layout of the 64 keys and values of a KV cache block. It is the order in which the matrix units read them, so
// that half a block, copied unchanged to shared memory, is an operand.
//
// The keys are a matrix of 64 rows with head_dim channels, the values a matrix of head_dim rows with 64 places. Each
// matrix is cut into columns of 16 bytes, and a column stores its rows one after another. Eight rows of a column are
// 128 contiguous bytes: a core matrix of wgmma, and an ldmatrix without bank conflicts.
#pragma once

#include <cstdint>

#include "kaiju/step/executor_info.hpp"

namespace kaiju::cuda {

constexpr int32_t kColumnBytes = 16;

// Where byte `byte` of row `row` lies, in a matrix of `rows` rows.
__host__ __device__ constexpr int32_t byte_in_columns(int32_t rows, int32_t row, int32_t byte) {
  return byte / kColumnBytes * rows * kColumnBytes + row * kColumnBytes + byte % kColumnBytes;
}

// The place of a key's value among the 64 of its block: within each 32, the order in which the scores of a matrix
// product lie in the registers of a thread, so that weights go from the first product of attention to the second
// without leaving them. Place 16 h + 4 t + i of 32 holds key 16 h + 8 (i / 2) + 2 t + i % 2.
__host__ __device__ constexpr int32_t place_of_key(int32_t key) {
  const int32_t h = key / 16 % 2, upper = key / 8 % 2, t = key / 2 % 4, low = key % 2;
  return key / 32 * 32 + 16 * h + 4 * t + 2 * upper + low;
}

__host__ __device__ constexpr int32_t key_byte(int32_t key, int32_t channel) {
  return byte_in_columns(kBlockTokens, key, channel);
}
__host__ __device__ constexpr int32_t value_byte(int32_t head_dim, int32_t key, int32_t channel) {
  return byte_in_columns(head_dim, channel, place_of_key(key));
}

}  // namespace kaiju::cuda
