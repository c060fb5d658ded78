// The shape of a Hopper matmul's tile (sm90_matmul.cuh): its threads and registers, the stages of its ring, and its
// layout of shared memory. Constants only.
#pragma once

#include <algorithm>

#include "../kernels.hpp"
#include "../launch/tiles.hpp"
#include "gated_matmul.hpp"

namespace kaiju::cuda {
namespace sm90 {

struct TileArgs {
  MatmulArgs matmul;
  int32_t row_units, out_tiles;  // a row unit is kShare row tiles
  int32_t copied_rows;           // of a row tile; fewer than its rows where there is only one row tile
  int32_t stages;                // of the ring, where its size depends on the rows (Shape::kFits)
  int32_t begun;                 // of these: stages whose weights are copied before the inputs are there
  // Of MatmulKind::kGated alone, whose `out` are gate's outputs and then as many of up.
  GateRows gate = {};
  float* most = nullptr;  // [rows, out_tiles]
};

template <MatmulKind kKind>
constexpr bool kAdds = kKind == MatmulKind::kAddLinear || kKind == MatmulKind::kAddDown;

template <MatmulKind kKind, int kRows, int kOuts, int kSplit>
struct Shape {
  static constexpr bool kIsGated = kKind == MatmulKind::kGated;  // half of a tile's outputs are gate's, half are up's
  static_assert(kRows % 64 == 0 && kOuts % 16 == 0);
  static_assert(!kIsGated || (kSplit == 1 && kOuts % (2 * kGateBlock) == 0));

  // ---- threads ----
  static constexpr int kOutputs = kOuts;
  static constexpr int kTiles = kRows == 256 ? 2 : 1;    // of 64 rows, for each warpgroup that multiplies
  static constexpr int kConsumers = kRows * 2 / kTiles;  // threads that multiply
  // Large accumulators take the producers' registers (setmaxnreg, which works per warpgroup).
  static constexpr bool kGrows = kRows == 192 || kTiles * kOuts > 176;
  static constexpr int kThreads = kConsumers + (kGrows ? 128 : 32);
  static constexpr int kConsumerRegisters = kRows == 192 ? 160 : 224, kProducerRegisters = kRows == 192 ? 32 : 56;
  static constexpr int kBlocks = blocks_together({Path::kSm90, kRows, kOuts, kSplit});  // on a multiprocessor
  // Whether a block finds room beside a pair of attention's blocks (sm90_attention_decode_window.cuh). A pair leaves
  // kBesidePairBytes of shared memory and 6,400 registers in each quarter of a multiprocessor. Two of this block's five
  // warps share a quarter, so at most 96 registers a thread fit. The compiler keeps to that when it is told that four
  // blocks share a multiprocessor.
  static constexpr bool kIsBeside = kRows == 64 && kSplit == 4;
  static constexpr int kBlocksByRegisters = kIsBeside ? 4 : kBlocks;

  // ---- outputs ----
  // A lane has kRun neighbouring outputs of each group. Floats and sums go by four, for whole sectors; of a tile split
  // in four a block stores only four of a lane's eight anyway.
  static constexpr bool kStoresWords = kKind == MatmulKind::kLinear || kStoresSums<kKind>;
  static constexpr bool kByFour = kOuts % 32 != 0 || (kStoresWords && kSplit < 4);
  static constexpr int kGroup = kByFour ? 16 : 32, kGroups = kOuts / kGroup;
  static constexpr int kRun = kGroup / 4;

  // ---- the ring ----
  static constexpr int kRowBytes = kRows * kStepBytes, kWeightBytes = kOuts * kStepBytes,
                       kStageBytes = kRowBytes + kWeightBytes;
  // Tiles whose blocks take several units of work, one after the other. (Others may have to, but are not chosen where
  // they would.)
  static constexpr bool kRepeats = kRows > 64 && kOuts > 96 && kSplit == 1;
  // Whether residuals come through the ring: kParts stages after a unit's steps hold kPartRows rows each, in bf16, by
  // boxes of 64.
  static constexpr bool kThroughRing = kRepeats && kAdds<kKind>;
  static constexpr int kBoxBytes = 64 * kOuts * 2,
                       kPartRows = kThroughRing ? std::min(kStageBytes / kBoxBytes * 64, kRows) : kRows;
  static constexpr int kParts = (kRows + kPartRows - 1) / kPartRows;
  // Steps whose products may still run when the next step begins. With 1, a stage is released only when the next step
  // has arrived; where memory is the bound and stages are few, that is too late by the time of one copy.
  static constexpr int kPending = kBlocks == 2 ? 0 : 1;
  // Whether the ring's stages have the size of the rows that there are: the fewer rows, the more stages. Then the rows
  // of all stages come first, the weights of all after them. wgmma reads 64 rows in any case; the results of rows
  // beyond the last are not stored.
  static constexpr bool kFits = kRows == 64;
  // Whether a norm comes right before: its rows arrive late when many weights are being copied, so only so many KiB of
  // weights on a multiprocessor are copied first (measured: docs/kernels/matmul_hopper.md).
  static constexpr bool kBehindNorm = kFits && (kKind == MatmulKind::kLinear || kKind == MatmulKind::kUp || kIsGated);
  static constexpr int begun_stages(int rows) { return (160 - rows) * 1024 / kBlocks / kWeightBytes; }

  // ---- shared memory ----
  static constexpr int kRing = (kIsBeside ? 104 : kBlocks == 2 ? 112 : 216) * 1024;
  static constexpr int kStages = kRing / (kFits ? 8 * kStepBytes + kWeightBytes : kStageBytes);  // at most
  static constexpr int kScales = kFits ? kRing : kStages * kStageBytes,
                       kBarriers = kScales + (kRepeats ? 2 : 1) * kOuts * 4;
  static_assert(!kThroughRing || kParts < kStages);
  static constexpr int kBytes = kBarriers + (2 * kStages + 2 + kParts) * 8;
  static_assert(kStageBytes % 1024 == 0 && kBlocks * (kBytes + 1024) <= 228 * 1024);
  static_assert(!kIsBeside || kBytes <= kBesidePairBytes);
  // The sums of a split tile use the memory of stages, or of stages' weights, that have been multiplied.
  static constexpr int kSumBytes = kRows * kOuts * 4, kSumStages = (kSumBytes + kWeightBytes - 1) / kWeightBytes;
  static_assert(kSumBytes <= (kFits ? kRing / kStageBytes * kWeightBytes : kScales));

  // The first of a warp's 16 rows, within the block's; those of a second tile are 64 further.
  __device__ static int32_t warp_row(int32_t tid) { return tid / 128 * (64 * kTiles) + tid % 128 / 32 * 16; }
};

constexpr int32_t kBand = 16;  // row tiles that are taken through all outputs together, so that L2 still holds them

}  // namespace sm90
}  // namespace kaiju::cuda
