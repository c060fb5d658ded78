// How a step of one row (sm90_row_step.cuh) is divided among thread blocks, and the shared memory of a block.
#pragma once

#include "../kernels.hpp"
#include "kaiju/arith/softmax.hpp"

namespace kaiju::cuda {
namespace row_step_detail {

constexpr int32_t kThreads = 512, kWarps = kThreads / 32;  // that compute
constexpr int32_t kAllThreads = kThreads + 32;             // and those that bring the weights
constexpr int32_t kPieceBytes = 1024;  // what a warp reads of a stage; in version 1 all widths are multiples of it
constexpr int32_t kStageBytes = kWarps * kPieceBytes;
constexpr int32_t kMostStages = 16;  // of the ring
// Stages that are asked for and not there: few while blocks exchange words, whose way to memory is the longer the more
// is in flight; more in the middle of a run, behind its first and before its last stages. Best on an H200.
constexpr int32_t kFewInFlight = 2, kMostInFlight = 6, kFront = 13, kBack = 6;
constexpr int32_t kChunk = arith::kChunkKeys, kChunkBlocks = kChunk / kBlockTokens;
static_assert(kThreads == kChunk);

// The block's share of a matrix: its outputs, and where their weights begin.
struct Run {
  const int8_t* from;
  int32_t first, count;
};
// The pieces that an output has, and how the pieces of a warp, kWarps apart, go through them.
struct alignas(16) Width {
  int32_t pieces, reciprocal;  // the latter: times a number of up to kWarps, shifted by 16 bits, divides that
  int32_t more_outs, more_pieces;
};
// A chunk of keys with some heads of a KV head.
struct Unit {
  int32_t valid, writes;          // writes: takes the newest key and value to the cache
  int32_t chunk, g, head, heads;  // the first head counts from the first of all
};

// In shared memory, beside the ring, the activations and the runs of all matrices.
struct Shared {
  RowLayer layer[2];  // this one and the next
  Unit unit;
  const uint4* block[kChunkBlocks];    // where the unit's keys begin
  int32_t first_result, result_count;  // of attention, that the block folds: words of four
  int32_t sums[kThreads];
  float scale[kThreads];           // of the outputs of the product to come
  arith::bf16 residual[kThreads];  // the block's share of the stream
  Width width[3];                  // of q, up and the logits; of o; of down
  int32_t warp_maximum[kWarps];
  uint32_t warp_weight[kWarps];
  uint32_t newest_weight;
  alignas(16) uint8_t high[kChunk], low[kChunk];  // bytes of the weights of a chunk's keys, as values lie in the cache
  uint64_t full[kMostStages], read[kMostStages];
};
static_assert(sizeof(RowLayer) % 16 == 0);

// The outputs of a matrix that are this block's.
struct Share {
  int32_t first, count;
};
__device__ __forceinline__ Share share_of(int32_t out, int32_t together = 1) {
  auto block = static_cast<int32_t>(blockIdx.x);
  asm volatile(
      ""
      : "+r"(
          block));  // else all shares are found before the loop over layers, and kept in registers that are not there
  const auto blocks = static_cast<int32_t>(gridDim.x), groups = out / together, first = groups * block / blocks;
  return {together * first, together * (groups * (block + 1) / blocks - first)};
}

}  // namespace row_step_detail
}  // namespace kaiju::cuda
