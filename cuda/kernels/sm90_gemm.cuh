// Products on compute capability 9.0: one kernel for any number of rows, exact, with its ending fused in.
//
// A block computes `kRows` rows x `kOuts` outputs. A producer thread has the copy engine bring steps of 128 bytes of
// the summed index, rows and weights, into a ring of stages; each group of four warps multiplies 64 rows (of tiles of
// 256, 128) with all outputs by wgmma and keeps the sums in registers. Up to 64 rows the bound is the memory the
// weights come from: they are asked for before the kernels in front have ended, since no kernel writes them, and they
// leave the L2 cache first. Above, it is the tensor cores.
//
// Residuals of large tiles come through the ring, behind the last step, and results leave from where they were: the
// copy engine stores them while the block multiplies its next tile.
//
// A block lives for 10 to 40 us, so what comes before its first copy and after its last product counts: no division in
// front of the one; the scales come with the first step, and residuals are asked for before sums travel from block to
// block. Where rows are few, a ring has more stages, so that more of the weights are there when a block's inputs come.
//
// Clusters serve two ends. With `split` blocks the summed index is divided among them and the sums, integers, are
// pushed into each other's shared memory and added up there. With `share` blocks, neighbouring row tiles fetch each
// part of their weights once, for all of them.
//
// The copy engine permutes the weights' rows within each group of 32 or 16 (weights_map), so that a lane ends with
// eight or four neighbouring outputs: bytes and bf16 by eight, floats by four, so that the four lanes of a row store
// whole sectors of 32 bytes at once.
#pragma once

#include <algorithm>
#include <iterator>
#include <utility>

#include "../launch/tiles.hpp"
#include "../tiles/dependent_launch.cuh"
#include "../tiles/epilogue.cuh"
#include "../tiles/sm90_wgmma_attention.cuh"
#include "../tiles/sm90_wgmma_gemm.cuh"

