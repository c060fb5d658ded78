// Attention on the tensor cores of every chip since 8.0 (mma.sync), for what the Hopper kernels do not serve.
//
// The rows of a segment are its tokens times the query heads that share a KV head, token after token. A block of
// threads takes a tile of rows and goes through the chunks of 512 keys that they see; of a chunk every warp finds the
// scores of every kWarps-th block of 64 keys, once, and keeps them in registers. The maximum of a row goes through
// shared memory, and so do the two bytes of its weights; then every warp has some channels of the sums, over all keys
// of the chunk: exact integers, each in one place.
//
// Keys and values go from the cache straight to registers, for a warp's keys and a warp's channels are nobody else's. A
// lane reads four bytes, so that a load of a warp is one line of 128: with 16 bytes a lane it touches four, and that
// takes longer. What comes next is asked into the L2 cache meanwhile.
//
// Where tiles are few, several blocks of threads take the chunks of one and keep them apart; the last to be done folds
// them in order. Bound: the tensor cores, which do 6 products a key, row and channel where 4 are counted; for few rows
// memory.
#pragma once

#include <algorithm>

#include "../tiles/dependent_launch.cuh"
#include "../tiles/layout.cuh"
#include "../tiles/sm80_mma.cuh"
#include "attention_weight.cuh"
#include "attention_work.cuh"
#include "kaiju/arith/quantise.hpp"

namespace kaiju::cuda {

// Weights of scores that lie less than 2^23 below their maximum, as those of 256 channels do.
struct WideWeight {
  static constexpr int32_t kBits = 0x4B7FFFFF;  // of the float 2^24 - 1: these bits less n are those of 2^24 - 1 - n
  static constexpr float kBias = 16777215.0f;
  float z = 0.0f;
  int32_t floor = 0;
  WideWeight() = default;
  // Weights are surely 0 from -18 / z on; and for z = 100 all but the maximum's, as for all above.
  explicit WideWeight(float of_scores) : z(of_scores < 100.0f ? of_scores : 100.0f) {
    const float least = 18.0f / z, widest = 8388606.0f;
    floor = kBits - static_cast<int32_t>(least < widest ? least + 1.0f : widest);
  }
  static __device__ int32_t shift(int32_t maximum) { return kBits - (maximum == INT32_MIN ? 0 : maximum); }
  template <int kCount>
  __device__ __forceinline__ void operator()(const int32_t (&score)[kCount], int32_t shift,
                                             uint32_t (&weight)[kCount]) const {
    using namespace arith;
    float d[kCount], rounded[kCount], f[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) d[i] = add(__int_as_float(__viaddmax_s32(score[i], shift, floor)), -kBias);
#pragma unroll
    for (int i = 0; i < kCount; ++i) rounded[i] = fma(d[i], z, kRoundBias);
#pragma unroll
    for (int i = 0; i < kCount; ++i) f[i] = fma(d[i], z, -add(rounded[i], -kRoundBias));
    uint32_t power[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) power[i] = 0x477FFF00u + (bits_of(rounded[i]) << 23);
    weights_of(power, f, weight);
  }
};

// How a launch divides its work.
struct MmaWork : AttentionWork {
  int32_t single_from = 0;  // segments from here on have one row
  int32_t tiles = 0;        // at least as many as there are
  int32_t pieces = 0;       // blocks of threads that share a tile
  int32_t kept_each = 0;    // chunks of a tile that can be kept apart
  WideWeight weight;
  float4* kept = nullptr;          // [tiles, kept_each, rows * head_dim / 4]
  AttentionPart* parts = nullptr;  // [tiles, kept_each, rows]
  int32_t* counters = nullptr;     // [tiles] 0 between launches
};

template <int kHeadDim_, int kRows_, int kWarps_, int kBlocks_>
struct MmaShape {
  static constexpr int kHeadDim = kHeadDim_, kRows = kRows_, kWarps = kWarps_;
  static constexpr int kBlocks = kBlocks_;  // of threads, on a multiprocessor
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kEach = kChunkBlocks / kWarps;       // blocks of keys whose scores a warp finds
  static constexpr int kChannels = kHeadDim / kWarps;       // whose sums it finds
  static constexpr int kSums = kRows / 16 * kChannels / 8;  // products of 16 rows and 8 channels that these are
  static_assert(kEach >= 1 && kChannels >= 8 && kRows % 16 == 0 && kSums <= 16);
};

// Operands in columns, as layout.cuh has them: pieces of 16 bytes, each of all rows.
template <class Shape>
struct MmaShared {
  uint4 queries[Shape::kHeadDim / 16][Shape::kRows];
  uint4 weights[2][arith::kChunkKeys / 16][Shape::kRows];  // high bytes, low bytes; by places of values
  int32_t maximum[Shape::kWarps][Shape::kRows];
  uint32_t sum[Shape::kWarps][Shape::kRows];
  int32_t from[Shape::kRows], to[Shape::kRows];  // what a row sees
  int32_t last;
};

template <class Shape>
class MmaAttention {
  static constexpr int kHeadDim = Shape::kHeadDim, kRows = Shape::kRows, kWarps = Shape::kWarps, kEach = Shape::kEach;
  static constexpr int kTiles = kRows / 16, kColumns = Shape::kChannels / 8;
  using Scores = int32_t[kTiles][8][4];          // of a block of keys
  using Sums = int32_t[2][kTiles][kColumns][4];  // high, low
  using Maxima = int32_t[kTiles][2];
  using Totals = float4[kTiles][kColumns];

