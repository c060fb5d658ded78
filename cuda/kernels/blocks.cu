#include "blocks.hpp"

namespace kaiju::cuda {
namespace {

constexpr int32_t kThreads = 256, kVectors = 4;  // of 16 bytes, by a thread

__global__ void copy_blocks_kernel(const CopiedBlock* copies) {
  const CopiedBlock copy = copies[blockIdx.x];
  const auto* from = reinterpret_cast<const int4*>(copy.from);
  auto* to = reinterpret_cast<int4*>(copy.to);
  const int64_t first = int64_t{blockIdx.y} * kThreads * kVectors + threadIdx.x, end = copy.bytes / 16;
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
  const auto pieces = static_cast<uint32_t>((most_bytes + kBytes - 1) / kBytes);
  copy_blocks_kernel<<<dim3(static_cast<uint32_t>(count), pieces), kThreads, 0, stream>>>(copies);
  return cudaGetLastError();
}

}  // namespace kaiju::cuda
