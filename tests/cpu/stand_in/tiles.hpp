// Tiles without AMX: what src/cpu/isa/tiles.hpp says, by AVX512 with VNNI in memory, so that the loops can be compared
// with the reference where no processor has tiles. Tiles that no scope lends hold garbage, and a scope within a scope,
// or an operation outside of one, ends the test.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace kaiju::cpu {
namespace {

struct StandInTiles {
  alignas(64) uint8_t rows[8][16][64];
  bool lent = false;
};
thread_local StandInTiles stand_in;

inline StandInTiles& lent_tiles() {
  if (!stand_in.lent) std::abort();
  return stand_in;
}

class TileUse {
 public:
  explicit TileUse(bool wanted) : wanted_(wanted) {
    if (!wanted) return;
    if (stand_in.lent) std::abort();
    std::memset(stand_in.rows, 0xA5, sizeof stand_in.rows);
    stand_in.lent = true;
  }
  ~TileUse() {
    if (wanted_) stand_in.lent = false;
  }
  TileUse(const TileUse&) = delete;
  TileUse& operator=(const TileUse&) = delete;

 private:
  bool wanted_;
};

template <int kTile>
void tile_zero() {
  std::memset(lent_tiles().rows[kTile], 0, sizeof stand_in.rows[kTile]);
}
template <int kTile>
void tile_load(const void* from, int64_t stride) {
  for (int64_t r = 0; r < 16; ++r)
    std::memcpy(lent_tiles().rows[kTile][r], static_cast<const uint8_t*>(from) + r * stride, 64);
}
template <int kTile>
void tile_store(void* to, int64_t stride) {
  for (int64_t r = 0; r < 16; ++r) std::memcpy(static_cast<uint8_t*>(to) + r * stride, lent_tiles().rows[kTile][r], 64);
}

// kSigned says whether the bytes of A are the signed ones; those of B then are not.
template <int kC, int kA, int kB, bool kSigned>
void stand_in_dot() {
  StandInTiles& tiles = lent_tiles();
  for (int m = 0; m < 16; ++m) {
    __m512i sum = _mm512_load_si512(tiles.rows[kC][m]);
    for (int k = 0; k < 16; ++k) {
      int32_t four;
      std::memcpy(&four, tiles.rows[kA][m] + 4 * k, 4);
      const __m512i a = _mm512_set1_epi32(four), b = _mm512_load_si512(tiles.rows[kB][k]);
      sum = kSigned ? _mm512_dpbusd_epi32(sum, b, a) : _mm512_dpbusd_epi32(sum, a, b);
    }
    _mm512_store_si512(tiles.rows[kC][m], sum);
  }
}
template <int kC, int kA, int kB>
void tile_dot_su() {
  stand_in_dot<kC, kA, kB, true>();
}
template <int kC, int kA, int kB>
void tile_dot_us() {
  stand_in_dot<kC, kA, kB, false>();
}

}  // namespace
}  // namespace kaiju::cpu
