// Weights: the tensors of a checkpoint, and the constants that the forward pass needs. The matrices are views of the
// checkpoint's mapped file. The constants (arithmetic.md, section 3) are computed once, in double precision, when
// Weights are created. Tensors and constants are held as views, so a device's copy of the weights is a Weights object
// with views of the device's memory.
#pragma once

#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kaiju/base/float_state.hpp"
#include "kaiju/format/checkpoint.hpp"
#include "kaiju/format/detail/layer_constants.hpp"
#include "kaiju/tensor/matrix.hpp"

namespace kaiju {

// The factors that quantise the keys and values of one KV slot.
struct KvWeights {
  std::span<const float> k_inverse;  // [kv_width] ck: factor from float to byte; in version 2 from float to step
  std::span<const float> v_inverse;  // [kv_width] cv: the same for values
  // Version 2 of the arithmetic:
  std::span<const float> key_step, value_step;  // [kv_width]
  std::span<const float> key_gain;              // [head_dim], or empty
};

struct LayerWeights {
  LayerConfig config;
  bool owns_slot = false;
  // The matrices of the layer, indexed by Matmul. If the layer does not own its KV slot (it reads the keys and values
  // of an earlier layer), the entries kK and kV have no weights.
  std::array<Linear, kMatmulCount> matmuls;
  // Packed matrices, indexed by Site (a place in the layer where activations are quantised). A packed matrix has the
  // rows of all matrices that read the site, in the order of kMatmuls. Only the weights that were copied to a GPU are
  // packed. If the weights are not packed, the matrices in `packed` have no weights.
  std::array<Linear, kSiteCount> packed;
  // Version 2 of the arithmetic: the layer's vectors, indexed by Vector. Those of the KV slot are in KvWeights; those
  // that the shape does not have are empty.
  std::array<std::span<const float>, kVectorCount> vectors;
  std::array<float, kVectorCount> steps{};  // the constant steps of sites, 0 where the shape has none
  float attn_in = 0.0f;                     // c_in of the attention's norm
  float ffn_in = 0.0f;                      // c_in of the feed-forward's norm
  std::span<const float> q_inverse;         // [kv_width] cq: factor from rotated query times key scale to byte
  float z = 0.0f;                      // factor from integer score to exponent of two; in version 2 from the largest
                                       // magnitude of a query to z
  std::span<const float> out_inverse;  // [kv_width] co

  const Linear& operator[](Matmul matmul) const { return matmuls[static_cast<size_t>(matmul)]; }
  Linear& operator[](Matmul matmul) { return matmuls[static_cast<size_t>(matmul)]; }
  std::span<const float> operator[](Vector vector) const { return vectors[static_cast<size_t>(vector)]; }
  float step(Vector vector) const { return steps[static_cast<size_t>(vector)]; }
  const Linear& packed_at(Site site) const { return packed[static_cast<size_t>(site)]; }
};

// The tensors of the layers' inputs that are not of one layer (version 2). No weights if the shape has no such inputs.
struct InputWeights {
  Matrix embed;                        // [vocab_size * layers, width], row token * layers + layer
  std::span<const float> embed_scale;  // [vocab_size * layers] factor from byte to embedding
  Linear projection;                   // [layers * width, d_model] from the embedding: `width` rows for each layer
  std::span<const float> gain;         // [width]
  float step = 0.0f;                   // the constant step of the projection's input, 0 if it has none
};

struct Weights {
  std::shared_ptr<const Checkpoint> checkpoint;  // keeps the matrices' memory alive
  ModelConfig config;
  Matrix embed;                        // [vocab_size, d_model]
  std::span<const float> embed_scale;  // [vocab_size] factor from byte to embedding
  Linear output;                       // [vocab_size, d_model] from the final norm to logits; often the matrix `embed`
  float final_in = 0.0f;
  std::span<const float> final_gain;   // [d_model] of the final norm in version 2, or empty
  Linear classifier;                   // [labels, d_model]; no weights if the model has no classifier
  std::vector<float> classifier_bias;  // [labels]; always added on the host
  InputWeights inputs;
  std::vector<LayerWeights> layers;
  std::vector<KvWeights> slots;
  std::vector<std::vector<uint64_t>> rope;    // [tables][head_dim / 2] turns per token times 2^64
  std::vector<std::vector<float>> constants;  // memory that the spans point to

  Weights() = default;
  Weights(Weights&&) = default;  // not copyable: the views of a copy would point into the original
  Weights& operator=(Weights&&) = default;
  static Result<Weights> from(std::shared_ptr<const Checkpoint> checkpoint);
  // Reads the classifier alone, which is quick: the rest stays empty.
  static Weights classifier_from(std::shared_ptr<const Checkpoint> checkpoint);
};

namespace detail {

class WeightReader {
 public:
  WeightReader(const Checkpoint& file, Weights& weights) : file_(file), constants_(weights.constants) {}