namespace kaiju::cuda {
namespace sm90 {

struct TileArgs {
  GemmArgs product;
  int32_t row_units, out_tiles;  // a row unit is kShare row tiles
  int32_t copied_rows;           // of a row tile; fewer than it has where there is but one
  int32_t stages;                // of a ring that fits the rows (Shape::kFits)
  int32_t begun;                 // of these, those whose weights are asked for before the inputs are there
};

template <GemmKind kKind>
constexpr bool kAdds = kKind == GemmKind::kAddLinear || kKind == GemmKind::kAddDown;

template <GemmKind kKind, int kRows, int kOuts, int kSplit>
struct Shape {
  static_assert(kRows % 64 == 0 && kOuts % 16 == 0);
  static constexpr int kOutputs = kOuts;
  static constexpr int kTiles = kRows == 256 ? 2 : 1;    // of 64 rows that a group of four warps multiplies
  static constexpr int kConsumers = kRows * 2 / kTiles;  // threads
  // Many sums need registers that the producers give away, which goes by four warps.
  static constexpr bool kGrows = kRows == 192 || kTiles * kOuts > 176;
  static constexpr int kThreads = kConsumers + (kGrows ? 128 : 32);
  static constexpr int kConsumerRegisters = kRows == 192 ? 160 : 224, kProducerRegisters = kRows == 192 ? 32 : 56;
  // Floats go by four a lane, for whole sectors; with four blocks each has but four of a lane's eight anyway.
  static constexpr bool kByFour = kOuts % 32 != 0 || (kKind == GemmKind::kLinear && kSplit < 4);
  static constexpr int kGroup = kByFour ? 16 : 32, kGroups = kOuts / kGroup;
  static constexpr int kRun = kGroup / 4;  // neighbouring outputs of a group that are a lane's
  static constexpr int kRowBytes = kRows * kStepBytes, kWeightBytes = kOuts * kStepBytes,
                       kStageBytes = kRowBytes + kWeightBytes;
  static constexpr int kBlocks = blocks_together({Path::kSm90, kRows, kOuts, kSplit});
  // Whether a block finds room beside a block of attention's pairs (sm90_attention_decode_window.cuh). These leave
  // kBesidePairBytes of shared memory, and of the registers 6,400 in each quarter of a multiprocessor. Two of this
  // block's five warps share a quarter: dealt in eights, 96 registers a thread are the most that fit, to which the
  // compiler is held by being told of four blocks on a multiprocessor.
  static constexpr bool kIsBeside = kRows == 64 && kSplit == 4;
  static constexpr int kBlocksByRegisters = kIsBeside ? 4 : kBlocks;
  // Tiles whose blocks take several units of work, one after the other. (Others may have to, but are not chosen where
  // they would.)
  static constexpr bool kRepeats = kRows > 64 && kOuts > 96 && kSplit == 1;
  // Whether residuals come through the ring: kParts stages behind a unit's steps hold kPartRows rows each, in bf16, by
  // boxes of 64.
  static constexpr bool kThroughRing = kRepeats && kAdds<kKind>;
  static constexpr int kBoxBytes = 64 * kOuts * 2,
                       kPartRows = kThroughRing ? std::min(kStageBytes / kBoxBytes * 64, kRows) : kRows;
  static constexpr int kParts = (kRows + kPartRows - 1) / kPartRows;
  // Steps that may still be multiplied when the next one begins. With one, a stage goes back only when the step behind
  // it is there: where memory is the bound and stages are few that is a copy's time too late.
  static constexpr int kPending = kBlocks == 2 ? 0 : 1;
  // Whether the ring fits the rows, with the more stages the fewer they are. Then the rows of all stages come first in
  // it, the weights of all behind them; wgmma reads 64 rows all the same, the last of whatever lies there, for results
  // that nobody stores.
  static constexpr bool kFits = kRows == 64;
  // Whether the rows of a norm in front would stand behind weights. Of so many KiB on a multiprocessor they hardly do,
  // and memory is busy until the norm is over (measured: docs/kernels/products_hopper.md); the weights of more stages
  // are asked for then.
  static constexpr bool kBehindNorm = kFits && (kKind == GemmKind::kLinear || kKind == GemmKind::kUp);
  static constexpr int begun_stages(int rows) { return (160 - rows) * 1024 / kBlocks / kWeightBytes; }
  static constexpr int kRing = (kIsBeside ? 104 : kBlocks == 2 ? 112 : 216) * 1024;
  static constexpr int kStages = kRing / (kFits ? 8 * kStepBytes + kWeightBytes : kStageBytes);  // at most
  static constexpr int kScales = kFits ? kRing : kStages * kStageBytes,
                       kBarriers = kScales + (kRepeats ? 2 : 1) * kOuts * 4;
  static_assert(!kThroughRing || kParts < kStages);
  static constexpr int kBytes = kBarriers + (2 * kStages + 2 + kParts) * 8;
  static_assert(kStageBytes % 1024 == 0 && kBlocks * (kBytes + 1024) <= 228 * 1024);
  static_assert(!kIsBeside || kBytes <= kBesidePairBytes);
  // The sums of a split tile lie where stages were, or where weights were.
  static constexpr int kSumBytes = kRows * kOuts * 4, kSumStages = (kSumBytes + kWeightBytes - 1) / kWeightBytes;
  static_assert(kSumBytes <= (kFits ? kRing / kStageBytes * kWeightBytes : kScales));

  // The first of a warp's 16 rows, within the block's; those of a second tile are 64 further.
  __device__ static int32_t warp_row(int32_t tid) { return tid / 128 * (64 * kTiles) + tid % 128 / 32 * 16; }
};

constexpr int32_t kBand = 16;  // row tiles that are taken through all outputs together, to be found in the L2 cache

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Neighbouring scales, from shared or global memory.
template <int kCount>
__device__ __forceinline__ void load_run(const float* from, float (&to)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
  }
}

// The ending of whole sums. `row` and `out` begin the tile; `scales` are those of its outputs.
template <GemmKind kKind, class S, int kTiles, int kSums>
__device__ __forceinline__ void store_tile(const GemmArgs& args, const int32_t (&c)[kTiles][kSums], int32_t row,
                                           int32_t out, const float* scales) {
  const auto tid = static_cast<int32_t>(threadIdx.x), lane = tid % 32;
  scales += S::kRun * (lane % 4);
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    const int32_t r = row + S::warp_row(tid) + 64 * m + lane / 4;
    const int64_t at = int64_t{r} * args.out + out + S::kRun * (lane % 4);
    Bf16Run<S::kRun> before[S::kGroups][2];  // residuals, asked for together
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
          store_sums<kKind>(args, at + S::kGroup * group + 8 * upper * args.out, sum, scale, before[group][upper]);
      }
    }
  }
}

