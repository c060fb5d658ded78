// Lists the tensors that a model must have. See tensors.hpp.
#include "tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "header.hpp"
#include "kaiju/format/detail/layer_tensors.hpp"

namespace kaiju {

size_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kI8:
    case DType::kU8:
      return 1;
    case DType::kI32:
    case DType::kF32:
      return 4;
    case DType::kU64:
      return 8;
  }
  return 0;
}

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return "I8";
    case DType::kU8:
      return "U8";
    case DType::kI32:
      return "I32";
    case DType::kU64:
      return "U64";
    case DType::kF32:
      return "F32";
  }
  return "unknown";
}

namespace format {
namespace {

class Tensors {
 public:
  void add(TensorRole role, std::string name, DType dtype, std::vector<int64_t> shape, const std::string& matrix = {},
           const MatmulRow* matmul = nullptr, const SiteRow* site = nullptr, const VectorRow* vector = nullptr) {
    all_.push_back({{std::move(name), dtype, std::move(shape)}, role, matrix, matmul, site, vector});
  }
  void clip(const std::string& name, int64_t count, const SiteRow* site = nullptr) {
    add(TensorRole::kClip, name, DType::kF32, {count}, {}, nullptr, site);
  }
  // Scale and row sums right after their weights: whoever streams a matrix has them at hand.
  void rows(const std::string& matrix, int64_t out, int64_t in, const MatmulRow* matmul = nullptr) {
    add(TensorRole::kWeight, matrix + ".weight", DType::kI8, {out, in}, matrix, matmul);
    add(TensorRole::kScale, matrix + ".scale", DType::kF32, {out}, matrix, matmul);
    add(TensorRole::kRowSum, matrix + ".row_sum", DType::kI32, {out}, matrix, matmul);
  }
  void scalar(const std::string& matrix, const char* name = ".scalar", const MatmulRow* matmul = nullptr) {
    add(TensorRole::kScalar, matrix + name, DType::kF32, {1}, matrix, matmul);
  }
  void bias(const std::string& matrix, int64_t out) {
    add(TensorRole::kBias, matrix + ".bias", DType::kF32, {out}, matrix);
  }
  void layer(const ModelConfig& config, int32_t layer) {
    for (const Of of : {Of::kSlot, Of::kLayer}) {
      for (const LayerMatmul& matmul : matmuls_of(config, layer)) {
        if (matmul.row->of != of) continue;
        rows(matmul.name, matmul.out, matmul.in, matmul.row);
        scalar(matmul.name, ".scalar", matmul.row);
        if (config.arithmetic() == 1) continue;
        if (has_bias(config.shape, *matmul.row)) bias(matmul.name, matmul.out);
        if (has_static_steps(config.shape))
          add(TensorRole::kOutStep, matmul.name + ".out_step", DType::kF32, {1}, matmul.name, matmul.row);
      }
      for (const LayerVector& vector : vectors_of(config, layer))
        if (vector.row->of == of)
          add(vector.row->role == VectorRole::kGain ? TensorRole::kGain : TensorRole::kStep, vector.name, DType::kF32,
              {vector.width}, {}, nullptr, nullptr, vector.row);
      for (const LayerSite& site : sites_of(config, layer))
        if (site.row->of == of) clip(site.clip, site.clips, site.row);
    }
  }
  // The tensors of the layers' inputs that are not of one layer.
  void inputs(const ModelConfig& config) {
    const auto layers = static_cast<int64_t>(config.layers.size());
    const int64_t width = config.shape.layer_inputs;
    rows("inputs.embed", config.vocab_size * layers, width);
    scalar("inputs.embed");
    rows("inputs.projection", layers * width, config.d_model);
    scalar("inputs.projection");
    if (config.shape.biases == Biases::kAll) bias("inputs.projection", layers * width);
    add(TensorRole::kGain, "inputs.gain", DType::kF32, {width});
    if (!has_static_steps(config.shape)) return;
    add(TensorRole::kOutStep, "inputs.projection.out_step", DType::kF32, {1}, "inputs.projection");
    add(TensorRole::kStep, "inputs.in_step", DType::kF32, {1}, {}, nullptr, nullptr,
        &kVectors[static_cast<size_t>(Vector::kInputInStep)]);
  }
  // In the order of the file.
  std::vector<ModelTensor> take() {
    std::stable_partition(all_.begin(), all_.end(), [](const ModelTensor& tensor) {
      return layout_group(tensor.name, tensor_bytes(tensor.dtype, tensor.shape)) == 0;
    });
    return std::move(all_);
  }

 private:
  std::vector<ModelTensor> all_;
};

}  // namespace

std::vector<ModelTensor> model_tensors(const ModelConfig& config) {
  Tensors tensors;
  const bool has_own_output = config.shape.output == OutputMatrix::kOwn;
  tensors.rows("embed", config.vocab_size, config.d_model);
  tensors.scalar("embed", ".in_scalar");
  if (!has_own_output) tensors.scalar("embed", ".out_scalar");
  for (int32_t rope = 0; rope < config.rope_count; ++rope)
    tensors.add(TensorRole::kRope, fmt::format("rope.{}", rope), DType::kU64, {config.rope_head_dim(rope) / 2});
  if (has_layer_inputs(config.shape)) tensors.inputs(config);
  for (int32_t layer = 0; layer < static_cast<int32_t>(config.layers.size()); ++layer) tensors.layer(config, layer);
  if (has_clips(config.shape)) tensors.clip("final.in_clip", 1);
  if (has_gains(config.shape)) tensors.add(TensorRole::kGain, "final.gain", DType::kF32, {config.d_model});
  if (has_own_output) {
    tensors.rows("output", config.vocab_size, config.d_model);
    tensors.scalar("output");
    if (config.shape.biases == Biases::kAll) tensors.bias("output", config.vocab_size);
  }
  if (const int32_t labels = config.label_count(); labels > 0) {
    tensors.rows("classifier", labels, config.d_model);
    tensors.scalar("classifier");
    tensors.bias("classifier", labels);
  }
  return tensors.take();
}

}  // namespace format

std::vector<CheckpointWriter::Declaration> required_tensors(const ModelConfig& config) {
  std::vector<CheckpointWriter::Declaration> declarations;
  for (format::ModelTensor& tensor : format::model_tensors(config)) declarations.push_back(std::move(tensor));
  return declarations;
}

}  // namespace kaiju
