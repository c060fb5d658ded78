// Backend: the operations a device offers to the model, one line each. The meaning of every one, to the bit, is
// backend/reference.hpp; a conformance test holds each backend to it (tests/conformance).
//
// Rows are tokens. x is the residual stream, bf16 bits. All pointers are the device's own memory; shapes as noted.
#pragma once

#include <concepts>

#include "kaiju/arith/float32.hpp"
#include "kaiju/backend/batch.hpp"
#include "kaiju/base/status.hpp"
#include "kaiju/step/plan.hpp"
#include "kaiju/step/result.hpp"
#include "kaiju/tensor/matrix.hpp"

namespace kaiju {

// A norm: rows of the residual stream to bytes.
struct NormArgs {
  const arith::bf16* x = nullptr;  // [rows, width]
  int32_t rows = 0;
  int32_t width = 0;
  float eps = 0.0f;
  float inverse_scale = 0.0f;  // normed float to byte, c_in
  int8_t* a = nullptr;         // [rows, width]
};

// Rotated, quantised queries and what attention does with them.
struct AttentionArgs {
  const int8_t* queries = nullptr;  // [rows, heads, head_dim]
  int32_t heads = 0;
  float z = 0.0f;                      // integer score to power of two
  const float* out_inverse = nullptr;  // [kv_heads, head_dim] co
  int8_t* out = nullptr;               // [rows, heads, head_dim]
};

// One row of logits and how to draw from it.
struct SampleArgs {
  const float* logits = nullptr;  // [vocab_size]
  int32_t vocab_size = 0;
  const SamplingSpec* spec = nullptr;
  const uint8_t* seen =
      nullptr;           // [vocab_size] 1 where the token occurs in the sequence; may be null without a penalty
  int64_t position = 0;  // of the token to be drawn
  int32_t top_logprobs = 0;
};

// The largest step a backend will be asked for.
struct StepSizes {
  int32_t rows = 0;
  int32_t segments = 0;
  int32_t widest_input = 0;  // of any product: its inputs
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t vocab_size = 0;
};

// A backend with scratch of its own takes it in take_memory, before the first step: kOutOfMemory there, and no
// allocation later.
template <class B>
concept TakesMemory = requires(B& backend, const StepSizes& sizes) {
  { backend.take_memory(sizes) } -> std::same_as<Status>;
};

// What the transformer asks of a device (model/forward.hpp).
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
      backend.add_down(matrix, h, n, f, x);       // the same with unsigned bytes
      backend.queries(f, batch, angles, n, n, n, f,
                      a_out);  // (q, batch, angles, heads, kv_heads, head_dim, cq) -> rotated bytes
      backend.append(f, f, batch, angles, f, f, kv);  // (k, v, batch, angles, ck, cv, slot): into the cache
      backend.attend(attention, batch, kv);
    };

// A backend that can make a norm part of the product that reads it: norm(norm), then the operation on norm.a, which may
// be left unwritten.
template <class B>
concept FusesNorms =
    requires(B& backend, const NormArgs& norm, const Matrix& matrix, const float* f, float* f_out, uint8_t* h_out) {
      backend.norm_linear(norm, matrix, f, f_out);
      backend.norm_up(norm, matrix, f, h_out);
    };

// What attention reads of a layer, from the residual stream on, by one product with matrices that are packed: rows of
// q, and below them those of k and v where the layer owns its slot.
struct PackedProjection {
  NormArgs norm;
  Linear qkv;  // [query width, or query width + 2 kv width; d_model]
  int32_t heads = 0, kv_heads = 0, head_dim = 0;
  const arith::CosSin* angles = nullptr;  // [rows, head_dim / 2]
  const float* q_inverse = nullptr;       // [kv_heads, head_dim] cq
  const float* k_inverse = nullptr;       // [kv_heads, head_dim] ck; null where the slot is another layer's
  const float* v_inverse = nullptr;       // likewise, cv
  float* floats = nullptr;                // [rows, qkv.out] scratch
  int8_t* queries = nullptr;              // [rows, heads, head_dim]
};

// A backend that computes it so: norm, linear with all of qkv, queries, and append where there are keys. Its weights
// are packed (LayerWeights::packed).
template <class B>
concept ProjectsPacked = requires(B& backend, const PackedProjection& projection, const Batch& batch,
                                  const KvSlot& kv) { backend.project(projection, batch, kv); };

// The same with draws, one row at a time.
template <class B>
concept Backend = ModelBackend<B> && requires(B& backend, const SampleArgs& sample, SampledToken& token) {
  backend.sample(sample, token);
};

}  // namespace kaiju
