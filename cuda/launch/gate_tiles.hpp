// Gate tiles: the tiles of Hopper's matmuls that have gate and up of the same outputs of a feed-forward
// (kernels/gated_matmul.hpp), and the choice among them (tiles.cpp). Host arithmetic only, compiled with and without
// CUDA.
#pragma once

#include <optional>

#include "tiles.hpp"

namespace kaiju::cuda {

// The fastest of them for a matmul of both matrices (shape.out is twice d_ff), by the model of choose_tile(). None
// where the shape has none, or where choose_tile()'s tile is so much faster that storing the sums and gating them in a
// kernel of their own costs less.
std::optional<Tile> choose_gate_tile(const Chip& chip, int32_t rows, const MatmulShape& shape);

// Ascending numbers of rows up to `most`, among which matmuls of these shapes use every gate tile, and beside it every
// tile without a gate, that they use at any number of rows.
std::vector<int32_t> rows_of_gate_tiles(const Chip& chip, std::span<const MatmulShape> shapes, int32_t most);

}  // namespace kaiju::cuda