 public:
  __device__ MmaAttention(const MmaWork& work, const RowTile& tile, MmaShared<Shape>& shared)
      : work_(work), tile_(tile), shared_(shared) {
    keys_ = work.kv.pool + work.kv.slot_offset + int64_t{tile.group} * 2 * kBlockTokens * kHeadDim;
    const int32_t last = min(tile.first_row + kRows, tile.rows) - 1;
    all_from_ = first_visible(tile.position + last / work.heads);
    all_to_ = tile.position + tile.first_row / work.heads;
  }

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
          for (int n = 0; n < kColumns; ++n) o[c][m][n] = __ldcg(from + (m * kColumns + n) * Shape::kThreads);
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
          for (int r = 0; r < 2; ++r) maximum[m][r] = part[c][m][r].x, weight[m][r] = __int_as_float(part[c][m][r].y);
        fold(maximum, weight, o[c]);
      }
    }
  }
  __device__ void finish() {
    const float* scale = work_.args.out_inverse + int64_t{tile_.group} * kHeadDim;
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int32_t row = tile_.first_row + row_of(m, r);
        if (row >= tile_.rows) continue;
        const float inverse = arith::divide(1.0f, total_weight_[m][r]);
        int8_t* to = work_.args.out + row_offset(row);
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
          const int32_t channel = first_channel() + 8 * n + 2 * t();
          const float2 c = *reinterpret_cast<const float2*>(scale + channel);
          const float x = r == 0 ? totals_[m][n].x : totals_[m][n].z, y = r == 0 ? totals_[m][n].y : totals_[m][n].w;
          *reinterpret_cast<char2*>(to + channel) =
              make_char2(arith::quantise(arith::mul(x, inverse), c.x), arith::quantise(arith::mul(y, inverse), c.y));
        }
      }
  }

 private:
  __device__ static int32_t thread() { return static_cast<int32_t>(threadIdx.x); }
  __device__ static int32_t lane() { return thread() % 32; }
  __device__ static int32_t g() { return lane() / 4; }
  __device__ static int32_t t() { return lane() % 4; }
  // Of the tile's rows, in a product of 16: upper (0) or lower (1).
  __device__ static int32_t row_of(int m, int r) { return 16 * m + 8 * r + g(); }
  __device__ int32_t first_channel() const { return warp_ * Shape::kChannels; }

  __device__ int32_t first_visible(int32_t position) const {
    return work_.kv.window > 0 && position >= work_.kv.window ? position - work_.kv.window + 1 : 0;
  }
  __device__ int64_t row_offset(int32_t row) const {
    const int32_t token = row / work_.heads, head = row - token * work_.heads;
    return (int64_t{tile_.batch_row + token} * work_.args.heads + tile_.group * work_.heads + head) * kHeadDim;
  }

  __device__ void load_rows() {
    for (int32_t i = thread(); i < kRows * (kHeadDim / 16); i += Shape::kThreads) {
      const int32_t row = i % kRows, piece = i / kRows;
      if (tile_.first_row + row < tile_.rows)
        shared_.queries[piece][row] =
            reinterpret_cast<const uint4*>(work_.args.queries + row_offset(tile_.first_row + row))[piece];
      else
        shared_.queries[piece][row] = uint4{0, 0, 0, 0};
    }
    for (int32_t row = thread(); row < kRows;
         row += Shape::kThreads) {  // nobody asks for what rows behind the last see
      const int32_t position = tile_.position + (tile_.first_row + row) / work_.heads;
      shared_.from[row] = first_visible(position);
      shared_.to[row] = position;
    }
    __syncthreads();
  }

  // Blocks of keys of a chunk that some row sees, as the sequence counts them.
  __device__ int32_t begin_block(int32_t chunk) const {
    return max(chunk * kChunkBlocks, tile_.first_key / kBlockTokens);
  }
  __device__ int32_t end_block(int32_t chunk) const {
    return min((chunk + 1) * kChunkBlocks, tile_.last_key / kBlockTokens + 1);
  }
  __device__ int32_t my_block(int32_t chunk, int k) const { return chunk * kChunkBlocks + k * kWarps + warp_; }
  __device__ bool is_seen(int32_t block) const {
    return block >= tile_.first_key / kBlockTokens && block <= tile_.last_key / kBlockTokens;
  }
  __device__ bool is_masked(int32_t block) const {
    return block * kBlockTokens < all_from_ || (block + 1) * kBlockTokens - 1 > all_to_;
  }
  // Lane i gets that of block i of the chunk.
  __device__ BlockId load_ids(int32_t chunk) const {
    const int32_t block = chunk * kChunkBlocks + lane();
    return lane() < kChunkBlocks && is_seen(block) ? tile_.table[block] : 0;
  }
  __device__ const std::byte* half_block(BlockId ids, int32_t block, int values) const {
    return keys_ + __shfl_sync(0xFFFFFFFFu, ids, block % kChunkBlocks) * work_.kv.block_bytes +
           values * kBlockTokens * kHeadDim;
  }
  // This warp's blocks into the L2 cache.
  __device__ void prefetch(BlockId ids, int32_t chunk, int values) const {
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int32_t block = my_block(chunk, k);
      if (!is_seen(block)) continue;
      const std::byte* from = half_block(ids, block, values) + lane() * 128;
#pragma unroll
      for (int i = 0; i < kHeadDim / 64; ++i) asm volatile("prefetch.global.L2 [%0];" ::"l"(from + i * 4096));
    }
  }

  // Operands of two products, of 32 bytes of the summed index each: 16 rows, 8 columns.
  using Left = uint32_t[2][4];
  using Right = uint32_t[2][2];
  using Piece = uint4[kRows];
  __device__ static void load_left(Left& a, const Piece* pieces, int32_t row) {
#pragma unroll
    for (int i = 0; i < 2; ++i) load_matrices(a[i], shared_address(&pieces[2 * i + lane() / 16][row + lane() % 16]));
  }
  // Of a matrix of `rows` rows, in columns.
  __device__ static void load_right(Right& b, const std::byte* matrix, int32_t rows, int32_t piece, int32_t row) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      b[i / 2][i % 2] = reinterpret_cast<const uint32_t*>(matrix)[((piece + i) * rows + row + g()) * 4 + t()];
  }
  template <Sign kLeft>
  __device__ static void multiply(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    mma<kLeft, Sign::kSigned>(c, a[0], a[1], a[2], a[3], b[0], b[1]);
  }

  __device__ __forceinline__ void find_scores(int32_t chunk, Scores (&s)[kEach]) const {
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int32_t block = my_block(chunk, k);
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int n = 0; n < 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) s[k][m][n][i] = 0;
      if (!is_seen(block)) continue;
      const std::byte* keys = half_block(ids_, block, 0);
