// Tiles of AMX: eight tables of 16 rows x 64 bytes that stay in the processor, and products of two of them. Tile C has
// 16 x 16 sums; a product adds to C[m][n] the sum over k and j of A[m][4 k + j] * B[k][4 n + j], k and n below 16 and j
// below 4. So A is 16 rows as they lie in memory, and B has four bytes of each of 16 rows beside each other.
//
// The operations are assembly: GCC's intrinsics take no template argument as the number of a tile. A stand-in without
// AMX is in tests/cpu/stand_in/tiles.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kaiju::cpu {
namespace {

// Lends the tiles to a scope, all of them of full size. Outside of such scopes the thread has no tiles, so that the
// system saves none when it changes threads, and a host that uses tiles itself finds none in use.
class TileUse {
 public:
  explicit TileUse(bool wanted) : wanted_(wanted) {
    if (!wanted) return;
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } const config;
    static_assert(sizeof config == 64);
    asm volatile("ldtilecfg %0" : : "m"(config));
  }
  ~TileUse() {
    if (wanted_) asm volatile("tilerelease");
  }
  TileUse(const TileUse&) = delete;
  TileUse& operator=(const TileUse&) = delete;

 private:
  bool wanted_;
};

template <int kTile>
inline __attribute__((always_inline)) void tile_zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
// Rows lie `stride` bytes apart.
template <int kTile>
inline __attribute__((always_inline)) void tile_load(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
inline __attribute__((always_inline)) void tile_store(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
}
// C += A * B, signed bytes times unsigned ones.
template <int kC, int kA, int kB>
inline __attribute__((always_inline)) void tile_dot_su() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}
// C += A * B, unsigned bytes times signed ones.
template <int kC, int kA, int kB>
inline __attribute__((always_inline)) void tile_dot_us() {
  asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}

}  // namespace
}  // namespace kaiju::cpu
