// StepPlan: everything that one step does, decided before it starts, as plain data. The scheduler writes it, an
// executor reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kaiju/step/executor_info.hpp"

namespace kaiju {

// How a slot's tokens are sampled (arithmetic.md, section 6). Checked by sample/params.hpp before it gets here.
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

// Binds a slot to a sequence before the step's rows run. Needed again after tokens of the sequence were dropped. The
// executor keeps the sampling parameters, and the set of tokens seen (for the repetition penalty), to which it adds the
// tokens of every later segment of the slot.
struct SlotStart {
  int32_t slot = 0;
  SamplingSpec sampling;
  std::vector<int32_t> history;  // the sequence's tokens before its next segment: those whose KV is in the cache
};

// Sets table[slot][kind][index] = block. Index i covers positions [64 i, 64 i + 64). kNoBlock: the window block was
// released; no row sees it any more, and an executor must not read it, not even to mask it. Edits apply in order.
struct TableEdit {
  int32_t slot = 0;
  BlockKind kind = BlockKind::kGlobal;
  int32_t index = 0;
  BlockId block = kNoBlock;
};

// Copies a whole block between the executor's memory and host memory: block_bytes at `host`, which must not change
// until the step is over. Transfers down come before everything else that a plan does to a block; transfers up come
// after its copies and before its rows. KV past the first `token_count` tokens may belong to an earlier user of the
// block; it is copied down as zeros.
struct BlockTransfer {
  enum class Way : int32_t { kDown = 0, kUp = 1 };
  Way way = Way::kDown;
  BlockKind kind = BlockKind::kGlobal;
  BlockId block = kNoBlock;
  std::byte* host = nullptr;
  int32_t token_count = kBlockTokens;
};

// Copies the first `token_count` tokens of a block before any row runs. KV past them in `to` is not read before it is
// written. Copies apply in order: a block may be the source of a copy and then the target of a later one.
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
  // A token is sampled from each of the last `sample_count` rows: the token that follows the row's own. 0: none; at
  // most ExecutorInfo::most_samples. A row's sample is the same as if the sequence ended there.
  int32_t sample_count = 0;
  bool all_logits = false;   // return the logits of every row of this segment
  int32_t top_logprobs = 0;  // alternatives to report with each sample
  // KV of global layers at positions below this is in shared blocks already and must not be written.
  int32_t write_from = 0;
  // Return the classifier's scores of the rows that are sampled from, and with all_logits of every row. Only for a
  // model that has a classifier.
  bool scores = false;
};

// Stands for the token that the slot drew last. The host need not know it yet. Only for an executor that runs beside
// the host.
inline constexpr int32_t kSampledToken = -1;

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
