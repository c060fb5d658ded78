// Rows of a step of one row in version 2 (sm90_scaled_row_step.cuh): neighbours of a row in memory, the transform,
// norms, and the bytes that a matmul reads. Every block computes them of whole rows.
#pragma once

#include "sm90_scaled_row_step.cuh"

namespace kaiju::cuda::scaled_row_step_detail {

// kEach neighbours of a row of floats, in global memory; in shared memory (float_place).
template <int kHeadDim>
__device__ inline void ScaledRowStepper<kHeadDim>::load_neighbours(const float* from, float (&x)[kEach]) {
#pragma unroll
  for (int i = 0; i < kEach; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    x[i] = four.x, x[i + 1] = four.y, x[i + 2] = four.z, x[i + 3] = four.w;
  }
}

template <int kHeadDim>
__device__ inline void ScaledRowStepper<kHeadDim>::put(float* row, int32_t item, const float (&x)[kEach]) {
#pragma unroll
  for (int i = 0; i < kEach; i += 4)
    *reinterpret_cast<float4*>(row + place_of_item(item) + i / 4 * kQuarterPitch) = {x[i], x[i + 1], x[i + 2],
                                                                                     x[i + 3]};
}

template <int kHeadDim>
__device__ inline void ScaledRowStepper<kHeadDim>::get(const float* row, int32_t item, float (&x)[kEach]) {
#pragma unroll
  for (int i = 0; i < kEach; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(row + place_of_item(item) + i / 4 * kQuarterPitch);
    x[i] = four.x, x[i + 1] = four.y, x[i + 2] = four.z, x[i + 3] = four.w;
  }
}

// The same of tagged words, as soon as they are there.
template <int kHeadDim>
__device__ inline void ScaledRowStepper<kHeadDim>::take(const uint64_t* row, int32_t item, uint32_t tag,
                                                        float (&x)[kEach]) {
  const uint64_t* const from = row + item / 32 * kGroup + item % 32 * 2;
  uint2 words[kEach / 2];
  take_tagged_pairs([&](int i) { return from + 64 * i; }, tag, words);
#pragma unroll
  for (int i = 0; i < kEach / 2; ++i)
    x[2 * i] = arith::float_of(words[i].x), x[2 * i + 1] = arith::float_of(words[i].y);
}

// The Hadamard transform of 64 neighbours of eight lanes: strides 1 to 4 lie within a lane's, the others between
// lanes.
template <int kHeadDim>
__device__ inline void ScaledRowStepper<kHeadDim>::transform(float (&x)[kEach]) const {
  if (step_.hadamard == 1) return;
#pragma unroll
  for (int stride = 1; stride < kEach; stride *= 2)
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if ((i & stride) != 0) continue;
      const float u = x[i], v = x[i + stride];
      x[i] = arith::add(u, v), x[i + stride] = arith::add(u, -v);
    }
#pragma unroll 1
  for (int32_t distance = 1; kEach * distance < step_.hadamard; distance *= 2) {
    const float sign = (lane_ & distance) != 0 ? -1.0f : 1.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[i] = transform_pair(x[i], __shfl_xor_sync(0xFFFFFFFFu, x[i], distance), sign);
  }
}

