// Sums over the weights on a GPU, which change when a bit does (weight_sums.cu).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace kaiju::cuda {

// Adds to *sum, modulo 2^64, each 32-bit word of `bytes` bytes times an odd factor of its own, which follows from its
// place: the word at `words` has place `first`. `bytes` is a multiple of 16. Any one word that changes changes the sum.
cudaError_t add_word_sum(cudaStream_t stream, const std::byte* words, size_t bytes, uint64_t first, uint64_t* sum);

}  // namespace kaiju::cuda
