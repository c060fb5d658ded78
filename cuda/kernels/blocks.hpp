// Copies of whole KV blocks within the GPU, all of a step in one launch (blocks.cu).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace kaiju::cuda {

struct CopiedBlock {
  std::byte* to;
  const std::byte* from;
  int64_t bytes;  // a multiple of 16
};
// The longest has `most_bytes`. `copies` may be pinned memory of the host's.
cudaError_t copy_blocks(cudaStream_t stream, const CopiedBlock* copies, int32_t count, int64_t most_bytes);

}  // namespace kaiju::cuda