#pragma unroll
      for (int j = 0; j < kHeadDim / 64; ++j) {
        Right key[8];
#pragma unroll
        for (int n = 0; n < 8; ++n) load_right(key[n], keys, kBlockTokens, 4 * j, 8 * n);
        Left q[kTiles];
#pragma unroll
        for (int m = 0; m < kTiles; ++m) load_left(q[m], &shared_.queries[4 * j], 16 * m);
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int n = 0; n < 8; ++n)
#pragma unroll
            for (int m = 0; m < kTiles; ++m) multiply<Sign::kSigned>(s[k][m][n], q[m][i], key[n][i]);
      }
      if (is_masked(block)) mask(s[k], block);
    }
  }
  // Scores that a row does not see become the least.
  __device__ __forceinline__ void mask(Scores& s, int32_t block) const {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int32_t key = block * kBlockTokens + 2 * t(), from = shared_.from[row_of(m, r)] - key,
                      to = shared_.to[row_of(m, r)] - key;
#pragma unroll
        for (int n = 0; n < 8; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            if (8 * n + i < from || 8 * n + i > to) s[m][n][2 * r + i] = INT32_MIN;
      }
  }

  // Of the tile's rows, over all warps.
  __device__ __forceinline__ void find_maxima(int32_t chunk, const Scores (&s)[kEach], Maxima& maximum) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        int32_t most = INT32_MIN;
