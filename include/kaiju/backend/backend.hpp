// Backend: the operations of a device that the forward pass needs, one line each. backend/reference.hpp defines every
// bit of each operation's result, and tests/conformance compares every backend with this reference.
//
// A row of an array belongs to one token of the step. `x` is the residual stream as bf16 bits. All pointers point to
// the device's memory, and comments give the shapes of the arrays.
#pragma once

#include <concepts>
#include <span>

#include "kaiju/arith/float32.hpp"
#include "kaiju/arith/row_args.hpp"
#include "kaiju/backend/batch.hpp"
#include "kaiju/base/status.hpp"
#include "kaiju/step/plan.hpp"
#include "kaiju/step/result.hpp"
#include "kaiju/tensor/matrix.hpp"

namespace kaiju {

// The arguments of a norm operation, which normalises rows of the residual stream and quantises them to bytes.
struct NormArgs {
  const arith::bf16* x = nullptr;  // [rows, width]
  int32_t rows = 0;
  int32_t width = 0;
  float eps = 0.0f;
  float inverse_scale = 0.0f;  // factor from normed float to byte, c_in
  int8_t* a = nullptr;         // [rows, width]
};

// The arguments of the attention operation: the rotated, quantised queries and the scales.
struct AttentionArgs {
  const int8_t* queries = nullptr;  // [rows, heads, head_dim]
  int32_t heads = 0;
  float z = 0.0f;                      // factor from integer score to exponent of two
  const float* out_inverse = nullptr;  // [kv_heads, head_dim] co
  int8_t* out = nullptr;               // [rows, heads, head_dim]
};

// The arguments of attention in version 2 of the arithmetic: every key and value has a scale, every query its own z,
// and the results are floats.
struct ScaledAttentionArgs {
  const int8_t* queries = nullptr;  // [rows, heads, head_dim]
  int32_t heads = 0;
  const float* z = nullptr;           // [rows, heads] factor from score times key scale to exponent of two
  const float* value_step = nullptr;  // [kv_heads, head_dim]
  float* out = nullptr;               // [rows, heads, head_dim]
};

// The largest logit of a row, and the sum of the masses under it at temperature 1 (arithmetic.md, section 6).
struct RowTotal {
  float best = 0.0f;
  uint64_t total = 0;  // 0: neither is known
};

// The arguments of sampling: one row of logits, and the parameters for drawing a token from this row.
struct SampleArgs {
  const float* logits = nullptr;  // [vocab_size]
  int32_t vocab_size = 0;
  const SamplingSpec* spec = nullptr;
  const uint8_t* seen =
      nullptr;           // [vocab_size] 1 if the token occurs in the sequence; may be null without a repetition penalty
  int64_t position = 0;  // position of the token to draw
  int32_t top_logprobs = 0;
  const TokenGuide* guide = nullptr;  // null: the token may be any
  // [vocab_size] the logits that the token is sampled from, where a hook changed them; null: `logits`
  const float* changed = nullptr;
  std::span<const int32_t> history = {};  // with a chain of samplers: all tokens before the one to draw
  float mu = 0.0f;                        // of the sampler mirostat, before this token
  RowTotal known = {};                    // of `logits`
};

// The sizes of the largest step that a backend has to compute.
struct StepSizes {
  int32_t rows = 0;
  int32_t segments = 0;
  int32_t widest_input = 0;  // largest inner dimension of any matmul
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t vocab_size = 0;
};

// A backend that needs scratch memory allocates it in take_memory. The executor calls take_memory before the first
// step. take_memory may return kOutOfMemory. After take_memory(sizes), a step that does not exceed `sizes` allocates no
// memory.
template <class B>
concept TakesMemory = requires(B& backend, const StepSizes& sizes) {
  { backend.take_memory(sizes) } -> std::same_as<Status>;
};

// A backend may offer to skip the zeros of products add_down, for which it copies their matrices.
template <class B>
concept SkipsZeros = requires(B& backend, std::span<const Matrix> downs) {
  { backend.skip_zeros_of(downs) } -> std::same_as<Status>;
};

// The operations that the forward pass needs (model/forward.hpp).
template <class B>
concept ModelBackend =
    requires(B& backend, const Matrix& matrix, arith::bf16* x, const NormArgs& norm, const int8_t* a, int8_t* a_out,
             const uint8_t* h, uint8_t* h_out, const float* f, float* f_out, const Batch& batch, const KvSlot& kv,
             const arith::CosSin* angles, const AttentionArgs& attention, int32_t n) {
      backend.embed(matrix, f, batch.tokens, x);  // x [rows, d_model] = bytes of the token's row times its scale
      backend.norm(norm);                         // norm.a = norm_quantise of each row of norm.x
      backend.linear(matrix, a, n, f, f_out);     // out [rows, out] f32 = acc * scale[n]
      backend.up(matrix, a, n, f, h_out);         // h [rows, out] = square_byte(up_byte(acc, alpha[n]))
      backend.add_linear(matrix, a, n, f, x);     // x [rows, out] += acc * scale[n], one fma, back to bf16
      backend.add_down(matrix, h, n, f, x);       // add_linear with unsigned bytes
      backend.queries(f, batch, angles, n, n, n, f,
                      a_out);  // (q, batch, angles, heads, kv_heads, head_dim, cq) -> rotated bytes
      // append(k, v, batch, angles, ck, cv, slot) writes keys and values to the KV cache.
      backend.append(f, f, batch, angles, f, f, kv);
      backend.attend(attention, batch, kv);
    };

// The operations that version 2 of the arithmetic needs, besides linear (docs/arithmetic-2.md).
template <class B>
concept ScaledBackend =
    requires(B& backend, const EmbedRows& embed, const NormRows& norm, const QuantiseRows& quantise,
             const GateRows& gate, const AddRows& add, const LogitRows& logits, const QueryRows& queries,
             const KeyValueRows& kept, const ScaledAttentionArgs& attention, const Batch& batch, const KvSlot& kv) {
      backend.embed_rows(embed);
      backend.norm_rows(norm);
      backend.quantise_rows(quantise);
      backend.gate_rows(gate);
      backend.add_rows(add);
      backend.logit_rows(logits);
      backend.query_rows(queries);
      backend.append_rows(kept, batch, kv);
      backend.attend(attention, batch, kv);
    };

// A backend that multiplies rows of two bytes a value without room for the sums of each byte. In version 2 a backend
// that does not project packed has to.
template <class B>
concept MultipliesWideRows =
    requires(B& backend, const Matrix& matrix, const int8_t* a, int32_t n, const float* f, float* f_out) {
      // a [rows, 2, in]: a row's high bytes, then its low ones. out [rows, out] f32 = fma(256, high, low), each acc *
      // scale[n]
      backend.wide_linear(matrix, a, n, f, f_out);
    };

// One of several products of the same rows.
struct LinearProduct {
  Matrix matrix;
  const float* scale = nullptr;  // [out]
  float* out = nullptr;          // [rows, out]
};
inline constexpr size_t kMostLinears = 3;

// A backend that can do one to kMostLinears products `linear` of the same rows, so of matrices of one width, as one
// operation.
template <class B>
concept MultipliesTogether = requires(B& backend, std::span<const LinearProduct> products, const int8_t* a, int32_t n) {
  backend.linears(products, a, n);
};

// A backend that can fuse a norm with the matmul that reads the normalised rows. The result of the fused operation
// equals the result of norm(norm) followed by the matmul on norm.a, but the fused operation need not write norm.a.
template <class B>
concept FusesNorms =
    requires(B& backend, const NormArgs& norm, const Matrix& matrix, const float* f, float* f_out, uint8_t* h_out) {
      backend.norm_linear(norm, matrix, f, f_out);
      backend.norm_up(norm, matrix, f, h_out);
    };

// The arguments of one matmul that computes queries, keys and values from the residual stream. The packed matrix begins
// with the rows of the weight matrix q. If the layer owns its KV slot (computes the slot's keys and values), the rows
// of the weight matrices k and v follow.
struct PackedProjection {
  NormArgs norm;
  Linear qkv;  // [query width, or query width + 2 kv width; d_model]
  int32_t heads = 0, kv_heads = 0, head_dim = 0;
  const arith::CosSin* angles = nullptr;  // [rows, head_dim / 2]
  const float* q_inverse = nullptr;       // [kv_heads, head_dim] cq
  const float* k_inverse = nullptr;       // [kv_heads, head_dim] ck; null if another layer owns the KV slot
  const float* v_inverse = nullptr;       // likewise, cv
  float* floats = nullptr;                // [rows, qkv.out] scratch
  int8_t* queries = nullptr;              // [rows, heads, head_dim]
};

// A backend that computes a PackedProjection: a norm, one matmul with the matrix qkv, the operation queries, and the
// operation append if qkv has rows of k and v. A backend that satisfies ProjectsPacked needs packed weights
// (LayerWeights::packed).
template <class B>
concept ProjectsPacked = requires(B& backend, const PackedProjection& projection, const Batch& batch,
                                  const KvSlot& kv) { backend.project(projection, batch, kv); };

// What ProjectsPacked is in version 2 of the arithmetic: matrices that read the same site are multiplied as one (the
// outputs lie side by side: Outputs::stride), and operations that follow one another are one operation.
template <class B>
concept FusesRows =
    ProjectsPacked<B> && requires(B& backend, const AddRows& add, const NormRows& norm, const QueryRows& queries,
                                  const KeyValueRows& kept, const Batch& batch, const KvSlot& kv) {
      backend.add_norm_rows(add, norm);                // add_rows(add), then norm_rows(norm) of the same stream
      backend.project_rows(queries, kept, batch, kv);  // append_rows(kept, batch, kv), then query_rows(queries)
    };

// A backend whose threads share what sampling needs of every row, of at least one.
template <class B>
concept WeighsRows = requires(B& backend, const float* logits, int32_t n, RowTotal* totals) {
  backend.weigh_rows(logits, n, n, totals);  // logits [rows, vocab_size], totals [rows]
};

// A ModelBackend that can also sample tokens, one row at a time.
template <class B>
concept Backend = ModelBackend<B> && requires(B& backend, const SampleArgs& sample, SampledToken& token) {
  backend.sample(sample, token);
};

}  // namespace kaiju
