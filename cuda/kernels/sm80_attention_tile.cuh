// Attention by mma.sync, a tile of rows from its first chunk to its results (sm80_attention.cuh): computes the sums of
// each chunk and folds them into the tile's totals, or stores them separately if several thread blocks share the tile.
#pragma once

#include "kaiju/arith/quantise.hpp"
#include "sm80_attention_scaled.cuh"
#include "sm80_attention_scores.cuh"

namespace kaiju::cuda {

template <class Shape>
using ScoresOf = std::conditional_t<Shape::kScaled, ScaledMmaScores<Shape>, MmaScores<Shape>>;

template <class Shape>
class MmaAttention : ScoresOf<Shape> {
  using Base = ScoresOf<Shape>;
  using Base::begin_block, Base::end_block, Base::find_maxima, Base::find_scores, Base::first_channel, Base::half_block,
      Base::load_ids, Base::load_left, Base::load_right, Base::load_rows, Base::multiply, Base::prefetch, Base::row_of,
      Base::row_offset, Base::t, Base::thread, Base::weigh, Base::work_, Base::tile_, Base::shared_, Base::ids_;
  using Base::kHeadDim, Base::kRows, Base::kWarps, Base::kEach, Base::kTiles, Base::kLeast;
  using typename Base::Maxima, typename Base::Scores, typename Base::Left, typename Base::Right;
  static constexpr int kColumns = Shape::kChannels / 8;
  using Sums = int32_t[2][kTiles][kColumns][4];  // high, low
  using Totals = float4[kTiles][kColumns];

 public:
  __device__ MmaAttention(const typename Shape::Work& work, const RowTile& tile, MmaShared<Shape>& shared)
      : Base(work, tile, shared) {}

  // Chunks up to `end`; what is found is folded, or kept apart from place `kept` of the tile's first chunk on.
  __device__ void run(int32_t chunk, int32_t end, int64_t kept) {
    load_rows();
    begin_totals();
    ids_ = load_ids(chunk);
    prefetch(ids_, chunk, 0);
    for (; chunk < end; ++chunk) {
      const int32_t next_ids = chunk + 1 < end ? load_ids(chunk + 1) : 0;
      prefetch(ids_, chunk, 1);
      Scores s[kEach];
      find_scores(chunk, s);
      if (chunk + 1 < end) prefetch(next_ids, chunk + 1, 0);
      Maxima maximum;
      find_maxima(chunk, s, maximum);
      weigh(chunk, s, maximum);
      __syncthreads();
      Sums sums;
      find_sums(chunk, sums);
      fold_or_keep(maximum, sums, kept < 0 ? -1 : kept + chunk - tile_.chunk);
      ids_ = next_ids;
    }
  }
  // Folds all chunks of the tile, that were kept; a few are on their way at a time.
  __device__ void fold_kept(int64_t kept) {
    constexpr int kBatch = 16 / Shape::kSums;
    begin_totals();
    const int32_t count = tile_.end_chunk - tile_.chunk;
    for (int32_t first = 0; first < count; first += kBatch) {
      Totals o[kBatch];
      int2 part[kBatch][kTiles][2];
#pragma unroll
      for (int c = 0; c < kBatch; ++c) {
        const int64_t at = kept + min(first + c, count - 1);
        const float4* from = work_.kept + at * (kRows * kHeadDim / 4) + thread();
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
#pragma unroll
          for (int n = 0; n < kColumns; ++n)
            o[c][m][n] = is_row(m) ? __ldcg(from + (m * kColumns + n) * Shape::kThreads) : float4{};
#pragma unroll
          for (int r = 0; r < 2; ++r)
            part[c][m][r] = __ldcg(reinterpret_cast<const int2*>(work_.parts + at * kRows + row_of(m, r)));
        }
      }
#pragma unroll
      for (int c = 0; c < kBatch; ++c) {
        if (first + c == count) break;
        Maxima maximum;
        float weight[kTiles][2];
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
          for (int r = 0; r < 2; ++r)
            maximum[m][r] = Base::maximum_of(part[c][m][r].x), weight[m][r] = __int_as_float(part[c][m][r].y);
        fold(maximum, weight, o[c]);
      }
    }
  }
  __device__ void finish() {
    if constexpr (Shape::kScaled)
      finish_with(Base::scaled_.value_step, Base::scaled_.out);
    else
      finish_with(work_.args.out_inverse, work_.args.out);
  }

 private:
  // Whether this thread has a row of the tile in a product of 16 rows.
  __device__ bool is_row(int m) const { return tile_.first_row + row_of(m, 0) < tile_.rows; }

