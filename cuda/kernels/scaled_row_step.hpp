// A step of one row in version 2 of the arithmetic as one kernel (sm90_scaled_row_step.cu): what it wants to know of a
// model. All pointers are to device memory.
#pragma once

#include "../kernels.hpp"

namespace kaiju::cuda {

// A layer's matrices: q, k and v packed; o; gate; up; down.
inline constexpr int32_t kScaledRowMatrixCount = 5;
// What scaled_row_step() wants to know of a layer; in device memory. A vector that the layer does not have is null.
struct alignas(16) ScaledRowLayer {
  const int8_t* weights[kScaledRowMatrixCount];
  const float* scales[kScaledRowMatrixCount];
  const float* bias[static_cast<int32_t>(Matmul::kDown) + 1];  // of each matmul
  // [d_model] gains, then vectors [kv_heads, head_dim].
  enum : int32_t {
    kAttentionGain,
    kAttentionPostGain,
    kFfnGain,
    kFfnPostGain,
    kGains,
    kKeyStep = kGains,
    kKeyInverse,
    kValueStep,
    kValueInverse,
    kVectors
  };
  const float* vectors[kVectors];
  const float *query_gain, *key_gain;  // [head_dim]
  const arith::CosSin* angles;         // [head_dim / 2]
  float z, factor;
  KvSlot kv;  // of which the layer makes the keys and values
};
struct ScaledRowStep {
  const ScaledRowLayer* layers;
  int32_t layer_count;
  int32_t d_model, d_ff, vocab, heads, kv_heads, head_dim;
  int32_t hadamard;  // 1: no transform
  Gate gate;
  bool bf16_residual, norms_after, head_norms, value_norms, static_kv, has_biases, wide_logits;
  int32_t window;  // of all layers that have one
  float logit_cap, eps;
  const int8_t* output;
  const float *output_scale, *output_bias, *final_gain;
  const BatchSegment* segment;  // of one row
  float* x;                     // [d_model] embedded token; in the end the residual stream
  float* logits;                // [vocab]
  // Tagged words, zeros at first. Those of rows lie as the kernel reads them, with room for multiples of 512.
  uint64_t *q, *a, *h, *y;  // [query width + 2 kv width], [query width], [d_ff], [d_model]
  uint64_t *sums, *parts;   // [kScaledRowStepChunks, query width], [kScaledRowStepChunks, heads, 4]
  int32_t* counters;        // [2] 0 at first
  int32_t stages, activation_bytes, logit_parts;  // found by scaled_row_step()
};
// Chunks of 512 keys that a row may see.
inline constexpr int32_t kScaledRowStepChunks = 64;
// Tagged words of a row of this width.
constexpr int32_t scaled_row_words(int32_t width) { return pieces(width, 512) * 512; }
// Whether scaled_row_step() can take a step of such a model. All of its layers have the same dimensions, and each has a
// KV slot of its own.
bool scaled_row_step_serves(const Chip& chip, const LayerShape& shape, const ScaledRowStep& step);
// From the embedded token to logits: all layers for one row, as one kernel.
cudaError_t scaled_row_step(cudaStream_t stream, const Chip& chip, ScaledRowStep step);

}  // namespace kaiju::cuda
