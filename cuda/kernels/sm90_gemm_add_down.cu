#include "sm90_gemm.cuh"

namespace kaiju::cuda {

template cudaError_t gemm_sm90<GemmKind::kAddDown>(cudaStream_t, const Chip&, const Tile&, const GemmArgs&);

}  // namespace kaiju::cuda
