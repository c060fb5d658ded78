// The choice of a tile: a model with few constants, fitted to the times of every tile at the products of the presets `small` and `large`, 4
// to 8,192 rows, on H200s of 132 multiprocessors (docs/kernels.md; the times are in tests/cuda/tiles.cpp).
#include "tiles.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

namespace kaiju::cuda {
namespace {

// Of each of kHopperTiles.
struct Cost {
  double step;    // us of one stage of the pipeline in one block
  double ending;  // us around the stages of a block: start, first copies, ending
};
constexpr Cost kCosts[] = {
    {0.130, 2.0}, {0.147, 2.5}, {0.244, 2.7}, {0.126, 5.5},  // 64x48, 64x80, 64x96/4, 128x80/2
    {0.250, 4.9}, {0.197, 3.7}, {0.319, 3.1}, {0.333, 3.3},  // 128x96, 128x96/2, 128x112, 128x128
    {0.380, 4.9}, {0.416, 3.9}, {0.457, 5.5}, {0.494, 5.0},  // 128x144, 128x160, 128x176, 128x192
    {0.528, 6.1}, {0.613, 7.6}, {0.334, 4.9}, {0.591, 6.0},  // 128x208, 128x256/1/2, 256x80/2, 256x112
    {0.652, 5.7}, {0.805, 7.1},                              // 256x128, 256x160
};
static_assert(std::size(kCosts) == std::size(kHopperTiles));
constexpr double kBehind = 4.0;  // us of the last blocks' ending behind which the next kernel starts, of tiles that are not divided

// us of reading the weights once: 4.4 TB/s by 132 multiprocessors.
double memory_time(int32_t out, int32_t in, int32_t multiprocessors) {
  return static_cast<double>(out) * in / (33'333.0 * multiprocessors);
}

// Whether the skinny kernel may serve more than one row. From weights of 20 MB on it does not: tiles are faster. Smaller matrices were not
// tried in steps.
bool skinny_serves(int32_t rows, int32_t out, int32_t in) { return rows <= kSkinnyRows && int64_t{out} * in < 20'000'000; }

// A launch, the weights, and the activations that every block reads: tiles of eight rows, of which the kernel has 1, 2, 4 or 8.
double skinny_time(int32_t rows, double memory) {
  const auto row_tiles = std::bit_ceil(static_cast<uint32_t>(pieces(rows, 8)));
  return 2.0 + memory * (0.67 + 0.37 * row_tiles);
}

// Blocks run in rounds of as many as fit; rounds and memory overlap, the better the more one of them outweighs the other.
double tile_time(const Tile& tile, const Cost& cost, int32_t rows, int32_t out, int32_t in, int32_t multiprocessors, double memory) {
  const int32_t cluster = tile.split * tile.share, clusters = pieces(pieces(rows, tile.rows), tile.share) * pieces(out, tile.outs);
  int32_t at_once = multiprocessors * (tile.rows == 64 ? 2 : 1) / cluster;
  if (cluster == 4) at_once -= at_once / 16;  // groups of multiprocessors are no multiples of four: 62 fit of 66
  const int32_t rounds = pieces(clusters, std::max(at_once, 1));
  if (tile.split > 1 && rounds > 1) return HUGE_VAL;  // such blocks do not follow one another well
  double work = rounds * (pieces(pieces(in, kStepBytes), tile.split) * cost.step + cost.ending);
  if (tile.rows > 64 && tile.split == 1) work -= kBehind;
  return std::sqrt(work * work + memory * memory);
}

// Whether the tile can run, at a number of rows where it was measured.
bool serves(const Tile& tile, int32_t rows, int32_t in) {
  if (tile.split > pieces(in, kStepBytes)) return false;
  if (tile.rows == 64) return rows <= 64;
  if (tile.split > 1) return rows > tile.rows / 2 && rows <= tile.rows;
  if (tile.outs == 96) return rows > 64 && rows <= 256;
  if (tile.rows == 256) return rows > (tile.outs == 160 ? 128 : 512);
  return rows > 64 && (tile.share == 1 || rows > tile.rows);
}

}  // namespace

Tile choose_tile(const Chip& chip, int32_t rows, int32_t out, int32_t in) {
  const Tile plain{rows <= kSkinnyRows ? Path::kSkinny : Path::kTiled};
#if !defined(KAIJU_CUDA_SM90A)
  return plain;
#endif
  if (rows == 1 || !hopper_fits(chip, out, in)) return plain;
  const double memory = memory_time(out, in, chip.multiprocessors);
  Tile best = plain;
  double least = skinny_serves(rows, out, in) ? skinny_time(rows, memory) : HUGE_VAL;
  for (size_t i = 0; i < std::size(kHopperTiles); ++i) {
    if (!serves(kHopperTiles[i], rows, in)) continue;
    const double time = tile_time(kHopperTiles[i], kCosts[i], rows, out, in, chip.multiprocessors, memory);
    if (time < least) best = kHopperTiles[i], least = time;
  }
  return best;
}

}  // namespace kaiju::cuda