  // `factor` [kv_heads, head_dim], out [rows, heads, head_dim].
  template <class Out>
  __device__ __forceinline__ void finish_with(const float* factor, Out* out) {
    const float* scale = factor + int64_t{tile_.group} * kHeadDim;
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int32_t row = tile_.first_row + row_of(m, r);
        if (row >= tile_.rows) continue;
        const float inverse = arith::divide(1.0f, total_weight_[m][r]);
        Out* to = out + row_offset(row);
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
          const int32_t channel = first_channel() + 8 * n + 2 * t();
          const float2 c = *reinterpret_cast<const float2*>(scale + channel);
          const float x = r == 0 ? totals_[m][n].x : totals_[m][n].z, y = r == 0 ? totals_[m][n].y : totals_[m][n].w;
          if constexpr (Shape::kScaled)
            *reinterpret_cast<float2*>(to + channel) = {arith::mul(arith::mul(x, inverse), c.x),
                                                        arith::mul(arith::mul(y, inverse), c.y)};
          else
            *reinterpret_cast<char2*>(to + channel) =
                make_char2(arith::quantise(arith::mul(x, inverse), c.x), arith::quantise(arith::mul(y, inverse), c.y));
        }
      }
  }

  __device__ __forceinline__ void find_sums(int32_t chunk, Sums& sums) const {
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int n = 0; n < kColumns; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[h][m][n][i] = 0;
    const int32_t end = end_block(chunk);
    const auto load = [&](Right(&value)[kColumns], int32_t block) {
      const std::byte* from = half_block(ids_, block, 1);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) load_right(value[n], from, kHeadDim, 0, first_channel() + 8 * n);
    };
    const auto add = [&](const Right(&value)[kColumns], int32_t block) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        Left w[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) load_left(w[h], &shared_.weights[h][block % kChunkBlocks * 4], 16 * m);
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int n = 0; n < kColumns; ++n)
              Base::template multiply<Sign::kUnsigned>(sums[h][m][n], w[h][i], value[n][i]);
      }
    };
    if constexpr (Shape::kScaled && kColumns <= 2) {  // registers are left: three blocks are on their way
      constexpr int kAhead = 4;
      Right value[kAhead][kColumns];
      const int32_t begin = begin_block(chunk);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) load(value[i], min(begin + i, end - 1));
#pragma unroll 1
      for (int32_t block = begin; block < end; block += kAhead)
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          if (block + i >= end) break;
          add(value[i], block + i);
          if (block + i + kAhead < end) load(value[i], block + i + kAhead);
        }
      return;
    }
    Right even[kColumns], odd[kColumns];
    load(even, begin_block(chunk));
#pragma unroll 1
    for (int32_t block = begin_block(chunk); block < end; block += 2) {
      load(odd, min(block + 1, end - 1));
      add(even, block);
      if (block + 1 == end) break;
      load(even, min(block + 2, end - 1));
      add(odd, block + 1);
    }
  }

  __device__ void begin_totals() {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) total_maximum_[m][r] = kLeast, total_weight_[m][r] = 0.0f;
#pragma unroll
      for (int n = 0; n < kColumns; ++n) totals_[m][n] = {0.0f, 0.0f, 0.0f, 0.0f};
    }
  }
  __device__ __forceinline__ void fold_or_keep(const Maxima& maximum, const Sums& sums, int64_t kept) {
    float weight[kTiles][2];
    Totals o;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int32_t row = row_of(m, r);
        uint32_t sum = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) sum += shared_.sum[w][row];
        weight[m][r] = static_cast<float>(sum);
      }
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const auto whole = [&](int i) {
          const float sum =
              arith::fma(256.0f, static_cast<float>(sums[0][m][n][i]), static_cast<float>(sums[1][m][n][i]));
          if constexpr (Shape::kScaled) return arith::mul(sum, Base::largest_[m][i / 2]);
          return sum;
        };
        o[m][n] = {whole(0), whole(1), whole(2), whole(3)};
      }
    }
    if (kept < 0) return fold(maximum, weight, o);
    float4* to = work_.kept + kept * (kRows * kHeadDim / 4) + thread();
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n)
        if (is_row(m)) to[(m * kColumns + n) * Shape::kThreads] = o[m][n];
#pragma unroll
      for (int r = 0; r < 2; ++r)
        if (first_channel() == 0 && t() == 0)
          work_.parts[kept * kRows + row_of(m, r)] = {Base::bits_of(maximum[m][r]), weight[m][r]};
    }
  }
  // A chunk joins the totals. One that a row does not see has the least maximum and sums of 0; in version 2 of the
  // arithmetic it is passed over, for a total may be -0 there, which + 0 would change.
  __device__ __forceinline__ void fold(const Maxima& maximum, const float (&weight)[kTiles][2], const Totals& o) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      bool later[2];
      [[maybe_unused]] bool sees[2];
      float factor[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const typename Shape::Score before = total_maximum_[m][r], chunk = maximum[m][r];
        later[r] = before <= chunk;
        sees[r] = chunk != kLeast;
        factor[r] =
            before == kLeast || chunk == kLeast
                ? 0.0f
                : arith::exp2_product(later[r] ? Base::difference(before, chunk) : Base::difference(chunk, before),
                                      Base::z_of(m, r));
        total_maximum_[m][r] = max(before, chunk);
        total_weight_[m][r] = joined(later[r], factor[r], total_weight_[m][r], weight[m][r]);
      }
      const auto join = [&](int r, float total, float chunk) {
        if constexpr (Shape::kScaled)
          if (!sees[r]) return total;
        return joined(later[r], factor[r], total, chunk);
      };
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        float4& x = totals_[m][n];
        x = {join(0, x.x, o[m][n].x), join(0, x.y, o[m][n].y), join(1, x.z, o[m][n].z), join(1, x.w, o[m][n].w)};
      }
    }
  }
  __device__ static float joined(bool later, float factor, float total, float chunk) {
    return arith::fma(later ? total : chunk, factor, later ? chunk : total);
  }

  // Of this thread's rows and channels.
  Maxima total_maximum_;
  float total_weight_[kTiles][2];
  Totals totals_;
};

}  // namespace kaiju::cuda
