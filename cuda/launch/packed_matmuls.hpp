// The matmuls of a model's layers on a GPU. In version 1 of the arithmetic, matrices that read the same input form one
// matmul, as upload() packs them; in version 2 each matrix is one. Host data only, compiled with and without CUDA.
#pragma once

#include <vector>

#include "kaiju/format/config.hpp"
#include "tiles.hpp"

namespace kaiju::cuda {

struct PackedMatmul {
  Site input;
  Operation operation;
  int32_t out, in;
};

// In the order in which a step computes them.
std::vector<PackedMatmul> packed_matmuls_of(const ModelConfig& config, int32_t layer);

// Of all matmuls of a step, the logits' and the classifier's included, each once. `tokens`: that a GPU computes logits
// of; 0: the whole vocabulary.
std::vector<MatmulShape> matmul_shapes(const ModelConfig& config, int32_t tokens = 0);

// Of the matmuls of gate and up together in version 2 of the arithmetic, each once; none where the model has no gate.
std::vector<MatmulShape> gate_shapes(const ModelConfig& config);

}  // namespace kaiju::cuda
