// This file computes the forward pass of the transformer on any backend. Version 1 of the arithmetic is here
// (docs/arithmetic.md, section 4); version 2 is in forward_scaled.hpp.
#pragma once

#include <vector>

#include "kaiju/backend/backend.hpp"
#include "kaiju/model/forward_scaled.hpp"
#include "kaiju/model/weights.hpp"
#include "kaiju/model/workspace.hpp"

namespace kaiju {

// Returns the arguments of a norm over `rows` rows of the residual stream. `inverse_scale` is the factor c_in (from
// normalised float to byte) of the matmul input that the norm computes.
inline NormArgs norm_of(const Weights& model, const arith::bf16* x, int32_t rows, float inverse_scale, int8_t* a) {
  return {x, rows, model.config.d_model, model.config.norm_eps, inverse_scale, a};
}

// Computes a norm and the one matmul that reads the norm's result. A backend that can fuse the norm with the matmul
// does so.
template <ModelBackend B>
void norm_linear(B& backend, const NormArgs& norm, const Matrix& w, const float* scale, float* out) {
  if constexpr (FusesNorms<B>) {
    backend.norm_linear(norm, w, scale, out);
  } else {
    backend.norm(norm);
    backend.linear(w, norm.a, norm.rows, scale, out);
  }
}
template <ModelBackend B>
void norm_up(B& backend, const NormArgs& norm, const Linear& up, uint8_t* h) {
  if constexpr (FusesNorms<B>) {
    backend.norm_up(norm, up, up.scale, h);
  } else {
    backend.norm(norm);
    backend.up(up, norm.a, norm.rows, up.scale, h);
  }
}

// Products of the same rows. A backend that can multiply them together does so.
template <ModelBackend B>
void linears(B& backend, std::span<const LinearProduct> products, const int8_t* a, int32_t rows) {
  if constexpr (MultipliesTogether<B>)
    backend.linears(products, a, rows);
  else
    for (const LinearProduct& product : products) backend.linear(product.matrix, a, rows, product.scale, product.out);
}

// Computes a layer's queries from the residual stream. If the layer owns its KV slot, project() also computes keys and
// values and writes them to the KV cache. A layer that does not own its KV slot reads the keys and values of an earlier
// layer.
template <ModelBackend B>
void project(B& backend, const Weights& model, const LayerWeights& layer, const Batch& batch, const KvSlot& cache,
             const Workspace& w) {
  const ModelConfig& config = model.config;
  const int32_t rows = batch.row_count;
  const arith::CosSin* angles = w.angles[layer.config.rope];
  auto* a = w.at<int8_t>(Room::kBytes);
  auto *q_out = w.at<float>(Room::kQ), *k_out = w.at<float>(Room::kK), *v_out = w.at<float>(Room::kV);
  const KvWeights* kv = layer.owns_slot ? &model.slots[layer.config.kv_slot] : nullptr;
  const NormArgs norm = norm_of(model, w.at<arith::bf16>(Room::kStream), rows, layer.attn_in, a);

  if constexpr (ProjectsPacked<B>) {
    backend.project({norm, layer.packed_at(Site::kAttentionIn), config.n_heads, config.n_kv_heads, config.head_dim,
                     angles, layer.q_inverse.data(), kv ? kv->k_inverse.data() : nullptr,
                     kv ? kv->v_inverse.data() : nullptr, q_out, w.at<int8_t>(Room::kQueries)},
                    batch, cache);
  } else {
    backend.norm(norm);
    const Linear& q = layer[Matmul::kQ];
    if (kv) {
      const Linear &k = layer[Matmul::kK], &v = layer[Matmul::kV];
      const LinearProduct products[] = {{q, q.scale, q_out}, {k, k.scale, k_out}, {v, v.scale, v_out}};
      linears(backend, products, a, rows);
      backend.append(k_out, v_out, batch, angles, kv->k_inverse.data(), kv->v_inverse.data(), cache);
    } else {
      backend.linear(q, a, rows, q.scale, q_out);
    }
    backend.queries(q_out, batch, angles, config.n_heads, config.n_kv_heads, config.head_dim, layer.q_inverse.data(),
                    w.at<int8_t>(Room::kQueries));
  }
}

template <ModelBackend B>
void feed_forward(B& backend, const Weights& model, const LayerWeights& layer, int32_t rows, const Workspace& w) {
  auto* x = w.at<arith::bf16>(Room::kStream);
  auto* h = w.at<uint8_t>(Room::kMiddle);
  const Linear &up = layer[Matmul::kUp], &down = layer[Matmul::kDown];
  norm_up(backend, norm_of(model, x, rows, layer.ffn_in, w.at<int8_t>(Room::kBytes)), up, h);
  backend.add_down(down, h, rows, down.scale, x);
}

// Writes the embeddings of the batch's tokens to Room::kStream.
template <ModelBackend B>
void embed(B& backend, const Weights& model, const Batch& batch, const Workspace& w) {
  if constexpr (ScaledBackend<B>)
    if (model.config.arithmetic() == 2) return scaled::embed(backend, model, batch, w);
  backend.embed(model.embed, model.embed_scale.data(), batch.tokens, w.at<arith::bf16>(Room::kStream));
}

// Runs one layer over the batch: from Room::kStream to Room::kStream. If the layer owns its KV slot, its keys and
// values are written to `cache`.
template <ModelBackend B>
void run_layer(B& backend, const Weights& model, const LayerWeights& layer, const Batch& batch, const KvSlot& cache,
               const Workspace& w) {
  if constexpr (ScaledBackend<B>)
    if (model.config.arithmetic() == 2) return scaled::run_layer(backend, model, layer, batch, cache, w);
  auto* x = w.at<arith::bf16>(Room::kStream);
  auto* a = w.at<int8_t>(Room::kBytes);
  const Linear& o = layer[Matmul::kO];
  project(backend, model, layer, batch, cache, w);
  backend.attend(
      AttentionArgs{w.at<int8_t>(Room::kQueries), model.config.n_heads, layer.z, layer.out_inverse.data(), a}, batch,
      cache);
  backend.add_linear(o, a, batch.row_count, o.scale, x);
  feed_forward(backend, model, layer, batch.row_count, w);
}

// Runs all layers over the batch. The keys and values are written to the KV cache, and the residual stream after the
// last layer is written to Room::kStream. A backend that is no ScaledBackend computes version 1 only.
template <ModelBackend B>
void forward(B& backend, const Weights& model, const std::vector<KvSlot>& slots, const Batch& batch,
             const Workspace& w) {
  embed(backend, model, batch, w);
  for (const LayerWeights& layer : model.layers)
    run_layer(backend, model, layer, batch, slots[layer.config.kv_slot], w);
}

// Computes the logits of `rows` rows of the residual stream. `x` is [rows, d_model] in the type of Room::kStream, and
// `out` is [rows, vocab_size]. Overwrites Room::kBytes.
template <ModelBackend B>
void logits(B& backend, const Weights& model, const Workspace& w, const std::byte* x, int32_t rows, float* out) {
  if constexpr (ScaledBackend<B>)
    if (model.config.arithmetic() == 2) return scaled::logits(backend, model, w, x, rows, out);
  norm_linear(backend,
              norm_of(model, reinterpret_cast<const arith::bf16*>(x), rows, model.final_in, w.at<int8_t>(Room::kBytes)),
              model.output, model.output.scale, out);
}

// Computes the classifier's outputs, without bias, for `rows` rows of the residual stream. `x` is as in logits(), and
// `out` is [rows, labels].
template <ModelBackend B>
void classify(B& backend, const Weights& model, const Workspace& w, const std::byte* x, int32_t rows, float* out) {
  if constexpr (ScaledBackend<B>)
    if (model.config.arithmetic() == 2) return scaled::classify(backend, model, w, x, rows, out);
  norm_linear(backend,
              norm_of(model, reinterpret_cast<const arith::bf16*>(x), rows, model.final_in, w.at<int8_t>(Room::kBytes)),
              model.classifier, model.classifier.scale, out);
}

// Adds the classifier's bias to its outputs `products` [rows, labels], which are in host memory, and appends the
// resulting scores to `scores`.
inline void append_scores(const Weights& model, const float* products, int64_t rows, std::vector<float>& scores) {
  for (int64_t row = 0; row < rows; ++row)
    for (const float bias : model.classifier_bias) scores.push_back(arith::add(*products++, bias));
}

}  // namespace kaiju
