// Copies of KV blocks within the GPU. A block of threads takes 16 KiB of a copy: 256 threads with four pieces of 16
// bytes each, loaded before the first is stored. The list lies in pinned memory of the host's, where each reads its 24
// bytes: a copy of it to the GPU would be one more in front of the step. Bound: memory, reading and writing each byte
// once.
#include "../tiles/dependent_launch.cuh"
#include "blocks.hpp"

namespace kaiju::cuda {
namespace {

constexpr int32_t kThreads = 256, kVectors = 4;  // of 16 bytes, by a thread

__global__ void copy_blocks_kernel(const CopiedBlock* copies, int32_t count) {
  const auto block = static_cast<int32_t>(blockIdx.x);
  const CopiedBlock copy = copies[block % count];
  const auto* from = reinterpret_cast<const int4*>(copy.from);
  auto* to = reinterpret_cast<int4*>(copy.to);
  const int64_t first = int64_t{block / count} * kThreads * kVectors + threadIdx.x, end = copy.bytes / 16;
  int4 values[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    if (first + i * kThreads < end) values[i] = from[first + i * kThreads];
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    if (first + i * kThreads < end) to[first + i * kThreads] = values[i];
}

}  // namespace

cudaError_t copy_blocks(cudaStream_t stream, const CopiedBlock* copies, int32_t count, int64_t most_bytes) {
  constexpr int64_t kBytes = int64_t{16} * kThreads * kVectors;
  return launch_in_order(stream, copy_blocks_kernel, {count * ((most_bytes + kBytes - 1) / kBytes), kThreads}, copies,
                         count);
}

}  // namespace kaiju::cuda
