#include "tiles.hpp"

#include <algorithm>

namespace kaiju::cuda {
namespace {

constexpr Path H = Path::kHopper;
// Every tile that is compiled, with every way of clustering that is worth trying.
constexpr Tile kFew[] = {{H, 64, 160, 1, 1}, {H, 64, 160, 2, 1}, {H, 64, 160, 4, 1}, {H, 64, 96, 1, 1}, {H, 64, 96, 2, 1}, {H, 64, 96, 4, 1}};
constexpr Tile kMany[] = {{H, 128, 256, 1, 2}, {H, 128, 256, 1, 1}, {H, 128, 256, 2, 1}, {H, 128, 256, 4, 1},
                          {H, 128, 160, 1, 2}, {H, 128, 160, 1, 1}, {H, 128, 160, 2, 1}, {H, 128, 160, 4, 1}};

}  // namespace

double tile_clocks(const Tile& tile, int32_t rows, int32_t out, int32_t in, int32_t multiprocessors) {
  constexpr double kMemory = 19.0;       // bytes a clock and multiprocessor when all read
  constexpr double kMemoryAlone = 40.0;  // when few do
  const int32_t row_tiles = pieces(rows, tile.rows),
                blocks = pieces(row_tiles, tile.share) * tile.share * pieces(out, tile.outs) * tile.split;
  const double steps = static_cast<double>(pieces(pieces(in, kStepBytes), tile.split)), rounds = pieces(blocks, multiprocessors);
  const double feed = tile.share > 1 || tile.outs == 256 ? 1.0 : 1.08;  // narrow tiles ask more of the L2 cache
  const double tensor = rounds * steps * (tile.rows / 64) * 4 * (tile.outs / 2) * feed;
  const double memory = static_cast<double>(out) * in / (kMemory * multiprocessors),
               alone = rounds * steps * tile.outs * kStepBytes / kMemoryAlone;
  const double ending = 1500.0 + tile.outs * 12.0 + (tile.split > 1 ? 1500.0 + tile.outs * 8.0 : 0.0);
  return std::max({tensor, memory, alone}) + rounds * ending;
}

Tile choose_tile(const Chip& chip, int32_t rows, int32_t out, int32_t in) {
#if !defined(KAIJU_CUDA_SM90A)
  return {rows <= kSkinnyRows ? Path::kSkinny : Path::kTiled};
#endif
  if (!hopper_fits(chip, out, in)) return {rows <= kSkinnyRows ? Path::kSkinny : Path::kTiled};
  if (rows <= 16) return {Path::kSkinny};
  Tile best;
  double least = 0.0;
  const auto consider = [&](const Tile& tile) {
    if (tile.split > pieces(in, kStepBytes) || (tile.share > 1 && rows <= tile.rows)) return;
    const double clocks = tile_clocks(tile, rows, out, in, chip.multiprocessors);
    if (best.rows == 0 || clocks < least) best = tile, least = clocks;
  };
  if (rows <= 64)
    for (const Tile& tile : kFew) consider(tile);
  else
    for (const Tile& tile : kMany) consider(tile);
  return best;
}

}  // namespace kaiju::cuda
