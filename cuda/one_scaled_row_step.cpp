// OneScaledRowStep: describes the model to the kernel and launches it. See one_scaled_row_step.hpp.
#include "one_scaled_row_step.hpp"

#include <algorithm>
#include <utility>

#include "kaiju/arith/softmax.hpp"
#include "kaiju/model/forward_scaled.hpp"

namespace kaiju::cuda {
namespace {

// The window of all layers that have one; 0 if none has.
int32_t window_of(const Weights& weights) {
  int32_t window = 0;
  for (const LayerWeights& layer : weights.layers) window = std::max(window, layer.config.window);
  return window;
}

// Whether all layers have the model's dimensions, and each a KV slot of its own, with values from a matrix of theirs.
bool has_equal_layers(const Weights& weights) {
  const ModelConfig& config = weights.config;
  return std::all_of(weights.layers.begin(), weights.layers.end(), [&](const LayerWeights& layer) {
    const auto index = static_cast<int32_t>(&layer - weights.layers.data());
    return layer.owns_slot && (layer.config.window == 0 || layer.config.window == window_of(weights)) &&
           !layer.config.values_from_keys && config.head_dim_of(index) == config.head_dim &&
           config.kv_heads_of(index) == config.n_kv_heads && config.width_of(Width::kFfn, index) == config.d_ff;
  });
}

std::vector<ScaledRowLayer> describe_layers(const Weights& weights, const OneScaledRowStep::Places& places) {
  std::vector<ScaledRowLayer> layers;
  for (const LayerWeights& layer : weights.layers) {
    const KvWeights& kv = weights.slots[layer.config.kv_slot];
    ScaledRowLayer& row = layers.emplace_back(ScaledRowLayer{
        .weights = {},
        .scales = {},
        .bias = {},
        .vectors = {layer[Vector::kAttentionGain].data(), layer[Vector::kAttentionPostGain].data(),
                    layer[Vector::kFfnGain].data(), layer[Vector::kFfnPostGain].data(), kv.key_step.data(),
                    kv.k_inverse.data(), kv.value_step.data(), kv.v_inverse.data()},
        .query_gain = layer[Vector::kQueryGain].data(),
        .key_gain = kv.key_gain.data(),
        .angles = places.angles[layer.config.rope],
        .z = layer.z,
        .factor = layer.config.factor,
        .kv = places.slots[layer.config.kv_slot],
    });
    const Linear* const matrices[kScaledRowMatrixCount] = {&layer.packed_at(Site::kAttentionIn), &layer[Matmul::kO],
                                                           &layer[Matmul::kGate], &layer[Matmul::kUp],
                                                           &layer[Matmul::kDown]};
    for (int32_t m = 0; m < kScaledRowMatrixCount; ++m)
      row.weights[m] = matrices[m]->weight, row.scales[m] = matrices[m]->scale;
    for (int32_t m = 0; m <= static_cast<int32_t>(Matmul::kDown); ++m) row.bias[m] = layer[static_cast<Matmul>(m)].bias;
  }
  return layers;
}

ScaledRowStep describe_step(const Weights& weights, const OneScaledRowStep::Places& places) {
  const ModelConfig& config = weights.config;
  const LayerShape& shape = config.shape;
  ScaledRowStep step{};
  step.layer_count = static_cast<int32_t>(weights.layers.size());
  step.d_model = config.d_model;
  step.d_ff = config.d_ff;
  step.vocab = config.vocab_size;
  step.heads = config.n_heads;
  step.kv_heads = config.n_kv_heads;
  step.head_dim = config.head_dim;
  step.window = window_of(weights);
  step.hadamard = std::max(shape.hadamard, 1);
  step.gate = scaled::gate_of(shape);
  step.bf16_residual = shape.residual == Residual::kBf16;
  step.norms_after = shape.norms_after;
  step.head_norms = shape.head_norms;
  step.value_norms = shape.value_norms;
  step.static_kv = shape.static_kv;
  step.has_biases = shape.biases != Biases::kNone;
  step.wide_logits = shape.wide_logits;
  step.logit_cap = shape.logit_cap;
  step.eps = config.norm_eps;
  step.output = weights.output.weight;
  step.output_scale = weights.output.scale;
  step.output_bias = weights.output.bias;
  step.final_gain = weights.final_gain.data();
  step.x = places.x;
  step.logits = places.logits;
  return step;
}

}  // namespace

Result<std::optional<OneScaledRowStep>> OneScaledRowStep::make(std::shared_ptr<Device> device, const Weights& weights,
                                                               const Places& places) {
  OneScaledRowStep made(std::move(device), places.slots);
  made.step_ = describe_step(weights, places);
  if (!has_equal_layers(weights) || !scaled_row_step_serves(made.device_->chip(), weights.config.shape, made.step_))
    return std::optional<OneScaledRowStep>();
  KAIJU_TRY(made.take_memory(describe_layers(weights, places)));
  return std::optional(std::move(made));
}

Status OneScaledRowStep::take_memory(const std::vector<ScaledRowLayer>& layers) {
  const int32_t width = step_.heads * step_.head_dim;
  const auto words = [](int32_t row) { return static_cast<size_t>(scaled_row_words(row)); };
  const size_t projected = words(width + 2 * step_.kv_heads * step_.head_dim), attended = words(width),
               middle = words(step_.d_ff), outputs = words(step_.d_model),
               sums = size_t{kScaledRowStepChunks} * static_cast<size_t>(width),
               parts = size_t{kScaledRowStepChunks} * 4 * static_cast<size_t>(step_.heads);
  KAIJU_TRY(take(layers_, layers.size(), "the layers' descriptions"));
  KAIJU_TRY(
      take(words_, projected + attended + middle + outputs + sums + parts, "a row on its way through the layers"));
  KAIJU_TRY(take(counters_, 2, "a row on its way through the layers"));
  step_.q = words_.data();
  step_.a = step_.q + projected;
  step_.h = step_.a + attended;
  step_.y = step_.h + middle;
  step_.sums = step_.y + outputs;
  step_.parts = step_.sums + sums;
  step_.layers = layers_.data();
  step_.counters = counters_.data();
  device_->check(
      cudaMemcpyAsync(layers_.data(), layers.data(), layers_.bytes(), cudaMemcpyHostToDevice, device_->stream()),
      "a copy to the GPU");
  device_->check(cudaStreamSynchronize(device_->stream()), "a copy to the GPU");
  return device_->status();
}

bool OneScaledRowStep::serves(int32_t position) const {
  return std::all_of(slots_.begin(), slots_.end(), [&](const KvSlot& kv) {
    return position / arith::kChunkKeys - kv.first_visible(position) / arith::kChunkKeys < kScaledRowStepChunks;
  });
}

void OneScaledRowStep::run(const BatchSegment* segment) {
  step_.segment = segment;
  device_->attempt("a step of one row", [&] { return scaled_row_step(device_->stream(), device_->chip(), step_); });
}

}  // namespace kaiju::cuda
