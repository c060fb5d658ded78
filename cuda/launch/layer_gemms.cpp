#include "layer_gemms.hpp"

#include <algorithm>

#include "kaiju/format/layer_tensors.hpp"

namespace kaiju::cuda {

std::vector<LayerGemm> gemms_of(const ModelConfig& config, int32_t layer) {
  std::vector<LayerGemm> gemms;
  for (const LayerMatmul& matmul : matmuls_of(config, layer)) {
    const auto packed = std::find_if(gemms.begin(), gemms.end(), [&](const LayerGemm& gemm) {
      return gemm.input == matmul.row->input && gemm.operation == matmul.row->operation;
    });
    if (packed == gemms.end())
      gemms.push_back({matmul.row->input, matmul.row->operation, matmul.out, matmul.in});
    else
      packed->out += matmul.out;
  }
  return gemms;
}

std::vector<GemmShape> gemm_shapes(const ModelConfig& config) {
  std::vector<GemmShape> shapes;
  const auto add = [&](int32_t out, int32_t in, bool behind_attention = false) {
    if (std::none_of(shapes.begin(), shapes.end(), [&](const GemmShape& shape) {
          return shape.out == out && shape.in == in && shape.behind_attention == behind_attention;
        }))
      shapes.push_back({out, in, behind_attention});
  };
  for (int32_t layer = 0; layer < static_cast<int32_t>(config.layers.size()); ++layer)
    for (const LayerGemm& gemm : gemms_of(config, layer))
      add(gemm.out, gemm.in, gemm.input == Site::kAttentionOut);
  add(config.vocab_size, config.d_model);
  if (config.label_count() > 0) add(config.label_count(), config.d_model);
  return shapes;
}

}  // namespace kaiju::cuda
