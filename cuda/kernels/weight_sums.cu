// Sums words of the weights, each with a factor of its own. Sums are modulo 2^64, so their order does not matter.
// Bound: memory, each byte read once.
#include "../tiles/dependent_launch.cuh"
#include "weight_sums.hpp"

namespace kaiju::cuda {
namespace {

constexpr int32_t kThreads = 256;
constexpr int64_t kBlocks = 1056;  // eight on each processor of an H200

__device__ uint64_t weighed(uint32_t word, uint64_t place) {
  return word * (place * 0x9E3779B97F4A7C15ull | 1ull);  // 2^64 / golden ratio: neighbours' factors differ much
}

__global__ void __launch_bounds__(kThreads)
    word_sum_kernel(const uint4* words, int64_t count, uint64_t first, uint64_t* sum) {
  uint64_t own = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += int64_t{gridDim.x} * kThreads) {
    const uint4 four = words[i];
    const uint64_t place = first + 4 * static_cast<uint64_t>(i);
    own +=
        weighed(four.x, place) + weighed(four.y, place + 1) + weighed(four.z, place + 2) + weighed(four.w, place + 3);
  }
  for (int32_t apart = 16; apart > 0; apart /= 2) own += __shfl_xor_sync(0xFFFFFFFFu, own, apart);
  if (threadIdx.x % 32 == 0) atomicAdd(reinterpret_cast<unsigned long long*>(sum), own);
}

}  // namespace

cudaError_t add_word_sum(cudaStream_t stream, const std::byte* words, size_t bytes, uint64_t first, uint64_t* sum) {
  const auto count = static_cast<int64_t>(bytes / 16);
  const int64_t blocks = (count + kThreads - 1) / kThreads;
  return launch_in_order(stream, word_sum_kernel, {blocks < kBlocks ? blocks : kBlocks, kThreads},
                         reinterpret_cast<const uint4*>(words), count, first, sum);
}

}  // namespace kaiju::cuda
