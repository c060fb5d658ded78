// Chooses a matmul's tile with a model of few constants. The constants were fitted to measured times of every tile for
// the matmuls of the presets, with 2 to 8,192 rows, on H200s with 132 multiprocessors (docs/kernels/matmul_hopper.md;
// the times are in tests/cuda/tiles.cpp).
#include "tiles.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <utility>

#include "gate_tiles.hpp"

namespace kaiju::cuda {
namespace {

// Of each of kSm90Tiles.
struct Cost {
  double step;    // us of one stage of the pipeline in one block
  double ending;  // us around the stages of a block: start, first copies, ending
};
constexpr Cost kCosts[] = {
    {0.122, 2.1}, {0.155, 2.2}, {0.082, 3.8}, {0.162, 2.4},  // 64x48, 64x80, 64x80/2, 64x96/2
    {0.233, 3.4}, {0.120, 3.4}, {0.330, 2.6}, {0.170, 2.6},  // 64x96/4, 64x112/2, 64x128, 64x128/2
    {0.132, 4.7}, {0.237, 4.4}, {0.204, 3.2}, {0.338, 1.8},  // 128x80/2, 128x96, 128x96/2, 128x112
    {0.160, 5.8}, {0.357, 2.1}, {0.416, 2.0}, {0.429, 2.7},  // 128x112/2, 128x128, 128x144, 128x160
    {0.482, 3.0}, {0.486, 3.7}, {0.546, 4.0}, {0.655, 3.6},  // 128x176, 128x192, 128x208, 128x256/1/2
    {0.596, 4.1}, {0.332, 4.2}, {0.654, 1.8}, {0.705, 2.4},  // 192x160, 256x80/2, 256x112, 256x128
    {0.832, 4.0},                                            // 256x160
};
static_assert(std::size(kCosts) == std::size(kSm90Tiles));
// us of the last blocks' epilogues that overlap with the next kernel's start, of tiles that are not split.
constexpr double kBehind = 4.0;
// us for which a block waits that needs a multiprocessor of its own: with up to 16 rows, and after attention, the
// kernel before it frees half of one here and there, seldom a whole one.
constexpr double kAlone = 1.0;
// us by which the kernel that makes bytes of gated values is at least shorter than the one that gates sums, of few
// rows: with the matmul before them the two forms are 3.7 us apart for one row, 7.0 for 16 (kaiju-bench-gate).
constexpr double kGateKernel = 3.0;

// us of reading the weights once: 4.4 TB/s by 132 multiprocessors.
double memory_time(int32_t out, int32_t in, int32_t multiprocessors) {
  return static_cast<double>(out) * in / (33'333.0 * multiprocessors);
}

// Whether the skinny kernel may serve more than one row. From weights of 20 MB on it does not: tiles are faster.
// Smaller matrices were not tried in steps.
bool skinny_serves(int32_t rows, int32_t out, int32_t in) {
  return rows <= kSkinnyRows && int64_t{out} * in < 20'000'000;
}

// A launch, the weights, and the activations that every block reads: tiles of eight rows, of which the kernel has 1, 2,
// 4 or 8.
double skinny_time(int32_t rows, double memory) {
  const auto row_tiles = std::bit_ceil(static_cast<uint32_t>(pieces(rows, 8)));
  return 2.0 + memory * (0.67 + 0.37 * row_tiles);
}

// Blocks run in rounds of as many as fit; rounds and memory overlap, the better the more one of them outweighs the
// other.
double tile_time(const Tile& tile, const Cost& cost, int32_t rows, const MatmulShape& shape, int32_t multiprocessors,
                 double memory) {
  const int32_t cluster = tile.split * tile.share, row_units = pieces(pieces(rows, tile.rows), tile.share),
                clusters = row_units * pieces(shape.out, tile.outs);
  int32_t at_once = multiprocessors * blocks_together(tile) / cluster;
  if (cluster == 4) at_once -= at_once / 16;  // groups of multiprocessors are no multiples of four: 62 fit of 66
  const int32_t rounds = pieces(clusters, std::max(at_once, 1));
  if (tile.split > 1 && rounds > 1) return HUGE_VAL;  // such blocks do not follow one another well
  // Of the last row tile no more is multiplied than there is, by 64 rows, where there are several rounds; in as many as
  // there are row tiles every block gets it once.
  const int32_t last = std::min(rows - (row_units - 1) * tile.rows * tile.share, tile.rows);
  const double spared = rounds > 1 ? rounds / row_units * (1.0 - pieces(last, 64) * 64.0 / tile.rows) : 0.0;
  double work = (rounds - spared) * pieces(pieces(shape.in, kStepBytes), tile.split) * cost.step + rounds * cost.ending;
  if (tile.rows > 64 && tile.split == 1) work -= kBehind;
  if (tile.rows == 64 && tile.split == 2 && (rows <= 16 || shape.behind_attention)) work += kAlone;
  return std::sqrt(work * work + memory * memory);
}

// Whether the tile can run, at a number of rows where it was measured.
bool serves(const Tile& tile, int32_t rows, int32_t in) {
  if (tile.split > pieces(in, kStepBytes)) return false;
  if (tile.rows == 64) return rows <= 64;
  if (tile.split > 1) return rows > tile.rows / 2 && rows <= tile.rows;
  if (tile.outs == 96) return rows > 64 && rows <= 256;
  if (tile.rows == 256) return rows > (tile.outs == 160 ? 128 : 512);
  if (tile.rows == 192) return rows > 128 && rows <= 1536;
  return rows > 64 && (tile.share == 1 || rows > tile.rows);
}

struct TimedTile {
  Tile tile;
  double time;  // us
};
// The fastest of kSm90Tiles that `is_candidate`, if it is faster than `other`; else that.
template <class IsCandidate>
TimedTile fastest(const Chip& chip, int32_t rows, const MatmulShape& shape, TimedTile other,
                  const IsCandidate& is_candidate) {
  const double memory = memory_time(shape.out, shape.in, chip.multiprocessors);
  for (size_t i = 0; i < std::size(kSm90Tiles); ++i) {
    if (!serves(kSm90Tiles[i], rows, shape.in) || !is_candidate(kSm90Tiles[i])) continue;
    const double time = tile_time(kSm90Tiles[i], kCosts[i], rows, shape, chip.multiprocessors, memory);
    if (time < other.time) other = {kSm90Tiles[i], time};
  }
  return other;
}
// Of more than one row, where kSm90 can compute the shape.
TimedTile fastest_of_all(const Chip& chip, int32_t rows, const MatmulShape& shape) {
  const double skinny = skinny_serves(rows, shape.out, shape.in)
                            ? skinny_time(rows, memory_time(shape.out, shape.in, chip.multiprocessors))
                            : HUGE_VAL;
  const Tile plain{rows <= kSkinnyRows ? Path::kSkinny : Path::kTiled};
  return fastest(chip, rows, shape, {plain, skinny}, [](const Tile&) { return true; });
}

}  // namespace

Tile choose_tile(const Chip& chip, int32_t rows, const MatmulShape& shape) {
  const Tile plain{rows <= kSkinnyRows ? Path::kSkinny : Path::kTiled};
#if !defined(KAIJU_CUDA_SM90A)
  return plain;
#endif
  if (rows == 1 || !sm90_matmul_fits(chip, shape.out, shape.in)) return plain;
  return fastest_of_all(chip, rows, shape).tile;
}

std::optional<Tile> choose_gate_tile(const Chip& chip, int32_t rows, const MatmulShape& shape) {
#if !defined(KAIJU_CUDA_SM90A)
  return {};
#endif
  if (!sm90_matmul_fits(chip, shape.out, shape.in) || shape.out % 128 != 0) return {};
  const TimedTile gated = fastest(chip, rows, shape, {{}, HUGE_VAL}, gates);
  if (gated.time == HUGE_VAL) return {};
  // What it saves: the sums are not read again, in f32 [rows, out].
  const double saved = kGateKernel + memory_time(rows, 4 * shape.out, chip.multiprocessors);
  if (rows > 1 && gated.time > fastest_of_all(chip, rows, shape).time + saved) return {};
  return gated.tile;
}

std::vector<int32_t> rows_of_all_tiles(const Chip& chip, std::span<const MatmulShape> shapes, int32_t most) {
  std::vector<int32_t> counts;
  std::vector<std::vector<Tile>> seen(shapes.size());
  for (int32_t rows = 1; rows <= most; ++rows) {
    bool wanted = rows == most || std::has_single_bit(static_cast<uint32_t>(rows));
    for (size_t i = 0; i < shapes.size(); ++i) {
      const Tile tile = choose_tile(chip, rows, shapes[i]);
      if (std::find(seen[i].begin(), seen[i].end(), tile) != seen[i].end()) continue;
      seen[i].push_back(tile);
      wanted = true;
    }
    if (wanted) counts.push_back(rows);
  }
  return counts;
}

std::vector<int32_t> rows_of_gate_tiles(const Chip& chip, std::span<const MatmulShape> shapes, int32_t most) {
  using Form = std::pair<bool, Tile>;  // whether it gates
  std::vector<int32_t> counts;
  std::vector<std::vector<Form>> seen(shapes.size());
  for (int32_t rows = 1; rows <= most; ++rows) {
    bool wanted = false;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const std::optional<Tile> gated = choose_gate_tile(chip, rows, shapes[i]);
      const Form form{gated.has_value(), gated ? *gated : choose_tile(chip, rows, shapes[i])};
      if (std::find(seen[i].begin(), seen[i].end(), form) != seen[i].end()) continue;
      seen[i].push_back(form);
      wanted = true;
    }
    if (wanted) counts.push_back(rows);
  }
  return counts;
}

}  // namespace kaiju::cuda
