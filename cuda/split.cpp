// Checks which GPUs can share a model, and computes their parts. See split.hpp.
#include "split.hpp"

#include <algorithm>
#include <string>

#include "kaiju/run/shared_model.hpp"
#include "shared_rows.hpp"

namespace kaiju::cuda {
namespace {

bool divides(const ModelConfig& config, int32_t count) {
  if (count < 1 || count > kMostGpus || config.n_heads % count != 0 || config.vocab_size % kVocabUnit != 0 ||
      config.vocab_size < count * kVocabUnit)
    return false;
  const int32_t unit = std::max(kColumnUnit, config.shape.hadamard);  // whose values are transformed together
  for (int32_t layer = 0; layer < static_cast<int32_t>(config.layers.size()); ++layer) {
    const int32_t kv_heads = config.kv_heads_of(layer);
    if (kv_heads % count != 0 && count % kv_heads != 0) return false;
    for (const Width width : {Width::kQuery, Width::kFfn})
      if (config.width_of(width, layer) % (count * unit) != 0) return false;
  }
  return true;
}

}  // namespace

Status check_split(const ModelConfig& config, int32_t count) {
  if (count == 1 || divides(config, count)) return {};
  std::string fit;
  for (int32_t other = 2; other <= kMostGpus; ++other)
    if (divides(config, other)) fit += (fit.empty() ? "" : ", ") + std::to_string(other);
  return {StatusCode::kUnsupported,
          "a model of " + std::to_string(config.n_heads) + " heads, " + std::to_string(config.n_kv_heads) +
              " KV heads, " + std::to_string(config.d_ff) + " feed-forward columns and " +
              std::to_string(config.vocab_size) + " tokens cannot be divided among " + std::to_string(count) +
              " GPUs; " + (fit.empty() ? "it needs one" : "it can be among " + fit)};
}

Range part_of(const ModelConfig& config, const Split& split, Width width, int32_t layer) {
  const int32_t total = config.width_of(width, layer), head_dim = config.head_dim_of(layer);
  switch (width) {
    case Width::kQuery:
      return split.part(total, head_dim);
    case Width::kKv: {
      const Range heads = split.kv_heads(config.kv_heads_of(layer));
      return {heads.first * head_dim, heads.size * head_dim};
    }
    case Width::kFfn:
      return split.part(total, total / split.count);
    default:
      return {0, total};
  }
}

ModelConfig part_of(const ModelConfig& config, const Split& split) { return config_of_part(config, split.count); }

}  // namespace kaiju::cuda
