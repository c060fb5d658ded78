// Launches that complete a matmul whose int32 sums cuBLASLt computes (cublaslt_epilogue.cu).
#pragma once

#include "../kernels.hpp"

namespace kaiju::cuda {

// to[i] = from[i] - 128, for cuBLASLt, which multiplies signed bytes; `count` a multiple of 16.
cudaError_t shift_to_signed(cudaStream_t stream, const Chip& chip, const uint8_t* from, int64_t count, int8_t* to);
// The epilogue of a matmul, args.out a multiple of 16: sums [args.rows, args.out]. Those of kAddDown are of shifted
// bytes, and row_sum [args.out] the sums of the weights' rows; null for all others.
cudaError_t apply_epilogue(cudaStream_t stream, const Chip& chip, MatmulKind kind, const MatmulArgs& args,
                           const int32_t* sums, const int32_t* row_sum);

}  // namespace kaiju::cuda