// Two finite floats rounded to bf16, the first one in the low bits.
template <int kHeadDim>
__device__ inline uint32_t ScaledRowStepper<kHeadDim>::two_bf16(float low, float high) {
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

template <int kHeadDim>
__device__ inline float ScaledRowStepper<kHeadDim>::largest_of_block(uint32_t most) {
  most = __reduce_max_sync(0xFFFFFFFFu, most);
  if (lane_ == 0) shared_.warp_most[warp_] = most;
  sync();
  return largest_of(__reduce_max_sync(0xFFFFFFFFu, shared_.warp_most[lane_ % kWarps]));
}

// The factor from float to byte; keeps the row's scale.
template <int kHeadDim>
__device__ inline float ScaledRowStepper<kHeadDim>::inverse_of(float largest, float steps) {
  row_scale_ = arith::divide(largest, steps);
  return largest > 0.0f ? arith::divide(steps, largest) : 0.0f;
}

// 1/rms of a row of d_model floats in shared memory.
template <int kHeadDim>
__device__ inline float ScaledRowStepper<kHeadDim>::inverse_rms(const float* row) {
  sync();
  if (tid_ < static_cast<int32_t>(arith::kRmsPartials)) {
    const float* from = row + float_place(tid_);
    float sum = 0.0f;
#pragma unroll 4
    for (int32_t i = tid_; i < step_.d_model; i += kGroup, from += kGroupPitch) sum = arith::fma(*from, *from, sum);
    shared_.partials[tid_] = sum;
  }
  sync();
  return arith::norm_multiplier(fold_partials(shared_.partials), static_cast<float>(step_.d_model), step_.eps, 1.0f);
}

// Adds the last matmul's outputs to the residual stream, and makes the bytes of its norm.
template <int kHeadDim>
__device__ inline void ScaledRowStepper<kHeadDim>::normalise(Kind kind, int32_t l) {
  const bool is_first = kind == Kind::kProject && l == 0;
  const ScaledRowLayer &layer = shared_.layer[l % 2],
                       &before = shared_.layer[(kind == Kind::kGate ? l : l + 1) % 2];  // whose outputs they are
  const float* const gain = kind == Kind::kProject ? layer.vectors[ScaledRowLayer::kAttentionGain]
                            : kind == Kind::kGate  ? layer.vectors[ScaledRowLayer::kFfnGain]
                                                   : step_.final_gain;
  const int32_t items = step_.d_model / kEach, item = min(tid_, items - 1);  // beyond the last the last again
  const bool mine = tid_ < items, busy = 32 * warp_ < items;
  float x[kEach], g[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) x[i] = 0.0f, g[i] = 1.0f;
  if (busy && gain != nullptr) load_neighbours(gain + kEach * item, g);
  if (!is_first) {
    if (busy) take(step_.y, item, row_tag_, x);
    if (step_.norms_after) {
      const float* const post = kind == Kind::kGate ? before.vectors[ScaledRowLayer::kAttentionPostGain]
                                                    : before.vectors[ScaledRowLayer::kFfnPostGain];
      auto* const row = reinterpret_cast<float*>(a_);
      if (mine) put(row, item, x);
      const float r = inverse_rms(row);
      float post_gain[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) post_gain[i] = 1.0f;
      if (post != nullptr) load_neighbours(post + kEach * item, post_gain);
#pragma unroll
      for (int i = 0; i < kEach; ++i) x[i] = arith::mul(arith::mul(x[i], r), post_gain[i]);
    }
    const float factor = kind == Kind::kGate ? 1.0f : before.factor;
    float old[kEach];
    if (busy) {
      get(stream_, item, old);
#pragma unroll
      for (int i = 0; i < kEach; ++i) x[i] = arith::mul(arith::add(old[i], x[i]), factor);
      if (step_.bf16_residual) {
#pragma unroll
        for (int i = 0; i < kEach; i += 2) {
          const uint32_t both = two_bf16(x[i], x[i + 1]);
          x[i] = arith::float_of(both << 16), x[i + 1] = arith::float_of(both & 0xFFFF0000u);
        }
      }
      __syncwarp();  // lanes beyond the end have read what another lane replaces
      if (mine) put(stream_, item, x);
    }
  } else if (busy) {
    get(stream_, item, x);
  }
  const float r = inverse_rms(stream_);
#pragma unroll
  for (int i = 0; i < kEach; ++i) x[i] = arith::mul(arith::mul(x[i], r), g[i]);
  transform(x);
  uint32_t most = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) most = max(most, magnitude(x[i]));
  const bool wide = kind == Kind::kLogits && step_.wide_logits;
  const float inverse = inverse_of(largest_of_block(mine ? most : 0), wide ? arith::kWideSteps : 127.0f);
  if (mine && wide)
    store_wide(x, item, inverse);
  else if (mine)
    store_bytes(x, item, inverse);
  sync();
}

