// Writes a step's edits to the block tables. Also reports the compute capability that the kernels were compiled for.
#include "../kernels.hpp"
#include "../tiles/dependent_launch.cuh"

namespace kaiju::cuda {
namespace {

__global__ void write_tables_kernel(const TableWrite* writes, int32_t count, BlockId* tables) {
  const int32_t i = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) tables[writes[i].index] = writes[i].block;
}

}  // namespace

cudaError_t find_capability(int32_t& capability) {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, write_tables_kernel);
  capability = attributes.ptxVersion;
  return error;
}

cudaError_t write_tables(cudaStream_t stream, const TableWrite* writes, int32_t count, BlockId* tables) {
  return launch_in_order(stream, write_tables_kernel, {(count + 255) / 256, 256}, writes, count, tables);
}

}  // namespace kaiju::cuda
