// Tiles: which kernel computes a matmul, and with which tile. Host arithmetic only, compiled with and without CUDA.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../chip.hpp"

namespace kaiju::cuda {

enum class Path {
  kTiled,   // mma.sync tiles, any chip and shape (kernels/matmul.cu)
  kSkinny,  // weights straight to registers, up to kSkinnyRows rows, any chip (kernels/matmul.cu)
  kSm90,    // wgmma and the tensor copy engine, capability 9.0 (kernels/sm90_matmul.cuh)
};
inline constexpr int32_t kSkinnyRows = 64;
// One row on Path::kSkinny has a kernel of its own, whose warps take so many bytes of a weight row at once.
inline constexpr int32_t kGemvBytes = 512;
constexpr bool serves_gemv(int32_t rows, int32_t in) { return rows == 1 && in % kGemvBytes == 0; }

// rows x outs of a block, and how blocks form clusters; the last four for kSm90 alone. Blocks of a cluster either
// divide the summed index (`split` of them) or take neighbouring row tiles and fetch their weights once (`share`).
struct Tile {
  Path path = Path::kTiled;
  int32_t rows = 0;
  int32_t outs = 0;
  int32_t split = 1;
  int32_t share = 1;
  constexpr bool operator==(const Tile&) const = default;
};

// Blocks of kSm90 that share a multiprocessor. Of 64 rows two do, but not where two divide the summed index: alone each
// has twice the stages, and the outputs of `small` make 112 to 128 blocks.
constexpr int32_t blocks_together(const Tile& tile) { return tile.rows == 64 && tile.split != 2 ? 2 : 1; }

// Those of kSm90: each is the fastest somewhere, most often because its blocks come to just below a whole number of
// rounds.
inline constexpr Tile kSm90Tiles[] = {
    {Path::kSm90, 64, 48, 1, 1},   {Path::kSm90, 64, 80, 1, 1},   {Path::kSm90, 64, 80, 2, 1},
    {Path::kSm90, 64, 96, 2, 1},   {Path::kSm90, 64, 96, 4, 1},   {Path::kSm90, 64, 112, 2, 1},
    {Path::kSm90, 64, 128, 1, 1},  {Path::kSm90, 64, 128, 2, 1},  {Path::kSm90, 128, 80, 2, 1},
    {Path::kSm90, 128, 96, 1, 1},  {Path::kSm90, 128, 96, 2, 1},  {Path::kSm90, 128, 112, 1, 1},
    {Path::kSm90, 128, 112, 2, 1}, {Path::kSm90, 128, 128, 1, 1}, {Path::kSm90, 128, 144, 1, 1},
    {Path::kSm90, 128, 160, 1, 1}, {Path::kSm90, 128, 176, 1, 1}, {Path::kSm90, 128, 192, 1, 1},
    {Path::kSm90, 128, 208, 1, 1}, {Path::kSm90, 128, 256, 1, 2}, {Path::kSm90, 192, 160, 1, 1},
    {Path::kSm90, 256, 80, 2, 1},  {Path::kSm90, 256, 112, 1, 1}, {Path::kSm90, 256, 128, 1, 1},
    {Path::kSm90, 256, 160, 1, 1},
};

// Shared memory that a block of four that divide the summed index may take: then it finds room beside a pair of blocks
// of attention (kernels/sm90_attention_decode_window.cuh), and o begins while windows still run.
inline constexpr int32_t kBesidePairBytes = 106 * 1024;

inline constexpr int32_t kStepBytes = 128;  // of the summed index, in one stage of kSm90's pipeline

// Whether kSm90 can compute a matmul of this shape at all.
constexpr bool sm90_matmul_fits(const Chip& chip, int32_t out, int32_t in) {
  return chip.capability == 90 && chip.encode_tensor_map && out % 32 == 0 && in % 64 == 0;
}

constexpr int32_t pieces(int32_t count, int32_t size) { return (count + size - 1) / size; }

// A matmul, whatever its rows.
struct MatmulShape {
  int32_t out = 0, in = 0;
  bool behind_attention = false;  // it begins while attention ends (o)
};
// The fastest by a model of the chip that was fitted to measured times (tiles.cpp); tests/cuda/tiles.cpp holds it to
// them. Any rows, out and in from 1 up.
Tile choose_tile(const Chip& chip, int32_t rows, const MatmulShape& shape);

// Ascending numbers of rows, among them the powers of two up to `most` and `most`: matmuls of so many rows use every
// tile that choose_tile() gives for the shapes at 1 to `most` rows.
std::vector<int32_t> rows_of_all_tiles(const Chip& chip, std::span<const MatmulShape> shapes, int32_t most);

// Whether a matmul of gate and up may gate in this tile. Half of a tile's outputs are gate's, half are up's: whole
// blocks of 64 each.
constexpr bool gates(const Tile& tile) {
  return tile.path == Path::kSm90 && tile.split == 1 && tile.share <= 2 && tile.outs % 128 == 0;
}

}  // namespace kaiju::cuda
