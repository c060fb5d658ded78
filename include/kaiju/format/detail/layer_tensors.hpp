// The matrices and clips of each layer of a config, with their tensor names, derived from the tables of
// layer_shape.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "kaiju/format/config.hpp"

namespace kaiju {

// A matrix of a layer.
struct LayerMatmul {
  const MatmulRow* row;
  std::string name;  // "layers.3.attn.q", "kv.1.k"
  int32_t out, in;
};

// A site of a layer and its clips.
struct LayerSite {
  const SiteRow* row;
  std::string clip;  // the tensor's name
  int32_t clips;     // its elements
};

inline std::string tensor_name(const ModelConfig& config, int32_t layer, Of of, const char* name) {
  const int32_t slot = config.layers[static_cast<size_t>(layer)].kv_slot;
  return (of == Of::kSlot ? "kv." + std::to_string(slot) : "layers." + std::to_string(layer)) + "." + name;
}

// A vector of a layer.
struct LayerVector {
  const VectorRow* row;
  std::string name;
  int32_t width;
};

// The matrices of a layer in the table's order; those of its slot only where it owns the slot.
inline std::vector<LayerMatmul> matmuls_of(const ModelConfig& config, int32_t layer) {
  const bool values_from_keys = config.layers[static_cast<size_t>(layer)].values_from_keys;
  std::vector<LayerMatmul> found;
  for (const MatmulRow& row : kMatmuls)
    if (row.when(config.shape) && (row.of == Of::kLayer || config.owns_slot(layer)) &&
        !(row.matmul == Matmul::kV && values_from_keys))
      found.push_back({&row, tensor_name(config, layer, row.of, row.name), config.width_of(row.out, layer),
                       config.width_of(row_of(row.input).width, layer)});
  return found;
}

// Likewise its sites that have clips.
inline std::vector<LayerSite> sites_of(const ModelConfig& config, int32_t layer) {
  std::vector<LayerSite> found;
  if (!has_clips(config.shape)) return found;
  for (const SiteRow& row : kSites)
    if (row.clip && (row.of == Of::kLayer || config.owns_slot(layer)))
      found.push_back({&row, tensor_name(config, layer, row.of, row.clip), config.width_of(row.clips, layer)});
  return found;
}

// Likewise its vectors.
inline std::vector<LayerVector> vectors_of(const ModelConfig& config, int32_t layer) {
  std::vector<LayerVector> found;
  for (const VectorRow& row : kVectors)
    if (row.when(config.shape) && (row.of == Of::kLayer || config.owns_slot(layer)))
      found.push_back({&row, tensor_name(config, layer, row.of, row.name), config.width_of(row.width, layer)});
  return found;
}

// The longest row that any product of the model reads, the logits' included.
inline int32_t widest_input(const ModelConfig& config) {
  int32_t widest = config.d_model;
  for (int32_t layer = 0; layer < static_cast<int32_t>(config.layers.size()); ++layer)
    for (const LayerMatmul& matmul : matmuls_of(config, layer)) widest = std::max(widest, matmul.in);
  return widest;
}

}  // namespace kaiju
