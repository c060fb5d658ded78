// Launches scaled_row_step_kernel: decides whether it supports a model and how shared memory is divided.
#include <algorithm>

#include "../tiles/dependent_launch.cuh"
#include "sm90_scaled_row_step_attention.cuh"
#include "sm90_scaled_row_step_rows.cuh"

namespace kaiju::cuda {
namespace {

using namespace scaled_row_step_detail;

constexpr int32_t kMostSharedBytes = 227 * 1024;  // of a block, on sm_90
constexpr int32_t kStaticBytes =
    (static_cast<int32_t>(sizeof(Shared)) + 127) / 128 * 128;  // the ring begins at such a multiple
constexpr int32_t kMostDynamicBytes = kMostSharedBytes - kStaticBytes;

int32_t query_width(const ScaledRowStep& step) { return step.heads * step.head_dim; }

// Activations: what a matmul reads, an output that is normed, or in attention queries and the chunks that are folded.
int32_t activation_bytes(const Chip& chip, const ScaledRowStep& step) {
  const int32_t folded =
      fold_offset(query_width(step)) + kScaledRowStepChunks * static_cast<int32_t>(sizeof(float)) *
                                           (pieces(query_width(step), chip.multiprocessors) + kFoldFloats);
  const int32_t most = std::max({step.d_model * (step.wide_logits ? 2 : 1), 2 * query_width(step), 2 * step.d_ff,
                                 folded, kScoreOffset + kScoreBytes, step.norms_after ? row_bytes(step.d_model) : 0});
  return pieces(most, 128) * 128;
}
int32_t stages_of(const Chip& chip, const ScaledRowStep& step) {
  const int32_t others = activation_bytes(chip, step) + row_bytes(step.d_model);
  return std::min((kMostDynamicBytes - others) / kStageBytes, kMostStages);
}
int32_t logit_parts_of(const Chip& chip, const ScaledRowStep& step) {
  return pieces(step.vocab, chip.multiprocessors * kMostOuts);
}

bool is_served(const LayerShape& shape) {
  const bool hadamard = shape.hadamard == 0 || shape.hadamard == 16 || shape.hadamard == 32 || shape.hadamard == 64;
  return shape.activations == Activations::kTokenScales && is_gated(shape) && hadamard && !shape.f32_rows &&
         !has_layer_inputs(shape);
}

}  // namespace

bool scaled_row_step_serves(const Chip& chip, const LayerShape& shape, const ScaledRowStep& step) {
#if !defined(KAIJU_CUDA_SM90A)
  return false;
#endif
  if (chip.capability != 90 || !is_served(shape)) return false;
  if (step.head_dim != 64 && step.head_dim != 128 && step.head_dim != 256) return false;
  if (step.heads / step.kv_heads > kMostUnitHeads) return false;
  const int32_t width = query_width(step);
  for (const int32_t in : {step.d_model, width, step.d_ff})  // a piece has parts of at most two outputs
    if (in % 64 != 0 || in < kPieceBytes) return false;
  if (step.d_model > kEach * kThreads || std::max(width, step.d_ff) > kItems * kEach * kThreads) return false;
  // Every block must have something that all wait for, of each kind.
  if (std::min({step.d_model, width, step.d_ff / kOutsTogether}) < chip.multiprocessors) return false;
  for (const int32_t out : {step.d_model, width + 2 * step.kv_heads * step.head_dim, step.d_ff + kOutsTogether})
    if (pieces(out, chip.multiprocessors) + kOutsTogether > kMostOuts) return false;
  if (pieces(width, chip.multiprocessors) > step.head_dim) return false;  // results of at most two heads
  return logit_parts_of(chip, step) <= kMostLogitParts && stages_of(chip, step) > row_step_detail::kMostInFlight;
}

cudaError_t scaled_row_step(cudaStream_t stream, const Chip& chip, ScaledRowStep step) {
  const auto kernel = step.head_dim == 64    ? scaled_row_step_kernel<64>
                      : step.head_dim == 128 ? scaled_row_step_kernel<128>
                                             : scaled_row_step_kernel<256>;
  step.stages = stages_of(chip, step);
  step.activation_bytes = activation_bytes(chip, step);
  step.logit_parts = logit_parts_of(chip, step);
  const int32_t bytes = step.stages * kStageBytes + step.activation_bytes + row_bytes(step.d_model);
  // The same for every model: threads may launch for several.
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostDynamicBytes);
      error != cudaSuccess)
    return error;
  return launch_together(stream, kernel, {chip.multiprocessors, kAllThreads, bytes}, step);
}

}  // namespace kaiju::cuda