#pragma unroll
        for (int k = 0; k < kEach; ++k) {
          if (!is_seen(my_block(chunk, k))) continue;
#pragma unroll
          for (int n = 0; n < 8; ++n) most = __vimax3_s32(most, s[k][m][n][2 * r], s[k][m][n][2 * r + 1]);
        }
        most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, 1));
        most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, 2));
        if (t() == 0) shared_.maximum[warp_][row_of(m, r)] = most;
      }
    __syncthreads();  // and all have read the last chunk's weights
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        maximum[m][r] = shared_.maximum[0][row_of(m, r)];
#pragma unroll
        for (int w = 1; w < kWarps; ++w) maximum[m][r] = max(maximum[m][r], shared_.maximum[w][row_of(m, r)]);
      }
  }

  // The bytes of the weights, and each warp's part of their sums.
  __device__ __forceinline__ void weigh(int32_t chunk, const Scores (&s)[kEach], const Maxima& maximum) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int32_t shift = WideWeight::shift(maximum[m][r]), row = row_of(m, r);
        uint32_t high_sum = 0, low_sum = 0;
#pragma unroll
        for (int k = 0; k < kEach; ++k) {
          const int32_t block = my_block(chunk, k);
          if (!is_seen(block)) continue;
          const bool masked = is_masked(block);
#pragma unroll
          for (int p = 0; p < 4; ++p) {  // a piece of 16 keys, of which four are this lane's
            const int32_t four[4] = {s[k][m][2 * p][2 * r], s[k][m][2 * p][2 * r + 1], s[k][m][2 * p + 1][2 * r],
                                     s[k][m][2 * p + 1][2 * r + 1]};
            uint32_t w[4];
            work_.weight(four, shift, w);
            if (masked) {
#pragma unroll
              for (int i = 0; i < 4; ++i)
                if (four[i] == INT32_MIN) w[i] = 0;
            }
            const uint32_t first = __byte_perm(w[0], w[1], 0x5140), second = __byte_perm(w[2], w[3], 0x5140);
            const uint32_t high = __byte_perm(first, second, 0x7632), low = __byte_perm(first, second, 0x5410);
            high_sum = __dp4a(high, 0x01010101u, high_sum);
            low_sum = __dp4a(low, 0x01010101u, low_sum);
            const int32_t piece = block % kChunkBlocks * 4 + p;
            reinterpret_cast<uint32_t*>(&shared_.weights[0][piece][row])[t()] = high;
            reinterpret_cast<uint32_t*>(&shared_.weights[1][piece][row])[t()] = low;
          }
        }
        uint32_t sum = 256 * high_sum + low_sum;
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
        if (t() == 0) shared_.sum[warp_][row] = sum;
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
            for (int n = 0; n < kColumns; ++n) multiply<Sign::kUnsigned>(sums[h][m][n], w[h][i], value[n][i]);
      }
    };
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
      for (int r = 0; r < 2; ++r) total_maximum_[m][r] = INT32_MIN, total_weight_[m][r] = 0.0f;
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
          return arith::fma(256.0f, static_cast<float>(sums[0][m][n][i]), static_cast<float>(sums[1][m][n][i]));
        };
        o[m][n] = {whole(0), whole(1), whole(2), whole(3)};
      }
    }
    if (kept < 0) return fold(maximum, weight, o);
    float4* to = work_.kept + kept * (kRows * kHeadDim / 4) + thread();
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n) to[(m * kColumns + n) * Shape::kThreads] = o[m][n];
#pragma unroll
      for (int r = 0; r < 2; ++r)
        if (first_channel() == 0 && t() == 0) work_.parts[kept * kRows + row_of(m, r)] = {maximum[m][r], weight[m][r]};
    }
  }
  // A chunk joins the totals. One that a row does not see has the least maximum and sums of 0.
  __device__ __forceinline__ void fold(const Maxima& maximum, const float (&weight)[kTiles][2], const Totals& o) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      bool later[2];
      float factor[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int32_t before = total_maximum_[m][r], chunk = maximum[m][r];
        later[r] = before <= chunk;
        factor[r] = before == INT32_MIN || chunk == INT32_MIN
                        ? 0.0f
                        : arith::exp2_product(later[r] ? before - chunk : chunk - before, work_.args.z);
        total_maximum_[m][r] = max(before, chunk);
        total_weight_[m][r] = joined(later[r], factor[r], total_weight_[m][r], weight[m][r]);
      }
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        float4& x = totals_[m][n];
        x = {joined(later[0], factor[0], x.x, o[m][n].x), joined(later[0], factor[0], x.y, o[m][n].y),
             joined(later[1], factor[1], x.z, o[m][n].z), joined(later[1], factor[1], x.w, o[m][n].w)};
      }
    }
  }
  __device__ static float joined(bool later, float factor, float total, float chunk) {
    return arith::fma(later ? total : chunk, factor, later ? chunk : total);
  }

  const MmaWork& work_;
  const RowTile& tile_;
  MmaShared<Shape>& shared_;
  const std::byte* keys_;
  int32_t all_from_, all_to_;  // what every row of the tile sees
  BlockId ids_;
  int32_t warp_ = __shfl_sync(0xFFFFFFFFu, thread() / 32, 0);  // the compiler then knows that all lanes have the same
  // Of this thread's rows and channels.
  Maxima total_maximum_;
  float total_weight_[kTiles][2];
  Totals totals_;
};

