// StepPlan: everything one step does, decided before it starts, as plain data. The host tower writes it, an executor
// reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kaiju/step/executor_info.hpp"

namespace kaiju {

// How a slot's tokens are drawn (arithmetic.md, section 6). Checked by sample/params.hpp before it gets here.
struct SamplingSpec {
  float temperature = 0.0f;  // 0: greedy
  int32_t top_k = 0;         // 0: off
  float top_p = 1.0f;        // 1: off
  float min_p = 0.0f;        // 0: off
  float repetition_penalty = 1.0f;
  uint64_t seed = 0;
  uint32_t stream = 0;  // tells retries of one request apart
  std::vector<std::pair<int32_t, float>> logit_bias;
};

// (Re)binds a slot to a sequence before the step's rows run; needed again after the sequence was cut. The executor
// keeps the spec, and the set of tokens seen for the repetition penalty, to which it adds the tokens of every later
// segment of the slot.
struct SlotStart {
  int32_t slot = 0;
  SamplingSpec sampling;
  std::vector<int32_t> history;  // tokens of the sequence that no later segment will bring: those found in the cache
};

// table[slot][kind][index] = block. Index i covers positions [64 i, 64 i + 64). kNoBlock where a window block was
// released: nothing of it is visible any more, and an executor must not touch it even to mask it. Edits apply in order.
struct TableEdit {
  int32_t slot = 0;
  BlockKind kind = BlockKind::kGlobal;
  int32_t index = 0;
  BlockId block = kNoBlock;
};

// A whole block between the executor's memory and the host's: block_bytes at `host`, which stays as it is until the
// step is over. Down comes before everything else that a plan does to a block, up after its copies and before its rows.
// What is past the first `token_count` tokens, which may be of anyone who had the block before, comes down as KV of
// zeros.
struct BlockTransfer {
  enum class Way : int32_t { kDown = 0, kUp = 1 };
  Way way = Way::kDown;
  BlockKind kind = BlockKind::kGlobal;
  BlockId block = kNoBlock;
  std::byte* host = nullptr;
  int32_t token_count = kBlockTokens;
};

// The first `token_count` tokens of a block, copied before any row runs; what lies past them in `to` is never read
// before it is written. Copies apply in order: a block may be copied from and then, in the same plan, be the target of
// another copy.
struct BlockCopy {
  BlockKind kind = BlockKind::kGlobal;
  BlockId from = kNoBlock;
  BlockId to = kNoBlock;
  int32_t token_count = 0;
};

// Consecutive tokens of one sequence. A decode row is a segment of one token, a prefill chunk one of many.
struct Segment {
  int32_t slot = 0;
  int32_t position = 0;     // of the first token
  int32_t first_token = 0;  // index into StepPlan::tokens
  int32_t token_count = 0;
  // Rows that a token is drawn from: the last `draw_count` of this segment, each giving the token that follows its own.
  // 0: none; at most ExecutorInfo::most_draws. Each draw sees what a sequence that ended at its row would show it.
  int32_t draw_count = 0;
  bool all_logits = false;   // return the logits of every row of this segment
  int32_t top_logprobs = 0;  // with draw_count: how many alternatives to report with each draw
  // Global-slot KV of positions below this is already in the cache and must not be rewritten (shared blocks).
  int32_t write_from = 0;
  bool scores =
      false;  // with draw_count, with all_logits: the classifier's scores of those rows; of models that have one
};

// A token that the slot drew last, when the host need not know it yet: of an executor that runs beside the host.
inline constexpr int32_t kDrawnToken = -1;

struct StepPlan {
  std::vector<SlotStart> starts;
  std::vector<TableEdit> table_edits;
  std::vector<BlockTransfer> transfers;
  std::vector<BlockCopy> copies;
  std::vector<Segment> segments;  // at most one per slot
  std::vector<int32_t> tokens;

  void clear() {
    starts.clear();
    table_edits.clear();
    transfers.clear();
    copies.clear();
    segments.clear();
    tokens.clear();
  }
};

}  // namespace kaiju
