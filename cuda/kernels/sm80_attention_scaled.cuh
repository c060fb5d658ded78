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
  using Base::half_block, Base::is_seen, Base::my_block, Base::row_of, Base::row_offset, Base::t, Base::thread,
      Base::ids_, Base::shared_, Base::tile_, Base::warp_;
  using Base::kHeadDim, Base::kRows, Base::kWarps, Base::kEach, Base::kTiles;
  using Scores = float[kTiles][8][4];  // of a block of keys
  using Maxima = float[kTiles][2];
  static constexpr float kLeast = -std::numeric_limits<float>::infinity();

  __device__ ScaledMmaScores(const ScaledMmaWork& work, const RowTile& tile, MmaShared<Shape>& shared)
      : Base(work, tile, shared), scaled_(work) {}

  __device__ void load_rows() {
    for (int32_t row = thread(); row < kRows; row += Shape::kThreads) {
      const int32_t at = tile_.first_row + row;
      shared_.z[row] = at < tile_.rows ? scaled_.z[row_offset(at) / kHeadDim] : 0.0f;
    }
    Base::load_rows();
  }

  __device__ __forceinline__ void find_scores(int32_t chunk, Scores (&s)[kEach]) const {
    typename Base::Scores products[kEach];
    Base::find_scores(chunk, products);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int32_t block = my_block(chunk, k);
      if (!is_seen(block)) continue;
      const uint32_t* scales = scales_of(block, 0);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const float2 scale = two_scales(scales, n);
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int32_t product = products[k][m][n][i];
            s[k][m][n][i] = product == Base::kLeast
                                ? kLeast
                                : arith::mul(static_cast<float>(product), i % 2 == 0 ? scale.x : scale.y);
          }
      }
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
      const uint32_t* scales = scales_of(block, 1);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const float2 scale = two_scales(scales, n);
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float score = s[k][m][n][i];
            maximum[m][i / 2] = fmaxf(maximum[m][i / 2], score);
            if (score != kLeast) largest_[m][i / 2] = fmaxf(largest_[m][i / 2], i % 2 == 0 ? scale.x : scale.y);
          }
      }
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
    float inverse[kTiles][2];
    uint32_t sum[kTiles][2];
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        inverse[m][r] = largest_[m][r] > 0.0f ? arith::divide(1.0f, largest_[m][r]) : 0.0f;
        sum[m][r] = 0;
      }
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int32_t block = my_block(chunk, k);
      if (!is_seen(block)) continue;
      const uint32_t* scales = scales_of(block, 1);
#pragma unroll
      for (int p = 0; p < 4; ++p) {  // a piece of 16 keys, of which four are this lane's
        const float2 first = two_scales(scales, 2 * p), second = two_scales(scales, 2 * p + 1);
        const float scale[4] = {first.x, first.y, second.x, second.y};
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            uint32_t w[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const float score = s[k][m][2 * p + i / 2][2 * r + i % 2];
              w[i] = 0;
              if (score == kLeast) continue;  // the place may never have been written: its scale may be no number
              const uint32_t key = arith::key_weight(arith::add(score, -maximum[m][r]), shared_.z[row_of(m, r)]);
              sum[m][r] += key;
              w[i] = arith::value_weight(key, arith::mul(scale[i], inverse[m][r]));
            }
            Base::store_weights(block, p, row_of(m, r), w);
          }
      }
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
  // The scales of a block's keys (0) or values (1), two in a word.
  __device__ const uint32_t* scales_of(int32_t block, int values) const {
    constexpr int32_t kWords = kBlockTokens / 2;
    return reinterpret_cast<const uint32_t*>(half_block(ids_, block, 0) + 2 * kBlockTokens * kHeadDim) +
           values * kWords;
  }
  // Of keys 8 n + 2 t and the next one.
  __device__ static float2 two_scales(const uint32_t* scales, int n) {
    const uint32_t both = scales[4 * n + t()];
    return {arith::float_of(both << 16), arith::float_of(both & 0xFFFF0000u)};
  }
  // Over the lanes of a row.
  __device__ static float most_of_four(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
  }
};

}  // namespace kaiju::cuda
