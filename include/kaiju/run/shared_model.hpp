// The dimensions of a model's part on each of several GPUs that share it (tensor parallelism).
#pragma once

#include <algorithm>
#include <cstdint>

#include "kaiju/format/config.hpp"

namespace kaiju {

// How many of a model's KV heads each GPU has: an equal part, or one where there are fewer heads than GPUs.
constexpr int32_t kv_heads_of_part(int32_t kv_heads, int32_t gpus) { return std::max(1, kv_heads / gpus); }

// The config of each GPU's part: its heads, KV heads and feed-forward columns. The number of GPUs must fit the model.
inline ModelConfig config_of_part(ModelConfig config, int32_t gpus) {
  config.n_heads /= gpus;
  config.d_ff /= gpus;
  config.n_kv_heads = kv_heads_of_part(config.n_kv_heads, gpus);
  for (LayerConfig& layer : config.layers) {  // 0: those of the model
    layer.d_ff /= gpus;
    if (layer.n_kv_heads != 0) layer.n_kv_heads = kv_heads_of_part(layer.n_kv_heads, gpus);
  }
  return config;
}

}  // namespace kaiju
