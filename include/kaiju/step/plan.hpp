// StepPlan: everything that one step does, decided before the step starts, as plain data. The scheduler writes a
// StepPlan, and an executor reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kaiju/base/function.hpp"
#include "kaiju/base/sampler.hpp"
#include "kaiju/step/executor_info.hpp"

namespace kaiju {

// A checked chain of samplers (arithmetic.md, section 12).
struct SamplerChain {
  std::vector<Sampler> samplers;
  std::vector<uint8_t> breakers;  // [vocab_size] 1: the token is a breaker; empty: none is
};

// SamplingSpec says how the tokens of a slot are sampled (arithmetic.md, section 6). The engine checks sampling
// parameters by sample/params.hpp before it writes a plan.
struct SamplingSpec {
  float temperature = 0.0f;  // 0: greedy
  int32_t top_k = 0;         // 0: off
  float top_p = 1.0f;        // 1: off
  float min_p = 0.0f;        // 0: off
  float repetition_penalty = 1.0f;
  uint64_t seed = 0;
  uint32_t stream = 0;  // tells retries of one request apart
  std::vector<std::pair<int32_t, float>> logit_bias;
  // Takes the place of the fields above, but not of seed, stream and logit_bias. Needs a HookCall with each sample.
  // Null: no chain.
  std::shared_ptr<const SamplerChain> chain;
};

// Number of words of a bitmask with one bit for each token: token t is bit t % 32 of word t / 32.
constexpr int32_t mask_words(int32_t vocab_size) { return (vocab_size + 31) / 32; }

// TokenGuide says what the next token of a sequence may be (arithmetic.md, section 11). It is valid for one token. The
// engine checks guides by sample/params.hpp before it writes a plan.
struct TokenGuide {
  // [mask_words(vocab_size)] 1 if the token may be sampled; at least one token may. Bits from vocab_size on do not
  // count. Empty: every token may be sampled.
  std::vector<uint32_t> allowed;
  std::vector<std::pair<int32_t, float>> logit_bias;  // added after the biases of SamplingSpec; each token at most once
};

// Changes a row of logits before a token is sampled from it. `logits` is [vocab_size], and `tokens` are all tokens of
// the sequence so far. A value that is NaN or +infinity counts as -infinity, and tokens at -infinity are not sampled.
// If no finite logit is left, the token is sampled from the logits as the model computed them.
using LogitsHook = Function<void(std::span<float> logits, std::span<const int32_t> tokens)>;

// A LogitsHook with the tokens that it and a chain of samplers are shown. Both outlive the step.
struct HookCall {
  const LogitsHook* hook = nullptr;  // null: the tokens are for the chain alone
  std::span<const int32_t> tokens;
  float mu = 0.0f;  // of the sampler mirostat, before the token that is sampled
};

// Binds a slot of the executor to a sequence before the step's rows run. If tokens of the sequence were dropped, a plan
// has to bind the slot again. The executor remembers the slot's sampling parameters and the set of tokens that the
// sequence contains (for the repetition penalty). The executor adds the tokens of every later segment of the slot to
// its set of seen tokens.
struct SlotStart {
  int32_t slot = 0;
  SamplingSpec sampling;
  std::vector<int32_t> history;  // the sequence's tokens before its next segment: those whose KV is in the cache
};

// Sets table[slot][kind][index] = block. Index i covers positions [64 i, 64 i + 64). If `block` is kNoBlock, the window
// block at this index was released: no row sees the block any more, and an executor must not read it, not even to mask
// it. The table edits of a plan apply in order.
struct TableEdit {
  int32_t slot = 0;
  BlockKind kind = BlockKind::kGlobal;
  int32_t index = 0;
  BlockId block = kNoBlock;
};

// Copies a whole block of KV, down from the executor's memory to host memory or up from host memory. `host` points to
// block_bytes bytes of host memory, which the host must neither read nor write before the step has ended. Transfers
// down come before everything else that a plan does to a block. Transfers up come after the plan's copies and before
// its rows. A block may contain KV of an earlier user after its first `token_count` tokens; a transfer down writes
// zeros instead of that KV.
struct BlockTransfer {
  enum class Way : int32_t { kDown = 0, kUp = 1 };
  Way way = Way::kDown;
  BlockKind kind = BlockKind::kGlobal;
  BlockId block = kNoBlock;
  std::byte* host = nullptr;
  int32_t token_count = kBlockTokens;
};

// Copies the KV of the first `token_count` tokens from one block to another before any row runs. KV in block `to` past
// the first `token_count` tokens is not read before new KV is written there. The copies of a plan apply in order: a
// block may be the source of one copy and then the target of a later copy.
struct BlockCopy {
  BlockKind kind = BlockKind::kGlobal;
  BlockId from = kNoBlock;
  BlockId to = kNoBlock;
  int32_t token_count = 0;
};

// A Segment is a run of consecutive tokens of one sequence. A decode row is a segment of one token, and a prefill chunk
// is a segment of many tokens.
struct Segment {
  int32_t slot = 0;
  int32_t position = 0;     // of the first token
  int32_t first_token = 0;  // index into StepPlan::tokens
  int32_t token_count = 0;
  // From each of the last `sample_count` rows, the executor samples the token that follows the row's own token.
  // `sample_count` is 0 (nothing is sampled) to ExecutorInfo::most_samples. The token sampled from a row is the same as
  // if the segment ended with that row.
  int32_t sample_count = 0;
  bool all_logits = false;   // return the logits of every row of this segment
  int32_t top_logprobs = 0;  // alternatives to report with each sample
  // The KV of global layers at positions below `write_from` is already in shared blocks, and the executor must not
  // write it.
  int32_t write_from = 0;
  // Whether to return the classifier's scores of the rows that are sampled from, and with all_logits of every row.
  // `scores` may be true only if the model has a classifier.
  bool scores = false;
  // What the sampled token may be: an index into StepPlan::guides, or -1 for no guide. Needs a sample_count of 1.
  int32_t guide = -1;
  // What changes the logits of the sampled row: an index into StepPlan::hooks, or -1. Needs a sample_count of 1.
  int32_t hook = -1;
};

// In StepPlan::tokens, kSampledToken stands for the token that the executor sampled last for the slot, which the host
// need not know yet. Only plans for an executor that runs beside the host (Executor::runs_beside_host) may contain
// kSampledToken.
inline constexpr int32_t kSampledToken = -1;

struct StepPlan {
  std::vector<SlotStart> starts;
  std::vector<TableEdit> table_edits;
  std::vector<BlockTransfer> transfers;
  std::vector<BlockCopy> copies;
  std::vector<Segment> segments;  // at most one per slot
  std::vector<int32_t> tokens;
  std::vector<std::shared_ptr<const TokenGuide>> guides;  // of segments, in their order; none is null
  std::vector<HookCall> hooks;                            // of segments, in their order

  void clear() {
    starts.clear();
    table_edits.clear();
    transfers.clear();
    copies.clear();
    segments.clear();
    tokens.clear();
    guides.clear();
    hooks.clear();
  }
};

}  // namespace kaiju
