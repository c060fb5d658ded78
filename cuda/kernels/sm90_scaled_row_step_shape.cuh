// How a step of one row in version 2 of the arithmetic (sm90_scaled_row_step.cuh) is divided among thread blocks, and
// the shared memory of a block. Warps, pieces and stages are those of version 1 (sm90_row_step_shape.cuh).
#pragma once

#include "kaiju/arith/rms.hpp"
#include "scaled_row_step.hpp"
#include "sm90_row_step_shape.cuh"

namespace kaiju::cuda {
namespace scaled_row_step_detail {

using row_step_detail::kAllThreads;
using row_step_detail::kChunk;
using row_step_detail::kChunkBlocks;
using row_step_detail::kPieceBytes;
using row_step_detail::kStageBytes;
using row_step_detail::kThreads;
using row_step_detail::kWarps;
using row_step_detail::Share;
using row_step_detail::share_of;
using row_step_detail::Unit;

constexpr int32_t kMostStages = 16;      // of the ring
constexpr int32_t kMostOuts = 256;       // of a matrix, that a block has
constexpr int32_t kMostLogitParts = 16;  // parts of the vocabulary, each a matrix
constexpr int32_t kOutsTogether = 2;     // outputs of gate and up, of which a block has all or none
constexpr int32_t kMostUnitHeads = 8;    // query heads that share a KV head
constexpr int32_t kHeadsAtOnce = 4;      // query heads of which a unit finds the scores at once

// Rows between matmuls. A thread takes kEach neighbours of a row, and of the longest row kItems times as many. A warp
// takes a group.
constexpr int32_t kEach = 8, kItems = 4, kGroup = 32 * kEach;
// The place of value v of a row among its tagged words: pair p of all lanes' values side by side, so that a warp reads
// 512 bytes at once.
__host__ __device__ constexpr int32_t word_place(int32_t v) {
  return v / kGroup * kGroup + v / 2 % (kEach / 2) * 64 + v / kEach % 32 * 2 + v % 2;
}
// The place of value v of a row of floats in shared memory: four of all lanes' values side by side, and gaps, so that
// neither threads that have kEach neighbours nor those that have one of 32 meet at a bank.
constexpr int32_t kQuarterPitch = 4 * 32 + 16, kGroupPitch = kEach / 4 * kQuarterPitch;
static_assert(kGroup == static_cast<int32_t>(arith::kRmsPartials));  // so a partial sum has one value of each group
__host__ __device__ constexpr int32_t float_place(int32_t v) {
  return v / kGroup * kGroupPitch + v / 4 % 2 * kQuarterPitch + v / kEach % 32 * 4 + v % 4;
}
constexpr int32_t row_bytes(int32_t width) {
  return (width + kGroup - 1) / kGroup * kGroupPitch * static_cast<int32_t>(sizeof(float));
}

// Kinds of matrices, in the order of a layer; the logits are parts of the last one.
enum class Kind : int32_t { kProject, kO, kGate, kUp, kDown, kLogits };
static_assert(static_cast<int32_t>(Kind::kLogits) == kScaledRowMatrixCount);

// How a warp's pieces, kWarps apart, go through the outputs of a matrix.
struct alignas(16) Width {
  int32_t bytes;                  // of an output's weights
  int32_t more_outs, more_bytes;  // from stage to stage
};
struct Place {
  int32_t out, byte;
};

// In attention, in the memory of a matmul's activations: queries, the newest key and value; the scores of each thread's
// key; where no warp that is ahead puts the row of results (two bytes a value), the chunks to fold.
constexpr int32_t kScoreOffset = 4096, kScoreBytes = kHeadsAtOnce * kThreads * static_cast<int32_t>(sizeof(float));
__host__ __device__ constexpr int32_t fold_offset(int32_t query_width) {
  return 2 * query_width > kScoreOffset ? 2 * query_width : kScoreOffset;
}
constexpr int32_t kFoldFloats = 6;  // of a chunk, beside a float for each channel: of two heads the maximum, the
                                    // weights' sum and z

// A unit of attention, in all layers of a kind.
struct UnitPlace {
  Unit unit;
  int32_t unit_count, chunk_count, first_visible;  // of all blocks; of a KV head; the first position that the row sees
  BlockId block[kChunkBlocks];                     // of the cache, that have the chunk's keys
};

// In shared memory, beside the ring, the activations and the residual stream.
struct Shared {
  ScaledRowLayer layer[2];            // this one and the next, or the last one
  UnitPlace places[kBlockKinds + 1];  // of the block's first unit in layers of each kind, and of a later unit
  Share share[kScaledRowMatrixCount], logits[kMostLogitParts], result;  // of attention
  Width width[3];                                                       // of the inputs: d_model, heads, d_ff
  Place place[3][kWarps];                                               // where warps begin
  int32_t sums[2][kMostOuts];                                           // of gates or high bytes, of ups or low bytes
  float scale[2][kMostOuts], bias[2][kMostOuts];                        // of the matmul to come
  float partials[arith::kRmsPartials];
  uint32_t warp_most[kWarps];
  int32_t warp_maximum[kHeadsAtOnce][kWarps];
  uint32_t warp_weight[kHeadsAtOnce][kWarps], warp_scale[kWarps];
  uint32_t newest_weight[kHeadsAtOnce];
  float z[kMostUnitHeads];      // of the unit's queries
  arith::bf16 newest_scale[2];  // of the key, of the value
  // Bytes of the weights of a chunk's values, as values lie in the cache.
  alignas(16) uint8_t high[kHeadsAtOnce][kChunk], low[kHeadsAtOnce][kChunk];
  uint64_t full[kMostStages], read[kMostStages];
};
static_assert(sizeof(ScaledRowLayer) % 16 == 0);

}  // namespace scaled_row_step_detail
}  // namespace kaiju::cuda
