// Products on compute capability 9.0: one kernel for any number of rows, exact, with its ending fused in.
//
// A block computes `kRows` rows x `kOuts` outputs. A producer thread has the copy engine bring steps of 128 bytes of the summed index, rows
// and weights, into a ring of stages; each group of four warps multiplies 64 rows with all outputs by wgmma and keeps the sums in
// registers. Up to 64 rows the bound is the memory the weights come from: they are asked for before the kernels in front have ended, since
// no kernel writes them. Above, it is the tensor cores.
//
// Clusters serve two ends. With `split` blocks the summed index is divided among them and the sums, integers, are added through each
// other's shared memory. With `share` blocks, neighbouring row tiles fetch each part of their weights once, for all of them.
//
// The copy engine permutes the weights' rows within each 32 (weights_map), so that a lane ends with eight neighbouring outputs.
#pragma once

#include "../../launch/tiles.hpp"
#include "../../tiles/epilogue.cuh"
#include "../../tiles/hopper.cuh"
#include "../../tiles/overlap.cuh"

namespace kaiju::cuda {
namespace hopper {

struct TileArgs {
  ProductArgs product;
  int32_t split, share;
  int32_t row_units, out_tiles;  // a row unit is `share` row tiles
  int32_t box_groups;            // groups of 32 outputs one copy brings
};

template <int kRows, int kOuts>
struct Shape {
  static_assert(kRows % 64 == 0 && kOuts % 32 == 0);
  static constexpr int kConsumers = kRows * 2;  // threads
  static constexpr int kThreads = kConsumers + 32;
  static constexpr int kRowBytes = kRows * kStepBytes, kStageBytes = kRowBytes + kOuts * kStepBytes;
  static constexpr int kBlocks = kRows == 64 ? 2 : 1;  // that share a multiprocessor
  static constexpr int kStages = (kBlocks == 2 ? 112 : 216) * 1024 / kStageBytes;
  static constexpr int kBytes = kStages * kStageBytes + 2 * kStages * 8;
  static_assert(kStageBytes % 1024 == 0 && kBlocks * (kBytes + 1024) <= 228 * 1024);
  static_assert(kRows * kOuts * 4 <= kStages * kStageBytes);  // sums of a split tile lie where the stages were
};

constexpr int32_t kBand = 16;  // row tiles that are taken through all outputs together, to be found in the L2 cache

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ void load_scales(const ProductArgs& args, int32_t first, float (&scale)[8]) {
  const float4 low = __ldg(reinterpret_cast<const float4*>(args.scale + first)),
               high = __ldg(reinterpret_cast<const float4*>(args.scale + first) + 1);
  scale[0] = low.x, scale[1] = low.y, scale[2] = low.z, scale[3] = low.w, scale[4] = high.x, scale[5] = high.y, scale[6] = high.z,
  scale[7] = high.w;
}

#endif

template <Product kProduct, int kRows, int kOuts>
__global__ void __launch_bounds__(Shape<kRows, kOuts>::kThreads, Shape<kRows, kOuts>::kBlocks)
    product_kernel(const __grid_constant__ CUtensorMap rows_map, const __grid_constant__ CUtensorMap weights_map, const TileArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Shape<kRows, kOuts>;
  constexpr Sign kSign = kProduct == Product::kAddDown ? Sign::kUnsigned : Sign::kSigned;
  extern __shared__ __align__(1024) uint8_t memory[];
  const uint32_t base = shared_address(memory), full = base + S::kStages * S::kStageBytes, empty = full + S::kStages * 8;
  const int32_t tid = static_cast<int32_t>(threadIdx.x), lane = tid % 32;
  const bool producer = tid >= S::kConsumers;
  const int32_t cluster = args.split * args.share, rank = cluster > 1 ? static_cast<int32_t>(cluster_rank()) : 0;
  const int32_t split_rank = args.split > 1 ? rank : 0, share_rank = args.share > 1 ? rank : 0;
  const int32_t steps = (args.product.in + kStepBytes - 1) / kStepBytes;
  const int32_t first_step = steps * split_rank / args.split, last_step = steps * (split_rank + 1) / args.split;
  const int32_t units = args.row_units * args.out_tiles, stride = static_cast<int32_t>(gridDim.x) / cluster;
  const int32_t first_unit = static_cast<int32_t>(blockIdx.x) / cluster;

  if (tid == 0) {
    for (int s = 0; s < S::kStages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, static_cast<uint32_t>(S::kConsumers / 32 * args.share));
    }
    barrier_init_done();
  }
  if (tid == S::kConsumers) prefetch_map(&weights_map), prefetch_map(&rows_map);
  __syncthreads();
  if (cluster > 1) cluster_meet();
  let_next_start();

