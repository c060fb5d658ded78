// The forward pass in version 2 of the arithmetic (docs/arithmetic-2.md): token scales behind a Hadamard transform, and
// the layers of open models.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "kaiju/backend/backend.hpp"
#include "kaiju/model/weights.hpp"
#include "kaiju/model/workspace.hpp"

namespace kaiju::scaled {

// A backend that FusesRows and computes gate and up of a feed-forward as one operation: linear() of the packed matrix,
// gate's rows and then up's, with its outputs at args.gates.sums, and then gate_rows(args). What lies at the sums
// afterwards is undefined.
template <class B>
concept GatesMatmuls = FusesRows<B> && requires(B& backend, const Linear& packed, const int8_t* a,
                                                const GateRows& args) { backend.linear_gate_rows(packed, a, args); };

// The quantiser of a matmul's input. `step` is the constant step of the site, or 0; `is_middle` says whether the site
// is one of those whose values are rounded to bf16 first, unless the shape says otherwise.
inline Quantiser quantiser(const LayerShape& shape, const Workspace& w, float step, bool is_middle = false) {
  Quantiser to;
  to.hadamard = std::max(shape.hadamard, 1);
  to.inverse = step != 0.0f ? arith::divide(1.0f, step) : 0.0f;
  to.bf16 = is_middle && !shape.f32_rows;
  to.bytes = w.at<int8_t>(Room::kBytes);
  to.scale = w.at<float>(Room::kScale);
  return to;
}

inline Outputs outputs(const Linear& matrix, const Workspace& w, float* sums) {
  Outputs y;
  y.sums = sums;
  y.scale = w.at<float>(Room::kScale);
  y.bias = matrix.bias;
  y.width = matrix.out;
  y.step = matrix.step;
  y.inverse = matrix.step != 0.0f ? arith::divide(1.0f, matrix.step) : 0.0f;
  return y;
}

// Multiplies the bytes in Room::kBytes.
template <ScaledBackend B>
Outputs multiply(B& backend, const Linear& matrix, int32_t rows, const Workspace& w, float* sums) {
  backend.linear(matrix, w.at<int8_t>(Room::kBytes), rows, matrix.scale, sums);
  return outputs(matrix, w, sums);
}

// A matrix that reads a site, with room for its outputs.
struct Reader {
  Matmul matmul;
  Outputs* y;
  float* sums;  // if the backend has packed matrices, that of the first reader is room for the outputs of all
};

// Where the outputs of all matrices that read `site` lie when they are multiplied as one.
inline void place_all(const LayerWeights& layer, Site site, std::initializer_list<Reader> readers, const Workspace& w) {
  const Linear& packed = layer.packed_at(site);
  for (const Reader& reader : readers) {
    const Linear& matrix = layer[reader.matmul];
    *reader.y = outputs(matrix, w, readers.begin()->sums + (matrix.weight - packed.weight) / matrix.in);
    reader.y->stride = packed.out;
  }
}

// Multiplies the bytes in Room::kBytes by all matrices that read `site`.
template <ScaledBackend B>
void multiply_all(B& backend, const LayerWeights& layer, Site site, std::initializer_list<Reader> readers, int32_t rows,
                  const Workspace& w) {
  if constexpr (FusesRows<B>) {
    const Linear& packed = layer.packed_at(site);
    backend.linear(packed, w.at<int8_t>(Room::kBytes), rows, packed.scale, readers.begin()->sums);
    place_all(layer, site, readers, w);
  } else {
    for (const Reader& reader : readers) *reader.y = multiply(backend, layer[reader.matmul], rows, w, reader.sums);
  }
}

inline NormRows norm_args(const Weights& model, const float* x, std::span<const float> gain, int32_t rows,
                          const Workspace& w, const Quantiser& to) {
  NormRows args;
  args.x = x;
  args.rows = rows;
  args.width = model.config.d_model;
  args.eps = model.config.norm_eps;
  args.gain = gain.data();
  args.scratch = w.at<float>(Room::kQ);
  args.to = to;
  return args;
}

// The norm before a sublayer, whose first matmuls read its bytes.
inline NormRows attention_norm(const Weights& model, const LayerWeights& layer, int32_t rows, const Workspace& w) {
  return norm_args(model, w.at<float>(Room::kStream), layer[Vector::kAttentionGain], rows, w,
                   quantiser(model.config.shape, w, layer.step(Vector::kAttentionInStep)));
}
inline NormRows feed_forward_norm(const Weights& model, const LayerWeights& layer, int32_t rows, const Workspace& w) {
  return norm_args(model, w.at<float>(Room::kStream), layer[Vector::kFfnGain], rows, w,
                   quantiser(model.config.shape, w, layer.step(Vector::kFfnInStep)));
}

// Adds the outputs of a sublayer to the residual stream, and computes the norm before the next sublayer unless `next`
// is null. `norms`: after a norm.
template <ScaledBackend B>
void add(B& backend, const Weights& model, const Outputs& y, bool norms, std::span<const float> post_gain, float factor,
         int32_t rows, const Workspace& w, const NormRows* next) {
  AddRows args;
  args.y = y;
  args.rows = rows;
  args.norms = norms;
  args.gain = post_gain.data();
  args.eps = model.config.norm_eps;
  args.factor = factor;
  args.bf16 = model.config.shape.residual == Residual::kBf16;
  args.x = w.at<float>(Room::kStream);
  if (!next) return backend.add_rows(args);
  if constexpr (FusesRows<B>) {
    backend.add_norm_rows(args, *next);
  } else {
    backend.add_rows(args);
    backend.norm_rows(*next);
  }
}

// Keys and values to the cache if the layer owns its slot, and queries.
template <ScaledBackend B>
void append_and_query(B& backend, const QueryRows& queries, const KeyValueRows& kept, bool owns_slot,
                      const Batch& batch, const KvSlot& cache) {
  if (!owns_slot) return backend.query_rows(queries);
  if constexpr (FusesRows<B>) {
    backend.project_rows(queries, kept, batch, cache);
  } else {
    backend.append_rows(kept, batch, cache);
    backend.query_rows(queries);
  }
}

// Reads the bytes of attention_norm(), and leaves those of `next`.
template <ScaledBackend B>
void attention(B& backend, const Weights& model, const LayerWeights& layer, const Batch& batch, const KvSlot& cache,
               const Workspace& w, const NormRows& next) {
  const ModelConfig& config = model.config;
  const LayerShape& shape = config.shape;
  const int32_t rows = batch.row_count;
  const KvWeights& kv = model.slots[layer.config.kv_slot];
  const auto* angles = w.angles[layer.config.rope];

  QueryRows args;
  KeyValueRows kept;
  const Reader q{Matmul::kQ, &args.q, w.at<float>(Room::kQ)}, k{Matmul::kK, &kept.k, w.at<float>(Room::kK)},
      v{Matmul::kV, &kept.v, w.at<float>(Room::kV)};
  if (!layer.owns_slot)
    multiply_all(backend, layer, Site::kAttentionIn, {q}, rows, w);
  else if (layer.config.values_from_keys)
    multiply_all(backend, layer, Site::kAttentionIn, {q, k}, rows, w), kept.v = kept.k;
  else
    multiply_all(backend, layer, Site::kAttentionIn, {q, k, v}, rows, w);
  kept.kv_heads = cache.kv_heads;
  kept.head_dim = cache.head_dim;
  kept.key_norms = shape.head_norms;
  kept.value_norms = shape.value_norms;
  kept.key_gain = kv.key_gain.data();
  kept.eps = config.norm_eps;
  kept.angles = angles;
  kept.key_inverse = kv.k_inverse.data();
  kept.value_inverse = kv.v_inverse.data();
  kept.hadamard = std::max(shape.hadamard, 1);
  kept.constant_scales = shape.static_kv;
  args.rows = rows;
  args.heads = config.n_heads;
  args.kv_heads = cache.kv_heads;
  args.head_dim = cache.head_dim;
  args.norms = shape.head_norms;
  args.gain = layer[Vector::kQueryGain].data();
  args.eps = config.norm_eps;
  args.angles = angles;
  args.key_step = kv.key_step.data();
  args.hadamard = std::max(shape.hadamard, 1);
  args.factor = layer.z;
  args.bytes = w.at<int8_t>(Room::kQueries);
  args.z = w.at<float>(Room::kZ);
  append_and_query(backend, args, kept, layer.owns_slot, batch, cache);

  auto* attended = w.at<float>(Room::kAttended);
  backend.attend(ScaledAttentionArgs{args.bytes, config.n_heads, args.z, kv.value_step.data(), attended}, batch, cache);
  backend.quantise_rows(QuantiseRows{attended, rows, config.n_heads * cache.head_dim,
                                     quantiser(shape, w, layer.step(Vector::kAttentionOutStep), true)});
  add(backend, model, multiply(backend, layer[Matmul::kO], rows, w, w.at<float>(Room::kQ)), shape.norms_after,
      layer[Vector::kAttentionPostGain], 1.0f, rows, w, &next);
}

inline Gate gate_of(const LayerShape& shape) {
  return shape.ffn == Ffn::kGatedSilu ? Gate::kSilu : shape.ffn == Ffn::kGatedGelu ? Gate::kGelu : Gate::kSquaredRelu;
}

// Reads the bytes of feed_forward_norm(), and leaves those of `next` unless it is null.
template <ScaledBackend B>
void feed_forward(B& backend, const Weights& model, const LayerWeights& layer, int32_t rows, const Workspace& w,
                  const NormRows* next) {
  const LayerShape& shape = model.config.shape;
  GateRows args;
  args.gate = gate_of(shape);
  const Reader gate{Matmul::kGate, &args.gates, w.at<float>(Room::kGate)},
      up{Matmul::kUp, &args.ups, w.at<float>(Room::kUp)};
  args.rows = rows;
  args.to = quantiser(shape, w, layer.step(Vector::kFfnMidStep), true);
  if (!is_gated(shape)) {
    multiply_all(backend, layer, Site::kFfnIn, {up}, rows, w);
    backend.gate_rows(args);
  } else if constexpr (GatesMatmuls<B>) {
    place_all(layer, Site::kFfnIn, {gate, up}, w);
    backend.linear_gate_rows(layer.packed_at(Site::kFfnIn), w.at<int8_t>(Room::kBytes), args);
  } else {
    multiply_all(backend, layer, Site::kFfnIn, {gate, up}, rows, w);
    backend.gate_rows(args);
  }
  add(backend, model, multiply(backend, layer[Matmul::kDown], rows, w, w.at<float>(Room::kQ)), shape.norms_after,
      layer[Vector::kFfnPostGain], has_layer_inputs(shape) ? 1.0f : layer.config.factor, rows, w, next);
}

// Writes the input of one layer to Room::kUp: the tokens' rows of the layer's embedding, and the layer's part of the
// projection of Room::kInputBytes.
template <ScaledBackend B>
void read_input(B& backend, const Weights& model, const LayerWeights& layer, const Batch& batch, const Workspace& w) {
  const InputWeights& inputs = model.inputs;
  const int64_t index = &layer - model.layers.data();
  const int32_t width = inputs.embed.in;
  EmbedRows rows;
  rows.weight = inputs.embed.weight + index * width;
  rows.factor = inputs.embed_scale.data() + index;
  rows.each = static_cast<int32_t>(model.layers.size());
  rows.tokens = batch.tokens.data();
  rows.rows = batch.row_count;
  rows.width = width;
  rows.x = w.at<float>(Room::kUp);
  backend.embed_rows(rows);

  Linear part = inputs.projection;
  const int64_t first = index * width;
  part.weight += first * part.in;
  if (part.row_sum) part.row_sum += first;
  part.scale += first;
  if (part.bias) part.bias += first;
  part.out = width;
  backend.linear(part, w.at<int8_t>(Room::kInputBytes), batch.row_count, part.scale, w.at<float>(Room::kGate));
  AddRows sum;
  sum.y = outputs(part, w, w.at<float>(Room::kGate));
  sum.y.scale = w.at<float>(Room::kInputScale);
  sum.rows = batch.row_count;
  sum.norms = true;
  sum.gain = inputs.gain.data();
  sum.eps = model.config.norm_eps;
  sum.factor = 0.70710678118654752f;  // 2^(-1/2)
  sum.x = w.at<float>(Room::kUp);
  backend.add_rows(sum);
}

// The residual stream gates the layer's input, and what is left of it is added to the residual stream. Leaves the bytes
// of `next` unless it is null.
template <ScaledBackend B>
void add_input(B& backend, const Weights& model, const LayerWeights& layer, const Batch& batch, const Workspace& w,
               const NormRows* next) {
  const LayerShape& shape = model.config.shape;
  const int32_t rows = batch.row_count;
  read_input(backend, model, layer, batch, w);
  QuantiseRows stream{w.at<float>(Room::kStream), rows, model.config.d_model,
                      quantiser(shape, w, layer.step(Vector::kInputInStep)), w.at<float>(Room::kQ)};
  stream.to.is_whole = true;
  backend.quantise_rows(stream);
  GateRows args;
  args.gate = gate_of(shape);
  args.gates = multiply(backend, layer[Matmul::kInputGate], rows, w, w.at<float>(Room::kGate));
  args.ups.sums = w.at<float>(Room::kUp);
  args.ups.width = shape.layer_inputs;
  args.rows = rows;
  args.to = quantiser(shape, w, layer.step(Vector::kInputMidStep), true);
  args.to.is_whole = true;
  backend.gate_rows(args);
  add(backend, model, multiply(backend, layer[Matmul::kInputOut], rows, w, w.at<float>(Room::kQ)), true,
      layer[Vector::kInputPostGain], layer.config.factor, rows, w, next);
}

// A layer ends with the norm before the next one: embed() computes the first, and behind the last layer there is none.
template <ScaledBackend B>
void run_layer(B& backend, const Weights& model, const LayerWeights& layer, const Batch& batch, const KvSlot& cache,
               const Workspace& w) {
  const int32_t rows = batch.row_count;
  const LayerWeights* const after = &layer + 1;
  NormRows next;
  const bool is_last = after == model.layers.data() + model.layers.size();
  if (!is_last) next = attention_norm(model, *after, rows, w);
  const NormRows* const norm = is_last ? nullptr : &next;
  const bool has_inputs = has_layer_inputs(model.config.shape);
  scaled::attention(backend, model, layer, batch, cache, w, feed_forward_norm(model, layer, rows, w));
  scaled::feed_forward(backend, model, layer, rows, w, has_inputs ? nullptr : norm);
  if (has_inputs) scaled::add_input(backend, model, layer, batch, w, norm);
}

// The bytes of the embedding, from which every layer computes its input (read_input).
template <ScaledBackend B>
void embed_inputs(B& backend, const Weights& model, const EmbedRows& args, const Workspace& w) {
  QuantiseRows kept{args.x, args.rows, args.width, quantiser(model.config.shape, w, model.inputs.step),
                    w.at<float>(Room::kQ)};
  kept.to.bytes = w.at<int8_t>(Room::kInputBytes);
  kept.to.scale = w.at<float>(Room::kInputScale);
  kept.to.is_whole = true;
  backend.quantise_rows(kept);
}

// The embeddings of the batch's tokens, to Room::kStream.
inline EmbedRows embed_args(const Weights& model, const Batch& batch, const Workspace& w) {
  const LayerShape& shape = model.config.shape;
  EmbedRows args;
  args.weight = model.embed.weight;
  args.factor = model.embed_scale.data();
  args.tokens = batch.tokens.data();
  args.rows = batch.row_count;
  args.width = model.config.d_model;
  args.hadamard = shape.output == OutputMatrix::kEmbedding ? std::max(shape.hadamard, 1) : 1;
  args.bf16 = shape.residual == Residual::kBf16;
  args.x = w.at<float>(Room::kStream);
  return args;
}

// Writes the embeddings, and computes the first layer's norm.
template <ScaledBackend B>
void embed(B& backend, const Weights& model, const Batch& batch, const Workspace& w) {
  const EmbedRows args = embed_args(model, batch, w);
  backend.embed_rows(args);
  if (has_layer_inputs(model.config.shape)) embed_inputs(backend, model, args, w);
  backend.norm_rows(attention_norm(model, model.layers.front(), args.rows, w));
}

// Writes zero keys and values of one token to the KV cache.
template <ScaledBackend B>
void append_zeros(B& backend, const Weights& model, int32_t slot, const Batch& batch, const KvSlot& kv,
                  const Workspace& w) {
  KeyValueRows args;
  args.k.sums = args.v.sums = w.at<float>(Room::kK);
  args.k.scale = args.v.scale = w.at<float>(Room::kK);
  args.k.width = args.v.width = kv.kv_heads * kv.head_dim;
  args.kv_heads = kv.kv_heads;
  args.head_dim = kv.head_dim;
  args.angles = w.angles[0];
  args.key_inverse = model.slots[static_cast<size_t>(slot)].k_inverse.data();
  args.value_inverse = model.slots[static_cast<size_t>(slot)].v_inverse.data();
  args.constant_scales = model.config.shape.static_kv;
  backend.append_rows(args, batch, kv);
}

// The outputs of one matrix that reads the final norm: [rows, matrix.out].
template <ScaledBackend B>
void final_linear(B& backend, const Weights& model, const Linear& matrix, float cap, const Workspace& w, const float* x,
                  int32_t rows, float* out) {
  const LayerShape& shape = model.config.shape;
  Quantiser to = quantiser(shape, w, 0.0f);
  to.wide = shape.wide_logits;
  backend.norm_rows(norm_args(model, x, model.final_gain, rows, w, to));
  LogitRows args;
  static_assert(MultipliesWideRows<B> || ProjectsPacked<B>, "there is no Room::kWideLogits for such a backend");
  if constexpr (MultipliesWideRows<B>) {
    if (to.wide)
      backend.wide_linear(matrix, w.at<int8_t>(Room::kBytes), rows, matrix.scale, out);
    else
      backend.linear(matrix, w.at<int8_t>(Room::kBytes), rows, matrix.scale, out);
    args.y = outputs(matrix, w, out);
  } else {
    args.y = multiply(backend, matrix, to.wide ? 2 * rows : rows, w, to.wide ? w.at<float>(Room::kWideLogits) : out);
    args.y.wide = to.wide;
  }
  args.rows = rows;
  args.cap = cap;
  args.out = out;
  backend.logit_rows(args);
}

template <ScaledBackend B>
void final_rows(B& backend, const Weights& model, const Linear& matrix, float cap, const Workspace& w,
                const std::byte* x, int32_t rows, float* out) {
  const auto* stream = reinterpret_cast<const float*>(x);
  const int32_t at_once = model.config.shape.wide_logits ? kWideLogitRows : rows;
  for (int32_t row = 0; row < rows; row += at_once)
    final_linear(backend, model, matrix, cap, w, stream + int64_t{row} * model.config.d_model,
                 std::min(at_once, rows - row), out + int64_t{row} * matrix.out);
}

template <ScaledBackend B>
void logits(B& backend, const Weights& model, const Workspace& w, const std::byte* x, int32_t rows, float* out) {
  final_rows(backend, model, model.output, model.config.shape.logit_cap, w, x, rows, out);
}

template <ScaledBackend B>
void classify(B& backend, const Weights& model, const Workspace& w, const std::byte* x, int32_t rows, float* out) {
  final_rows(backend, model, model.classifier, 0.0f, w, x, rows, out);
}

}  // namespace kaiju::scaled
