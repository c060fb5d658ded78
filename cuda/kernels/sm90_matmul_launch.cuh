// Launches a Hopper matmul (sm90_matmul.cuh): the tensor maps of its operands, its grid, and the kernel of a tile.
#pragma once

#include <iterator>
#include <utility>

#include "../tiles/dependent_launch.cuh"
#include "sm90_matmul.cuh"

namespace kaiju::cuda {
namespace sm90 {

using Encode = decltype(&cuTensorMapEncodeTiled);

// [rows, in], copied as [box_rows][128 bytes].
inline CUresult rows_map(Encode encode, CUtensorMap* map, const void* a, int32_t rows, int32_t in, int32_t box_rows) {
  const cuuint64_t size[] = {static_cast<cuuint64_t>(in), static_cast<cuuint64_t>(rows)},
                   stride[] = {static_cast<cuuint64_t>(in)};
  const cuuint32_t box[] = {kStepBytes, static_cast<cuuint32_t>(box_rows)}, each[] = {1, 1};
  return encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(a), size, stride, box, each,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// [out, in], copied as [group box_groups][128 bytes], row 8 i + 2 t + e of each group being output group / 4 t + 2 i +
// e: lane t's columns 2 t + e of group / 8 products are neighbours. `group` is 32 or 16.
inline CUresult weights_map(Encode encode, CUtensorMap* map, const int8_t* weight, int32_t out, int32_t in,
                            uint32_t group, int32_t box_groups) {
  const auto row = static_cast<cuuint64_t>(in);
  const cuuint64_t size[] = {row, 2, 4, group / 8, static_cast<cuuint64_t>(out) / group},
                   stride[] = {row, group / 4 * row, 2 * row, group * row};
  const cuuint32_t box[] = {kStepBytes, 2, 4, group / 8, static_cast<cuuint32_t>(box_groups)}, each[] = {1, 1, 1, 1, 1};
  return encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 5, const_cast<int8_t*>(weight), size, stride, box, each,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// [rows, out] in bf16, copied as [64][box_outs].
inline CUresult residuals_map(Encode encode, CUtensorMap* map, void* residuals, int32_t rows, int32_t out,
                              int32_t box_outs) {
  const cuuint64_t size[] = {static_cast<cuuint64_t>(out), static_cast<cuuint64_t>(rows)},
                   stride[] = {static_cast<cuuint64_t>(out) * 2};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(box_outs), 64}, each[] = {1, 1};
  return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, residuals, size, stride, box, each,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

template <MatmulKind kKind, Tile kTile>
cudaError_t launch_tile(cudaStream_t stream, const Chip& chip, const MatmulArgs& args, const GateRows& gate = {},
                        float* most = nullptr) {
  using S = Shape<kKind, kTile.rows, kTile.outs, kTile.split>;
  constexpr int kCopies = S::kIsGated ? 2 : kTile.share;  // as TileBlock has it
  static_assert(S::kGroups % kCopies == 0);
  if (kTile.split > pieces(args.in, kStepBytes))
    return cudaErrorInvalidConfiguration;                                 // a block would have nothing to add up
  const int32_t copied_rows = min(pieces(args.rows, 8) * 8, kTile.rows);  // swizzling goes by eight
  const int32_t stages = S::kRing / ((copied_rows + kTile.outs) * kStepBytes);
  const TileArgs tiles{args,
                       pieces(pieces(args.rows, kTile.rows), kTile.share),
                       pieces(args.out, kTile.outs),
                       copied_rows,
                       stages,
                       S::kBehindNorm ? min(S::begun_stages(copied_rows), stages) : stages,
                       gate,
                       most};
  CUtensorMap rows, weights, residuals{};
  const auto encode = reinterpret_cast<Encode>(chip.encode_tensor_map);
  // A copy fills rows beyond the map's last one with zeros, which takes longer than reading rows that are not used.
  if (rows_map(encode, &rows, args.a, max(args.rows, args.room), args.in, copied_rows) != CUDA_SUCCESS ||
      weights_map(encode, &weights, args.weight, args.out, args.in, S::kGroup, S::kGroups / kCopies) != CUDA_SUCCESS ||
      (S::kThroughRing &&
       residuals_map(encode, &residuals, args.result, args.rows, args.out, kTile.outs) != CUDA_SUCCESS))
    return cudaErrorInvalidValue;
  const auto kernel = sm90_matmul_kernel<kKind, kTile.rows, kTile.outs, kTile.split, kTile.share>;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes);
      error != cudaSuccess)
    return error;

  constexpr int32_t kCluster = kTile.split * kTile.share;
  const int32_t units = tiles.row_units * tiles.out_tiles;
  constexpr bool kEveryUnit =
      kTile.split > 1 ||
      S::kBlocks > 1;  // a block each, or as many blocks as run at once, which take one unit after the other
  const int32_t clusters = kEveryUnit ? units : min(units, chip.multiprocessors / kCluster);
  return kaiju::cuda::launch(stream, chip, kernel, {int64_t{clusters} * kCluster, S::kThreads, S::kBytes, kCluster},
                             rows, weights, residuals, tiles);
}

template <MatmulKind kKind, size_t... kIndex>
cudaError_t launch_any(cudaStream_t stream, const Chip& chip, const Tile& tile, const MatmulArgs& args,
                       std::index_sequence<kIndex...>) {
  cudaError_t error = cudaErrorInvalidConfiguration;
  ((tile == kSm90Tiles[kIndex] && (error = launch_tile<kKind, kSm90Tiles[kIndex]>(stream, chip, args), true)) || ...);
  return error;
}

}  // namespace sm90

template <MatmulKind kKind>
cudaError_t matmul_sm90(cudaStream_t stream, const Chip& chip, const Tile& tile, const MatmulArgs& args) {
  return sm90::launch_any<kKind>(stream, chip, tile, args, std::make_index_sequence<std::size(kSm90Tiles)>());
}

}  // namespace kaiju::cuda
