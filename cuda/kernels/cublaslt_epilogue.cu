// Completes a matmul whose int32 sums cuBLASLt computes (launch/cublaslt.hpp). One kernel applies the epilogue to the
// sums. Another shifts unsigned activations by 128 before the matmul, because cuBLASLt multiplies signed bytes. Bound:
// memory, or the L2 cache if the sums of few rows are still in it.
#include "../launch/tiles.hpp"
#include "../tiles/dependent_launch.cuh"
#include "../tiles/epilogue.cuh"
#include "cublaslt_epilogue.hpp"

namespace kaiju::cuda {
namespace {

constexpr int32_t kThreads = 128;
constexpr int32_t kRows = 4;  // of a thread, for one set of scales

__global__ void __launch_bounds__(kThreads) shift_kernel(const uint4* from, int64_t count, uint4* to) {
  let_next_start();
  wait_for_inputs();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  uint4 v = from[i];
  v.x ^= 0x80808080u, v.y ^= 0x80808080u, v.z ^= 0x80808080u, v.w ^= 0x80808080u;
  to[i] = v;
}

// So many neighbouring outputs of a thread that it stores 8 or 16 bytes at once.
template <MatmulKind kKind>
constexpr int kOuts = kKind == MatmulKind::kLinear ? 4 : 8;

template <MatmulKind kKind>
__global__ void __launch_bounds__(kThreads)
    epilogue_kernel(MatmulArgs args, const int32_t* sums, const int32_t* row_sum) {
  constexpr int kCount = kOuts<kKind>;
  constexpr bool kAdds = kKind == MatmulKind::kAddLinear || kKind == MatmulKind::kAddDown;
  const int32_t across = (args.out + kThreads * kCount - 1) / (kThreads * kCount);
  const int32_t block = static_cast<int32_t>(blockIdx.x),
                first = (block % across * kThreads + static_cast<int32_t>(threadIdx.x)) * kCount;
  let_next_start();
  wait_for_inputs();
  if (first >= args.out) return;
  float scale[kCount];
  int32_t more[kCount] = {};  // what the shift took from the sums
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    scale[i] = args.scale[first + i];
    if constexpr (kKind == MatmulKind::kAddDown) more[i] = 128 * row_sum[first + i];
  }
  const int32_t row = block / across * kRows;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (row + r >= args.rows) return;
    const int64_t at = int64_t{row + r} * args.out + first;
    int32_t sum[kCount];
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const int4 four = *reinterpret_cast<const int4*>(sums + at + i);
      sum[i] = four.x + more[i], sum[i + 1] = four.y + more[i + 1], sum[i + 2] = four.z + more[i + 2],
      sum[i + 3] = four.w + more[i + 3];
    }
    Bf16Run<kCount> before{};
    if constexpr (kAdds) before = bf16_run<kCount>(args, at);
    store_sums<kKind, kCount>(args, row + r, at, sum, scale, before);
  }
}

template <MatmulKind kKind>
cudaError_t apply_epilogue_of(cudaStream_t stream, const Chip& chip, const MatmulArgs& args, const int32_t* sums,
                              const int32_t* row_sum) {
  const int64_t blocks = int64_t{pieces(args.rows, kRows)} * pieces(args.out, kThreads * kOuts<kKind>);
  return launch(stream, chip, epilogue_kernel<kKind>, {blocks, kThreads}, args, sums, row_sum);
}

}  // namespace

cudaError_t shift_to_signed(cudaStream_t stream, const Chip& chip, const uint8_t* from, int64_t count, int8_t* to) {
  const int64_t runs = count / 16;
  return launch(stream, chip, shift_kernel, {(runs + kThreads - 1) / kThreads, kThreads},
                reinterpret_cast<const uint4*>(from), runs, reinterpret_cast<uint4*>(to));
}

cudaError_t apply_epilogue(cudaStream_t stream, const Chip& chip, MatmulKind kind, const MatmulArgs& args,
                           const int32_t* sums, const int32_t* row_sum) {
  switch (kind) {
    case MatmulKind::kLinear:
      return apply_epilogue_of<MatmulKind::kLinear>(stream, chip, args, sums, row_sum);
    case MatmulKind::kUp:
      return apply_epilogue_of<MatmulKind::kUp>(stream, chip, args, sums, row_sum);
    case MatmulKind::kAddLinear:
      return apply_epilogue_of<MatmulKind::kAddLinear>(stream, chip, args, sums, row_sum);
    default:
      return apply_epilogue_of<MatmulKind::kAddDown>(stream, chip, args, sums, row_sum);
  }
}

}  // namespace kaiju::cuda
