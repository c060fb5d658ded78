// The exchange among the GPUs that one model is divided over (exchange.cu). Each GPU has the int32 sums of its part of
// a matmul's summed index; they are added up before anything is rounded, so the results have the bits of one GPU.
#pragma once

#include "../kernels.hpp"

namespace kaiju::cuda {

// What one GPU knows of all of them, itself included: pointers to memory of each, by rank.
struct Peers {
  int32_t count = 1, rank = 0;
  int32_t* arrived[kMostGpus] = {};     // [kMostGpus] of each: how often each GPU has arrived there
  arith::bf16* x[kMostGpus] = {};       // [rows, d_model] residual stream of each
  int8_t* a[kMostGpus] = {};            // [rows, d_model] what the matmul after a norm reads, of each
  float* floats[kMostGpus] = {};        // [rows, d_model] of each, in version 2 of the arithmetic
  const float* logits[kMostGpus] = {};  // [rows, columns of that GPU]
  int32_t first_column[kMostGpus + 1] = {};
  int32_t* state = nullptr;  // of this GPU: [2] how often it has met the others, blocks that are done
  int32_t* lost = nullptr;   // in the host's memory: 1 once a GPU has not come, or the host has seen one fail
};

// The sums that all GPUs have sent to this one (SumTargets), and what becomes of them.
struct ReceivedSums {
  // In version 1 of the arithmetic x = x + scale * sum, as MatmulKind::kAddLinear and kAddDown have it: for the norm of
  // all rows, which comes next, or for the residual stream itself. In version 2 scale * sum, as kLinear has it.
  enum class To { kNorm, kStream, kFloats };
  const int32_t* sums;  // [GPUs][part]: those of [rows, out], or of the rows that this GPU owns
  int64_t part;
  int32_t rows, out;  // out is a multiple of 64
  bool spread;
  const float* scale;  // [out]
  To to = To::kStream;
  float eps = 0.0f, inverse_scale = 0.0f;  // of the norm
};

// Meets the other GPUs, and adds what they sent. Where rows are spread, each GPU adds those that it owns, sends what
// becomes of them to all, and they meet once more: the stream of rows that others own is stale after a norm. All GPUs
// call it in the same order.
cudaError_t add_sums_of_all(cudaStream_t stream, const Chip& chip, const Peers& peers, const ReceivedSums& received);
// Fills logits [rows, vocab] of this GPU from the columns of all.
cudaError_t gather_logits(cudaStream_t stream, const Chip& chip, const Peers& peers, int32_t rows, float* logits);

}  // namespace kaiju::cuda
