// Embedding, norm, angles: one pass over rows each, bound by memory.
#include "../tiles/overlap.cuh"
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

__global__ void embed_kernel(const int8_t* weight, int32_t width, const float* scale, const int32_t* tokens, int32_t rows, arith::bf16* x) {
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

// One warp a row; lane l owns the partial sums 8 l ... 8 l + 7, so the tree's first five halvings are exchanges between lanes and its last three
// happen within one.
//
// With kPieces a row is no wider than so many times 256, and stays in registers; else it is read again, from cache.
template <int kPieces>
__global__ void __launch_bounds__(kThreads, 2) norm_kernel(const arith::bf16* x, int32_t rows, int32_t width, float eps, float inverse_scale, int8_t* a) {
  let_next_start();
  wait_for_inputs();
  const int32_t row = static_cast<int32_t>(blockIdx.x) * (kThreads / 32) + static_cast<int32_t>(threadIdx.x) / 32;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  if (row >= rows) return;
  const arith::bf16* in = x + int64_t{row} * width;
  constexpr auto kStride = static_cast<int32_t>(arith::kRmsPartials);
  float partial[8] = {};
  const auto add = [&](const uint4& eight) {
    const uint32_t two[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float value = arith::float_of(e % 2 == 0 ? two[e / 2] << 16 : two[e / 2] & 0xFFFF0000u);
      partial[e] = arith::fma(value, value, partial[e]);
    }
  };
  uint4 kept[kPieces > 0 ? kPieces : 1];
  if constexpr (kPieces > 0) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int32_t i = lane * 8 + p * kStride;
      kept[p] = i < width ? *reinterpret_cast<const uint4*>(in + i) : uint4{0, 0, 0, 0};
    }
#pragma unroll
    for (int p = 0; p < kPieces; ++p)
      if (lane * 8 + p * kStride < width) add(kept[p]);
  } else {
#pragma unroll 4
    for (int32_t i = lane * 8; i < width; i += kStride) add(*reinterpret_cast<const uint4*>(in + i));
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
#pragma unroll
    for (int e = 0; e < 8; ++e) partial[e] = arith::add(partial[e], __shfl_xor_sync(0xFFFFFFFFu, partial[e], distance));
#pragma unroll
  for (int distance = 4; distance > 0; distance /= 2)
#pragma unroll
    for (int e = 0; e < distance; ++e) partial[e] = arith::add(partial[e], partial[e + distance]);
  const float m = arith::norm_multiplier(partial[0], static_cast<float>(width), eps, inverse_scale);
  const auto store = [&](const uint4& eight, int32_t i) {
    const uint32_t two[4] = {eight.x, eight.y, eight.z, eight.w};
    Eight out;
#pragma unroll
    for (int e = 0; e < 8; ++e) out.byte[e] = arith::quantise(arith::float_of(e % 2 == 0 ? two[e / 2] << 16 : two[e / 2] & 0xFFFF0000u), m);
    *reinterpret_cast<Eight*>(a + int64_t{row} * width + i) = out;
  };
  if constexpr (kPieces > 0) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p)
      if (lane * 8 + p * kStride < width) store(kept[p], lane * 8 + p * kStride);
  } else {
#pragma unroll 4
    for (int32_t i = lane * 8; i < width; i += kStride) store(*reinterpret_cast<const uint4*>(in + i), i);
  }
}

// One block a row, for few rows: thread t owns the partial sums 2 t and 2 t + 1, so that the whole row is asked for at once.
constexpr int32_t kRowThreads = static_cast<int32_t>(arith::kRmsPartials) / 2;
__global__ void __launch_bounds__(kRowThreads) norm_row_kernel(const arith::bf16* x, int32_t width, float eps, float inverse_scale, int8_t* a) {
  let_next_start();
  wait_for_inputs();
  __shared__ float partials[arith::kRmsPartials];
  const int32_t tid = static_cast<int32_t>(threadIdx.x);
  const auto* in = reinterpret_cast<const uint32_t*>(x + int64_t{blockIdx.x} * width);  // two elements each
  float low = 0.0f, high = 0.0f;
#pragma unroll 16
  for (int32_t i = tid; i < width / 2; i += kRowThreads) add_squares(in[i], low, high);
  partials[2 * tid] = low, partials[2 * tid + 1] = high;
  __syncthreads();
  const float m = arith::norm_multiplier(fold_partials(partials), static_cast<float>(width), eps, inverse_scale);
  auto* out = reinterpret_cast<uint16_t*>(a + int64_t{blockIdx.x} * width);
#pragma unroll 16
  for (int32_t i = tid; i < width / 2; i += kRowThreads) out[i] = two_quantised(in[i], m);
}

__global__ void angles_kernel(const int32_t* positions, int32_t rows, const uint64_t* frequencies, int32_t half, arith::CosSin* angles) {
  let_next_start();
  wait_for_inputs();
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= int64_t{rows} * half) return;
  angles[at] = arith::cos_sin(static_cast<uint64_t>(positions[at / half]), frequencies[at % half]);
}

__global__ void gather_kernel(const arith::bf16* x, const int32_t* row, int32_t count, int32_t width, arith::bf16* out) {
  let_next_start();
  wait_for_inputs();
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 8;
  if (at >= int64_t{count} * width) return;
  const int64_t i = at / width;
  *reinterpret_cast<EightBf16*>(out + at) = *reinterpret_cast<const EightBf16*>(x + int64_t{row[i]} * width + (at - i * width));
}

}  // namespace

cudaError_t embed(cudaStream_t stream, const Chip& chip, const Matrix& table, const float* scale, const int32_t* tokens, int32_t rows, arith::bf16* x) {
  return launch(stream, chip, embed_kernel, {blocks_for(int64_t{rows} * table.in / 8), kThreads}, table.weight, table.in, scale, tokens, rows, x);
}

cudaError_t norm(cudaStream_t stream, const Chip& chip, const arith::bf16* x, int32_t rows, int32_t width, float eps, float inverse_scale, int8_t* a) {
  if (rows <= 4 * chip.multiprocessors) return launch(stream, chip, norm_row_kernel, {rows, kRowThreads}, x, width, eps, inverse_scale, a);
  constexpr int32_t kPieces = 20;
  const auto kernel = width <= kPieces * static_cast<int32_t>(arith::kRmsPartials) ? norm_kernel<kPieces> : norm_kernel<0>;
  return launch(stream, chip, kernel, {blocks_for(int64_t{rows} * 32), kThreads}, x, rows, width, eps, inverse_scale, a);
}

cudaError_t fill_angles(cudaStream_t stream, const Chip& chip, const int32_t* positions, int32_t rows, const uint64_t* frequencies, int32_t half, arith::CosSin* angles) {
  return launch(stream, chip, angles_kernel, {blocks_for(int64_t{rows} * half), kThreads}, positions, rows, frequencies, half, angles);
}

cudaError_t gather_rows(cudaStream_t stream, const Chip& chip, const arith::bf16* x, const int32_t* row, int32_t count, int32_t width, arith::bf16* out) {
  return launch(stream, chip, gather_kernel, {blocks_for(int64_t{count} * width / 8), kThreads}, x, row, count, width, out);
}

}  // namespace kaiju::cuda