  // The first row and the first output of a unit of work. Bands of row tiles go through all outputs.
  const auto corner = [&](int32_t unit, int32_t& row, int32_t& out) {
    const int32_t band_units = kBand * args.out_tiles, first = unit / band_units * kBand, size = min(args.row_units - first, kBand),
                  within = unit % band_units;
    row = ((first + within % size) * args.share + share_rank) * kRows;
    out = within / size * kOuts;
  };

  if (producer) {
    if (lane == 0) {
      int32_t stage = 0;
      uint32_t parity = 1;  // an empty ring counts as released
      const auto load_rows = [&](int32_t at, int32_t row, int32_t step) {
        copy_tile(base + at * S::kStageBytes, &rows_map, full + 8 * at, step * kStepBytes, row);
      };
      const auto load_weights = [&](int32_t at, int32_t out, int32_t step) {
        const int32_t boxes = kOuts / 32 / args.box_groups;
        for (int32_t box = share_rank; box < boxes; box += args.share) {
          const uint32_t to = base + at * S::kStageBytes + S::kRowBytes + box * args.box_groups * 32 * kStepBytes;
          const int32_t group = out / 32 + box * args.box_groups;
          if (args.share > 1)
            copy_tile5_to(to, &weights_map, full + 8 * at, step * kStepBytes, group, static_cast<uint16_t>((1 << args.share) - 1));
          else
            copy_tile5(to, &weights_map, full + 8 * at, step * kStepBytes, group);
        }
      };
      bool waited = false;
      for (int32_t unit = first_unit; unit < units; unit += stride) {
        int32_t row, out, step = first_step;
        corner(unit, row, out);
        if (!waited) {  // weights do not wait for the kernels in front, rows do
          const int32_t ahead = min(S::kStages, last_step - first_step);
          for (int32_t s = 0; s < ahead; ++s) {
            barrier_expect(full + 8 * s, S::kStageBytes);
            load_weights(s, out, first_step + s);
          }
          wait_for_inputs();
          for (int32_t s = 0; s < ahead; ++s) load_rows(s, row, first_step + s);
          waited = true;
          step += ahead;
          stage = ahead % S::kStages;
          if (stage == 0) parity = 0;
        }
        for (; step < last_step; ++step) {
          barrier_wait(empty + 8 * stage, parity);
          barrier_expect(full + 8 * stage, S::kStageBytes);
          load_weights(stage, out, step);
          load_rows(stage, row, step);
          if (++stage == S::kStages) stage = 0, parity ^= 1;
        }
      }
    }
    __syncwarp();
  } else {
    wait_for_inputs();
    const int32_t g = lane / 4, t = lane % 4, group_row = tid / 128 * 64 + tid % 128 / 32 * 16 + g;
    int32_t stage = 0;
    uint32_t parity = 0;
    const auto release = [&](int32_t at) {
      if (args.share == 1) {
        if (lane == 0) barrier_arrive(empty + 8 * at);
      } else if (lane < args.share) {
        barrier_arrive(empty + 8 * at, static_cast<uint32_t>(lane));
      }
    };
    for (int32_t unit = first_unit; unit < units; unit += stride) {
      int32_t c[kOuts / 2];
      int32_t row, out, before = 0;
      corner(unit, row, out);
      __syncwarp();
      for (int32_t step = first_step; step < last_step; ++step) {
        barrier_wait(full + 8 * stage, parity);
        const uint64_t rows = tile_descriptor(base + stage * S::kStageBytes + tid / 128 * 64 * kStepBytes),
                       weights = tile_descriptor(base + stage * S::kStageBytes + S::kRowBytes);
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < kStepBytes / 32; ++k) wgmma<kSign, kOuts>(c, rows + 2 * k, weights + 2 * k, step > first_step || k > 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (step > first_step) release(before);
        before = stage;
        if (++stage == S::kStages) stage = 0, parity ^= 1;
      }
      wgmma_wait<0>();
      wgmma_settle(c);
      release(before);

      if (args.split > 1) {  // one unit a block: the stages are free once all consumers are here
        asm volatile("bar.sync 1, %0;" ::"n"(S::kConsumers) : "memory");
#pragma unroll
        for (int q = 0; q < kOuts / 8; ++q)
          *reinterpret_cast<int4*>(memory + (q * S::kConsumers + tid) * 16) = {c[4 * q], c[4 * q + 1], c[4 * q + 2], c[4 * q + 3]};
      } else {
#pragma unroll
        for (int j = 0; j < kOuts / 32; ++j) {
          const int32_t first = out + 32 * j + 8 * t;
          if (first < args.product.out) {
            float scale[8];
            load_scales(args.product, first, scale);
#pragma unroll
            for (int upper = 0; upper < 2; ++upper) {
              const int32_t r = row + group_row + 8 * upper;
              int32_t sum[8];
#pragma unroll
              for (int i = 0; i < 8; ++i) sum[i] = c[4 * (4 * j + i / 2) + 2 * upper + i % 2];
              if (r < args.product.rows) store_sums<kProduct>(args.product, int64_t{r} * args.product.out + first, sum, scale);
            }
          }
        }
      }
    }
  }
  if (args.share > 1) cluster_meet();  // nobody leaves while another may still write to it
  if (args.split > 1) {
    cluster_sync();
    if (!producer) {
      const int32_t g = lane / 4, t = lane % 4, group_row = tid / 128 * 64 + tid % 128 / 32 * 16 + g;
      int32_t row, out;
      corner(first_unit, row, out);
      for (int32_t j = rank; j < kOuts / 32; j += args.split) {
        int32_t c[16] = {};
        for (int32_t other = 0; other < args.split; ++other)
#pragma unroll
          for (int q = 0; q < 4; ++q) {
            const int4 part = load_from_block(base + ((4 * j + q) * S::kConsumers + tid) * 16, static_cast<uint32_t>(other));
            c[4 * q] += part.x, c[4 * q + 1] += part.y, c[4 * q + 2] += part.z, c[4 * q + 3] += part.w;
          }
        const int32_t first = out + 32 * j + 8 * t;
        if (first >= args.product.out) continue;
        float scale[8];
        load_scales(args.product, first, scale);
#pragma unroll
        for (int upper = 0; upper < 2; ++upper) {
          const int32_t r = row + group_row + 8 * upper;
          int32_t sum[8];
#pragma unroll
          for (int i = 0; i < 8; ++i) sum[i] = c[4 * (i / 2) + 2 * upper + i % 2];
          if (r < args.product.rows) store_sums<kProduct>(args.product, int64_t{r} * args.product.out + first, sum, scale);
        }
      }
    }
    __syncwarp();
    cluster_meet();  // nobody leaves while another may still read from it
  }
#endif
}

// ---- launch ----

using Encode = decltype(&cuTensorMapEncodeTiled);

// [rows, in], copied as [box_rows][128 bytes].
inline CUresult rows_map(Encode encode, CUtensorMap* map, const void* a, int32_t rows, int32_t in, int32_t box_rows) {
  const cuuint64_t size[] = {static_cast<cuuint64_t>(in), static_cast<cuuint64_t>(rows)}, stride[] = {static_cast<cuuint64_t>(in)};
  const cuuint32_t box[] = {kStepBytes, static_cast<cuuint32_t>(box_rows)}, each[] = {1, 1};
  return encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(a), size, stride, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// [out, in], copied as [32 box_groups][128 bytes], row 8 i + 2 t + e of each 32 being output 8 t + 2 i + e: lane t's columns 2 t + e of
// four products are eight neighbours.
inline CUresult weights_map(Encode encode, CUtensorMap* map, const int8_t* weight, int32_t out, int32_t in, int32_t box_groups) {
  const auto row = static_cast<cuuint64_t>(in);
  const cuuint64_t size[] = {row, 2, 4, 4, static_cast<cuuint64_t>(out / 32)}, stride[] = {row, 8 * row, 2 * row, 32 * row};
  const cuuint32_t box[] = {kStepBytes, 2, 4, 4, static_cast<cuuint32_t>(box_groups)}, each[] = {1, 1, 1, 1, 1};
  return encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 5, const_cast<int8_t*>(weight), size, stride, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

template <Product kProduct, int kRows, int kOuts>
cudaError_t launch_tile(cudaStream_t stream, const Chip& chip, const Tile& tile, const ProductArgs& args) {
  using S = Shape<kRows, kOuts>;
  const int32_t groups = tile.share == 1 ? kOuts / 32 : kOuts / 32 % tile.share == 0 ? kOuts / 32 / tile.share : 1;
  const TileArgs tiles{args, tile.split, tile.share, pieces(pieces(args.rows, kRows), tile.share), pieces(args.out, kOuts), groups};
  CUtensorMap rows, weights;
  const auto encode = reinterpret_cast<Encode>(chip.encode_tensor_map);
  // What a copy would read beyond the map's last row it fills with zeros, which takes longer than reading rows that nobody wants.
  if (rows_map(encode, &rows, args.a, max(args.rows, args.room), args.in, kRows) != CUDA_SUCCESS ||
      weights_map(encode, &weights, args.weight, args.out, args.in, groups) != CUDA_SUCCESS)
    return cudaErrorInvalidValue;
  const auto kernel = product_kernel<kProduct, kRows, kOuts>;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes); error != cudaSuccess)
    return error;

  const int32_t cluster = tile.split * tile.share, units = tiles.row_units * tiles.out_tiles;
  const bool every_unit =
      tile.split > 1 || S::kBlocks > 1;  // a block each, or as many blocks as run at once, which take one unit after the other
  const int32_t clusters = every_unit ? units : min(units, chip.multiprocessors / cluster);
  return kaiju::cuda::launch(stream, chip, kernel, {int64_t{clusters} * cluster, S::kThreads, S::kBytes, cluster}, rows, weights, tiles);
}

}  // namespace hopper

template <Product kProduct>
cudaError_t multiply_hopper(cudaStream_t stream, const Chip& chip, const Tile& tile, const ProductArgs& args) {
  if (tile.rows == 64 && tile.outs == 96) return hopper::launch_tile<kProduct, 64, 96>(stream, chip, tile, args);
  if (tile.rows == 64 && tile.outs == 160) return hopper::launch_tile<kProduct, 64, 160>(stream, chip, tile, args);
  if (tile.rows == 128 && tile.outs == 160) return hopper::launch_tile<kProduct, 128, 160>(stream, chip, tile, args);
  if (tile.rows == 128 && tile.outs == 256) return hopper::launch_tile<kProduct, 128, 256>(stream, chip, tile, args);
  return cudaErrorInvalidConfiguration;
}

}  // namespace kaiju::cuda