// x times m as an integer, in the low bits. No product of a row needs a clamp: the largest is within a rounding of
// the number of steps.
template <int kHeadDim>
__device__ inline uint32_t ScaledRowStepper<kHeadDim>::whole(float x, float m) {
  return arith::bits_of(arith::add(arith::mul(x, m), arith::kRoundBias));
}

template <int kHeadDim>
__device__ inline uint32_t ScaledRowStepper<kHeadDim>::four_bytes(float a, float b, float c, float d, float m) {
  return __byte_perm(__byte_perm(whole(a, m), whole(b, m), 0x0040), __byte_perm(whole(c, m), whole(d, m), 0x0040),
                     0x5410);
}

template <int kHeadDim>
__device__ inline void ScaledRowStepper<kHeadDim>::store_bytes(const float (&x)[kEach], int32_t item, float inverse) {
  reinterpret_cast<uint2*>(a_)[item] = {four_bytes(x[0], x[1], x[2], x[3], inverse),
                                        four_bytes(x[4], x[5], x[6], x[7], inverse)};
}

// Two bytes for each value: a row of the high ones, and one of the low ones.
template <int kHeadDim>
__device__ inline void ScaledRowStepper<kHeadDim>::store_wide(const float (&x)[kEach], int32_t item, float inverse) {
  auto *const high = reinterpret_cast<uint32_t*>(a_ + kEach * item), *const low = reinterpret_cast<uint32_t*>(
                                                                         a_ + step_.d_model + kEach * item);
#pragma unroll
  for (int i = 0; i < kEach / 4; ++i) {
    uint32_t lower[4], upper[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      lower[e] = whole(x[4 * i + e], inverse) - arith::bits_of(arith::kRoundBias);
      upper[e] = (lower[e] + 128) >> 8;  // its low byte
    }
    high[i] = packed(upper), low[i] = packed(lower);
  }
}

// The low bytes.
template <int kHeadDim>
__device__ inline uint32_t ScaledRowStepper<kHeadDim>::packed(const uint32_t (&x)[4]) {
  return __byte_perm(__byte_perm(x[0], x[1], 0x0040), __byte_perm(x[2], x[3], 0x0040), 0x5410);
}

// The bytes of a row that other blocks made, which is rounded to bf16. Until the largest magnitude is known, the row
// lies where its bytes will.
template <int kHeadDim>
__device__ inline void ScaledRowStepper<kHeadDim>::quantise_row(const uint64_t* row, int32_t width) {
  const int32_t items = width / kEach, rounds = (items + kThreads - 1) / kThreads;
  auto* const kept = reinterpret_cast<uint4*>(a_);
  uint32_t most = 0;
#pragma unroll 1
  for (int32_t item = tid_; item - lane_ < items; item += kThreads) {
    float x[kEach];
    take(row, min(item, items - 1), tag_, x);
    transform(x);
    const uint4 both = {two_bf16(x[0], x[1]), two_bf16(x[2], x[3]), two_bf16(x[4], x[5]), two_bf16(x[6], x[7])};
    if (item >= items) break;
    kept[item] = both;
    most = __vmaxu2(__vmaxu2(most, __vmaxu2(both.x & 0x7FFF7FFFu, both.y & 0x7FFF7FFFu)),
                    __vmaxu2(both.z & 0x7FFF7FFFu, both.w & 0x7FFF7FFFu));
  }
  const float inverse = inverse_of(largest_of_block(max(most << 16, most & 0xFFFF0000u)), 127.0f);
  // Bytes take the place of values that were read in this round or before.
#pragma unroll 1
  for (int32_t round = 0, item = tid_; round < rounds; ++round, item += kThreads) {
    const uint4 both = kept[min(item, items - 1)];
    sync();
    const auto four = [&](uint32_t u, uint32_t v) -> uint32_t {
      return four_bytes(arith::float_of(u << 16), arith::float_of(u & 0xFFFF0000u), arith::float_of(v << 16),
                        arith::float_of(v & 0xFFFF0000u), inverse);
    };
    if (item < items) reinterpret_cast<uint2*>(a_)[item] = {four(both.x, both.y), four(both.z, both.w)};
  }
  sync();
}

}  // namespace kaiju::cuda::scaled_row_step_detail
