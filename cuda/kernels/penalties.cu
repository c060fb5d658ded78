// Kernels that change logits before sampling: repetition penalty, biases and masks; and that record which tokens each
// slot has seen. One thread for each item. Bound: memory, or the latency of a launch.
#include "../tiles/dependent_launch.cuh"
#include "kaiju/arith/sampling.hpp"

namespace kaiju::cuda {
namespace {

constexpr int32_t kThreads = 256;
__host__ __device__ constexpr int32_t blocks_for(int32_t items) { return (items + kThreads - 1) / kThreads; }

__global__ void mark_seen_kernel(const TokenMark* marks, int32_t count, int32_t vocab, uint8_t* seen) {
  const int32_t i = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) seen[int64_t{marks[i].slot} * vocab + marks[i].token] = 1;
}

__global__ void mark_rows_kernel(int32_t* tokens, const int32_t* row_segment, const int32_t* segment_slot, int32_t rows,
                                 int32_t vocab, const int32_t* last, uint8_t* seen) {
  let_next_start();
  const int32_t row = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= rows) return;
  const int32_t slot = segment_slot[row_segment[row]];
  if (tokens[row] == kSampledToken) tokens[row] = last[slot];
  seen[int64_t{slot} * vocab + tokens[row]] = 1;
}

__global__ void penalise_kernel(const float* logits, const SampleRow* samples, int32_t vocab, const uint8_t* seen,
                                float* adjusted) {
  const int32_t pieces = blocks_for(vocab), row = static_cast<int32_t>(blockIdx.x) / pieces;
  const SampleRow& sample = samples[row];
  if (!sample.adjusted) return;
  const int32_t token = static_cast<int32_t>(blockIdx.x) % pieces * kThreads + static_cast<int32_t>(threadIdx.x);
  if (token >= vocab) return;
  const int64_t at = int64_t{row} * vocab + token;
  const bool penalised = sample.penalty != 1.0f && seen[int64_t{sample.slot} * vocab + token];
  adjusted[at] = penalised ? arith::penalise(logits[at], sample.penalty) : logits[at];
}

__global__ void add_biases_kernel(const Bias* biases, int32_t count, int32_t vocab, float* adjusted) {
  const int32_t i = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  float& logit = adjusted[int64_t{biases[i].row} * vocab + biases[i].token];
  logit = arith::add(logit, biases[i].bias);
}

// A block takes a piece of a mask.
__global__ void exclude_tokens_kernel(const MaskPiece* pieces, int32_t vocab, float* adjusted) {
  const MaskPiece& piece = pieces[blockIdx.x];
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < MaskPiece::kTokens; i += kThreads) {
    const int32_t token = 32 * piece.first_word + i;
    if (token < vocab && (piece.allowed[i / 32] >> (i % 32) & 1) == 0)
      adjusted[int64_t{piece.row} * vocab + token] = -INFINITY;
  }
}

}  // namespace

cudaError_t mark_seen(cudaStream_t stream, const TokenMark* marks, int32_t count, int32_t vocab, uint8_t* seen) {
  return launch_in_order(stream, mark_seen_kernel, {blocks_for(count), kThreads}, marks, count, vocab, seen);
}

cudaError_t mark_rows(cudaStream_t stream, int32_t* tokens, const int32_t* row_segment, const int32_t* segment_slot,
                      int32_t rows, int32_t vocab, const int32_t* last, uint8_t* seen) {
  return launch_in_order(stream, mark_rows_kernel, {blocks_for(rows), kThreads}, tokens, row_segment, segment_slot,
                         rows, vocab, last, seen);
}

cudaError_t penalise(cudaStream_t stream, const float* logits, const SampleRow* samples, int32_t rows, int32_t vocab,
                     const uint8_t* seen, float* adjusted) {
  return launch_in_order(stream, penalise_kernel, {int64_t{rows} * blocks_for(vocab), kThreads}, logits, samples, vocab,
                         seen, adjusted);
}

cudaError_t add_biases(cudaStream_t stream, const Bias* biases, int32_t count, int32_t vocab, float* adjusted) {
  return launch_in_order(stream, add_biases_kernel, {blocks_for(count), kThreads}, biases, count, vocab, adjusted);
}

cudaError_t exclude_tokens(cudaStream_t stream, const MaskPiece* pieces, int32_t count, int32_t vocab,
                           float* adjusted) {
  return launch_in_order(stream, exclude_tokens_kernel, {count, kThreads}, pieces, vocab, adjusted);
}

}  // namespace kaiju::cuda
