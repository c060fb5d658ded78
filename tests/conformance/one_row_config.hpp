// Small models of which a GPU takes all layers as one kernel where a step has one row.
#pragma once

#include <fmt/format.h>

#include <cstdint>

#include "kaiju/format/config.hpp"

namespace kaiju::test {

// Models of version 2 of the arithmetic whose steps of one row a GPU may take as one kernel
// (cuda/kernels/sm90_scaled_row_step.cuh): like Llama, like Qwen, like Gemma, and with what is left of a structure.
enum class Like { kLlama, kQwen, kGemma, kOther, kManyHeads };
inline ModelConfig one_row_config(Like like, int32_t window) {
  struct Sizes {
    int32_t d_model, heads, kv_heads, head_dim, d_ff;
  };
  static constexpr Sizes kSizes[] = {{1024, 8, 2, 128, 1536},
                                     {1536, 24, 4, 64, 2176},
                                     {1088, 8, 2, 256, 1344},
                                     {1024, 16, 2, 64, 1024},
                                     {1024, 120, 24, 64, 1024}};
  const Sizes& sizes = kSizes[static_cast<size_t>(like)];
  ModelConfig config;
  config.name = fmt::format("one-row-{}", static_cast<int>(like));
  config.vocab_size = 272;
  config.d_model = sizes.d_model;
  config.n_heads = sizes.heads;
  config.n_kv_heads = sizes.kv_heads;
  config.head_dim = sizes.head_dim;
  config.d_ff = sizes.d_ff;
  config.context = 4096;
  config.layers = {{LayerKind::kGlobal, 0, 0, 0}, {LayerKind::kGlobal, 0, 1, 0}};
  if (like == Like::kManyHeads) config.layers.pop_back();
  LayerShape& shape = config.shape;
  shape.activations = Activations::kTokenScales;
  shape.hadamard = 64;
  shape.ffn = Ffn::kGatedSilu;
  shape.residual = Residual::kF32;
  shape.output = OutputMatrix::kOwn;
  shape.norm_gains = true;
  shape.wide_logits = true;
  if (like == Like::kQwen) {
    shape.biases = Biases::kQkv;
    shape.hadamard = 32;
    shape.output = OutputMatrix::kEmbedding;
    shape.residual = Residual::kBf16;
    shape.wide_logits = false;
  } else if (like == Like::kGemma) {
    config.layers = {
        {LayerKind::kWindow, window, 0, 0}, {LayerKind::kGlobal, 0, 1, 1}, {LayerKind::kWindow, window, 2, 0}};
    shape.ffn = Ffn::kGatedGelu;
    shape.output = OutputMatrix::kEmbedding;
    shape.norms_after = shape.head_norms = true;
    shape.logit_cap = 30.0f;
  } else if (like == Like::kOther) {
    config.layers[0].factor = 0.7f;
    shape.biases = Biases::kAll;
    shape.hadamard = 0;
    shape.norm_gains = false;
    shape.value_norms = shape.static_kv = shape.head_norms = true;
  }
  config.derive_counts();
  return config;
}

}  // namespace kaiju::test