  double scalar(const std::string& name) const { return static_cast<double>(file_.view<float>(name)[0]); }
  std::span<const float> floats(const std::string& name) const { return file_.view<float>(name); }
  double final_clip() const { return has_clips(file_.config().shape) ? scalar("final.in_clip") : 127.0; }
  Matrix matrix(const std::string& name) const {
    const TensorInfo& tensor = *file_.find(name + ".weight");
    return {file_.view<int8_t>(name + ".weight").data(), file_.view<int32_t>(name + ".row_sum").data(),
            static_cast<int32_t>(tensor.shape[0]), static_cast<int32_t>(tensor.shape[1])};
  }
  // Applies `make` to every element of the tensor in double precision, rounds each result once to float, and returns a
  // view of the results.
  template <class Make>
  std::span<const float> each(const std::string& name, Make make) {
    std::vector<float>& out = constants_.emplace_back();
    for (const float element : floats(name)) out.push_back(static_cast<float>(make(static_cast<double>(element))));
    return out;
  }
  // Returns (S[n] * factors.input) * factors.result for every row n of the matrix `name`. S[n] is the scale of row n
  // times the scalar of the matrix. The two products are computed in the written order.
  std::span<const float> scales(const std::string& name, LayerConstants::Factors factors) {
    const double virtual_scalar = scalar(name + ".scalar");
    return each(name + ".scale",
                [=](double scale) { return ((scale * virtual_scalar) * factors.input) * factors.result; });
  }
  Linear linear(const std::string& name, LayerConstants::Factors factors) {
    return {matrix(name), scales(name, factors).data()};
  }

