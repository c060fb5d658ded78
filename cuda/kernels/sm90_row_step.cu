// Launches row_step_kernel: decides whether it supports a model and how shared memory is divided.
#include <algorithm>
#include <iterator>

#include "../tiles/dependent_launch.cuh"
#include "sm90_row_step.cuh"

namespace kaiju::cuda {
namespace {

using namespace row_step_detail;

constexpr int32_t kMostSharedBytes = 227 * 1024;  // of a block, on sm_90
constexpr int32_t kStaticBytes =
    (static_cast<int32_t>(sizeof(Shared)) + 127) / 128 * 128;  // the ring begins at such a multiple
constexpr int32_t kMostDynamicBytes = kMostSharedBytes - kStaticBytes;

// Activations: what a norm or a product wants, or attention for its queries and the newest key and value.
int32_t activation_bytes(const RowStep& step) {
  return std::max({norm_bytes(step.d_model), step.d_ff, (step.heads + 2) * step.head_dim});
}
// Of the ring.
int32_t stages_of(const RowStep& step) {
  const int32_t others =
      activation_bytes(step) + (kRowMatrixCount * step.layer_count + 1) * static_cast<int32_t>(sizeof(Run));
  return std::min((kMostDynamicBytes - others) / kStageBytes, kMostStages);
}

// The table's matrices of such a layer are those of the kernel, in its order.
static_assert([] {
  size_t at = 0;
  for (const MatmulRow& row : kMatmuls) {
    if (!row.when(kRowStepShape)) continue;
    if (row.input != kRowMatrices[at].input) ++at;
    if (at == std::size(kRowMatrices) || row.input != kRowMatrices[at].input ||
        row.operation != kRowMatrices[at].operation)
      return false;
  }
  return at + 1 == std::size(kRowMatrices);
}());

}  // namespace

bool row_step_serves(const Chip& chip, const LayerShape& shape, const RowStep& step) {
#if !defined(KAIJU_CUDA_SM90A)
  return false;
#endif
  if (shape != kRowStepShape) return false;
  if (chip.capability != 90 || (step.head_dim != 64 && step.head_dim != 128)) return false;
  const int32_t width = step.heads * step.head_dim;
  for (const int32_t in : {step.d_model, width, step.d_ff})
    if (in % kPieceBytes != 0) return false;
  // Every block must have something that all wait for, of each kind.
  if (std::min({step.d_model, width / 4, step.d_ff / 4}) < chip.multiprocessors) return false;
  for (const int32_t out : {step.d_model, width + 2 * step.kv_heads * step.head_dim, step.d_ff, step.vocab})
    if (pieces(out, chip.multiprocessors) > kThreads) return false;
  return stages_of(step) > kMostInFlight;
}

cudaError_t row_step(cudaStream_t stream, const Chip& chip, RowStep step) {
  const auto kernel = step.head_dim == 64 ? row_step_kernel<64> : row_step_kernel<128>;
  step.stages = stages_of(step);
  step.activation_bytes = activation_bytes(step);
  const int32_t bytes = step.stages * kStageBytes + step.activation_bytes +
                        (kRowMatrixCount * step.layer_count + 1) * static_cast<int32_t>(sizeof(Run));
  // The same for every model: threads may launch for several.
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostDynamicBytes);
      error != cudaSuccess)
    return error;
  return launch_together(stream, kernel, {chip.multiprocessors, kAllThreads, bytes}, step);
}

}  // namespace kaiju::cuda