// The same where residuals came through the ring: they turn into results where they are. Part p of the tile lies at
// part_at(p); from its first on there are `outs` outputs.
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

// The ending of a tile whose summed index is divided among kSplit blocks. Of every thread's sums each block of the
// cluster gets an equal share, pushed into its shared memory at `memory` once `ready` says that the stages there are
// done with; it adds up and stores what it has got when `arrived` says so. A share is a lane's upper or lower row, and
// with four blocks the one or the other half of its outputs.
template <GemmKind kKind, class S, int kSplit, int kTiles, int kSums>
__device__ __forceinline__ void store_split_tile(const GemmArgs& args, const int32_t (&c)[kTiles][kSums],
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
  Bf16Run<kWidth> before[S::kTiles][S::kGroups];  // asked for while the sums travel
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
      store_sums<kKind>(args, place(m, group), sum, scale, before[m][group]);
    }
}

#endif

template <GemmKind kKind, int kRows, int kOuts, int kSplit, int kShare>
__global__ void __launch_bounds__(Shape<kKind, kRows, kOuts, kSplit>::kThreads,
                                  Shape<kKind, kRows, kOuts, kSplit>::kBlocksByRegisters)
    sm90_gemm_kernel(const __grid_constant__ CUtensorMap rows_map, const __grid_constant__ CUtensorMap weights_map,
                     const __grid_constant__ CUtensorMap residuals_map, const TileArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  static_assert(kSplit == 1 || kShare == 1);
  using S = Shape<kKind, kRows, kOuts, kSplit>;
  constexpr Sign kSign = kKind == GemmKind::kAddDown ? Sign::kUnsigned : Sign::kSigned;
  extern __shared__ __align__(1024) uint8_t memory[];
  const uint32_t base = shared_address(memory), full = base + S::kBarriers, empty = full + S::kStages * 8;
  const uint32_t ready = empty + S::kStages * 8, arrived = ready + 8;  // for sums from the other blocks of a split tile
  const uint32_t written = arrived + 8;                                // a part's results are where its residuals were
  const int32_t tid = static_cast<int32_t>(threadIdx.x), lane = tid % 32;
  const int32_t split_rank = kSplit > 1 ? cluster_rank() : 0, share_rank = kShare > 1 ? cluster_rank() : 0;
  const int32_t steps = (args.product.in + kStepBytes - 1) / kStepBytes;
  const int32_t first_step = steps * split_rank / kSplit, last_step = steps * (split_rank + 1) / kSplit;
  const int32_t units = args.row_units * args.out_tiles, stride = cluster_count(), first_unit = cluster_index();

  // The first row and the first output of a unit of work. Bands of row tiles go through all outputs.
  const auto corner = [&](int32_t unit, int32_t& row, int32_t& out) {
    if (args.row_units == 1) {  // divisions would hold up the first copies
      row = share_rank * kRows, out = unit * kOuts;
      return;
    }
    const int32_t band_units = kBand * args.out_tiles, first = unit / band_units * kBand,
                  size = min(args.row_units - first, kBand), within = unit % band_units;
    // Where a round is a multiple of the row tiles a block would get the same one in every round, with few rows or
    // many.
    const int32_t turn = S::kRepeats && unit >= stride && stride % size == 0 ? within / stride : 0;
    row = ((first + (within + turn) % size) * kShare + share_rank) * kRows;
    out = within / size * kOuts;
  };
  // How many stages there are, and where the first one's rows and weights are and how far from the next one's.
  const int32_t ring = S::kFits ? args.stages : S::kStages;
  const int32_t row_stride = S::kFits ? args.copied_rows * kStepBytes : S::kStageBytes;
  constexpr int32_t kWeightStride = S::kFits ? S::kWeightBytes : S::kStageBytes;
  const uint32_t weights_base = base + (S::kFits ? ring * row_stride : S::kRowBytes);
  // Where the sums of a split tile come: in a ring that fits, to the stages behind the last step's, which are done with
  // first.
  const int32_t oldest = S::kFits ? steps / kSplit % ring : 0, sum_stage = oldest + S::kSumStages <= ring ? oldest : 0;
  const uint32_t sums_base = S::kFits ? weights_base + sum_stage * kWeightStride : base;
  const uint64_t policy = read_once();
  const uint32_t stage_bytes = static_cast<uint32_t>((args.copied_rows + kOuts) * kStepBytes);
  const auto load_rows = [&](int32_t at, int32_t row, int32_t step) {
    copy_tile(base + at * row_stride, &rows_map, full + 8 * at, step * kStepBytes, row);
  };
  const auto load_weights = [&](int32_t at, int32_t out, int32_t step) {
    const int32_t first = share_rank * (S::kGroups / kShare);
    const uint32_t to = weights_base + at * kWeightStride + first * S::kGroup * kStepBytes;
    if constexpr (kShare > 1)
      copy_tile5_to(to, &weights_map, full + 8 * at, step * kStepBytes, out / S::kGroup + first, policy,
                    uint16_t{(1 << kShare) - 1});
    else
      copy_tile5(to, &weights_map, full + 8 * at, step * kStepBytes, out / S::kGroup, policy);
  };
  // Whether the scales of every unit come with its first step. In a shorter unit nobody has waited by then for the end
  // of the one before the last, whose place they take.
  const bool scales_come = S::kRepeats && steps >= ring;
  const int32_t ahead = min(ring, last_step - first_step);  // steps that are asked for before the first is multiplied
  // Of some of these the weights, and with the first step's the scales, of the first unit's outputs.
  const auto start_weights = [&](int32_t from, int32_t end) {
    int32_t row, out;
    corner(first_unit, row, out);
    const uint32_t scale_bytes = from == 0 ? static_cast<uint32_t>(min(kOuts, args.product.out - out)) * 4 : 0;
    for (int32_t s = from; s < end; ++s) {
      barrier_expect(full + 8 * s, stage_bytes + (s == 0 ? scale_bytes : 0));
      load_weights(s, out, first_step + s);
    }
    if (from == 0) copy_bulk(base + S::kScales, args.product.scale + out, scale_bytes, full);
  };
  // Up to 64 rows the rows must not stand behind the weights of all stages, where a block begins when its inputs are
  // there already: those of two stages are asked for before the block has met, then by one thread the other weights
  // (behind a norm not all of them at once) and by another all rows.
  const int32_t early = S::kFits ? min(2, ahead) : ahead;

  if (tid == S::kConsumers) {
    prefetch_map(&weights_map), prefetch_map(&rows_map);
    for (int s = 0; s < ring; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, static_cast<uint32_t>(S::kConsumers / 32 * kShare));
    }
    if (kSplit > 1) barrier_init(ready, kSplit), barrier_init(arrived, 1);
    if (S::kThroughRing)
      for (int p = 0; p < S::kParts; ++p) barrier_init(written + 8 * p, S::kConsumers);
    barrier_init_done();
    if (kShare == 1)
      start_weights(
          0, early);  // before the block has met: no kernel writes weights, and nobody else's barriers count them
  }
  __syncthreads();
  if (kShare > 1) cluster_sync();
  if (kSplit > 1) cluster_arrive();  // waited for where blocks begin to need one another
  let_next_start();

  if (tid >= S::kConsumers) {
    if constexpr (S::kGrows) shrink_registers<S::kProducerRegisters>();
    // The stage behind those: a remainder, but for no division where the number of stages is not known to the compiler.
    int32_t stage = S::kFits ? (ahead < ring ? ahead : 0) : ahead % ring, step = first_step + ahead, place = 0;
    uint32_t parity = stage == ahead;  // an empty ring counts as released
    if (tid == S::kConsumers) {
      if (kShare > 1) start_weights(0, ahead);
      const int32_t begun = S::kBehindNorm ? min(args.begun, ahead) : ahead;
      if (S::kFits) start_weights(early, begun);
      // Parts of a unit that are not stored yet, the first in stage `held`; results leave when their stage is wanted
      // again.
      int32_t left = 0, held = 0, held_row = 0, held_out = 0;
      uint32_t written_parity = 1;
      const auto boxes = [&](int32_t part, int32_t unit_row, const auto& each) {  // those with rows that there are
        for (int32_t r = part * S::kPartRows;
             r < min((part + 1) * S::kPartRows, kRows) && unit_row + r < args.product.rows; r += 64)
          each(unit_row + r, static_cast<uint32_t>(r % S::kPartRows / 64 * S::kBoxBytes));
      };
      const auto store_part = [&] {
        const int32_t part = S::kParts - left;
        barrier_wait(written + 8 * part, written_parity);
        boxes(part, held_row, [&](int32_t r, uint32_t at) {
          store_box(&residuals_map, held_out, r, base + held * S::kStageBytes + at);
        });
        stores_read();
        for (uint32_t to = 0; to < kShare; ++to) barrier_arrive(empty + 8 * held, to, S::kConsumers / 32);
        if (++held == ring) held = 0;
        --left;
      };
      const auto take_stage = [&] {
        if constexpr (S::kThroughRing)
          if (left > 0 && stage == held) store_part();
        barrier_wait(empty + 8 * stage, parity);
      };
      const auto next_stage = [&] {
        if (++stage == ring) stage = 0, parity ^= 1;
      };
      for (int32_t unit = first_unit; unit < units; unit += stride) {
        int32_t row, out;
        corner(unit, row, out);
        if (unit == first_unit) {
          wait_for_inputs();
          if (S::kBehindNorm) start_weights(begun, ahead);
          if (!S::kFits)  // else a consumer asks
            for (int32_t s = 0; s < ahead; ++s) load_rows(s, row, first_step + s);
        } else if (scales_come) {
          take_stage();
          const uint32_t scale_bytes = static_cast<uint32_t>(min(kOuts, args.product.out - out)) * 4;
          barrier_expect_more(full + 8 * stage, scale_bytes);
          copy_bulk(base + S::kScales + (place ^= 1) * kOuts * 4, args.product.scale + out, scale_bytes,
                    full + 8 * stage);
        }
        for (; step < last_step; ++step) {
          take_stage();
          barrier_expect(full + 8 * stage, stage_bytes);
          load_weights(stage, out, step);
          load_rows(stage, row, step);
          next_stage();
        }
        step = first_step;
        if constexpr (S::kThroughRing) {
          while (left > 0) store_part();  // of sums so short that the ring has not come round
          held = stage, held_row = row, held_out = out, left = S::kParts, written_parity ^= 1;
          for (int32_t part = 0; part < S::kParts; ++part) {
            barrier_wait(empty + 8 * stage, parity);
            uint32_t bytes = 0;
            boxes(part, row, [&](int32_t, uint32_t) { bytes += S::kBoxBytes; });
            barrier_expect(full + 8 * stage, bytes);
            boxes(part, row, [&](int32_t r, uint32_t at) {
              copy_tile(base + stage * S::kStageBytes + at, &residuals_map, full + 8 * stage, out, r);
            });
            next_stage();
          }
        }
        if (kSplit > 1) {  // a share of the sums of every 16 rows that there are from each of the others
          const int32_t sixteens = min(kRows, args.product.rows - row + 15) / 16;
          barrier_expect(arrived, static_cast<uint32_t>(sixteens * (16 * kOuts * 4 / kSplit) * (kSplit - 1)));
        }
      }
      if constexpr (S::kThroughRing) {
        while (left > 0) store_part();
        stores_done();
      }
      // The block stays until every stage has been given back, by the others, too: they have got what was fetched for
      // them then, and none of their arrivals is still on its way here.
      if (kShare > 1)
        for (int32_t s = 0; s < ring; ++s) {
          barrier_wait(empty + 8 * stage, parity);
          next_stage();
        }
    }
    __syncwarp();
    if (kSplit > 1) {
      cluster_wait();
      if (tid == S::kConsumers) {  // once the stages where sums will lie have been multiplied
        for (int32_t s = sum_stage; (s - sum_stage) * kWeightStride < S::kSumBytes; ++s)
          barrier_wait(empty + 8 * s, s < stage ? parity ^ 1 : parity);
        for (int32_t to = 0; to < kSplit; ++to) barrier_arrive(ready, static_cast<uint32_t>(to));
      }
    }
  } else {
    if constexpr (S::kGrows) grow_registers<S::kConsumerRegisters>();
    wait_for_inputs();
    int32_t stage = 0, place = 0;
    uint32_t parity = 0;
    const auto release = [&](int32_t at) {
      if (kShare == 1) {
        if (lane == 0) barrier_arrive(empty + 8 * at);
      } else if (lane < kShare) {
        barrier_arrive(empty + 8 * at, static_cast<uint32_t>(lane));
      }
    };
    int32_t row, out;
    if (S::kFits && tid == 0) {
      corner(first_unit, row, out);
      for (int32_t s = 0; s < ahead; ++s) load_rows(s, row, first_step + s);
    }
    for (int32_t unit = first_unit; unit < units; unit += stride) {
      int32_t c[S::kTiles][kOuts / 2];
      corner(unit, row, out);
      __syncwarp();
      const auto multiply = [&]<int kTiles>() {  // the first so many of the group's tiles
        int32_t before = 0;                      // the stage that is being multiplied
        int32_t step = first_step;
        const auto multiply_until = [&]<int kPending>(int32_t end) {
          for (; step < end; ++step) {
            barrier_wait(full + 8 * stage, parity);
            if constexpr (kTiles > 0) {
              const uint64_t rows =
                                 tile_descriptor(base + stage * row_stride + tid / 128 * (64 * S::kTiles) * kStepBytes),
                             weights = tile_descriptor(weights_base + stage * kWeightStride);
              wgmma_begin();
#pragma unroll
              for (int k = 0; k < kStepBytes / 32; ++k)
#pragma unroll
                for (int m = 0; m < kTiles; ++m)
                  wgmma<kSign, kOuts>(c[m], rows + 64 * kStepBytes / 16 * m + 2 * k, weights + 2 * k,
                                      step > first_step || k > 0);
              wgmma_commit();
              wgmma_wait<kPending>();
            }
            if (kTiles == 0 || kPending == 0)
              release(stage);
            else if (step > first_step)
              release(before);
            before = stage;
            if (++stage == ring) stage = 0, parity ^= 1;
          }
        };
        if constexpr (S::kPending == 0) {  // the first time round all stages are there, or soon
          multiply_until.template operator()<1>(first_step + ahead);
          wgmma_wait<0>();
          release(before);
        }
        multiply_until.template operator()<S::kPending>(last_step);
        if constexpr (kTiles > 0) {
          wgmma_wait<0>();
#pragma unroll
          for (int m = 0; m < kTiles; ++m) wgmma_settle(c[m]);
          if (S::kPending > 0) release(before);
        }
      };
      // In one of several rounds nobody multiplies 64 rows that are not there. In one alone that would gain nothing,
      // and blocks that read the same weights would do so at different times.
      const int32_t tiles = (args.product.rows - row - tid / 128 * (64 * S::kTiles) + 63) / 64;
      if (!S::kRepeats || tiles >= S::kTiles || units <= stride)
        multiply.template operator()<S::kTiles>();
      else if (tiles > 0)
        multiply.template operator()<1>();
      else
        multiply.template operator()<0>();

      const auto* scales = reinterpret_cast<const float*>(memory + S::kScales) + place * kOuts;
      if constexpr (kSplit > 1) {  // one unit a block
        __syncwarp();
        cluster_wait();
        store_split_tile<kKind, S, kSplit>(args.product, c, sums_base, ready, arrived, split_rank, row, out, scales);
      } else if constexpr (S::kThroughRing) {
        const auto part_stage = [&](int32_t part) { return stage + part - (stage + part < ring ? 0 : ring); };
        for (int32_t part = 0; part < S::kParts; ++part)
          barrier_wait(full + 8 * part_stage(part), part_stage(part) < stage ? parity ^ 1 : parity);
        add_to_parts<S>(
            [&](int32_t part) { return reinterpret_cast<arith::bf16*>(memory + part_stage(part) * S::kStageBytes); }, c,
            scales_come || unit == first_unit ? scales : args.product.scale + out, args.product.out - out);
        publish_stores();
        for (int32_t part = 0; part < S::kParts; ++part) barrier_arrive(written + 8 * part);
        if ((stage += S::kParts) >= ring) stage -= ring, parity ^= 1;
      } else {
        store_tile<kKind, S>(args.product, c, row, out,
                             scales_come || unit == first_unit ? scales : args.product.scale + out);
      }
      if (scales_come) place ^= 1;
    }
  }
