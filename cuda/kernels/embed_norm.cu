// Kernels for embedding, RMS norm with quantisation, rotary angles, and gathering rows. Each makes one pass over the
// rows. Bound: memory; with few rows latency.
#include "../tiles/dependent_launch.cuh"
#include "../tiles/rms.cuh"

namespace kaiju::cuda {
namespace {

constexpr int32_t kThreads = 256;

int32_t blocks_for(int64_t items) { return static_cast<int32_t>((items + kThreads - 1) / kThreads); }

struct alignas(8) Eight {
  int8_t byte[8];
};
struct alignas(16) EightBf16 {
  arith::bf16 value[8];
};

__global__ void embed_kernel(const int8_t* weight, int32_t width, const float* scale, const int32_t* tokens,
                             int32_t rows, arith::bf16* x) {
  let_next_start();
  wait_for_inputs();
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 8;
  if (at >= int64_t{rows} * width) return;
  const int64_t row = at / width;
  const int32_t token = tokens[row];
  const float s = scale[token];
  const Eight bytes = *reinterpret_cast<const Eight*>(weight + int64_t{token} * width + (at - row * width));
  EightBf16 out;
#pragma unroll
  for (int i = 0; i < 8; ++i) out.value[i] = arith::to_bf16(arith::mul(bytes.byte[i], s));
  *reinterpret_cast<EightBf16*>(x + at) = out;
}

// One block a row: thread t owns the partial sums 2 t and 2 t + 1, and loads all its elements of the row at once.
//
// With kPieces a row is no wider than so many times 256, or with kWhole just as wide, and stays in registers; else it
// is read again, from cache.
constexpr int32_t kRowThreads = static_cast<int32_t>(arith::kRmsPartials) / 2;
template <int kPieces, bool kWhole>
__global__ void __launch_bounds__(kRowThreads)
    norm_kernel(const arith::bf16* x, int32_t width, float eps, float inverse_scale, int8_t* a) {
  let_next_start();
  wait_for_inputs();
  __shared__ float partials[arith::kRmsPartials];
  const int32_t tid = static_cast<int32_t>(threadIdx.x), count = width / 2;
  const auto there = [&](int p) { return kWhole || tid + p * kRowThreads < count; };
  const auto* in = reinterpret_cast<const uint32_t*>(x + int64_t{blockIdx.x} * width);  // two elements each
  float low = 0.0f, high = 0.0f;
  [[maybe_unused]] uint32_t kept[kPieces > 0 ? kPieces : 1];
  if constexpr (kPieces > 0) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p)
      kept[p] = there(p) ? in[tid + p * kRowThreads] : 0;  // adding 0 changes no sum of squares
#pragma unroll
    for (int p = 0; p < kPieces; ++p) add_squares(kept[p], low, high);
  } else {
#pragma unroll 16
    for (int32_t i = tid; i < count; i += kRowThreads) add_squares(in[i], low, high);
  }
  partials[2 * tid] = low, partials[2 * tid + 1] = high;
  __syncthreads();
  const float m = arith::norm_multiplier(fold_partials(partials), static_cast<float>(width), eps, inverse_scale);
  auto* out = reinterpret_cast<uint16_t*>(a + int64_t{blockIdx.x} * width);
  if constexpr (kPieces > 0) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p)
      if (there(p)) out[tid + p * kRowThreads] = two_quantised(kept[p], m);
  } else {
#pragma unroll 16
    for (int32_t i = tid; i < count; i += kRowThreads) out[i] = two_quantised(in[i], m);
  }
}

__global__ void angles_kernel(const int32_t* positions, int32_t rows, const uint64_t* frequencies, int32_t half,
                              arith::CosSin* angles) {
  let_next_start();
  wait_for_inputs();
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= int64_t{rows} * half) return;
  angles[at] = arith::cos_sin(static_cast<uint64_t>(positions[at / half]), frequencies[at % half]);
}

__global__ void gather_kernel(const int4* x, const int32_t* row, int32_t count, int32_t width, int4* out) {
  let_next_start();
  wait_for_inputs();
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= int64_t{count} * width) return;
  const int64_t i = at / width;
  out[at] = x[int64_t{row[i]} * width + (at - i * width)];
}

}  // namespace

cudaError_t embed(cudaStream_t stream, const Chip& chip, const Matrix& table, const float* scale, const int32_t* tokens,
                  int32_t rows, arith::bf16* x) {
  return launch(stream, chip, embed_kernel, {blocks_for(int64_t{rows} * table.in / 8), kThreads}, table.weight,
                table.in, scale, tokens, rows, x);
}

cudaError_t norm(cudaStream_t stream, const Chip& chip, const arith::bf16* x, int32_t rows, int32_t width, float eps,
                 float inverse_scale, int8_t* a) {
  constexpr auto kPiece = static_cast<int32_t>(arith::kRmsPartials);
  const auto kernel = width == 20 * kPiece   ? norm_kernel<20, true>  // as wide as the presets `small` and `large`
                      : width < 20 * kPiece  ? norm_kernel<20, false>
                      : width == 48 * kPiece ? norm_kernel<48, true>
                      : width < 48 * kPiece  ? norm_kernel<48, false>
                                             : norm_kernel<0, false>;
  return launch(stream, chip, kernel, {rows, kRowThreads}, x, width, eps, inverse_scale, a);
}

cudaError_t fill_angles(cudaStream_t stream, const Chip& chip, const int32_t* positions, int32_t rows,
                        const uint64_t* frequencies, int32_t half, arith::CosSin* angles) {
  return launch(stream, chip, angles_kernel, {blocks_for(int64_t{rows} * half), kThreads}, positions, rows, frequencies,
                half, angles);
}

cudaError_t gather_rows(cudaStream_t stream, const Chip& chip, const std::byte* x, const int32_t* row, int32_t count,
                        int64_t row_bytes, std::byte* out) {
  const auto width = static_cast<int32_t>(row_bytes / 16);
  return launch(stream, chip, gather_kernel, {blocks_for(int64_t{count} * width), kThreads},
                reinterpret_cast<const int4*>(x), row, count, width, reinterpret_cast<int4*>(out));
}

}  // namespace kaiju::cuda
