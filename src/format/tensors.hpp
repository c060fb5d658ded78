// The tensors that a model must have, and the role of each (docs/checkpoint.md, "Tensors"). The tensors of layers are
// derived from the tables of format/layer_shape.hpp.
#pragma once

#include <string>
#include <vector>

#include "kaiju/format/checkpoint.hpp"

namespace kaiju::format {

enum class TensorRole { kWeight, kScale, kRowSum, kScalar, kClip, kBias, kRope, kGain, kStep, kOutStep };

struct ModelTensor : CheckpointWriter::Declaration {
  TensorRole role;
  std::string matrix;       // the one that it is a part of: "layers.0.attn.q", "embed"; of clips and RoPE tables ""
  const MatmulRow* matmul;  // where that is a layer's, else null
  const SiteRow* site;      // of a layer's clips, else null
  const VectorRow* vector;  // of a layer's vectors, else null
};

// In file order, without the tokenizer.
std::vector<ModelTensor> model_tensors(const ModelConfig& config);

}  // namespace kaiju::format
