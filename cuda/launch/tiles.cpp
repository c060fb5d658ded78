// The choice of a tile: a model with few constants, fitted to the times of every tile at the products of the presets `small` and `large`, 1
// to 8,192 rows, on one H200 of 132 multiprocessors (docs/kernels.md; the times are in tests/cuda/tiles.cpp). Candidates are the tiles that
// were fastest somewhere.
#include "tiles.hpp"

#include <bit>
#include <cmath>

namespace kaiju::cuda {
namespace {

struct Candidate {
  Tile tile;
  double step;    // us of one stage of the pipeline in one block
  double ending;  // us around the stages of a block: start, first copies, ending
};
constexpr Path H = Path::kHopper;
constexpr Candidate kCandidates[] = {
    {{H, 64, 80, 1, 1}, 0.285, 3.0},   {{H, 64, 96, 1, 1}, 0.34, 7.0},   {{H, 64, 96, 2, 1}, 0.44, 4.5},
    {{H, 64, 96, 4, 1}, 0.44, 4.5},    {{H, 64, 160, 1, 1}, 0.524, 9.0}, {{H, 64, 160, 2, 1}, 0.501, 4.7},
    {{H, 128, 160, 1, 1}, 0.36, 7.4},  {{H, 128, 160, 2, 1}, 0.36, 7.4}, {{H, 128, 256, 1, 1}, 0.562, 11.2},
    {{H, 128, 256, 1, 2}, 0.541, 8.0}, {{H, 256, 160, 1, 1}, 0.85, 9.0},
};

// us of reading the weights once: 4.4 TB/s by 132 multiprocessors.
double memory_time(int32_t out, int32_t in, int32_t multiprocessors) {
  return static_cast<double>(out) * in / (33'333.0 * multiprocessors);
}

// Whether the skinny kernel may serve. Of weights of 20 MB and more it takes one row alone: from two rows on tiles are as fast by
// themselves, and in a step, where their weights are on the way before the kernels in front have ended, faster (docs/kernels.md). Smaller
// matrices were not tried in steps.
bool skinny_serves(int32_t rows, int32_t out, int32_t in) { return rows == 1 || (rows <= kSkinnyRows && int64_t{out} * in < 20'000'000); }

// A launch, the weights, and the activations that every block reads: tiles of eight rows, of which the kernel has 1, 2, 4 or 8.
double skinny_time(int32_t rows, double memory) {
  const auto row_tiles = std::bit_ceil(static_cast<uint32_t>(pieces(rows, 8)));
  return 2.0 + memory * (0.67 + 0.37 * row_tiles);
}

// Blocks run in rounds of as many as fit; rounds and memory overlap, the better the more one of them outweighs the other.
double tile_time(const Candidate& candidate, int32_t rows, int32_t out, int32_t in, int32_t multiprocessors, double memory) {
  const Tile& tile = candidate.tile;
  const int32_t cluster = tile.split * tile.share, row_tiles = pieces(rows, tile.rows),
                clusters = pieces(row_tiles, tile.share) * pieces(out, tile.outs);
  int32_t at_once = multiprocessors * (tile.rows == 64 ? 2 : 1) / cluster;
  if (cluster == 4) at_once -= at_once / 16;  // groups of multiprocessors are no multiples of four: 62 fit of 66
  if (at_once < 1) at_once = 1;
  const double work = pieces(clusters, at_once) * (pieces(pieces(in, kStepBytes), tile.split) * candidate.step + candidate.ending);
  return std::sqrt(work * work + memory * memory);
}

// Whether the tile can run, at a number of rows where it was measured.
bool serves(const Tile& tile, int32_t rows, int32_t in) {
  if (tile.split > pieces(in, kStepBytes)) return false;
  if (tile.outs == 80) return rows > 32 && rows <= 64;
  if (tile.outs == 160 && tile.rows == 64) return rows <= 64;
  if (tile.rows == 64) return rows <= 128 || (rows <= 256 && tile.split == 1);
  if (tile.rows == 256) return rows > 128 && rows <= 256;
  return rows > 64 && (tile.share == 1 || rows > tile.rows);
}

}  // namespace

Tile choose_tile(const Chip& chip, int32_t rows, int32_t out, int32_t in) {
  const Tile plain{rows <= kSkinnyRows ? Path::kSkinny : Path::kTiled};
#if !defined(KAIJU_CUDA_SM90A)
  return plain;
#endif
  if (!hopper_fits(chip, out, in)) return plain;
  const double memory = memory_time(out, in, chip.multiprocessors);
  Tile best = plain;
  double least = skinny_serves(rows, out, in) ? skinny_time(rows, memory) : HUGE_VAL;
  for (const Candidate& candidate : kCandidates) {
    if (!serves(candidate.tile, rows, in)) continue;
    const double time = tile_time(candidate, rows, out, in, chip.multiprocessors, memory);
    if (time < least) best = candidate.tile, least = time;
  }
  return best;
}

}  // namespace kaiju::cuda
