// Split: which part of a model a GPU has, where several of one host share it (tensor parallelism). Heads, feed-forward
// columns and the vocabulary are divided; the residual stream, norms, the embedding and the classifier are on every
// GPU. KV heads are divided where there are enough; else several GPUs have the same one.
#pragma once

#include <cstdint>

#include "kaiju/base/status.hpp"
#include "kaiju/format/config.hpp"

namespace kaiju::cuda {

// `size` neighbours of something that is divided, from `first` on.
struct Range {
  int32_t first = 0, size = 0;
};

struct Split {
  int32_t count = 1, rank = 0;

  bool is_whole() const { return count == 1; }
  // A GPU's part of `total`, in units of `unit`.
  Range part(int32_t total, int32_t unit, int32_t of) const {
    const auto begin = [&](int32_t gpu) { return static_cast<int32_t>(int64_t{total / unit} * gpu / count) * unit; };
    return {begin(of), begin(of + 1) - begin(of)};
  }
  Range part(int32_t total, int32_t unit) const { return part(total, unit, rank); }
  // Of `total` KV heads.
  Range kv_heads(int32_t total) const {
    return total >= count ? part(total, 1) : Range{static_cast<int32_t>(int64_t{total} * rank / count), 1};
  }
  // Whether it is the first GPU that has its KV heads.
  bool is_first_with(int32_t kv_heads) const { return kv_heads >= count || rank % (count / kv_heads) == 0; }
};

inline constexpr int32_t kColumnUnit = 64;  // of a summed index: steps of the matmul kernels
inline constexpr int32_t kVocabUnit = 16;

// Whether a model can be divided among so many GPUs; kUnsupported says which numbers can.
Status check_split(const ModelConfig& config, int32_t count);
// The part of a width of a layer's matrices or vectors.
Range part_of(const ModelConfig& config, const Split& split, Width width, int32_t layer);
// The dimensions of a GPU's part.
ModelConfig part_of(const ModelConfig& config, const Split& split);

}  // namespace kaiju::cuda
