// A thread block of a Hopper matmul (sm90_matmul.cuh): its share of the work, the places of its ring and barriers in
// shared memory, and the copies into the ring by producer and consumers.
#pragma once

#include <cuda.h>

#include "../tiles/dependent_launch.cuh"
#include "../tiles/sm80_mma.cuh"
#include "../tiles/sm90_barrier.cuh"
#include "../tiles/sm90_cluster.cuh"
#include "../tiles/sm90_copy.cuh"
#include "sm90_matmul_shape.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

namespace kaiju::cuda {
namespace sm90 {

struct TileMaps {
  const CUtensorMap &rows, &weights, &residuals;
};

// A block of threads: its share of the work, where ring and barriers lie, and copies into the ring.
template <MatmulKind kKind, int kRows, int kOuts, int kSplit, int kShare>
struct TileBlock {
  static_assert(kSplit == 1 || kShare == 1);
  using S = Shape<kKind, kRows, kOuts, kSplit>;
  static constexpr int32_t kWeightStride = S::kFits ? S::kWeightBytes : S::kStageBytes;  // of a stage to the next
  // Copies that bring the weights of a step: one of each block that shares them; where the tile gates, one of each
  // matrix.
  static constexpr int kCopies = S::kIsGated ? 2 : kShare;
  static_assert(kCopies % kShare == 0);
  // Arrivals of one block's consumers by which they release a stage.
  static constexpr uint32_t kReleases = S::kConsumers / 32 * (kShare == 1 ? kWarpArrivals : 1);

  __device__ __forceinline__ TileBlock(const TileMaps& tile_maps, const TileArgs& tile_args, uint8_t* shared)
      : maps(tile_maps),
        args(tile_args),
        memory(shared),
        base(shared_address(shared)),
        full(base + S::kBarriers),
        empty(full + S::kStages * 8),
        ready(empty + S::kStages * 8),
        arrived(ready + 8),
        written(arrived + 8),
        tid(static_cast<int32_t>(threadIdx.x)),
        lane(tid % 32),
        split_rank(kSplit > 1 ? cluster_rank() : 0),
        share_rank(kShare > 1 ? cluster_rank() : 0),
        steps((args.matmul.in + kStepBytes - 1) / kStepBytes),
        first_step(steps * split_rank / kSplit),
        last_step(steps * (split_rank + 1) / kSplit),
        units(args.row_units * args.out_tiles),
        stride(cluster_count()),
        first_unit(cluster_index()),
        ring(S::kFits ? args.stages : S::kStages),
        row_stride(S::kFits ? args.copied_rows * kStepBytes : S::kStageBytes),
        weights_base(base + (S::kFits ? ring * row_stride : S::kRowBytes)),
        sum_stage(first_sum_stage(S::kFits ? steps / kSplit % ring : 0, ring)),
        sums_base(S::kFits ? weights_base + sum_stage * kWeightStride : base),
        policy(policy_evict_first()),
        stage_bytes(static_cast<uint32_t>((args.copied_rows + kOuts) * kStepBytes)),
        scales_come(S::kRepeats && steps >= ring),
        ahead(min(ring, last_step - first_step)),
        early(S::kFits ? min(2, ahead) : ahead) {}

  // The first row and the first output of a unit of work. Bands of row tiles go through all outputs.
  __device__ __forceinline__ void corner(int32_t unit, int32_t& row, int32_t& out) const {
    if (args.row_units == 1) {  // divisions would delay the first copies
      row = share_rank * kRows, out = unit * kOuts;
      return;
    }
    const int32_t band_units = kBand * args.out_tiles, first = unit / band_units * kBand,
                  size = min(args.row_units - first, kBand), within = unit % band_units;
    // Where a round is a multiple of the row tiles, a block would get the same row tile in every round, full or not.
    const int32_t turn = S::kRepeats && unit >= stride && stride % size == 0 ? within / stride : 0;
    row = ((first + (within + turn) % size) * kShare + share_rank) * kRows;
    out = within / size * kOuts;
  }

