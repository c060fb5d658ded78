// Split: which part of a model a GPU has, where several of one host share it (tensor parallelism). Heads, feed-forward
// columns and the vocabulary are divided; the residual stream, the KV of the only KV head, norms, the embedding and the
// classifier are on every GPU.
#pragma once

#include <cstdint>

#include "kaiju/base/status.hpp"
#include "kaiju/format/config.hpp"

namespace kaiju::cuda {

struct Split {
  int32_t count = 1, rank = 0;

  bool is_whole() const { return count == 1; }
  // Where a GPU's part of `total` begins, in units of `unit`; of GPU `count`: where the last one's ends.
  int32_t begin(int32_t total, int32_t unit, int32_t of) const {
    return static_cast<int32_t>(int64_t{total / unit} * of / count) * unit;
  }
  int32_t begin(int32_t total, int32_t unit) const { return begin(total, unit, rank); }
  int32_t size(int32_t total, int32_t unit) const { return begin(total, unit, rank + 1) - begin(total, unit); }
};

inline constexpr int32_t kColumnUnit = 64;  // of a summed index: steps of the matmul kernels
inline constexpr int32_t kVocabUnit = 16;

// Whether a model can be divided among so many GPUs; kUnsupported says which numbers can.
Status check_split(const ModelConfig& config, int32_t count);
// The dimensions of a GPU's part.
ModelConfig part_of(const ModelConfig& config, const Split& split);

}  // namespace kaiju::cuda
