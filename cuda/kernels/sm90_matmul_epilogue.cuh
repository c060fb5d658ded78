// The epilogues of a Hopper matmul's tile (sm90_matmul.cuh): from a thread's int32 sums to stored results. There are
// three: complete sums go to global memory; complete sums are added to residuals in shared memory, which TMA then
// stores; partial sums of split-K are exchanged among the blocks of a cluster.
#pragma once

#include "../tiles/epilogue.cuh"
#include "../tiles/sm90_barrier.cuh"
#include "../tiles/sm90_cluster.cuh"
#include "../tiles/sm90_wgmma_matmul.cuh"
#include "sm90_matmul_shape.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

namespace kaiju::cuda {
namespace sm90 {

// Neighbouring scales, from shared or global memory.
template <int kCount>
__device__ __forceinline__ void load_run(const float* from, float (&to)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
  }
}

// Stores a tile of whole sums. `row` and `out` begin the tile; `scales` are those of its outputs.
template <MatmulKind kKind, class S, int kTiles, int kSums>
__device__ __forceinline__ void store_tile(const MatmulArgs& args, const int32_t (&c)[kTiles][kSums], int32_t row,
                                           int32_t out, const float* scales) {
  const auto tid = static_cast<int32_t>(threadIdx.x), lane = tid % 32;
  scales += S::kRun * (lane % 4);
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    const int32_t r = row + S::warp_row(tid) + 64 * m + lane / 4;
    const int64_t at = int64_t{r} * args.out + out + S::kRun * (lane % 4);
    Bf16Run<S::kRun> before[S::kGroups][2];  // residuals, loaded together
    if constexpr (kAdds<kKind>)
#pragma unroll
      for (int group = 0; group < S::kGroups; ++group)
#pragma unroll
        for (int upper = 0; upper < 2; ++upper)
          if (out + S::kGroup * group < args.out && r + 8 * upper < args.rows)
            before[group][upper] = bf16_run<S::kRun>(args, at + S::kGroup * group + 8 * upper * args.out);
#pragma unroll
    for (int group = 0; group < S::kGroups; ++group) {
      if (out + S::kGroup * group >= args.out) break;
      float scale[S::kRun];
      load_run(scales + S::kGroup * group, scale);
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        int32_t sum[S::kRun];
#pragma unroll
        for (int i = 0; i < S::kRun; ++i) sum[i] = c[m][4 * (S::kGroup / 8 * group + i / 2) + 2 * upper + i % 2];
        if (r + 8 * upper < args.rows)
          store_sums<kKind>(args, r + 8 * upper, at + S::kGroup * group + 8 * upper * args.out, sum, scale,
                            before[group][upper]);
      }
    }
  }
}

// The same where residuals came through the ring: results replace them in shared memory. Part p of the tile lies at
// part_at(p); the tile has `outs` outputs that exist.
template <class S, class At, int kTiles, int kSums>
__device__ __forceinline__ void add_to_parts(const At& part_at, const int32_t (&c)[kTiles][kSums], const float* scales,
                                             int32_t outs) {
  const auto tid = static_cast<int32_t>(threadIdx.x), lane = tid % 32;
  scales += S::kRun * (lane % 4);
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    const int32_t row = S::warp_row(tid) + 64 * m;
    arith::bf16* const at =
        part_at(row / S::kPartRows) + (row % S::kPartRows + lane / 4) * S::kOutputs + S::kRun * (lane % 4);
#pragma unroll
    for (int group = 0; group < S::kGroups; ++group) {
      if (S::kGroup * group >= outs) break;
      float scale[S::kRun];
      load_run(scales + S::kGroup * group, scale);
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        auto& run = *reinterpret_cast<Bf16Run<S::kRun>*>(at + S::kGroup * group + 8 * upper * S::kOutputs);
        int32_t sum[S::kRun];
#pragma unroll
        for (int i = 0; i < S::kRun; ++i) sum[i] = c[m][4 * (S::kGroup / 8 * group + i / 2) + 2 * upper + i % 2];
        run = residuals_added(run, sum, scale);
      }
    }
  }
}

