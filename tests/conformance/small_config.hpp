// A model of a few thin layers, for tests of what follows the layers.
#pragma once

#include <cstdint>

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

// A structure of version 2 of the arithmetic with much of what it has.
inline LayerShape small_scaled_shape() {
  LayerShape shape;
  shape.activations = Activations::kTokenScales;
  shape.hadamard = 64;
  shape.ffn = Ffn::kGatedSilu;
  shape.residual = Residual::kF32;
  shape.output = OutputMatrix::kOwn;
  shape.biases = Biases::kQkv;
  shape.norm_gains = true;
  shape.head_norms = true;
  shape.wide_logits = true;
  return shape;
}

// The thin layers above in version 1 or 2 of the arithmetic. In version 2 the global layer has heads of its own.
inline ModelConfig small_config_of(int32_t arithmetic, const char* name) {
  ModelConfig config = small_config(name, false);
  if (arithmetic == 1) return config;
  config.shape = small_scaled_shape();
  config.layers[1].rope = 1;
  config.layers[1].head_dim = 128;
  config.layers[1].n_kv_heads = 1;
  config.derive_counts();
  return config;
}

}  // namespace kaiju::test
