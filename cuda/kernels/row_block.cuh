// What a block of threads that has a row of version 2 of the arithmetic computes together: its largest magnitude, its
// norm, and its bytes.
#pragma once

#include "row_steps.cuh"

namespace kaiju::cuda::row_block {

constexpr int32_t kThreads = 256, kManyThreads = 1024;  // of a block; many where rows are few
static_assert(arith::kRmsPartials == kThreads);

__device__ __forceinline__ int32_t thread_count() { return static_cast<int32_t>(blockDim.x); }
__device__ __forceinline__ int32_t row_of_block() { return static_cast<int32_t>(blockIdx.x); }

// Of all threads of the block, which may then read what any of them has stored before.
__device__ __forceinline__ uint32_t most_of_block(uint32_t most) {
  __shared__ uint32_t of_warp[kManyThreads / 32];
  most = __reduce_max_sync(0xFFFFFFFFu, most);
  if (lane() == 0) of_warp[thread() / 32] = most;
  __syncthreads();
  return __reduce_max_sync(0xFFFFFFFFu, lane() < thread_count() / 32 ? of_warp[lane()] : 0u);
}

// 1/rms of a row, whose values other threads may have stored just before.
__device__ __forceinline__ float inverse_rms(const float* row, int32_t width, float eps) {
  __shared__ float partials[arith::kRmsPartials];
  __syncthreads();
  if (thread() < kThreads) {  // thread t owns partial sum t
    float sum = 0.0f;
#pragma unroll 8
    for (int32_t i = thread(); i < width; i += kThreads) sum = arith::fma(row[i], row[i], sum);
    partials[thread()] = sum;
  }
  __syncthreads();
  return arith::norm_multiplier(fold_partials(partials), static_cast<float>(width), eps, 1.0f);
}

__device__ __forceinline__ uint32_t packed_bytes(int32_t a, int32_t b, int32_t c, int32_t d) {
  return __byte_perm(__byte_perm(static_cast<uint32_t>(a), static_cast<uint32_t>(b), 0x0040),
                     __byte_perm(static_cast<uint32_t>(c), static_cast<uint32_t>(d), 0x0040), 0x5410);
}

// From the values of a row to their bytes: value times `inverse`, rounded, within [least, upmost].
struct RowSteps {
  float inverse, least, upmost;
  __device__ __forceinline__ int32_t operator()(float x) const {
    return arith::round_saturate(arith::mul(x, inverse), least, upmost);
  }
};
// Of a row with this largest magnitude. The thread that `tells` stores the row's scale.
__device__ __forceinline__ RowSteps steps_of_row(const Quantiser& to, int32_t row, uint32_t most, bool tells) {
  const float largest = largest_of(most), steps = to.wide ? arith::kWideSteps : 127.0f;
  const bool constant = to.inverse != 0.0f;
  if (tells) to.scale[row] = constant ? 1.0f : arith::divide(largest, steps);
  return {constant         ? to.inverse
          : largest > 0.0f ? arith::divide(steps, largest)
                           : 0.0f,
          constant  ? -128.0f
          : to.wide ? -steps
                    : -127.0f,
          to.wide ? steps : 127.0f};
}
// Values i to i + 3 of a row of `width`, as bytes, or as two rows of bytes if they are wide.
__device__ __forceinline__ void store_bytes(int8_t* bytes, int32_t i, int32_t width, const float4& y,
                                            const RowSteps& whole, bool wide) {
  const int32_t w[4] = {whole(y.x), whole(y.y), whole(y.z), whole(y.w)};
  const uint32_t low = packed_bytes(w[0], w[1], w[2], w[3]);  // modulo 256
  if (wide) {
    const auto high = [](int32_t x) { return (x + 128) >> 8; };
    *reinterpret_cast<uint32_t*>(bytes + i) = packed_bytes(high(w[0]), high(w[1]), high(w[2]), high(w[3]));
    bytes += width;
  }
  *reinterpret_cast<uint32_t*>(bytes + i) = low;
}

}  // namespace kaiju::cuda::row_block
