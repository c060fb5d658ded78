// Compares cuda::reciprocal() with the device's division for every float that it serves. See reciprocals.hpp.
#include <cuda_runtime.h>

#include "cuda/kernels/gate_steps.hpp"
#include "reciprocals.hpp"

namespace kaiju::test {
namespace {

constexpr uint32_t kFirst = 127u << 23, kLast = 253u << 23;  // the bits of 1 and of 2^126

__global__ void count_wrong(unsigned long long* wrong) {
  unsigned long long found = 0;
  for (uint32_t bits = kFirst + blockIdx.x * blockDim.x + threadIdx.x; bits <= kLast; bits += gridDim.x * blockDim.x) {
    const float x = arith::float_of(bits);
    found += arith::bits_of(cuda::reciprocal(x)) != arith::bits_of(arith::divide(1.0f, x));
  }
  if (found > 0) atomicAdd(wrong, found);
}

}  // namespace

int64_t wrong_reciprocals() {
  unsigned long long *there = nullptr, wrong = 0;
  if (cudaMalloc(&there, sizeof(wrong)) != cudaSuccess) return -1;
  const bool filled = cudaMemset(there, 0, sizeof(wrong)) == cudaSuccess;
  count_wrong<<<1024, 256>>>(there);
  const bool ran = cudaGetLastError() == cudaSuccess &&
                   cudaMemcpy(&wrong, there, sizeof(wrong), cudaMemcpyDeviceToHost) == cudaSuccess;
  cudaFree(there);
  return filled && ran ? static_cast<int64_t>(wrong) : -1;
}

}  // namespace kaiju::test
