// Attention by mma.sync in version 2 of the arithmetic, the first half of a chunk: as sm80_attention_scores.cuh, where
// every key and every value has a scale, and scores are floats.
//
// Scales are read from the cache where they are wanted, each by the lanes that hold the scores of its key. A weight has
// two bytes as before, of the value's weight; the sum of weights is that of the keys' weights.
#pragma once

#include <limits>

#include "sm80_attention_scores.cuh"

namespace kaiju::cuda {

template <class Shape>
class ScaledMmaScores : protected MmaScores<Shape> {
 protected:
  using Base = MmaScores<Shape>;
  using Base::half_block, Base::is_masked, Base::is_seen, Base::lane, Base::my_block, Base::row_of, Base::row_offset,
      Base::t, Base::thread, Base::ids_, Base::shared_, Base::tile_, Base::warp_;
  using Base::kHeadDim, Base::kRows, Base::kWarps, Base::kEach, Base::kTiles;
  using Scores = float[kTiles][8][4];  // of a block of keys
  using Maxima = float[kTiles][2];
  static constexpr float kLeast = -std::numeric_limits<float>::infinity();

  __device__ ScaledMmaScores(const ScaledMmaWork& work, const RowTile& tile, MmaShared<Shape>& shared)
      : Base(work, tile, shared), scaled_(work) {}

  __device__ void load_rows() {
    for (int32_t row = thread(); row < kRows; row += Shape::kThreads) {
      const int32_t at = tile_.first_row + row;
      const float z = at < tile_.rows ? scaled_.z[row_offset(at) / kHeadDim] : 0.0f;
      shared_.z[row] = z;
      shared_.least_difference[row] = arith::divide(-20.0f, z);
    }
    Base::load_rows();
  }
  // Of both halves of a block's memory, and of its scales.
  __device__ void prefetch(BlockId ids, int32_t chunk, int values) const {
    Base::prefetch(ids, chunk, values);
    if (values != 0) return;
#pragma unroll
    for (int k = 0; k < kEach; ++k)
      if (const int32_t block = my_block(chunk, k); is_seen(block)) {
        const std::byte* from = half_block(ids, block, 0) + 2 * kBlockTokens * kHeadDim + lane() % 2 * 128;
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
      }
  }

  __device__ __forceinline__ void find_scores(int32_t chunk, Scores (&s)[kEach]) {
    uint32_t key_scales[kEach][8];
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int32_t block = my_block(chunk, k);
      if (!is_seen(block)) continue;
      load_scales(key_scales[k], block, 0);
    }
    typename Base::Scores products[kEach];
    Base::find_scores(chunk, products);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int32_t block = my_block(chunk, k);
      if (!is_seen(block)) continue;
      const auto scale_all = [&]<bool kMasked>() {
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          const float2 scale = two_scales(key_scales[k][n]),
                       less = {Base::offset_of(scale.x), Base::offset_of(scale.y)};
#pragma unroll
          for (int m = 0; m < kTiles; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              if (!has_rows(i / 2)) continue;
              const int32_t product = products[k][m][n][i];
              const float score =
                  i % 2 == 0 ? scaled_product(product, scale.x, less.x) : scaled_product(product, scale.y, less.y);
              s[k][m][n][i] = kMasked && product == Base::kLeast ? kLeast : score;
            }
        }
      };
      if (is_masked(block))
        scale_all.template operator()<true>();
      else
        scale_all.template operator()<false>();
    }
  }

  // Of the tile's rows, over all warps; and the largest scale of a value that each row sees.
  __device__ __forceinline__ void find_maxima(int32_t chunk, const Scores (&s)[kEach], Maxima& maximum) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) maximum[m][r] = kLeast, largest_[m][r] = 0.0f;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int32_t block = my_block(chunk, k);
      if (!is_seen(block)) continue;
      const bool masked = is_masked(block);
      float all = 0.0f;  // the largest of the block, if every row sees the whole block
      uint32_t value_scales[8];
      load_scales(value_scales, block, 1);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const float2 scale = two_scales(value_scales[n]);
        if (!masked) all = fmaxf(all, fmaxf(scale.x, scale.y));
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (has_rows(i / 2)) maximum[m][i / 2] = fmaxf(maximum[m][i / 2], s[k][m][n][i]);
        if (masked)
