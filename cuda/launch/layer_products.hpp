// Which products a model's layers are on a GPU: the matrices that read the same bytes are one product, as upload()
// packs them. Host data alone, compiled with and without CUDA.
#pragma once

#include <vector>

#include "kaiju/format/config.hpp"
#include "tiles.hpp"

namespace kaiju::cuda {

struct LayerProduct {
  Site input;
  Operation operation;
  int32_t out, in;
};

// In the order in which a step computes them.
std::vector<LayerProduct> products_of(const ModelConfig& config, int32_t layer);

// Of all products of a step, the logits' and the classifier's included, each once.
std::vector<ProductShape> product_shapes(const ModelConfig& config);

}  // namespace kaiju::cuda
