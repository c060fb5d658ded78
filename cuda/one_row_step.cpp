// OneRowStep: describes the model to the kernel and launches it. See one_row_step.hpp.
#include "one_row_step.hpp"

#include <algorithm>
#include <utility>

#include "kaiju/arith/softmax.hpp"

namespace kaiju::cuda {
namespace {

std::vector<RowLayer> describe_layers(const Weights& weights, const OneRowStep::Places& places) {
  std::vector<RowLayer> layers;
  for (const LayerWeights& layer : weights.layers) {
    const KvWeights& kv = weights.slots[layer.config.kv_slot];
    RowLayer& row = layers.emplace_back(RowLayer{.weights = {},
                                                 .scales = {},
                                                 .q_inverse = layer.q_inverse.data(),
                                                 .k_inverse = kv.k_inverse.data(),
                                                 .v_inverse = kv.v_inverse.data(),
                                                 .out_inverse = layer.out_inverse.data(),
                                                 .angles = places.angles[layer.config.rope],
                                                 .attn_in = layer.attn_in,
                                                 .ffn_in = layer.ffn_in,
                                                 .z = layer.z,
                                                 .keys = layer.owns_slot ? 1 : 0,
                                                 .kv = places.slots[layer.config.kv_slot]});
    for (size_t m = 0; m < std::size(kRowMatrices); ++m) {
      const Linear& packed = layer.packed_at(kRowMatrices[m].input);
      row.weights[m] = packed.weight, row.scales[m] = packed.scale;
    }
  }
  return layers;
}

RowStep describe_step(const Weights& weights, const OneRowStep::Places& places) {
  const ModelConfig& config = weights.config;
  RowStep step{};
  step.layer_count = static_cast<int32_t>(weights.layers.size());
  step.d_model = config.d_model;
  step.d_ff = config.d_ff;
  step.vocab = config.vocab_size;
  step.heads = config.n_heads;
  step.kv_heads = config.n_kv_heads;
  step.head_dim = config.head_dim;
  step.embed = weights.embed.weight;
  step.logit_scale = weights.output.scale;
  step.final_in = weights.final_in;
  step.eps = config.norm_eps;
  step.x = places.x;
  step.logits = places.logits;
  return step;
}

}  // namespace

Result<std::optional<OneRowStep>> OneRowStep::make(std::shared_ptr<Device> device, const Weights& weights,
                                                   const Places& places) {
  OneRowStep made(std::move(device), places.slots);
  made.step_ = describe_step(weights, places);
  if (!row_step_serves(made.device_->chip(), weights.config.shape, made.step_)) return std::optional<OneRowStep>();
  KAIJU_TRY(made.take_memory(weights.config, describe_layers(weights, places)));
  return std::optional(std::move(made));
}

Status OneRowStep::take_memory(const ModelConfig& config, const std::vector<RowLayer>& layers) {
  const auto chunks = static_cast<size_t>(row_step_chunks(device_->chip(), config.n_kv_heads));
  const auto width = static_cast<size_t>(config.query_width()),
             projected = width + 2 * static_cast<size_t>(config.kv_width()),
             heads = static_cast<size_t>(config.n_heads);
  const auto d_model = static_cast<size_t>(config.d_model), d_ff = static_cast<size_t>(config.d_ff);
  KAIJU_TRY(take(layers_, layers.size(), "the layers' descriptions"));
  KAIJU_TRY(take(words_, projected + d_ff / 4 + width / 4 + chunks * (width + 2 * heads) + d_model / 2,
                 "a row on its way through the layers"));
  KAIJU_TRY(take(counters_, 3, "a row on its way through the layers"));
  step_.q = words_.data();
  step_.h = step_.q + projected;
  step_.a = step_.h + d_ff / 4;
  step_.sums = step_.a + width / 4;
  step_.parts = step_.sums + chunks * width;
  step_.row = reinterpret_cast<uint32_t*>(step_.parts + chunks * 2 * heads);
  step_.layers = layers_.data();
  step_.counters = counters_.data();
  device_->check(
      cudaMemcpyAsync(layers_.data(), layers.data(), layers_.bytes(), cudaMemcpyHostToDevice, device_->stream()),
      "a copy to the GPU");
  device_->check(cudaStreamSynchronize(device_->stream()), "a copy to the GPU");
  return device_->status();
}

bool OneRowStep::serves(int32_t position) const {
  const int32_t chunks = row_step_chunks(device_->chip(), step_.kv_heads);
  return std::all_of(slots_.begin(), slots_.end(), [&](const KvSlot& kv) {
    return position / arith::kChunkKeys - kv.first_visible(position) / arith::kChunkKeys < chunks;
  });
}

void OneRowStep::run(const BatchSegment* segment) {
  step_.segment = segment;
  device_->attempt("a step of one row", [&] { return row_step(device_->stream(), device_->chip(), step_); });
}

}  // namespace kaiju::cuda