#endif
}

// ---- launch ----

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

template <GemmKind kKind, Tile kTile>
cudaError_t launch_tile(cudaStream_t stream, const Chip& chip, const GemmArgs& args) {
  using S = Shape<kKind, kTile.rows, kTile.outs, kTile.split>;
  static_assert(S::kGroups % kTile.share == 0);
  if (kTile.split > pieces(args.in, kStepBytes))
    return cudaErrorInvalidConfiguration;                                 // a block would have nothing to add up
  const int32_t copied_rows = min(pieces(args.rows, 8) * 8, kTile.rows);  // swizzling goes by eight
  const int32_t stages = S::kRing / ((copied_rows + kTile.outs) * kStepBytes);
  const TileArgs tiles{args,
                       pieces(pieces(args.rows, kTile.rows), kTile.share),
                       pieces(args.out, kTile.outs),
                       copied_rows,
                       stages,
                       S::kBehindNorm ? min(S::begun_stages(copied_rows), stages) : stages};
  CUtensorMap rows, weights, residuals{};
  const auto encode = reinterpret_cast<Encode>(chip.encode_tensor_map);
  // What a copy would read beyond the map's last row it fills with zeros, which takes longer than reading rows that
  // nobody wants.
  if (rows_map(encode, &rows, args.a, max(args.rows, args.room), args.in, copied_rows) != CUDA_SUCCESS ||
      weights_map(encode, &weights, args.weight, args.out, args.in, S::kGroup, S::kGroups / kTile.share) !=
          CUDA_SUCCESS ||
      (S::kThroughRing &&
       residuals_map(encode, &residuals, args.result, args.rows, args.out, kTile.outs) != CUDA_SUCCESS))
    return cudaErrorInvalidValue;
  const auto kernel = sm90_gemm_kernel<kKind, kTile.rows, kTile.outs, kTile.split, kTile.share>;
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

template <GemmKind kKind, size_t... kIndex>
cudaError_t launch_any(cudaStream_t stream, const Chip& chip, const Tile& tile, const GemmArgs& args,
                       std::index_sequence<kIndex...>) {
  cudaError_t error = cudaErrorInvalidConfiguration;
  ((tile == kSm90Tiles[kIndex] && (error = launch_tile<kKind, kSm90Tiles[kIndex]>(stream, chip, args), true)) || ...);
  return error;
}

}  // namespace sm90

template <GemmKind kKind>
cudaError_t gemm_sm90(cudaStream_t stream, const Chip& chip, const Tile& tile, const GemmArgs& args) {
  return sm90::launch_any<kKind>(stream, chip, tile, args, std::make_index_sequence<std::size(kSm90Tiles)>());
}

}  // namespace kaiju::cuda