// The tile of this block of threads; one without rows where there are fewer. By a whole warp.
template <int kRows>
__device__ RowTile find_tile(const MmaWork& work, int32_t at) {
  const int32_t groups = work.kv.kv_heads, singles = work.segment_count - work.single_from,
                single_tiles = (work.heads + kRows - 1) / kRows;
  int32_t segment, offset;
  if (at < singles * single_tiles * groups) {
    segment = work.single_from + at / (single_tiles * groups), offset = at % (single_tiles * groups);
  } else {
    at = work.tiles - 1 - at;  // the longest histories first
    const Found found = find_unit(at, work, work.single_from, [&](const BatchSegment& s) {
      return (s.row_count * work.heads + kRows - 1) / kRows * groups;
    });
    if (found.segment < 0) return {};
    segment = found.segment, offset = found.offset;
  }
  return make_tile(work, segment, offset % groups, offset / groups * kRows, kRows);
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    sm80_attention_kernel(const __grid_constant__ MmaWork work) {
  extern __shared__ __align__(16) uint8_t memory[];
  auto& shared = *reinterpret_cast<MmaShared<Shape>*>(memory);
  let_next_start();
  wait_for_inputs();
  const auto at = static_cast<int32_t>(blockIdx.x) / work.pieces,
             piece = static_cast<int32_t>(blockIdx.x) % work.pieces;
  const RowTile tile = find_tile<Shape::kRows>(work, at);
  if (tile.rows == 0) return;
  const int32_t chunks = tile.end_chunk - tile.chunk;
  const bool apart = work.pieces > 1 && chunks > 1 && chunks <= work.kept_each;
  const int32_t pieces = apart ? work.pieces : 1;
  const auto share = [&](int32_t p) { return tile.chunk + static_cast<int32_t>(int64_t{chunks} * p / pieces); };
  if (piece >= pieces || share(piece) == share(piece + 1)) return;
  const int64_t kept = apart ? int64_t{at} * work.kept_each : -1;
  MmaAttention<Shape> attention(work, tile, shared);
  attention.run(share(piece), share(piece + 1), kept);
  if (apart) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      shared.last = atomicAdd(&work.counters[at], 1) == min(chunks, pieces) - 1;
      if (shared.last) work.counters[at] = 0;
      __threadfence();
    }
    __syncthreads();
    if (!shared.last) return;
    attention.fold_kept(kept);
  }
  attention.finish();
}

