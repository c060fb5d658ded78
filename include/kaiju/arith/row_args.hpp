// The arguments of the row operations of version 2 of the arithmetic (docs/arithmetic-2.md). Plain data: the files of
// instruction sets and CUDA kernels use these structs too, so this header has no functions. A row belongs to one token
// of the step; all pointers point to the device's memory.
#pragma once

#include <cstdint>

#include "kaiju/arith/cos_sin.hpp"

namespace kaiju {

// How the floats of a row become bytes: a Hadamard transform in blocks, then the scale of the row or a constant scale.
struct Quantiser {
  int32_t hadamard = 1;     // values in a block of the transform; 1: no transform
  float inverse = 0.0f;     // factor from float to byte; 0: 127 divided by the largest magnitude of the row
  bool bf16 = false;        // round to bf16 after the transform: what a GPU writes between two kernels
  bool wide = false;        // two bytes for each value, as two rows of bytes: high and low (value = 256 high + low)
  int8_t* bytes = nullptr;  // [rows, width], or [2 * rows, width] if wide
  float* scale = nullptr;   // [rows] the value of one step; 1 if `inverse` is constant
  bool is_whole = false;    // every GPU of those that share a model has the whole row; else a row may be divided
};

// The outputs of a matmul, from the results of Backend::linear or wide_linear. The value of output n of a row is
// sums[row, n] * scale[row] (if wide, fma(256, high row, low row) * scale[row]), plus bias[n]. If `step` is not 0, the
// value is then rounded to a whole multiple of `step`, from -128 to 127 steps.
struct Outputs {
  float* sums = nullptr;         // [rows, width], or [2 * rows, width] if wide; some operations overwrite it
  const float* scale = nullptr;  // [rows]; null: 1
  const float* bias = nullptr;   // [width] or null
  int32_t width = 0;
  int32_t stride = 0;  // values from row to row, where outputs of several matrices lie side by side; 0: width
  bool wide = false;
  float step = 0.0f, inverse = 0.0f;  // inverse: 1 / step
};

// x [rows, width] = bytes of the token's row of the embedding times the row's factor, transformed back if the matrix is
// stored transformed. A table may have several rows for each token, of which this is one: row token * each.
struct EmbedRows {
  const int8_t* weight = nullptr;  // [vocab_size * each, width]
  const float* factor = nullptr;   // [vocab_size * each]
  const int32_t* tokens = nullptr;
  int32_t rows = 0, width = 0;
  int32_t hadamard = 1;
  bool bf16 = false;  // round to bf16
  float* x = nullptr;
  int32_t each = 1;
};

// RMS norm of rows of the residual stream, times the gain, quantised.
struct NormRows {
  const float* x = nullptr;  // [rows, width]
  int32_t rows = 0, width = 0;
  float eps = 0.0f;
  const float* gain = nullptr;  // [width] or null
  float* scratch = nullptr;     // [rows, width]
  Quantiser to;
};

// Quantises rows of floats.
struct QuantiseRows {
  float* values = nullptr;  // [rows, width]
  int32_t rows = 0, width = 0;
  Quantiser to;
  float* scratch = nullptr;  // [rows, width]; null: the values are overwritten
};

enum class Gate : int32_t { kSilu, kGelu, kSquaredRelu };

// The middle of the feed-forward: silu(gate) * up, gelu(gate) * up, or square(relu(up)) without a gate; quantised.
struct GateRows {
  Gate gate = Gate::kSilu;
  Outputs gates, ups;  // gates.sums is null for kSquaredRelu; ups.sums is overwritten
  int32_t rows = 0;
  Quantiser to;
};

// x = (x + y) * factor, where y may be normed first.
struct AddRows {
  Outputs y;  // overwritten if it is normed
  int32_t rows = 0;
  bool norms = false;
  const float* gain = nullptr;  // [width] of the norm, or null
  float eps = 0.0f;
  float factor = 1.0f;
  bool bf16 = false;  // round to bf16
  float* x = nullptr;
};

// Logits: outputs with an optional soft cap.
struct LogitRows {
  Outputs y;
  int32_t rows = 0;
  float cap = 0.0f;      // 0: none
  float* out = nullptr;  // [rows, width]; may be y.sums if the outputs are not wide
};

// Queries: an optional norm of each head, rotation, the steps of the keys, the Hadamard transform, and a scale for each
// row and head.
struct QueryRows {
  Outputs q;  // [rows, heads * head_dim]
  int32_t rows = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool norms = false;
  const float* gain = nullptr;  // [head_dim] or null
  float eps = 0.0f;
  const arith::CosSin* angles = nullptr;  // [rows, head_dim / 2]
  const float* key_step = nullptr;        // [kv_heads, head_dim]
  int32_t hadamard = 1;
  float factor = 0.0f;      // from (largest magnitude of a query) to z
  int8_t* bytes = nullptr;  // [rows, heads, head_dim]
  float* z = nullptr;       // [rows, heads] factor from score to exponent of two
};

// Keys and values of one token, as they go to the KV cache.
struct KeyValueRows {
  Outputs k, v;  // [rows, kv_heads * head_dim]
  int32_t kv_heads = 0, head_dim = 0;
  bool key_norms = false, value_norms = false;
  const float* key_gain = nullptr;  // [head_dim] or null
  float eps = 0.0f;
  const arith::CosSin* angles = nullptr;  // [rows, head_dim / 2]
  const float* key_inverse = nullptr;     // [kv_heads, head_dim] 1 / key step
  const float* value_inverse = nullptr;   // likewise
  int32_t hadamard = 1;                   // of the keys
  bool constant_scales = false;           // the steps alone are the scales; else each token and head has its own
};

}  // namespace kaiju
