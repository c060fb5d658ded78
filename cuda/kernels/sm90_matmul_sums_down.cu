// Matmul on Hopper (sm90_matmul.cuh), compiled for MatmulKind::kSumsDown. Each kind has its own file, so that they
// compile in parallel.
#include "sm90_matmul_launch.cuh"

namespace kaiju::cuda {

template cudaError_t matmul_sm90<MatmulKind::kSumsDown>(cudaStream_t, const Chip&, const Tile&, const MatmulArgs&);

}  // namespace kaiju::cuda
