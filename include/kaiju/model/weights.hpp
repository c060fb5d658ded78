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
  std::span<const float> k_inverse;  // [kv_width] ck: factor from float to byte
  std::span<const float> v_inverse;  // [kv_width] cv: the same for values
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
  float attn_in = 0.0f;                // c_in of the attention's norm
  float ffn_in = 0.0f;                 // c_in of the feed-forward's norm
  std::span<const float> q_inverse;    // [kv_width] cq: factor from rotated query times key scale to byte
  float z = 0.0f;                      // factor from integer score to exponent of two
  std::span<const float> out_inverse;  // [kv_width] co

  const Linear& operator[](Matmul matmul) const { return matmuls[static_cast<size_t>(matmul)]; }
  Linear& operator[](Matmul matmul) { return matmuls[static_cast<size_t>(matmul)]; }
  const Linear& packed_at(Site site) const { return packed[static_cast<size_t>(site)]; }
};

struct Weights {
  std::shared_ptr<const Checkpoint> checkpoint;  // keeps the matrices' memory alive
  ModelConfig config;
  Matrix embed;                        // [vocab_size, d_model]
  std::span<const float> embed_scale;  // [vocab_size] factor from byte to embedding
  std::span<const float> logit_scale;  // [vocab_size] factor from accumulator to logit
  float final_in = 0.0f;
  Matrix classifier;                        // [labels, d_model]; no weights if the model has no classifier
  std::span<const float> classifier_scale;  // [labels] factor from accumulator to score, before the bias
  std::vector<float> classifier_bias;       // [labels]; always added on the host
  std::vector<LayerWeights> layers;
  std::vector<KvWeights> slots;
  std::vector<std::vector<uint64_t>> rope;    // [tables][head_dim / 2] turns per token times 2^64
  std::vector<std::vector<float>> constants;  // memory that the spans point to

  Weights() = default;
  Weights(Weights&&) = default;  // not copyable: the views of a copy would point into the original
  Weights& operator=(Weights&&) = default;
  static Result<Weights> from(std::shared_ptr<const Checkpoint> checkpoint);
};

namespace detail {

class WeightReader {
 public:
  WeightReader(const Checkpoint& file, Weights& weights) : file_(file), constants_(weights.constants) {}

  double scalar(const std::string& name) const { return static_cast<double>(file_.view<float>(name)[0]); }
  std::span<const float> floats(const std::string& name) const { return file_.view<float>(name); }
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

// The loader has checked the checkpoint before, so every tensor that Weights::from reads exists and has the right
// shape.
inline Result<Weights> Weights::from(std::shared_ptr<const Checkpoint> checkpoint) {
  const FloatState float_state;
  Weights w;
  detail::WeightReader file(*checkpoint, w);
  w.config = checkpoint->config();
  const ModelConfig& config = w.config;
  const double final_clip = file.scalar("final.in_clip");
  const double in_scalar = file.scalar("embed.in_scalar"), out_scalar = file.scalar("embed.out_scalar");
  w.embed = {checkpoint->view<int8_t>("embed.weight").data(), checkpoint->view<int32_t>("embed.row_sum").data(),
             config.vocab_size, config.d_model};
  w.embed_scale = file.each("embed.scale", [=](double scale) { return scale * in_scalar; });
  w.logit_scale = file.each("embed.scale", [=](double scale) { return (scale * out_scalar) * (final_clip / 127.0); });
  w.final_in = static_cast<float>(127.0 / final_clip);
  if (!config.labels.empty()) {
    w.classifier = file.matrix("classifier");
    w.classifier_scale = file.scales("classifier", {final_clip / 127.0, 1.0});
    const auto bias = file.floats("classifier.bias");
    w.classifier_bias.assign(bias.begin(), bias.end());
  }
  for (int32_t r = 0; r < config.rope_count; ++r) {
    const auto table = checkpoint->view<uint64_t>("rope." + std::to_string(r));
    w.rope.emplace_back(table.begin(), table.end());
  }
  w.slots.resize(static_cast<size_t>(config.kv_slot_count));
  for (int32_t l = 0; l < static_cast<int32_t>(config.layers.size()); ++l) {
    const LayerConstants constants(*checkpoint, l);
    const std::string k_clip = constants.clip_name(Site::kKey), v_clip = constants.clip_name(Site::kValue);
    const double q_clip = constants.clip(Site::kQuery), out_clip = constants.clip(Site::kAttentionOut);
    LayerWeights& layer = w.layers.emplace_back();
    layer.config = config.layers[l];
    layer.owns_slot = config.owns_slot(l);
    for (const LayerMatmul& matmul : matmuls_of(config, l))
      layer[matmul.row->matmul] = file.linear(matmul.name, constants.factors(*matmul.row));
    if (layer.owns_slot) {
      const auto inverse = [](double clip) { return 127.0 / clip; };
      w.slots[layer.config.kv_slot] = {file.each(k_clip, inverse), file.each(v_clip, inverse)};
    }
    layer.attn_in = static_cast<float>(127.0 / constants.clip(Site::kAttentionIn));
    layer.ffn_in = static_cast<float>(127.0 / constants.clip(Site::kFfnIn));
    layer.q_inverse = file.each(k_clip, [=](double clip) { return (127.0 * clip) / q_clip; });
    layer.z =
        static_cast<float>((q_clip / 16129.0) * (1.4426950408889634 / std::sqrt(static_cast<double>(config.head_dim))));
    layer.out_inverse = file.each(v_clip, [=](double clip) { return clip / out_clip; });
  }
  w.checkpoint = std::move(checkpoint);
  return w;
}

}  // namespace kaiju
