// The transformer, once, straight down, over any backend (docs/arithmetic.md, section 4).
#pragma once

#include <vector>

#include "kaiju/backend/backend.hpp"
#include "kaiju/model/weights.hpp"

namespace kaiju {

// From a layer's normed input to its queries and, where it owns its slot, the keys and values in the cache.
struct Projection {
  const LayerWeights& layer;
  const KvWeights* kv;  // null: the slot is another layer's
  const ModelConfig& config;
  const int8_t* a;              // [rows, d_model]
  const arith::CosSin* angles;  // [rows, head_dim / 2]
  float* q;                     // [rows, query_width + 2 kv_width] scratch
  int8_t* queries;              // [rows, query_width]
};

// A backend that does all of it in its own way; Workspace::k and v are not needed then.
template <class B>
concept ProjectsHeads = requires(B& backend, const Projection& projection, const Batch& batch, const KvSlot& kv) {
  backend.project(projection, batch, kv);
};

// Buffers of one step, in the backend's memory; sized once for the most rows a step may carry.
struct Workspace {
  arith::bf16* x = nullptr;   // [rows, d_model] residual stream
  int8_t* a = nullptr;        // [rows, max(d_model, query_width)] normed input, later attention output
  float* q = nullptr;         // [rows, query_width]; query_width + 2 kv_width where the backend projects heads itself
  int8_t* queries = nullptr;  // [rows, query_width]
  float* k = nullptr;         // [rows, kv_width]
  float* v = nullptr;         // [rows, kv_width]
  uint8_t* h = nullptr;       // [rows, d_ff]
  std::vector<arith::CosSin*> angles;  // per RoPE table: [rows, head_dim / 2]
};

// Runs every layer over the batch: keys and values land in the cache, the residual stream in `w.x`.
template <ModelBackend B>
void forward(B& backend, const Weights& model, const std::vector<KvSlot>& slots, const Batch& batch,
             const Workspace& w) {
  const ModelConfig& config = model.config;
  const int32_t rows = batch.row_count;
  backend.embed(model.embed, model.embed_scale.data(), batch.tokens, w.x);
  for (const LayerWeights& layer : model.layers) {
    const KvSlot& cache = slots[layer.config.kv_slot];
    const arith::CosSin* angles = w.angles[layer.config.rope];

    backend.norm(w.x, rows, config.d_model, config.norm_eps, layer.attn_in, w.a);
    const KvWeights* kv = layer.owns_slot ? &model.slots[layer.config.kv_slot] : nullptr;
    if constexpr (ProjectsHeads<B>) {
      backend.project({layer, kv, config, w.a, angles, w.q, w.queries}, batch, cache);
    } else {
      if (kv) {
        backend.linear(kv->k, w.a, rows, kv->k_scale.data(), w.k);
        backend.linear(kv->v, w.a, rows, kv->v_scale.data(), w.v);
        backend.append(w.k, w.v, batch, angles, kv->k_inverse.data(), kv->v_inverse.data(), cache);
      }
      backend.linear(layer.q, w.a, rows, layer.q_scale.data(), w.q);
      backend.queries(w.q, batch, angles, config.n_heads, config.n_kv_heads, config.head_dim, layer.q_inverse.data(),
                      w.queries);
    }
    backend.attend({w.queries, config.n_heads, layer.z, layer.out_inverse.data(), w.a}, batch, cache);
    backend.add_linear(layer.o, w.a, rows, layer.o_scale.data(), w.x);

    backend.norm(w.x, rows, config.d_model, config.norm_eps, layer.ffn_in, w.a);
    backend.up(layer.up, w.a, rows, layer.up_alpha.data(), w.h);
    backend.add_down(layer.down, w.h, rows, layer.down_scale.data(), w.x);
  }
}

// Logits of `rows` rows of the residual stream. `x` and `a` [rows, d_model], out [rows, vocab_size].
template <ModelBackend B>
void logits(B& backend, const Weights& model, const arith::bf16* x, int32_t rows, int8_t* a, float* out) {
  backend.norm(x, rows, model.config.d_model, model.config.norm_eps, model.final_in, a);
  backend.linear(model.embed, a, rows, model.logit_scale.data(), out);
}

// The classifier's products with `rows` rows of the residual stream: scores without their bias. `x` and `a` [rows,
// d_model], out [rows, labels]. Norms again what logits() may have normed before: a backend may have made that norm
// part of the product that read it.
template <ModelBackend B>
void classify(B& backend, const Weights& model, const arith::bf16* x, int32_t rows, int8_t* a, float* out) {
  backend.norm(x, rows, model.config.d_model, model.config.norm_eps, model.final_in, a);
  backend.linear(model.classifier, a, rows, model.classifier_scale.data(), out);
}

// Appends the scores of rows whose products [rows, labels] have come to the host.
inline void append_scores(const Weights& model, const float* products, int64_t rows, std::vector<float>& scores) {
  for (int64_t row = 0; row < rows; ++row)
    for (const float bias : model.classifier_bias) scores.push_back(arith::add(*products++, bias));
}

}  // namespace kaiju
