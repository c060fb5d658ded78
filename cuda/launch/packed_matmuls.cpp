// Lists the packed matmuls of a model. See packed_matmuls.hpp.
#include "packed_matmuls.hpp"

#include <algorithm>

#include "kaiju/format/detail/layer_tensors.hpp"

namespace kaiju::cuda {

std::vector<PackedMatmul> packed_matmuls_of(const ModelConfig& config, int32_t layer) {
  std::vector<PackedMatmul> all;
  for (const LayerMatmul& matmul : matmuls_of(config, layer)) {
    const Operation operation = config.arithmetic() == 2 ? Operation::kLinear : matmul.row->operation;
    const auto same = std::find_if(all.begin(), all.end(), [&](const PackedMatmul& packed) {
      return packed.input == matmul.row->input && packed.operation == operation;
    });
    if (same == all.end())
      all.push_back({matmul.row->input, operation, matmul.out, matmul.in});
    else
      same->out += matmul.out;
  }
  return all;
}

std::vector<MatmulShape> gate_shapes(const ModelConfig& config) {
  std::vector<MatmulShape> shapes;
  if (config.arithmetic() != 2 || !is_gated(config.shape)) return shapes;
  for (int32_t layer = 0; layer < static_cast<int32_t>(config.layers.size()); ++layer)
    for (const PackedMatmul& matmul : packed_matmuls_of(config, layer))
      if (matmul.input == Site::kFfnIn && std::none_of(shapes.begin(), shapes.end(), [&](const MatmulShape& shape) {
            return shape.out == matmul.out && shape.in == matmul.in;
          }))
        shapes.push_back({matmul.out, matmul.in});
  return shapes;
}

std::vector<MatmulShape> matmul_shapes(const ModelConfig& config, int32_t tokens) {
  std::vector<MatmulShape> shapes;
  const auto add = [&](int32_t out, int32_t in, bool behind_attention = false) {
    if (std::none_of(shapes.begin(), shapes.end(), [&](const MatmulShape& shape) {
          return shape.out == out && shape.in == in && shape.behind_attention == behind_attention;
        }))
      shapes.push_back({out, in, behind_attention});
  };
  for (int32_t layer = 0; layer < static_cast<int32_t>(config.layers.size()); ++layer)
    for (const PackedMatmul& matmul : packed_matmuls_of(config, layer))
      add(matmul.out, matmul.in, matmul.operation == Operation::kAddLinear);
  add(tokens > 0 ? tokens : config.vocab_size, config.d_model);
  if (config.label_count() > 0) add(config.label_count(), config.d_model);
  return shapes;
}

}  // namespace kaiju::cuda
