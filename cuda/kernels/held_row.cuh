// HeldRow: a row of version 2 of the arithmetic in the registers of a block of threads.
#pragma once

#include "row_block.cuh"

namespace kaiju::cuda::row_block {

// A block has a whole row, of which each thread holds kQuads times four neighbours, from the loads to the bytes. A
// block executes this code once, so its length counts as much as what it waits for.
constexpr int32_t kMostQuads = 2, kMostHeld = kMostQuads * 4 * kManyThreads;  // the latter: values of a row

// Each `block` values of the row are transformed. Threads beyond the row have zeros.
template <int32_t kQuads>
__device__ __forceinline__ void hadamard(float4 (&x)[kQuads], int32_t block) {
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    float4& v = x[q];
    if (block >= 2) v = {arith::add(v.x, v.y), arith::add(v.x, -v.y), arith::add(v.z, v.w), arith::add(v.z, -v.w)};
    if (block >= 4) v = {arith::add(v.x, v.z), arith::add(v.y, v.w), arith::add(v.x, -v.z), arith::add(v.y, -v.w)};
#pragma unroll 1
    for (int32_t distance = 1; 4 * distance < block; distance *= 2) {
      const bool upper = (lane() & distance) != 0;
      const auto pass = [&](float& value) {
        const float other = __shfl_xor_sync(0xFFFFFFFFu, value, distance);
        value = arith::add(upper ? other : value, upper ? -value : other);
      };
      pass(v.x), pass(v.y), pass(v.z), pass(v.w);
    }
  }
}

// Where it stands: the compiler does not move it behind the wait for inputs.
__device__ __forceinline__ float4 load_early(const float* from) {
  float4 v;
  asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from));
  return v;
}

template <int32_t kQuads>
class HeldRow {
 public:
  // `memory`: shared memory for a row.
  __device__ HeldRow(int32_t width, float* memory) : width_(width), memory_(memory) {}

  // use(q, i) for each four neighbours that begin at value i of the row.
  template <class Use>
  __device__ __forceinline__ void each(Use&& use) const {
#pragma unroll
    for (int q = 0; q < kQuads; ++q)
      if (const int32_t i = 4 * (thread() + q * thread_count()); i < width_) use(q, i);
  }
  // The thread's values of a gain, or ones if there is none. No kernel of a step writes it, so it is asked for before
  // the kernel waits for its inputs.
  __device__ __forceinline__ void ask_for(float4 (&gain)[kQuads], const float* from) const {
#pragma unroll
    for (int q = 0; q < kQuads; ++q) gain[q] = {1.0f, 1.0f, 1.0f, 1.0f};
    if (from) each([&](int q, int32_t i) { gain[q] = load_early(from + i); });
  }
  // The norm of x, in place.
  __device__ __forceinline__ void norm(float4 (&x)[kQuads], const float4 (&gain)[kQuads], float eps) const {
    each([&](int q, int32_t i) { *reinterpret_cast<float4*>(memory_ + i) = x[q]; });
    const float r = inverse_rms(memory_, width_, eps);
#pragma unroll
    for (int q = 0; q < kQuads; ++q)
      x[q] = {normed(x[q].x, r, &gain[q].x, 0), normed(x[q].y, r, &gain[q].y, 0), normed(x[q].z, r, &gain[q].z, 0),
              normed(x[q].w, r, &gain[q].w, 0)};
  }
  // The bytes of row `row`, of values that are 0 beyond its width.
  __device__ __forceinline__ void quantise(float4 (&x)[kQuads], const Quantiser& to, int32_t row) const {
    hadamard(x, to.hadamard);
    uint32_t most = 0;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      if (to.bf16) {
        const auto rounded = [](float y) { return arith::from_bf16(arith::to_bf16(y)); };
        x[q] = {rounded(x[q].x), rounded(x[q].y), rounded(x[q].z), rounded(x[q].w)};
      }
      most = max(max(most, max(magnitude(x[q].x), magnitude(x[q].y))), max(magnitude(x[q].z), magnitude(x[q].w)));
    }
    const RowSteps whole = steps_of_row(to, row, most_of_block(most), thread() == 0);
    int8_t* const bytes = to.bytes + (to.wide ? 2 : 1) * int64_t{row} * width_;
    each([&](int q, int32_t i) { store_bytes(bytes, i, width_, x[q], whole, to.wide); });
  }

 private:
  int32_t width_;
  float* memory_;
};

}  // namespace kaiju::cuda::row_block
