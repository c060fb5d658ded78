// The GEMMs of the layers of a model on a GPU. Matrices that read the same bytes are one GEMM, as upload()
// packs them. Host data alone, compiled with and without CUDA.
#pragma once

#include <vector>

#include "kaiju/format/config.hpp"
#include "tiles.hpp"

namespace kaiju::cuda {

struct LayerGemm {
  Site input;
  Operation operation;
  int32_t out, in;
};

// In the order in which a step computes them.
std::vector<LayerGemm> gemms_of(const ModelConfig& config, int32_t layer);

// Of all GEMMs of a step, the logits' and the classifier's included, each once.
std::vector<GemmShape> gemm_shapes(const ModelConfig& config);

}  // namespace kaiju::cuda
