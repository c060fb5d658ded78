// Attention by mma.sync, the first half of a chunk (sm80_attention.cuh): computes scores from queries and keys, then
// their maxima and the two bytes of each weight. Also defines the shape of a tile and its shared memory.
#pragma once

#include <type_traits>

#include "../tiles/layout.cuh"
#include "../tiles/sm80_mma.cuh"
#include "attention_weight.cuh"
#include "attention_work.cuh"

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

// Version 2 of the arithmetic (sm80_attention_scaled.cuh); only `queries` and `heads` of MmaWork::args are set.
struct ScaledMmaWork : MmaWork {
  const float* z = nullptr;           // [rows, heads]
  const float* value_step = nullptr;  // [kv_heads, head_dim]
  float* out = nullptr;               // [rows, heads, head_dim]
};

// kScaled: version 2 of the arithmetic, where keys and values have scales.
template <int kHeadDim_, int kRows_, int kWarps_, int kBlocks_, bool kScaled_ = false>
struct MmaShape {
  static constexpr bool kScaled = kScaled_;
  using Work = std::conditional_t<kScaled, ScaledMmaWork, MmaWork>;
  using Score = std::conditional_t<kScaled, float, int32_t>;
  static constexpr int kHeadDim = kHeadDim_, kRows = kRows_, kWarps = kWarps_;
  static constexpr int64_t kHeadBytes = KvSlot::head_bytes(kHeadDim, kScaled);  // of a KV head in a block
  static constexpr int kBlocks = kBlocks_;                                      // of threads, on a multiprocessor
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kEach = kChunkBlocks / kWarps;       // blocks of keys whose scores a warp finds
  static constexpr int kChannels = kHeadDim / kWarps;       // whose sums it finds
  static constexpr int kSums = kRows / 16 * kChannels / 8;  // products of 16 rows and 8 channels that these are
  static_assert(kEach >= 1 && kChannels >= 8 && kRows % 16 == 0 && kSums <= 16);
};

// What a block of threads shares besides, if keys and values have scales.
template <class Shape>
struct ScalesShared {
  float largest[Shape::kWarps][Shape::kRows];  // scale of a value that a row sees
  float z[Shape::kRows], least_difference[Shape::kRows];
};
struct NoScales {};

// Operands in columns, as layout.cuh has them: pieces of 16 bytes, each of all rows.
template <class Shape>
struct MmaShared : std::conditional_t<Shape::kScaled, ScalesShared<Shape>, NoScales> {
  uint4 queries[Shape::kHeadDim / 16][Shape::kRows];
  uint4 weights[2][arith::kChunkKeys / 16][Shape::kRows];  // high bytes, low bytes; by places of values
  typename Shape::Score maximum[Shape::kWarps][Shape::kRows];
  uint32_t sum[Shape::kWarps][Shape::kRows];
  int32_t from[Shape::kRows], to[Shape::kRows];  // what a row sees
  int32_t last;
};

// A block of threads with a tile of rows.
template <class Shape>
class MmaScores {
 protected:
  static constexpr int kHeadDim = Shape::kHeadDim, kRows = Shape::kRows, kWarps = Shape::kWarps, kEach = Shape::kEach;
  static constexpr int kTiles = kRows / 16;
  using Scores = int32_t[kTiles][8][4];  // of a block of keys
  using Maxima = int32_t[kTiles][2];
  static constexpr int32_t kLeast = INT32_MIN;  // of a row that sees nothing
  // What a score's sum begins with. With scales the bits of kRoundBias: the sum is then a float that exceeds the score
  // by kRoundBias, as long as scores are below 2^22, and one fma makes score * scale of it, rounded once.
  static constexpr int32_t kStart = Shape::kScaled && kHeadDim <= 256 ? kBiasBits : 0;
  static_assert(kStart == 0 || 127 * 127 * kHeadDim < 4194304);
  // Exact: a scale is a bf16.
  __device__ static float offset_of(float scale) { return arith::mul(-arith::kRoundBias, scale); }

