// Gated matmuls: gate and up of a feed-forward in version 2 of the arithmetic as one matmul, whose epilogue gates the
// outputs, transforms them and rounds them to bf16. A second kernel makes bytes of them. The bits are those of the
// matmul of plain sums followed by gate_rows() (rows.cu).
#pragma once

#include "../kernels.hpp"
#include "gate_steps.hpp"

namespace kaiju::cuda {

// Whether the kernels below compute these rows: gated, rounded to bf16 before they become bytes, in blocks that a tile
// has whole.
constexpr bool is_gated_by_matmul(const GateRows& args) {
  const int32_t block = args.to.hadamard;
  return args.gate != Gate::kSquaredRelu && args.to.bf16 && !args.to.wide && args.gates.scale != nullptr &&
         args.gates.scale == args.ups.scale && args.gates.width == args.ups.width && args.ups.width % kGateBlock == 0 &&
         (block == 1 || block == 16 || block == 32 || block == 64);
}

// What is kept between the two kernels, in the memory that the matmul's sums would take.
struct GatedValues {
  arith::bf16* values;  // [rows, width]
  float* most;          // [rows, tiles] largest magnitudes
};
inline GatedValues gated_values(const GateRows& args) {
  return {reinterpret_cast<arith::bf16*>(args.gates.sums), args.gates.sums + int64_t{args.rows} * args.gates.width};
}
// Tiles of outputs of a row.
constexpr int32_t gated_tiles(const Tile& tile, int32_t width) { return pieces(2 * width, tile.outs); }

// ---- kernels/sm90_matmul_gated.cu ----
// MatmulKind::kGated by a tile that gates (launch/gate_tiles.hpp), of rows that is_gated_by_matmul(). The matrix is
// gate's, followed by up's. The result is bf16 [rows, out / 2] at gated_values(args); `matmul.result` is not read.
cudaError_t gated_matmul(cudaStream_t stream, const Chip& chip, const Tile& tile, const MatmulArgs& matmul,
                         const GateRows& args);

// ---- kernels/gated_rows.cu ----
// Bytes of what gated_matmul() left.
cudaError_t quantise_gated(cudaStream_t stream, const Chip& chip, const Tile& tile, const GateRows& args);

}  // namespace kaiju::cuda
