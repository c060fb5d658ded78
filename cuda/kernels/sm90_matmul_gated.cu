// Matmul on Hopper (sm90_matmul.cuh), compiled for gate and up of a feed-forward (gated_matmul.hpp): the tiles that
// gate.
#include "../launch/tiles.hpp"
#include "gated_matmul.hpp"
#include "sm90_matmul_launch.cuh"

namespace kaiju::cuda {
namespace {

template <Tile kTile>
cudaError_t launch_gate_tile(cudaStream_t stream, const Chip& chip, const MatmulArgs& matmul, const GateRows& args,
                             float* most) {
  if constexpr (gates(kTile))
    return sm90::launch_tile<MatmulKind::kGated, kTile>(stream, chip, matmul, args, most);
  else
    return cudaErrorInvalidConfiguration;
}

template <size_t... kIndex>
cudaError_t launch_any_gate(cudaStream_t stream, const Chip& chip, const Tile& tile, const MatmulArgs& matmul,
                            const GateRows& args, float* most, std::index_sequence<kIndex...>) {
  cudaError_t error = cudaErrorInvalidConfiguration;
  ((tile == kSm90Tiles[kIndex] &&
    (error = launch_gate_tile<kSm90Tiles[kIndex]>(stream, chip, matmul, args, most), true)) ||
   ...);
  return error;
}

}  // namespace

cudaError_t gated_matmul(cudaStream_t stream, const Chip& chip, const Tile& tile, const MatmulArgs& matmul,
                         const GateRows& args) {
  if (!is_gated_by_matmul(args) || matmul.out != 2 * args.ups.width) return cudaErrorInvalidValue;
  const GatedValues there = gated_values(args);
  MatmulArgs own = matmul;
  own.result = there.values;
  return launch_any_gate(stream, chip, tile, own, args, there.most, std::make_index_sequence<std::size(kSm90Tiles)>());
}

}  // namespace kaiju::cuda
