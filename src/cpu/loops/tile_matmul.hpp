// Products of 16 rows at a time by tiles. The weights of 16 outputs are tile A, read in place: a tile's rows may lie
// any number of bytes apart. A group's rows are tile B, which is the panel of matmul.hpp for 16 rows in each vector. So
// the sums of a block come out as the other loops leave them, and the epilogue is the same.
//
// Two tiles of outputs times two of rows: four products for four loads. Bound: the tile unit, 16 cycles a product, if
// the loads keep up; they come from the second-level cache. Where several groups follow each other, every other one
// goes backwards along K, and finds the weights that the one before has used last in the first-level cache.
#pragma once

namespace kaiju::cpu {
namespace {

constexpr int kTileRows = 16;
constexpr int kTileBytes = 64;          // of K
constexpr int32_t kFewestTileRows = 5;  // fewer rows are multiplied by vectors

// Weights that come next, [at, end): they are brought into the second-level cache a few lines at a time, in the order
// in which they lie in memory, which the processor's own prefetchers follow.
struct Ahead {
  const int8_t* at = nullptr;
  const int8_t* end = nullptr;
};
template <int kLines>
KAIJU_INLINE void bring_nearer(Ahead& ahead) {
  if (ahead.at >= ahead.end) return;
#pragma GCC unroll 32
  for (int i = 0; i < kLines; ++i) __builtin_prefetch(ahead.at + 64 * i, 0, 2);
  ahead.at += 64 * kLines;
}

struct TileBlock {
  const uint8_t* panel = nullptr;
  const int8_t* weight = nullptr;
  int64_t in = 0;
  Ahead ahead;
  bool backward = false;
};

// Columns [k, k + 64). Lines of the weights ahead are asked for a few at a time, after each load and product: all at
// once would hold up the loads that products wait for.
template <int kOutTiles, int kVectors>
KAIJU_INLINE void multiply_line(TileBlock& block, int64_t k) {
  constexpr int kLines = kOutTiles * kTileRows, kGaps = kOutTiles + kVectors + kOutTiles * kVectors;
  constexpr int kAsked = (kLines + kGaps - 1) / kGaps;
  const int64_t in = block.in;
  const int8_t* weight = block.weight + k;
  const uint8_t* panel = block.panel + k * kTileRows * kVectors;
  tile_load<6>(panel, kTileBytes * kVectors);
  bring_nearer<kAsked>(block.ahead);
  tile_load<4>(weight, in);
  bring_nearer<kAsked>(block.ahead);
  tile_dot_su<0, 4, 6>();
  bring_nearer<kAsked>(block.ahead);
  if constexpr (kVectors == 2) {
    tile_load<7>(panel + kTileBytes, kTileBytes * kVectors);
    bring_nearer<kAsked>(block.ahead);
    tile_dot_su<1, 4, 7>();
    bring_nearer<kAsked>(block.ahead);
  }
  if constexpr (kOutTiles == 2) {
    tile_load<5>(weight + kTileRows * in, in);
    bring_nearer<kAsked>(block.ahead);
    tile_dot_su<2, 5, 6>();
    bring_nearer<kAsked>(block.ahead);
    if constexpr (kVectors == 2) {
      tile_dot_su<3, 5, 7>();
      bring_nearer<kAsked>(block.ahead);
    }
  }
}

// sums [16 * kOutTiles][kVectors]
template <int kOutTiles, int kVectors>
KAIJU_INLINE void multiply_tiles(const TileBlock& given, Ints* sums) {
  TileBlock block = given;  // in registers: the tiles' assembly may write any memory
  tile_zero<0>();
  if constexpr (kVectors == 2) tile_zero<1>();
  if constexpr (kOutTiles == 2) tile_zero<2>();
  if constexpr (kOutTiles == 2 && kVectors == 2) tile_zero<3>();
  if (block.backward) {
    for (int64_t k = block.in - kTileBytes; k >= 0; k -= kTileBytes) multiply_line<kOutTiles, kVectors>(block, k);
  } else {
    for (int64_t k = 0; k < block.in; k += kTileBytes) multiply_line<kOutTiles, kVectors>(block, k);
  }
  constexpr int64_t kStride = int64_t{sizeof(Ints)} * kVectors;
  tile_store<0>(sums, kStride);
  if constexpr (kVectors == 2) tile_store<1>(sums + 1, kStride);
  if constexpr (kOutTiles == 2) tile_store<2>(sums + kTileRows * kVectors, kStride);
  if constexpr (kOutTiles == 2 && kVectors == 2) tile_store<3>(sums + kTileRows * kVectors + 1, kStride);
}

}  // namespace
}  // namespace kaiju::cpu
