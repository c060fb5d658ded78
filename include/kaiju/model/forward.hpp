// This file computes the forward pass of the transformer on any backend (docs/arithmetic.md, section 4).
#pragma once

#include <algorithm>
#include <vector>

#include "kaiju/backend/backend.hpp"
#include "kaiju/model/weights.hpp"

namespace kaiju {

// Workspace: the buffers that a step computes in. The buffers are in the backend's memory and have room for the rows of
// the largest step.
struct Workspace {
  arith::bf16* x = nullptr;            // [rows, d_model] residual stream
  int8_t* a = nullptr;                 // [rows, WorkspaceWidths::a] normed input, later attention output
  float* q = nullptr;                  // [rows, query_width], or [rows, WorkspaceWidths::qkv] if projections are packed
  int8_t* queries = nullptr;           // [rows, query_width]
  float* k = nullptr;                  // [rows, kv_width]; not needed if projections are packed
  float* v = nullptr;                  // [rows, kv_width]
  uint8_t* h = nullptr;                // [rows, d_ff]
  std::vector<arith::CosSin*> angles;  // for each RoPE table: [rows, head_dim / 2]
};

// The number of elements in one row of each Workspace buffer.
struct WorkspaceWidths {
  explicit WorkspaceWidths(const ModelConfig& config)
      : x(config.d_model),
        a(std::max({width_at(config, Site::kAttentionIn), width_at(config, Site::kAttentionOut),
                    width_at(config, Site::kFfnIn)})),
        q(width_at(config, Site::kQuery)),
        kv(width_at(config, Site::kKey)),
        qkv(q + 2 * kv),
        h(width_at(config, Site::kFfnMid)),
        angles(config.head_dim / 2) {}

  size_t x, a, q, kv, qkv, h, angles;

 private:
  static size_t width_at(const ModelConfig& config, Site site) {
    return static_cast<size_t>(config.width_of(row_of(site).width));
  }
};

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

// Computes a layer's queries from the residual stream. If the layer owns its KV slot, project() also computes keys and
// values and writes them to the KV cache. A layer that does not own its KV slot reads the keys and values of an earlier
// layer.
template <ModelBackend B>
void project(B& backend, const Weights& model, const LayerWeights& layer, const Batch& batch, const KvSlot& cache,
             const Workspace& w) {
  const ModelConfig& config = model.config;
  const int32_t rows = batch.row_count;
  const arith::CosSin* angles = w.angles[layer.config.rope];
  const KvWeights* kv = layer.owns_slot ? &model.slots[layer.config.kv_slot] : nullptr;
  const NormArgs norm = norm_of(model, w.x, rows, layer.attn_in, w.a);

  if constexpr (ProjectsPacked<B>) {
    backend.project({norm, layer.packed_at(Site::kAttentionIn), config.n_heads, config.n_kv_heads, config.head_dim,
                     angles, layer.q_inverse.data(), kv ? kv->k_inverse.data() : nullptr,
                     kv ? kv->v_inverse.data() : nullptr, w.q, w.queries},
                    batch, cache);
  } else {
    backend.norm(norm);
    if (kv) {
      const Linear &k = layer[Matmul::kK], &v = layer[Matmul::kV];
      backend.linear(k, w.a, rows, k.scale, w.k);
      backend.linear(v, w.a, rows, v.scale, w.v);
      backend.append(w.k, w.v, batch, angles, kv->k_inverse.data(), kv->v_inverse.data(), cache);
    }
    const Linear& q = layer[Matmul::kQ];
    backend.linear(q, w.a, rows, q.scale, w.q);
    backend.queries(w.q, batch, angles, config.n_heads, config.n_kv_heads, config.head_dim, layer.q_inverse.data(),
                    w.queries);
  }
}

template <ModelBackend B>
void feed_forward(B& backend, const Weights& model, const LayerWeights& layer, int32_t rows, const Workspace& w) {
  const NormArgs norm = norm_of(model, w.x, rows, layer.ffn_in, w.a);
  const Linear &up = layer[Matmul::kUp], &down = layer[Matmul::kDown];
  switch (model.config.shape.ffn) {
    case Ffn::kSquaredRelu:
      norm_up(backend, norm, up, w.h);
      backend.add_down(down, w.h, rows, down.scale, w.x);
      break;
    case Ffn::kGatedSilu:
    case Ffn::kGatedGelu:
      break;  // check_config refuses them
  }
}

// Runs all layers over the batch. The keys and values are written to the KV cache, and the residual stream after the
// last layer is written to `w.x`.
template <ModelBackend B>
void forward(B& backend, const Weights& model, const std::vector<KvSlot>& slots, const Batch& batch,
             const Workspace& w) {
  const int32_t rows = batch.row_count;
  backend.embed(model.embed, model.embed_scale.data(), batch.tokens, w.x);
  for (const LayerWeights& layer : model.layers) {
    const KvSlot& cache = slots[layer.config.kv_slot];
    const Linear& o = layer[Matmul::kO];

    project(backend, model, layer, batch, cache, w);
    backend.attend({w.queries, model.config.n_heads, layer.z, layer.out_inverse.data(), w.a}, batch, cache);
    backend.add_linear(o, w.a, rows, o.scale, w.x);
    feed_forward(backend, model, layer, rows, w);
  }
}

// Computes the logits of `rows` rows of the residual stream. `x` and the scratch buffer `a` are [rows, d_model], and
// `out` is [rows, vocab_size].
template <ModelBackend B>
void logits(B& backend, const Weights& model, const arith::bf16* x, int32_t rows, int8_t* a, float* out) {
  norm_linear(backend, norm_of(model, x, rows, model.final_in, a), model.embed, model.logit_scale.data(), out);
}

// Computes the classifier's outputs, without bias, for `rows` rows of the residual stream. `x` and the scratch buffer
// `a` are [rows, d_model], and `out` is [rows, labels].
template <ModelBackend B>
void classify(B& backend, const Weights& model, const arith::bf16* x, int32_t rows, int8_t* a, float* out) {
  norm_linear(backend, norm_of(model, x, rows, model.final_in, a), model.classifier, model.classifier_scale.data(),
              out);
}

// Adds the classifier's bias to its outputs `products` [rows, labels], which are in host memory, and appends the
// resulting scores to `scores`.
inline void append_scores(const Weights& model, const float* products, int64_t rows, std::vector<float>& scores) {
  for (int64_t row = 0; row < rows; ++row)
    for (const float bias : model.classifier_bias) scores.push_back(arith::add(*products++, bias));
}

}  // namespace kaiju
