#include "layer_products.hpp"

#include <algorithm>

#include "kaiju/format/layer_tensors.hpp"

namespace kaiju::cuda {

std::vector<LayerProduct> products_of(const ModelConfig& config, int32_t layer) {
  std::vector<LayerProduct> products;
  for (const LayerMatmul& matmul : matmuls_of(config, layer)) {
    const auto packed = std::find_if(products.begin(), products.end(), [&](const LayerProduct& product) {
      return product.input == matmul.row->input && product.operation == matmul.row->operation;
    });
    if (packed == products.end())
      products.push_back({matmul.row->input, matmul.row->operation, matmul.out, matmul.in});
    else
      packed->out += matmul.out;
  }
  return products;
}

std::vector<ProductShape> product_shapes(const ModelConfig& config) {
  std::vector<ProductShape> shapes;
  const auto add = [&](int32_t out, int32_t in, bool behind_attention = false) {
    if (std::none_of(shapes.begin(), shapes.end(), [&](const ProductShape& shape) {
          return shape.out == out && shape.in == in && shape.behind_attention == behind_attention;
        }))
      shapes.push_back({out, in, behind_attention});
  };
  for (int32_t layer = 0; layer < static_cast<int32_t>(config.layers.size()); ++layer)
    for (const LayerProduct& product : products_of(config, layer))
      add(product.out, product.in, product.input == Site::kAttentionOut);
  add(config.vocab_size, config.d_model);
  if (config.label_count() > 0) add(config.label_count(), config.d_model);
  return shapes;
}

}  // namespace kaiju::cuda
