// Tiles: which tile of the Hopper kernel (kernels/hopper/product.cuh) serves a product. Host arithmetic alone.
#pragma once

#include <cstdint>

namespace kaiju::cuda {

// rows x outs of a block. Blocks of a cluster either divide the summed index (`split` of them) or take neighbouring row tiles and fetch
// their weights once (`share`).
struct Tile {
  int32_t rows = 0;
  int32_t outs = 0;
  int32_t split = 1;
  int32_t share = 1;
};

inline constexpr int32_t kStepBytes = 128;  // of the summed index, in one stage of the pipeline

// Whether the kernel can compute such a product at all.
constexpr bool tiles_fit(int32_t out, int32_t in) { return out % 32 == 0 && in % 64 == 0; }

constexpr int32_t pieces(int32_t count, int32_t size) { return (count + size - 1) / size; }

// The best tile by a model of the chip: clocks of the tensor cores, of a multiprocessor's share of memory, and of endings that nothing
// hides.
Tile choose_tile(int32_t rows, int32_t out, int32_t in, int32_t multiprocessors);
// The model's clocks for one tile.
double tile_clocks(const Tile& tile, int32_t rows, int32_t out, int32_t in, int32_t multiprocessors);

}  // namespace kaiju::cuda