  // Copies of one step to a stage; its `full` barrier has to expect the bytes.
  __device__ __forceinline__ void load_rows(int32_t stage, int32_t row, int32_t step) const {
    copy_box(base + stage * row_stride, &maps.rows, full + 8 * stage, step * kStepBytes, row);
  }
  __device__ __forceinline__ void load_weights(int32_t stage, int32_t out, int32_t step) const {
#pragma unroll
    for (int32_t copy = share_rank; copy < share_rank + kCopies / kShare; ++copy) {
      const int32_t first = copy * (S::kGroups / kCopies),
                    group = S::kIsGated ? (out + copy * args.matmul.out) / 2 / S::kGroup : out / S::kGroup + first;
      const uint32_t to = weights_base + stage * kWeightStride + first * S::kGroup * kStepBytes;
      if constexpr (kShare > 1)
        multicast_box_5d(to, &maps.weights, full + 8 * stage, step * kStepBytes, group, policy,
                         uint16_t{(1 << kShare) - 1});
      else
        copy_box_5d(to, &maps.weights, full + 8 * stage, step * kStepBytes, group, policy);
    }
  }
  // The scales of a tile's outputs, so many bytes in all.
  __device__ __forceinline__ void load_scales(uint32_t to, int32_t out, uint32_t bytes, uint32_t barrier) const {
    const float* const from = args.matmul.scale;
    if constexpr (S::kIsGated) {
      copy_bulk(to, from + out / 2, bytes / 2, barrier);
      copy_bulk(to + kOuts * 2, from + (out + args.matmul.out) / 2, bytes / 2, barrier);
    } else {
      copy_bulk(to, from + out, bytes, barrier);
    }
  }
  // Weights of the first unit's steps `from` to `end`, to the stages of these numbers; its scales with step 0.
  __device__ __forceinline__ void start_weights(int32_t from, int32_t end) const {
    int32_t row, out;
    corner(first_unit, row, out);
    const uint32_t scale_bytes = from == 0 ? static_cast<uint32_t>(min(kOuts, args.matmul.out - out)) * 4 : 0;
    for (int32_t s = from; s < end; ++s) {
      barrier_expect(full + 8 * s, stage_bytes + (s == 0 ? scale_bytes : 0));
      load_weights(s, out, first_step + s);
    }
    if (from == 0) load_scales(base + S::kScales, out, scale_bytes, full);
  }

  // By all threads: barriers, and the first copies of weights, before the block's threads meet.
  __device__ __forceinline__ void begin() const {
    if (tid == S::kConsumers) {
      prefetch_map(&maps.weights), prefetch_map(&maps.rows);
      for (int s = 0; s < ring; ++s) {
        barrier_init(full + 8 * s, 1);
        barrier_init(empty + 8 * s, kReleases * kShare);
      }
      if (kSplit > 1) barrier_init(ready, kSplit), barrier_init(arrived, 1);
      if (S::kThroughRing)
        for (int p = 0; p < S::kParts; ++p) barrier_init(written + 8 * p, S::kConsumers);
      barrier_init_done();
      if (kShare == 1) start_weights(0, early);  // no kernel writes weights, and no other block's barrier counts them
    }
    __syncthreads();
    if (kShare > 1) cluster_sync();
    if (kSplit > 1) cluster_arrive();  // waited for before blocks push sums to each other
    let_next_start();
  }

  const TileMaps& maps;
  const TileArgs& args;
  uint8_t* memory;
  uint32_t base, full, empty;  // of the ring, and of its stages' barriers
  uint32_t ready, arrived;     // barriers for sums from the other blocks of a split tile
  uint32_t written;            // barriers: results of a part have replaced its residuals
  int32_t tid, lane, split_rank, share_rank;
  int32_t steps, first_step, last_step;  // of the summed index: all, and this block's
  int32_t units, stride, first_unit;     // units of work: all; a cluster takes every stride-th
  int32_t ring, row_stride;              // stages; bytes of a stage's rows to the next one's
  uint32_t weights_base;                 // of the first stage
  // The sums of a split tile lie from this stage on. In a ring that fits: the stages after the last step's, which are
  // multiplied first.
  int32_t sum_stage;
  uint32_t sums_base;
  uint64_t policy;
  uint32_t stage_bytes;
  // Whether the scales of every unit come with its first step. In a unit that is shorter than the ring the consumers
  // may not have finished the unit before the last, whose scales these would overwrite.
  bool scales_come;
  int32_t ahead;  // steps that are copied before the first is multiplied
  // Of these, steps whose weights are copied before the threads meet. Where the ring fits the rows only two: else rows
  // would wait for the weights of all stages where a block begins with its inputs there. After that one thread copies
  // the other weights (after a norm not all of them at once), another all rows.
  int32_t early;

 private:
  __device__ __forceinline__ static int32_t first_sum_stage(int32_t oldest, int32_t ring) {
    return oldest + S::kSumStages <= ring ? oldest : 0;
  }
};

}  // namespace sm90
}  // namespace kaiju::cuda

#endif
