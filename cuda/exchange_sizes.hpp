// The memory of the exchange among GPUs that share a model. Includes nothing of CUDA: the exchange takes its memory by
// these sizes, and memory_need() adds them to what an engine would take (exchange_bytes() in cuda.hpp).
#pragma once

#include <algorithm>
#include <cstdint>

#include "kaiju/format/config.hpp"
#include "shared_rows.hpp"
#include "split.hpp"

namespace kaiju::cuda {

// Rows that logits are computed of at once, in steps of so many tokens.
constexpr int32_t logit_rows_of(int32_t slot_count, int32_t step_tokens) {
  constexpr int32_t kPiece = 64;  // where the logits of every row are asked for
  return std::max(slot_count, std::min(step_tokens, kPiece));
}

// The exchange's memory on one GPU, in values.
struct ExchangeSizes {
  int32_t result = 0;   // bytes that become of a value
  int64_t part = 0;     // int32: the sums of one GPU
  int64_t sums = 0;     // int32: those of all GPUs; there are two such buffers
  int64_t logits = 0;   // float: of this GPU's tokens
  int64_t largest = 0;  // uint64: the largest values of rows, of all GPUs, in version 2 of the arithmetic
  int64_t arrived = 0;  // int32
  int64_t state = 0;    // int32

  int64_t bytes() const { return 4 * (2 * sums + logits + arrived + state) + 8 * largest; }
};
// `rows`, `logit_rows`: most of a step, and of logits.
inline ExchangeSizes exchange_sizes(const ModelConfig& config, const Split& split, int32_t rows, int32_t logit_rows) {
  const bool is_scaled = config.arithmetic() == 2;
  ExchangeSizes sizes;
  sizes.result = is_scaled ? 4 : 1;
  sizes.part = int64_t{most_sent_rows(rows, config.d_model, split.count, sizes.result)} * config.d_model;
  sizes.sums = sizes.part * split.count;
  sizes.logits = int64_t{logit_rows} * split.part(config.vocab_size, kVocabUnit).size;
  sizes.largest = is_scaled ? int64_t{2} * split.count * rows : 0;
  sizes.arrived = kMostGpus;
  sizes.state = 4;
  return sizes;
}
// Of the GPU that needs most.
inline int64_t most_exchange_bytes(const ModelConfig& config, int32_t count, int32_t rows, int32_t logit_rows) {
  int64_t most = 0;
  for (int32_t rank = 0; rank < count; ++rank)
    most = std::max(most, exchange_sizes(config, {count, rank}, rows, logit_rows).bytes());
  return most;
}

}  // namespace kaiju::cuda
