// Checks which GPUs can share a model. See split.hpp.
#include "split.hpp"

#include <string>

#include "kernels/exchange.hpp"

namespace kaiju::cuda {
namespace {

bool divides(const ModelConfig& config, int32_t count) {
  return count >= 1 && count <= kMostGpus && config.n_heads % count == 0 &&
         config.n_heads / count * config.head_dim % kColumnUnit == 0 && config.d_ff % (count * kColumnUnit) == 0 &&
         config.vocab_size % kVocabUnit == 0 && config.vocab_size >= count * kVocabUnit;
}

}  // namespace

Status check_split(const ModelConfig& config, int32_t count) {
  const auto refuse = [](const std::string& why) { return Status(StatusCode::kUnsupported, why); };
  if (count == 1) return {};
  if (config.arithmetic() != 1 || config.n_kv_heads != 1)
    return refuse(
        "only models of version 1 of the arithmetic with one KV head can be divided among GPUs: create an "
        "engine for each GPU");
  if (divides(config, count)) return {};
  std::string fit;
  for (int32_t other = 2; other <= kMostGpus; ++other)
    if (divides(config, other)) fit += (fit.empty() ? "" : ", ") + std::to_string(other);
  return refuse("a model of " + std::to_string(config.n_heads) + " heads, " + std::to_string(config.d_ff) +
                " feed-forward columns and " + std::to_string(config.vocab_size) + " tokens cannot be divided among " +
                std::to_string(count) + " GPUs; " + (fit.empty() ? "it needs one" : "it can be among " + fit));
}

ModelConfig part_of(const ModelConfig& config, const Split& split) {
  ModelConfig part = config;
  part.n_heads /= split.count;
  part.d_ff /= split.count;
  return part;
}

}  // namespace kaiju::cuda
