// Copies KV blocks within the GPU. A thread block copies 16 KiB: each of its 256 threads loads four pieces of 16 bytes
// before it stores the first. The list of copies is in pinned host memory, from which each thread block reads its 24
// bytes; copying the list to the GPU first would cost the step another copy. Bound: memory, each byte read and written
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
