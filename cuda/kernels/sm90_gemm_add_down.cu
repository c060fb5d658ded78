#include "sm90_gemm.cuh"

namespace kaiju::cuda {

template cudaError_t multiply_hopper<Product::kAddDown>(cudaStream_t, const Chip&, const Tile&, const ProductArgs&);

}  // namespace kaiju::cuda