 private:
  const Checkpoint& file_;
  std::vector<std::vector<float>>& constants_;
};

}  // namespace detail

namespace detail {

// The constants of one layer in version 1 of the arithmetic (docs/arithmetic.md, section 3).
inline void read_clipped_layer(const Checkpoint& checkpoint, WeightReader& file, Weights& w, int32_t index,
                               LayerWeights& layer) {
  const LayerConstants constants(checkpoint, index);
  const std::string k_clip = constants.clip_name(Site::kKey), v_clip = constants.clip_name(Site::kValue);
  const double q_clip = constants.clip(Site::kQuery), out_clip = constants.clip(Site::kAttentionOut);
  for (const LayerMatmul& matmul : matmuls_of(w.config, index))
    layer[matmul.row->matmul] = file.linear(matmul.name, constants.factors(*matmul.row));
  if (layer.owns_slot) {
    const auto inverse = [](double clip) { return 127.0 / clip; };
    KvWeights& kv = w.slots[layer.config.kv_slot];
    kv.k_inverse = file.each(k_clip, inverse);
    kv.v_inverse = file.each(v_clip, inverse);
  }
  layer.attn_in = static_cast<float>(127.0 / constants.clip(Site::kAttentionIn));
  layer.ffn_in = static_cast<float>(127.0 / constants.clip(Site::kFfnIn));
  layer.q_inverse = file.each(k_clip, [=](double clip) { return (127.0 * clip) / q_clip; });
  layer.z =
      static_cast<float>((q_clip / 16129.0) * (1.4426950408889634 / std::sqrt(static_cast<double>(w.config.head_dim))));
  layer.out_inverse = file.each(v_clip, [=](double clip) { return clip / out_clip; });
}

// The constants of one layer in version 2 (docs/arithmetic-2.md, section 3).
inline void read_scaled_layer(WeightReader& file, Weights& w, int32_t index, LayerWeights& layer) {
  const ModelConfig& config = w.config;
  KvWeights& kv = w.slots[layer.config.kv_slot];
  for (const LayerVector& vector : vectors_of(config, index)) {
    const auto at = static_cast<size_t>(vector.row->vector);
    layer.vectors[at] = file.floats(vector.name);
    if (vector.row->width == Width::kOne) layer.steps[at] = layer.vectors[at][0];
  }
  const auto inverse = [](double step) { return 1.0 / step; };
  if (layer.owns_slot) {
    kv.key_gain = layer[Vector::kKeyGain];
    kv.key_step = layer[Vector::kKeyStep];
    kv.value_step = layer[Vector::kValueStep];
    kv.k_inverse = file.each(tensor_name(config, index, Of::kSlot, "k_step"), inverse);
    kv.v_inverse = file.each(tensor_name(config, index, Of::kSlot, "v_step"), inverse);
  }
  const auto step_of = [&](Site site) -> double {
    switch (site) {
      case Site::kInputIn:
        return layer.step(Vector::kInputInStep);
      case Site::kInputMid:
        return layer.step(Vector::kInputMidStep);
      case Site::kAttentionIn:
        return layer.step(Vector::kAttentionInStep);
      case Site::kAttentionOut:
        return layer.step(Vector::kAttentionOutStep);
      case Site::kFfnIn:
        return layer.step(Vector::kFfnInStep);
      default:
        return layer.step(Vector::kFfnMidStep);
    }
  };
  const bool is_static = has_static_steps(config.shape);
  for (const LayerMatmul& matmul : matmuls_of(config, index)) {
    Linear& linear = layer[matmul.row->matmul];
    linear = file.linear(matmul.name, {is_static ? step_of(matmul.row->input) : 1.0, 1.0});
    if (has_bias(config.shape, *matmul.row)) linear.bias = file.floats(matmul.name + ".bias").data();
    if (is_static) linear.step = static_cast<float>(file.scalar(matmul.name + ".out_step"));
  }
  const int32_t head_dim = config.head_dim_of(index);
  const double scale = config.score_scale != 0.0f ? static_cast<double>(config.score_scale)
                                                  : 1.0 / std::sqrt(static_cast<double>(head_dim));
  const double block = config.shape.hadamard > 0 ? config.shape.hadamard : 1;
  layer.z = static_cast<float>(((1.0 / 127.0) / block) * (1.4426950408889634 * scale));
}

inline void read_inputs(WeightReader& file, const LayerShape& shape, InputWeights& inputs) {
  const double scalar = file.scalar("inputs.embed.scalar");
  inputs.embed = file.matrix("inputs.embed");
  inputs.embed_scale = file.each("inputs.embed.scale", [=](double scale) { return scale * scalar; });
  inputs.gain = file.floats("inputs.gain");
  const bool is_static = has_static_steps(shape);
  if (is_static) inputs.step = static_cast<float>(file.scalar("inputs.in_step"));
  inputs.projection = file.linear("inputs.projection", {is_static ? static_cast<double>(inputs.step) : 1.0, 1.0});
  if (shape.biases == Biases::kAll) inputs.projection.bias = file.floats("inputs.projection.bias").data();
  if (is_static) inputs.projection.step = static_cast<float>(file.scalar("inputs.projection.out_step"));
}

inline void read_classifier(WeightReader& file, double final_clip, Weights& w) {
  w.classifier = file.linear("classifier", {final_clip / 127.0, 1.0});
  const auto bias = file.floats("classifier.bias");
  w.classifier_bias.assign(bias.begin(), bias.end());
}

}  // namespace detail

inline Weights Weights::classifier_from(std::shared_ptr<const Checkpoint> checkpoint) {
  const FloatState float_state;
  Weights w;
  detail::WeightReader file(*checkpoint, w);
  w.config = checkpoint->config();
  if (!w.config.labels.empty()) detail::read_classifier(file, file.final_clip(), w);
  w.checkpoint = std::move(checkpoint);
  return w;
}

// The loader has checked the checkpoint before, so every tensor that Weights::from reads exists and has the right
// shape.
inline Result<Weights> Weights::from(std::shared_ptr<const Checkpoint> checkpoint) {
  const FloatState float_state;
  Weights w;
  detail::WeightReader file(*checkpoint, w);
  w.config = checkpoint->config();
  const ModelConfig& config = w.config;
  const bool is_clipped = has_clips(config.shape);
  const double final_clip = file.final_clip();
  const double in_scalar = file.scalar("embed.in_scalar");
  w.embed = file.matrix("embed");
  w.embed_scale = file.each("embed.scale", [=](double scale) { return scale * in_scalar; });
  if (config.shape.output == OutputMatrix::kEmbedding) {
    const double out_scalar = file.scalar("embed.out_scalar");
    const auto scale =
        file.each("embed.scale", [=](double each) { return (each * out_scalar) * (final_clip / 127.0); });
    w.output = {w.embed, scale.data()};
  } else {
    w.output = file.linear("output", {1.0, 1.0});
    if (config.shape.biases == Biases::kAll) w.output.bias = file.floats("output.bias").data();
  }
  if (is_clipped) w.final_in = static_cast<float>(127.0 / final_clip);
  if (has_gains(config.shape)) w.final_gain = file.floats("final.gain");
  if (!config.labels.empty()) detail::read_classifier(file, final_clip, w);
  if (has_layer_inputs(config.shape)) detail::read_inputs(file, config.shape, w.inputs);
  for (int32_t r = 0; r < config.rope_count; ++r) {
    const auto table = checkpoint->view<uint64_t>("rope." + std::to_string(r));
    w.rope.emplace_back(table.begin(), table.end());
  }
  w.slots.resize(static_cast<size_t>(config.kv_slot_count));
  for (int32_t l = 0; l < static_cast<int32_t>(config.layers.size()); ++l) {
    LayerWeights& layer = w.layers.emplace_back();
    layer.config = config.layers[l];
    layer.owns_slot = config.owns_slot(l);
    if (is_clipped)
      detail::read_clipped_layer(*checkpoint, file, w, l, layer);
    else
      detail::read_scaled_layer(file, w, l, layer);
  }
  w.checkpoint = std::move(checkpoint);
  return w;
}

}  // namespace kaiju