// Stores a tile whose summed index is divided among the kSplit blocks of a cluster (split-K). Each block gets an equal
// share of every thread's sums, pushed into its shared memory at `memory` once `ready` tells that the stages there have
// been multiplied; it adds up and stores its share once `arrived` tells that all sums are there. A share is a lane's
// upper or lower row; with four blocks, one half of its outputs.
template <MatmulKind kKind, class S, int kSplit, int kTiles, int kSums>
__device__ __forceinline__ void store_split_tile(const MatmulArgs& args, const int32_t (&c)[kTiles][kSums],
                                                 uint32_t memory, uint32_t ready, uint32_t arrived, int32_t rank,
                                                 int32_t row, int32_t out, const float* scales) {
  constexpr int kWidth = 2 * S::kRun / kSplit,
                kFours = kWidth / 4;  // neighbouring outputs of a group that are a lane's here
  static_assert(kWidth % 4 == 0);
  const auto tid = static_cast<int32_t>(threadIdx.x), lane = tid % 32, first_row = row + S::warp_row(tid);
  const int32_t from = S::kRun * (lane % 4) + kWidth * (rank / 2);
  const auto row_of = [&](int m) { return first_row + 64 * m + lane / 4 + 8 * (rank % 2); };
  const auto there = [&](int m, int group) { return row_of(m) < args.rows && out + S::kGroup * group < args.out; };
  const auto place = [&](int m, int group) { return int64_t{row_of(m)} * args.out + out + S::kGroup * group + from; };
  const auto slot = [&](int32_t sender, int m, int four) {
    return memory +
           static_cast<uint32_t>((((sender * S::kTiles + m) * S::kGroups * kFours + four) * S::kConsumers + tid) * 16);
  };
  Bf16Run<kWidth> before[S::kTiles][S::kGroups];  // loaded while the sums travel
  if constexpr (kAdds<kKind>)
#pragma unroll
    for (int m = 0; m < S::kTiles; ++m)
#pragma unroll
      for (int group = 0; group < S::kGroups; ++group)
        if (there(m, group)) before[m][group] = bf16_run<kWidth>(args, place(m, group));
  barrier_wait(ready, 0);
#pragma unroll
  for (int m = 0; m < S::kTiles; ++m) {
    if (first_row + 64 * m >= args.rows) continue;
#pragma unroll
    for (int to = 0; to < kSplit; ++to) {
      const uint32_t block = address_in(memory, static_cast<uint32_t>(to)) - memory;
#pragma unroll
      for (int four = 0; four < S::kGroups * kFours; ++four) {
        const int32_t* sums =
            c[m] + S::kGroup / 2 * (four / kFours) + 2 * kWidth * (to / 2) + 8 * (four % kFours) + 2 * (to % 2);
        const int4 part{sums[0], sums[1], sums[4], sums[5]};
        if (to == rank)
          store_shared(slot(rank, m, four), part);
        else
          push_to_block(slot(rank, m, four) + block, part, arrived + block);
      }
    }
  }
  barrier_wait(arrived, 0);
#pragma unroll
  for (int m = 0; m < S::kTiles; ++m)
#pragma unroll
    for (int group = 0; group < S::kGroups; ++group) {
      if (!there(m, group)) continue;
      int32_t sum[kWidth] = {};
#pragma unroll
      for (int sender = 0; sender < kSplit; ++sender)
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
          const int4 part = load_shared(slot(sender, m, kFours * group + i));
          sum[4 * i] += part.x, sum[4 * i + 1] += part.y, sum[4 * i + 2] += part.z, sum[4 * i + 3] += part.w;
        }
      float scale[kWidth];
      load_run(scales + S::kGroup * group + from, scale);
      store_sums<kKind>(args, row_of(m), place(m, group), sum, scale, before[m][group]);
    }
}

}  // namespace sm90
}  // namespace kaiju::cuda

#endif
