// A model of a few thin layers, for tests of what follows the layers.
#pragma once

#include "kaiju/format/config.hpp"

namespace kaiju::test {

// Of narrow rows; or of multiples of 1,024, which a GPU may take all layers of at once where there is one row
// (cuda/kernels/sm90_row_step.cu).
inline ModelConfig small_config(const char* name, bool wide) {
  ModelConfig config;
  config.name = name;
  config.vocab_size = 272;
  config.d_model = wide ? 1024 : 128;
  config.head_dim = 64;
  config.n_kv_heads = 1;
  config.n_heads = wide ? 16 : 2;
  config.d_ff = wide ? 1024 : 192;
  config.context = 512;
  config.rope_count = 1;
  config.kv_slot_count = 2;
  config.layers = {{LayerKind::kWindow, 65, 0, 0}, {LayerKind::kGlobal, 0, 1, 0}, {LayerKind::kWindow, 65, 0, 0}};
  return config;
}

}  // namespace kaiju::test