#pragma unroll
          for (int m = 0; m < kTiles; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i)
              if (has_rows(i / 2) && s[k][m][n][i] != kLeast)
                largest_[m][i / 2] = fmaxf(largest_[m][i / 2], i % 2 == 0 ? scale.x : scale.y);
      }
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int r = 0; r < 2; ++r) largest_[m][r] = fmaxf(largest_[m][r], all);
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float most = most_of_four(maximum[m][r]), largest = most_of_four(largest_[m][r]);
        if (t() == 0) shared_.maximum[warp_][row_of(m, r)] = most, shared_.largest[warp_][row_of(m, r)] = largest;
      }
    __syncthreads();  // and all have read the last chunk's weights
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        maximum[m][r] = shared_.maximum[0][row_of(m, r)], largest_[m][r] = shared_.largest[0][row_of(m, r)];
#pragma unroll
        for (int w = 1; w < kWarps; ++w) {
          maximum[m][r] = fmaxf(maximum[m][r], shared_.maximum[w][row_of(m, r)]);
          largest_[m][r] = fmaxf(largest_[m][r], shared_.largest[w][row_of(m, r)]);
        }
      }
  }

  // The bytes of the values' weights, and each warp's part of the sums of the keys' weights.
  __device__ __forceinline__ void weigh(int32_t chunk, const Scores (&s)[kEach], const Maxima& maximum) {
    Row rows[kTiles][2];
    uint32_t sum[kTiles][2];
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int32_t row = row_of(m, r);
        rows[m][r] = {maximum[m][r], shared_.z[row], shared_.least_difference[row],
                      largest_[m][r] > 0.0f ? arith::divide(1.0f, largest_[m][r]) : 0.0f};
        sum[m][r] = 0;
      }
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int32_t block = my_block(chunk, k);
      if (!is_seen(block)) continue;
      uint32_t value_scales[8];
      load_scales(value_scales, block, 1);
      const auto weigh_all = [&]<bool kMasked>() {
#pragma unroll
        for (int p = 0; p < 4; ++p) {  // a piece of 16 keys, of which four are this lane's
          const float2 first = two_scales(value_scales[2 * p]), second = two_scales(value_scales[2 * p + 1]);
          const float scale[4] = {first.x, first.y, second.x, second.y};
#pragma unroll
          for (int m = 0; m < kTiles; ++m)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
              if (!has_rows(r)) continue;
              uint32_t w[4];
#pragma unroll
              for (int i = 0; i < 4; ++i)
                sum[m][r] += weight_of<kMasked>(s[k][m][2 * p + i / 2][2 * r + i % 2], scale[i], rows[m][r], w[i]) -
                             static_cast<uint32_t>(kBiasBits);
              Base::store_weights(block, p, row_of(m, r), w);
            }
        }
      };
      if (is_masked(block))
        weigh_all.template operator()<true>();
      else
        weigh_all.template operator()<false>();
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        sum[m][r] += __shfl_xor_sync(0xFFFFFFFFu, sum[m][r], 1);
        sum[m][r] += __shfl_xor_sync(0xFFFFFFFFu, sum[m][r], 2);
        if (t() == 0) shared_.sum[warp_][row_of(m, r)] = sum[m][r];
      }
  }

  __device__ static float difference(float a, float b) { return arith::add(a, -b); }
  __device__ float z_of(int m, int r) const { return shared_.z[row_of(m, r)]; }
  __device__ static int32_t bits_of(float maximum) { return __float_as_int(maximum); }
  __device__ static float maximum_of(int32_t bits) { return __int_as_float(bits); }

  const ScaledMmaWork& scaled_;
  Maxima largest_;  // scale of a value of the chunk, for each of this thread's rows

 private:
  struct Row {
    float maximum, z;
    float least;    // difference from the maximum: below it weights are 0
    float inverse;  // of the largest scale
  };

  // Whether any row of the tile is an upper (0) or a lower one (1) of this warp's products.
  __device__ bool has_rows(int r) const { return r == 0 || kRows > 16 || tile_.rows - tile_.first_row > 8; }

  // float(product) * scale, rounded once. `less`: offset_of(scale).
  __device__ __forceinline__ static float scaled_product(int32_t product, float scale, float less) {
    if constexpr (Base::kStart == 0) return arith::mul(static_cast<float>(product), scale);
    return arith::fma(__int_as_float(product), scale, less);  // the sums began at the bits of kRoundBias
  }

  // The bits of kRoundBias plus the weight of the key; `to` has the weight of the value in its lower half. Every
  // difference that is clamped has the weight 0, as it has behind the clamp. A place that a row does not see may never
  // have been written, and its scale may be no number.
  template <bool kMasked>
  __device__ __forceinline__ static uint32_t weight_of(float score, float scale, const Row& row, uint32_t& to) {
    using namespace arith;
    const float d = fmaxf(add(score, -row.maximum), row.least), rounded = fma(d, row.z, kRoundBias),
                f = fma(d, row.z, -add(rounded, -kRoundBias));
    float y = kPow2C4;
    y = fma(y, f, kPow2C3);
    y = fma(y, f, kPow2C2);
    y = fma(y, f, kPow2C1);
    y = fma(y, f, 1.0f);
    float key = fma(65535.0f, float_of(bits_of(y) + (bits_of(rounded) << 23)), kRoundBias);
    if (kMasked && score == kLeast) key = kRoundBias;
    to = bits_of(fma(add(key, -kRoundBias), mul(scale, row.inverse), kRoundBias));
    if (kMasked && score == kLeast) to = 0;
    return bits_of(key);
  }

  // The scales of a block's keys (0) or values (1): those of keys 8 n + 2 t and the next one, in a word.
  __device__ __forceinline__ void load_scales(uint32_t (&to)[8], int32_t block, int values) const {
    constexpr int32_t kWords = kBlockTokens / 2;
    const uint32_t* from =
        reinterpret_cast<const uint32_t*>(half_block(ids_, block, 0) + 2 * kBlockTokens * kHeadDim) + values * kWords;
#pragma unroll
    for (int n = 0; n < 8; ++n) to[n] = from[4 * n + t()];
  }
  __device__ static float2 two_scales(uint32_t both) {
    return {arith::float_of(both << 16), arith::float_of(both & 0xFFFF0000u)};
  }
  // Over the lanes of a row.
  __device__ static float most_of_four(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
  }
};

}  // namespace kaiju::cuda