inline int32_t single_segments(const Batch& batch) {
  const auto segments = static_cast<int32_t>(batch.segments.size());
  return batch.row_count == segments ? segments : segments - std::min(segments, batch.single_from);
}
// As many tiles as a batch can have.
template <class Shape>
int32_t mma_tiles(const AttentionArgs& args, const Batch& batch, const KvSlot& kv) {
  const int32_t heads = args.heads / kv.kv_heads, singles = single_segments(batch),
                others = static_cast<int32_t>(batch.segments.size()) - singles;
  return kv.kv_heads * (singles * ((heads + Shape::kRows - 1) / Shape::kRows) +
                        (batch.row_count - singles) * heads / Shape::kRows + others);
}

template <class Shape>
cudaError_t launch_mma(cudaStream_t stream, const Chip& chip, const AttentionArgs& args, const Batch& batch,
                       const KvSlot& kv, const AttentionScratch& scratch) {
  const int32_t tiles = mma_tiles<Shape>(args, batch, kv), segments = static_cast<int32_t>(batch.segments.size()),
                most_chunks = kv.window == 0 ? INT32_MAX : (kv.window + Shape::kRows) / arith::kChunkKeys + 2;
  MmaWork work;
  work.args = args;
  work.kv = kv;
  work.segments = batch.segments.data();
  work.segment_count = segments;
  work.heads = args.heads / kv.kv_heads;
  work.single_from = segments - single_segments(batch);
  work.tiles = tiles;
  work.weight = WideWeight(args.z);
  work.pieces = scratch.units < tiles ? 1 : std::clamp(Shape::kBlocks * chip.multiprocessors / tiles, 1, most_chunks);
  work.kept_each = scratch.units / tiles * (kAttentionTileRows / Shape::kRows);
  work.kept = reinterpret_cast<float4*>(scratch.sums);
  work.parts = scratch.parts;
  work.counters = scratch.counters;
  const auto kernel = sm80_attention_kernel<Shape>;
  constexpr auto kBytes = static_cast<int32_t>(sizeof(MmaShared<Shape>));
  if constexpr (kBytes > 48 << 10)  // what a launch may have unasked
    if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
        error != cudaSuccess)
      return error;
  return launch(stream, chip, kernel, {int64_t{tiles} * work.pieces, Shape::kThreads, kBytes}, work);
}

}  // namespace kaiju::cuda
