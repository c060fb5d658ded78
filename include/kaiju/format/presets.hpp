// Presets: named model shapes for kaiju-make and the benchmarks. The dimensions of Kaiju models are unpublished. The
// presets small, medium and large are our reconstruction from the published parameter counts (13 B, 34 B, 110 B) and
// the published cache layout. The preset nano is small enough to train and to ship with kaiju.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "kaiju/base/status.hpp"
#include "kaiju/format/config.hpp"

namespace kaiju {

// Makes `count` layers that repeat `pattern` ('s': sliding window, 'g': global). Three consecutive window layers use
// the same keys and values (one KV slot); the first of the three layers computes them. Global layers, which are never
// adjacent, share keys and values in pairs; if the number of global layers is odd, the last three share them. Sliding
// layers use RoPE table 0, and global layers use RoPE table 1.
inline std::vector<LayerConfig> repeat_layers(std::string_view pattern, int32_t count, int32_t window) {
  const auto kind_of = [&](int32_t i) { return pattern[static_cast<size_t>(i) % pattern.size()]; };
  int32_t globals = 0, windows = 0;
  for (int32_t i = 0; i < count; ++i) (kind_of(i) == 'g' ? globals : windows) += 1;
  const int32_t last_group = std::max(globals / 2, 1) - 1;

  std::vector<LayerConfig> layers;
  std::vector<int32_t> group_slot;  // of the global groups
  int32_t next_slot = 0, run = 0, seen = 0;
  for (int32_t i = 0; i < count; ++i) {
    if (kind_of(i) == 'g') {
      run = 0;
      const auto group = static_cast<size_t>(std::min(seen++ / 2, last_group));
      if (group == group_slot.size()) group_slot.push_back(next_slot++);
      layers.push_back({LayerKind::kGlobal, 0, group_slot[group], windows > 0 ? 1 : 0});
    } else {
      const bool shares = run++ % 3 != 0;
      layers.push_back({LayerKind::kWindow, window, shares ? layers.back().kv_slot : next_slot++, 0});
    }
  }
  return layers;
}

// Returns the config of the preset "nano", "small", "medium" or "large". If `layers` is not 0, the config has that
// number of layers in the preset's pattern.
inline Result<ModelConfig> preset(std::string_view name, int32_t layers = 0) {
  struct Preset {
    const char* name;
    const char* pattern;
    int32_t layers, d_model, n_heads, head_dim, d_ff, vocab_size, context;
  };
  static constexpr Preset kPresets[] = {
      {"nano", "sssgsss", 14, 512, 8, 64, 1536, 8192, 4096},
      {"small", "ssssssg", 49, 5120, 40, 128, 20480, 65536, 131072},
      {"medium", "ssssssg", 63, 7168, 56, 128, 29696, 65536, 131072},
      {"large", "ssssssg", 70, 12288, 96, 128, 51200, 65536, 131072},
  };
  const auto found =
      std::find_if(std::begin(kPresets), std::end(kPresets), [&](const Preset& p) { return p.name == name; });
  if (found == std::end(kPresets))
    return invalid_argument("unknown preset \"" + std::string(name) + "\": choose nano, small, medium or large");
  if (layers < 0 || layers > kMostLayers)
    return invalid_argument("a model cannot have " + std::to_string(layers) + " layers: choose 1 to " +
                            std::to_string(kMostLayers));
  ModelConfig config;
  config.name = "kaiju-" + std::string(name);
  config.vocab_size = found->vocab_size;
  config.d_model = found->d_model;
  config.n_heads = found->n_heads;
  config.n_kv_heads = 1;
  config.head_dim = found->head_dim;
  config.d_ff = found->d_ff;
  config.context = found->context;
  config.layers = repeat_layers(found->pattern, layers > 0 ? layers : found->layers, 1024);
  config.derive_counts();
  return config;
}

}  // namespace kaiju
