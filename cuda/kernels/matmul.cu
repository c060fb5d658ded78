// Exact matmul of int8 weights [out, in] with activations [rows, in], with a fused epilogue (tiles/epilogue.cuh). This
// file chooses the kernel and launches the kernels that run on every chip. The kernels for Hopper are in
// sm90_matmul.cuh.
#include "gemv.cuh"
#include "sm80_matmul_skinny.cuh"
#include "sm80_matmul_tiled.cuh"

namespace kaiju::cuda {
namespace {

template <MatmulKind kKind>
cudaError_t matmul_of(cudaStream_t stream, const Chip& chip, const Tile& tile, const MatmulArgs& args) {
#if defined(KAIJU_CUDA_SM90A)
  if (tile.path == Path::kSm90) return matmul_sm90<kKind>(stream, chip, tile, args);
#endif
  if (tile.path == Path::kSkinny) {
    if (serves_gemv(args.rows, args.in)) {
      if constexpr (kKind == MatmulKind::kLinear || kKind == MatmulKind::kUp)
        if (args.x) return launch_gemv<kKind, true>(stream, chip, args);
      return launch_gemv<kKind>(stream, chip, args);
    }
    if (args.rows <= 8) return launch_skinny<kKind, 1, 1, 4, 3>(stream, chip, args);
    if (args.rows <= 16) return launch_skinny<kKind, 1, 2, 4, 3>(stream, chip, args);
    if (args.rows <= 32) return launch_skinny<kKind, 1, 4, 4, 2>(stream, chip, args);
    if (args.rows <= kSkinnyRows) return launch_skinny<kKind, 2, 8, 2, 1>(stream, chip, args);
    return cudaErrorInvalidConfiguration;
  }
  return args.rows <= 96 ? launch_tiled<kKind, 64>(stream, chip, args) : launch_tiled<kKind, 128>(stream, chip, args);
}

}  // namespace

cudaError_t matmul_with_tile(cudaStream_t stream, const Chip& chip, const Tile& tile, MatmulKind kind,
                             const MatmulArgs& args) {
  switch (kind) {
    case MatmulKind::kLinear:
      return matmul_of<MatmulKind::kLinear>(stream, chip, tile, args);
    case MatmulKind::kUp:
      return matmul_of<MatmulKind::kUp>(stream, chip, tile, args);
    case MatmulKind::kAddLinear:
      return matmul_of<MatmulKind::kAddLinear>(stream, chip, tile, args);
    case MatmulKind::kAddDown:
      return matmul_of<MatmulKind::kAddDown>(stream, chip, tile, args);
    case MatmulKind::kSums:
      return matmul_of<MatmulKind::kSums>(stream, chip, tile, args);
    case MatmulKind::kSumsDown:
      return matmul_of<MatmulKind::kSumsDown>(stream, chip, tile, args);
    default:
      return cudaErrorInvalidConfiguration;
  }
}

bool joins_norm(const Chip& chip, int32_t rows, int32_t out, int32_t in) {
  if (!serves_gemv(rows, in) || choose_tile(chip, rows, {out, in}).path != Path::kSkinny) return false;
  return norm_bytes(in) + pieces(out, chip.multiprocessors) * static_cast<int32_t>(sizeof(int32_t)) <= 48 << 10;
}

cudaError_t matmul(cudaStream_t stream, const Chip& chip, MatmulKind kind, const MatmulArgs& args) {
  if (kind == MatmulKind::kLinear && args.rows > 1 && args.out <= kNarrowOuts)
    return launch(stream, chip, matmul_narrow_kernel, {pieces(args.rows * args.out, kWarps), kThreads}, args);
  return matmul_with_tile(stream, chip, choose_tile(chip, args.rows, shape_of(kind, args.out, args.in)), kind, args);
}

}  // namespace kaiju::cuda
