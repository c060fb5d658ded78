// GEMM on Hopper (sm90_gemm.cuh), compiled for GemmKind::kUp. A file for each kind: they compile in parallel.
#include "sm90_gemm_launch.cuh"

namespace kaiju::cuda {

template cudaError_t gemm_sm90<GemmKind::kUp>(cudaStream_t, const Chip&, const Tile&, const GemmArgs&);

}  // namespace kaiju::cuda
