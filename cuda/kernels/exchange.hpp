// The exchange among the GPUs that one model is divided over (exchange.cu). Each GPU has the int32 sums of its part of
// a matmul's summed index; they are added up before anything is rounded, so the results have the bits of one GPU.
#pragma once

#include "../kernels.hpp"

namespace kaiju::cuda {

inline constexpr int32_t kMostGpus = 8;

// What one GPU knows of all of them, itself included: pointers to memory of each, by rank.
struct Peers {
  int32_t count = 1, rank = 0;
  int32_t* arrived[kMostGpus] = {};        // [kMostGpus] of each: how often each GPU has arrived there
  const int32_t* sums[2][kMostGpus] = {};  // [rows, out] of each; two, in turn
  arith::bf16* x[kMostGpus] = {};          // [rows, d_model] residual stream of each
  const float* logits[kMostGpus] = {};     // [rows, columns of that GPU]
  int32_t first_column[kMostGpus + 1] = {};
  int32_t* state = nullptr;  // of this GPU: [2] how often it has met the others, blocks that are done
  int32_t* lost = nullptr;   // in the host's memory: 1 once a GPU has not come, or the host has seen one fail
};

// Adds the sums of all GPUs to the residual stream: x = x + scale * sum, as MatmulKind::kAddLinear and kAddDown have
// it. Few rows: each GPU reads all sums and adds them to its own stream. Many: each adds up an equal part of the rows,
// and writes the stream of all. `turn` says which of the two sums. out is a multiple of 8. All GPUs call it in the same
// order.
cudaError_t add_sums_of_all(cudaStream_t stream, const Chip& chip, const Peers& peers, int32_t turn, int32_t rows,
                            int32_t out, const float* scale);
// Fills logits [rows, vocab] of this GPU from the columns of all.
cudaError_t gather_logits(cudaStream_t stream, const Chip& chip, const Peers& peers, int32_t rows, float* logits);

}  // namespace kaiju::cuda