  __device__ MmaScores(const MmaWork& work, const RowTile& tile, MmaShared<Shape>& shared)
      : work_(work), tile_(tile), shared_(shared) {
    keys_ = work.kv.pool + work.kv.slot_offset + int64_t{tile.group} * Shape::kHeadBytes;
    const int32_t last = min(tile.first_row + kRows, tile.rows) - 1;
    all_from_ = first_visible(tile.position + last / work.heads);
    all_to_ = tile.position + tile.first_row / work.heads;
  }

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
         row += Shape::kThreads) {  // what rows beyond the last see does not matter
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

  // Operands of some products, of 32 bytes of the summed index each: 16 rows, 8 columns.
  using Left = uint32_t[2][4];
  using Right = uint32_t[2][2];
  using Piece = uint4[kRows];
  // Products whose keys are loaded together: with two, more loads are on their way; with one, registers are left.
  static constexpr int kProducts = Shape::kScaled && Shape::kBlocks > 1 ? 1 : 2;
  template <int kCount>
  __device__ static void load_left(uint32_t (&a)[kCount][4], const Piece* pieces, int32_t row) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      load_matrices(a[i], shared_address(&pieces[2 * i + lane() / 16][row + lane() % 16]));
  }
  // Of a matrix of `rows` rows, in columns.
  template <int kCount>
  __device__ static void load_right(uint32_t (&b)[kCount][2], const std::byte* matrix, int32_t rows, int32_t piece,
                                    int32_t row) {
#pragma unroll
    for (int i = 0; i < 2 * kCount; ++i)
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
          for (int i = 0; i < 4; ++i) s[k][m][n][i] = kStart;
      if (!is_seen(block)) continue;
      const std::byte* keys = half_block(ids_, block, 0);
#pragma unroll
      for (int j = 0; j < kHeadDim / (32 * kProducts); ++j) {
        uint32_t key[8][kProducts][2], q[kTiles][kProducts][4];
#pragma unroll
        for (int n = 0; n < 8; ++n) load_right(key[n], keys, kBlockTokens, 2 * kProducts * j, 8 * n);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) load_left(q[m], &shared_.queries[2 * kProducts * j], 16 * m);
#pragma unroll
        for (int i = 0; i < kProducts; ++i)
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

  // The bytes of the weights of this lane's four keys of piece `p` of a block.
  struct WeightBytes {
    uint32_t high, low;
  };
  __device__ __forceinline__ WeightBytes store_weights(int32_t block, int p, int32_t row, const uint32_t (&w)[4]) {
    const uint32_t first = __byte_perm(w[0], w[1], 0x5140), second = __byte_perm(w[2], w[3], 0x5140);
    const WeightBytes bytes{__byte_perm(first, second, 0x7632), __byte_perm(first, second, 0x5410)};
    const int32_t piece = block % kChunkBlocks * 4 + p;
    reinterpret_cast<uint32_t*>(&shared_.weights[0][piece][row])[t()] = bytes.high;
    reinterpret_cast<uint32_t*>(&shared_.weights[1][piece][row])[t()] = bytes.low;
    return bytes;
  }

  __device__ static int32_t difference(int32_t a, int32_t b) { return a - b; }
  __device__ float z_of(int, int) const { return work_.args.z; }
  __device__ static int32_t bits_of(int32_t maximum) { return maximum; }
  __device__ static int32_t maximum_of(int32_t bits) { return bits; }

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
            const auto [high, low] = store_weights(block, p, row, w);
            high_sum = __dp4a(high, 0x01010101u, high_sum);
            low_sum = __dp4a(low, 0x01010101u, low_sum);
          }
        }
        uint32_t sum = 256 * high_sum + low_sum;
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
        if (t() == 0) shared_.sum[warp_][row] = sum;
      }
  }

  const MmaWork& work_;
  const RowTile& tile_;
  MmaShared<Shape>& shared_;
  const std::byte* keys_;
  int32_t all_from_, all_to_;  // what every row of the tile sees
  BlockId ids_;
  int32_t warp_ = __shfl_sync(0xFFFFFFFFu, thread() / 32, 0);  // the compiler then knows that all lanes have the same
};

}  // namespace kaiju::cuda
