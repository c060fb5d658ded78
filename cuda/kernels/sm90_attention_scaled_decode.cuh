// Attention with scales on Hopper, one row in a sequence (decode): head_dim 64, 128 and 256, up to eight query heads on
// a KV head.
//
// A thread block has as many chunks as every other (sm90_attention_scaled_share.cuh). One warp copies keys and one
// copies values, 64 at a time, each through a ring in shared memory, without waiting for the other warps longer than
// the ring is full. In a chunk a warp computes the scores of every kWarps-th block of 64 keys and keeps them in
// registers. Maxima are exchanged through shared memory, then the bytes of the weights. Then a warp has 16 channels, or
// 32, of the sums over all keys of the chunk, as exact integers.
//
// Keys are the rows of the first product (mma.sync, 16 x 8) and query heads its columns. Where fewer heads share a KV
// head than there are columns, other columns are the same heads for other keys: two products with zeros in the columns
// of each other fill the same sums. So no thread computes a weight that is not wanted. In the second product channels
// are rows, and both bytes of the weights are columns.
//
// Bound: memory.
#pragma once

#include <algorithm>

#include "../tiles/dependent_launch.cuh"
#include "../tiles/layout.cuh"
#include "../tiles/sm80_mma.cuh"
#include "../tiles/sm90_barrier.cuh"
#include "../tiles/sm90_copy.cuh"
#include "sm90_attention_scaled_share.cuh"
#include "sm90_attention_scaled_weight.cuh"

namespace kaiju::cuda {

// kColumns: 2, 4 or 8, at least as many as query heads share a KV head.
template <int kHeadDim_, int kColumns_>
struct ScaledDecodeShape {
  static constexpr int kHeadDim = kHeadDim_, kColumns = kColumns_;
  static constexpr int kWarps = kHeadDim == 64 ? 4 : 8;      // that compute
  static constexpr int kThreads = 32 * (kWarps + 2);         // two warps copy
  static constexpr int kEach = kChunkBlocks / kWarps;        // blocks of keys whose scores a warp finds
  static constexpr int kOver = 8 / kColumns;                 // pieces of 16 keys whose scores are found together
  static constexpr int kGroups = 4 / kOver;                  // of such pieces in a block of keys
  static constexpr int kTiles = kHeadDim / 16 / kWarps;      // of 16 channels, whose sums a warp finds
  static constexpr int kParts = kColumns == 8 ? 2 : 1;       // products for the two bytes
  static constexpr int32_t kHalf = kBlockTokens * kHeadDim;  // bytes of 64 keys
  static constexpr int32_t kScales = 4 * kBlockTokens;       // bytes of the scales of 64 keys and values
  static constexpr int kBlocks = kHeadDim == 64 ? 2 : 1;     // of threads, on a multiprocessor
  static constexpr int32_t kKeySlots = kHeadDim == 64 ? 12 : kHeadDim == 128 ? 13 : 8;
  static constexpr int32_t kValueSlots = kHeadDim == 64 ? 12 : kHeadDim == 128 ? 13 : 5;
  static constexpr int32_t kWeightRow = arith::kChunkKeys + 16;  // bytes of a column's weights: no bank conflicts
  static_assert(kTiles >= 1 && kKeySlots >= kChunkBlocks);  // so a warp never waits for a slot's turn after the next
};

template <class Shape>
struct ScaledDecodeShared {
  uint8_t keys[Shape::kKeySlots][Shape::kHalf + Shape::kScales];
  uint8_t values[Shape::kValueSlots][Shape::kHalf];
  alignas(16) uint8_t weights[8 * Shape::kParts][Shape::kWeightRow];  // high bytes of all columns, then low bytes
  float maximum[Shape::kWarps][8];
  float largest[Shape::kWarps];
  uint32_t sum[Shape::kWarps][8];
  alignas(8) uint64_t key_full[Shape::kKeySlots], key_empty[Shape::kKeySlots];
  uint64_t value_full[Shape::kValueSlots], value_empty[Shape::kValueSlots];
  int32_t last;
};

// A place in a ring of kSlots.
template <int kSlots>
struct RingPlace {
  int32_t slot = 0;
  uint32_t phase = 0;
  __device__ void advance(int32_t by) {
    slot += by;
    if (slot >= kSlots) slot -= kSlots, phase ^= 1;
  }
  __device__ RingPlace ahead(int32_t by) const {
    RingPlace there = *this;
    there.advance(by);
    return there;
  }
};

// By one warp: the keys (with all scales) or the values of the block's parts.
template <class Shape, bool kValues>
__device__ void copy_parts(const ScaledDecodeWork& work, ScaledDecodeShared<Shape>& shared) {
  constexpr int kSlots = kValues ? Shape::kValueSlots : Shape::kKeySlots;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  RingPlace<kSlots> place;
  ScaledShare share(work);
  bool waited = false;
  for (ScaledPart part; share.next(part);) {
    const BlockId* table = work.segments[part.segment].table[static_cast<int32_t>(work.kv.kind)];
    const std::byte* base = work.kv.pool + work.kv.slot_offset +
                            int64_t{part.group} * KvSlot::head_bytes(Shape::kHeadDim, true) +
                            (kValues ? Shape::kHalf : 0);
    const int32_t end = min(part.end_chunk * kChunkBlocks, part.position / kBlockTokens + 1);
    for (int32_t first = max(part.chunk * kChunkBlocks, part.first_key / kBlockTokens); first < end; first += 32) {
      const BlockId ids = first + lane < end ? table[first + lane] : 0;
      for (int32_t i = 0; i < min(end - first, 32); ++i) {
        if (!waited && first + i >= part.position / kBlockTokens) {  // kernels of this step write it
          wait_for_inputs();
          waited = true;
        }
        const std::byte* from = base + __shfl_sync(0xFFFFFFFFu, ids, i) * work.kv.block_bytes;
        if (lane == 0) {
          const uint32_t full = shared_address(kValues ? &shared.value_full[place.slot] : &shared.key_full[place.slot]),
                         empty =
                             shared_address(kValues ? &shared.value_empty[place.slot] : &shared.key_empty[place.slot]);
          barrier_wait(empty, place.phase ^ 1);
          barrier_expect(full, kValues ? Shape::kHalf : Shape::kHalf + Shape::kScales);
          if constexpr (kValues) {
            copy_bulk(shared_address(shared.values[place.slot]), from, Shape::kHalf, full);
          } else {
            const uint32_t to = shared_address(shared.keys[place.slot]);
            copy_bulk(to, from, Shape::kHalf, full);
            copy_bulk(to + Shape::kHalf, from + 2 * Shape::kHalf, Shape::kScales, full);
          }
        }
        __syncwarp();
        place.advance(1);
      }
    }
  }
  if (!waited) wait_for_inputs();
}

// The warps that compute.
template <class Shape>
class ScaledDecode {
  static constexpr int kHeadDim = Shape::kHeadDim, kColumns = Shape::kColumns, kWarps = Shape::kWarps,
                       kEach = Shape::kEach, kOver = Shape::kOver, kGroups = Shape::kGroups, kTiles = Shape::kTiles,
                       kParts = Shape::kParts;
  // Of this thread: keys g and g + 8 of a piece, of two heads each.
  using Scores = float[kEach][kGroups][4];
  using Scales = float[kEach][kGroups][2];
  // Of this thread's two heads: of a tile of 16 channels the one that joined() leaves it, or two where kParts is 2.
  using Totals = float[kTiles][kParts][2];

 public:
  __device__ ScaledDecode(const ScaledDecodeWork& work, ScaledDecodeShared<Shape>& shared)
      : work_(work), shared_(shared), share_(work) {}

  __device__ void run() {
    wait_for_inputs();
    while (share_.next(part_)) {
      load_row();
      const int32_t sharers = share_.sharers(part_);
      begin_totals();
      for (int32_t chunk = part_.chunk; chunk < part_.end_chunk; ++chunk) take_chunk(chunk, sharers > 1);
      if (sharers > 1)
        leave(sharers);
      else
        finish();
    }
  }

 private:
  __device__ static int32_t thread() { return static_cast<int32_t>(threadIdx.x); }
  __device__ static int32_t lane() { return thread() % 32; }
  __device__ static int32_t g() { return lane() / 4; }
  __device__ static int32_t t() { return lane() % 4; }
  __device__ static int32_t first_head() { return 2 * t() % kColumns; }  // of this thread's two
  __device__ static int32_t over() { return 2 * t() / kColumns; }        // whose piece of keys is this thread's
  __device__ static void sync() { asm volatile("bar.sync 1, %0;" ::"n"(32 * kWarps) : "memory"); }
  __device__ int64_t row_of_head(int32_t head) const {
    return int64_t{work_.segments[part_.segment].first_row} * work_.args.heads + part_.group * work_.heads + head;
  }

  // The queries as the right operand of the first product: column g is head g % kColumns.
  __device__ void load_row() {
    const int32_t head = g() % kColumns;
    const bool there = head < work_.heads;
    const auto* from = reinterpret_cast<const uint32_t*>(work_.args.queries + row_of_head(there ? head : 0) * kHeadDim);
#pragma unroll
    for (int k = 0; k < kHeadDim / 32; ++k)
#pragma unroll
      for (int i = 0; i < 2; ++i) query_[k][i] = there ? from[8 * k + 4 * i + t()] : 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int32_t mine = first_head() + r;
      z_[r] = mine < work_.heads ? work_.args.z[row_of_head(mine)] : 0.0f;
      floor_[r] = ScaledRow::floor_of(z_[r]);
    }
  }

  __device__ void take_chunk(int32_t chunk, bool apart) {
    const int32_t begin = max(chunk * kChunkBlocks, part_.first_key / kBlockTokens),
                  end = min((chunk + 1) * kChunkBlocks, part_.position / kBlockTokens + 1);
    Scores s;
    Scales value_scale;
    find_scores(chunk * kChunkBlocks, begin, end, s, value_scale);
    keys_.advance(end - begin);
    find_maxima(s, value_scale);
    weigh(chunk * kChunkBlocks, begin, end, s, value_scale);
    sync();
    int32_t sums[kTiles][kParts][4];
    find_sums(begin, end, sums);
    fold_or_keep(sums, apart ? int64_t{part_.first_unit} + chunk - part_.first_chunk : -1);
  }

  __device__ __forceinline__ void find_scores(int32_t first, int32_t begin, int32_t end, Scores& s,
                                              Scales& value_scale) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int32_t block = first + e * kWarps + warp_;
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) s[e][n][i] = kLeastScore;
        value_scale[e][n][0] = value_scale[e][n][1] = 0.0f;
      }
      if (block < begin || block >= end) continue;
      const auto place = keys_.ahead(block - begin);
      barrier_wait(shared_address(&shared_.key_full[place.slot]), place.phase);
#pragma unroll
      for (int n = 0; n < kGroups; ++n)
        score(shared_.keys[place.slot], n, block * kBlockTokens, s[e][n], value_scale[e][n]);
      barrier_arrive_warp(shared_address(&shared_.key_empty[place.slot]), lane());
    }
  }
  // Of the n-th kOver pieces of a block of keys.
  __device__ __forceinline__ void score(const uint8_t* keys, int n, int32_t position, float (&s)[4],
                                        float (&value_scale)[2]) const {
    int32_t sums[4] = {0, 0, 0, 0};
#pragma unroll
    for (int o = 0; o < kOver; ++o) {
      const bool mine = g() / kColumns == o;
#pragma unroll
      for (int k = 0; k < kHeadDim / 32; ++k) {
        uint32_t a[4];
        load_matrices(
            a, shared_address(keys + ((2 * k + lane() / 16) * kBlockTokens + (n * kOver + o) * 16 + lane() % 16) *
                                         kColumnBytes));
        mma<Sign::kSigned, Sign::kSigned>(sums, a[0], a[1], a[2], a[3], mine ? query_[k][0] : 0,
                                          mine ? query_[k][1] : 0);
      }
    }
    const auto* scales = reinterpret_cast<const arith::bf16*>(keys + Shape::kHalf);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t key = (n * kOver + over()) * 16 + 8 * half + g();
      if (position + key < part_.first_key || position + key > part_.position) continue;
      const float scale = arith::from_bf16(scales[key]);
      value_scale[half] = arith::from_bf16(scales[kBlockTokens + key]);
      s[2 * half] = arith::mul(static_cast<float>(sums[2 * half]), scale);
      s[2 * half + 1] = arith::mul(static_cast<float>(sums[2 * half + 1]), scale);
    }
  }

  // Over all warps; and the largest scale of a value.
  __device__ __forceinline__ void find_maxima(const Scores& s, const Scales& value_scale) {
    float most[2] = {kLeastScore, kLeastScore}, largest = 0.0f;
#pragma unroll
    for (int e = 0; e < kEach; ++e)
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
#pragma unroll
        for (int r = 0; r < 2; ++r) most[r] = fmaxf(most[r], fmaxf(s[e][n][r], s[e][n][2 + r]));
        largest = fmaxf(largest, fmaxf(value_scale[e][n][0], value_scale[e][n][1]));
      }
#pragma unroll
    for (int r = 0; r < 2; ++r) most[r] = over_keys(most[r], [](float a, float b) { return fmaxf(a, b); });
    largest = __uint_as_float(__reduce_max_sync(0xFFFFFFFFu, __float_as_uint(largest)));
    if (lane() < kColumns / 2) {
      shared_.maximum[warp_][first_head()] = most[0], shared_.maximum[warp_][first_head() + 1] = most[1];
      if (lane() == 0) shared_.largest[warp_] = largest;
    }
    sync();  // and all have read the last chunk's weights
    largest_ = shared_.largest[0];
#pragma unroll
    for (int r = 0; r < 2; ++r) maximum_[r] = shared_.maximum[0][first_head() + r];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) {
      largest_ = fmaxf(largest_, shared_.largest[w]);
#pragma unroll
      for (int r = 0; r < 2; ++r) maximum_[r] = fmaxf(maximum_[r], shared_.maximum[w][first_head() + r]);
    }
  }
  // Joins what lanes have of the same heads.
  template <class T, class Join>
  __device__ __forceinline__ static T over_keys(T x, Join join) {
#pragma unroll
    for (int distance = kColumns / 2; distance < 32; distance *= 2)
      x = join(x, __shfl_xor_sync(0xFFFFFFFFu, x, distance));
    return x;
  }

  // The bytes of the values' weights, and the sums of the keys' weights.
  __device__ __forceinline__ void weigh(int32_t first, int32_t begin, int32_t end, const Scores& s,
                                        const Scales& value_scale) {
    const float inverse = largest_ > 0.0f ? arith::divide(1.0f, largest_) : 0.0f;
    uint32_t sum[2] = {0, 0};
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int32_t block = first + e * kWarps + warp_;
      if (block < begin || block >= end) continue;
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
        const float ratio[2] = {arith::mul(value_scale[e][n][0], inverse), arith::mul(value_scale[e][n][1], inverse)};
        uint32_t w[4];
        weights(s[e][n], ratio, w, sum);
        store_weights((block % kChunkBlocks * 4 + n * kOver + over()) * 16, w);
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) sum[r] = over_keys(sum[r], [](uint32_t a, uint32_t b) { return a + b; });
    if (lane() < kColumns / 2) shared_.sum[warp_][first_head()] = sum[0], shared_.sum[warp_][first_head() + 1] = sum[1];
  }
  // Of two keys and two heads, as bits of 1.5 * 2^23 more. Below -18 / z every weight is 0, so scores that count for
  // nothing, the least, need no other care.
  __device__ __forceinline__ void weights(const float (&s)[4], const float (&ratio)[2], uint32_t (&w)[4],
                                          uint32_t (&sum)[2]) const {
    using namespace arith;
    uint32_t key[4];
    weigh_keys(s, [&](int i) { return ScaledRow{maximum_[i % 2], z_[i % 2], floor_[i % 2]}; }, key);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool counts = s[i] != kLeastScore;
      key[i] = counts ? key[i] : bits_of(kRoundBias);
      sum[i % 2] += key[i] - bits_of(kRoundBias);
      w[i] = weigh_value(key[i], ratio[i / 2]);
    }
  }
  // Lanes of neighbouring keys exchange: the one of the even key gets both keys' weights of the first head, the other
  // one those of the second.
  __device__ __forceinline__ void store_weights(int32_t place, const uint32_t (&w)[4]) {
    const bool odd = g() % 2 != 0;
    const uint32_t head0 = __byte_perm(w[0], w[2], 0x5410), head1 = __byte_perm(w[1], w[3], 0x5410),
                   got = __shfl_xor_sync(0xFFFFFFFFu, odd ? head0 : head1, 4), kept = odd ? head1 : head0,
                   even_key = odd ? got : kept, odd_key = odd ? kept : got;
    const int32_t column = first_head() + (odd ? 1 : 0), at = place + 4 * (g() / 2);
    constexpr int kLow = kColumns;  // first column of low bytes
    *reinterpret_cast<uint32_t*>(&shared_.weights[column][at]) = __byte_perm(even_key, odd_key, 0x7351);
    *reinterpret_cast<uint32_t*>(&shared_.weights[kLow + column][at]) = __byte_perm(even_key, odd_key, 0x6240);
  }

  // Channels by columns, of which the first kColumns are the weights' high bytes and the next their low bytes.
  __device__ __forceinline__ void find_sums(int32_t begin, int32_t end, int32_t (&sums)[kTiles][kParts][4]) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int h = 0; h < kParts; ++h)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[m][h][i] = 0;
    int32_t odd[kTiles][kParts][4] = {};  // so that a product does not wait for the one before
    for (int32_t block = begin; block < end; ++block) {
      barrier_wait(shared_address(&shared_.value_full[values_.slot]), values_.phase);
      const uint8_t* values = shared_.values[values_.slot];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        uint32_t b[kParts][2];
#pragma unroll
        for (int h = 0; h < kParts; ++h)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            b[h][i] = *reinterpret_cast<const uint32_t*>(
                &shared_.weights[8 * h + g()][(block % kChunkBlocks * 4 + 2 * k + i) * 16 + 4 * t()]);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          uint32_t a[4];
          load_matrices(
              a, shared_address(values + ((2 * k + lane() / 16) * kHeadDim + (warp_ * kTiles + m) * 16 + lane() % 16) *
                                             kColumnBytes));
#pragma unroll
          for (int h = 0; h < kParts; ++h)
            mma<Sign::kSigned, Sign::kUnsigned>(k == 0 ? sums[m][h] : odd[m][h], a[0], a[1], a[2], a[3], b[h][0],
                                                b[h][1]);
        }
      }
      barrier_arrive_warp(shared_address(&shared_.value_empty[values_.slot]), lane());
      values_.advance(1);
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int h = 0; h < kParts; ++h)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[m][h][i] += odd[m][h][i];
  }

  // Which lanes hold sums of low bytes, where one product has both; they take the upper channels, the others the lower.
  __device__ static bool is_low() { return kParts == 1 && (t() & kColumns / 2) != 0; }
  __device__ static bool has_sums() { return t() < kColumns; }  // of two heads four columns are not used
  __device__ int32_t channel(int m, int part) const {
    return (warp_ * kTiles + m) * 16 + g() + (kParts == 2 ? 8 * part : is_low() ? 8 : 0);
  }
  // A chunk's sums of this thread.
  __device__ __forceinline__ void whole(const int32_t (&sums)[kTiles][kParts][4], Totals& o) const {
    const auto join = [&](int32_t high, int32_t low) {
      return arith::mul(arith::fma(256.0f, static_cast<float>(high), static_cast<float>(low)), largest_);
    };
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      if constexpr (kParts == 2) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o[m][i / 2][i % 2] = join(sums[m][0][i], sums[m][1][i]);
      } else {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int32_t lower = sums[m][0][r], upper = sums[m][0][2 + r],
                        got = __shfl_xor_sync(0xFFFFFFFFu, is_low() ? lower : upper, kColumns / 2);
          o[m][0][r] = is_low() ? join(got, upper) : join(lower, got);
        }
      }
    }
  }
  __device__ __forceinline__ void fold_or_keep(const int32_t (&sums)[kTiles][kParts][4], int64_t kept) {
    Totals o;
    whole(sums, o);
    float weight[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      uint32_t sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += shared_.sum[w][first_head() + r];
      weight[r] = static_cast<float>(sum);
    }
    if (kept < 0) return fold(weight, o);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int32_t head = first_head() + r;
      if (head >= work_.heads || !has_sums()) continue;
      float* to = work_.kept + (kept * work_.heads + head) * kHeadDim;
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int p = 0; p < kParts; ++p) to[channel(m, p)] = o[m][p][r];
      if (warp_ == 0 && lane() < kColumns / 2)
        work_.parts[kept * work_.heads + head] = {__float_as_int(maximum_[r]), weight[r]};
    }
  }

  __device__ void begin_totals() {
#pragma unroll
    for (int r = 0; r < 2; ++r) total_maximum_[r] = kLeastScore, total_weight_[r] = 0.0f;
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int p = 0; p < kParts; ++p) totals_[m][p][0] = totals_[m][p][1] = 0.0f;
  }
  __device__ __forceinline__ void fold(const float (&weight)[2], const Totals& o) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const ScaledJoin by(total_maximum_[r], maximum_[r], z_[r]);
      total_maximum_[r] = fmaxf(total_maximum_[r], maximum_[r]);
      total_weight_[r] = by(total_weight_[r], weight[r]);
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int p = 0; p < kParts; ++p) totals_[m][p][r] = by(totals_[m][p][r], o[m][p][r]);
    }
  }
  __device__ void finish() {
    const float* step = work_.args.value_step + int64_t{part_.group} * kHeadDim;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int32_t head = first_head() + r;
      if (head >= work_.heads || !has_sums()) continue;
      const float inverse = arith::divide(1.0f, total_weight_[r]);
      float* to = work_.args.out + row_of_head(head) * kHeadDim;
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int p = 0; p < kParts; ++p)
          to[channel(m, p)] = arith::mul(arith::mul(totals_[m][p][r], inverse), step[channel(m, p)]);
    }
  }

  // The part's sums have been kept. The last block of a tile's folds all of them.
  __device__ void leave(int32_t sharers) {
    __threadfence();
    sync();
    int32_t* counter = &work_.counters[share_.first_block(part_)];
    if (thread() == 0) {
      shared_.last = atomicAdd(counter, 1) == sharers - 1;
      if (shared_.last) *counter = 0;
      __threadfence();
    }
    sync();
    if (shared_.last) fold_kept();
  }
  __device__ void fold_kept() const {
    for (int32_t i = thread(); i < work_.heads * (kHeadDim / 2); i += 32 * kWarps) {
      const int32_t head = i / (kHeadDim / 2), channel = i % (kHeadDim / 2) * 2;
      const float z = work_.args.z[row_of_head(head)];
      float maximum = kLeastScore, weight = 0.0f;
      float2 total = {0.0f, 0.0f};
#pragma unroll 8
      for (int32_t c = 0; c < part_.chunks; ++c) {
        const int64_t at = (int64_t{part_.first_unit} + c) * work_.heads + head;
        const float2 o = __ldcg(reinterpret_cast<const float2*>(work_.kept + at * kHeadDim + channel));
        const int2 of_row = __ldcg(reinterpret_cast<const int2*>(work_.parts + at));
        const float chunk = __int_as_float(of_row.x);
        const ScaledJoin by(maximum, chunk, z);
        maximum = fmaxf(maximum, chunk);
        weight = by(weight, __int_as_float(of_row.y));
        total = {by(total.x, o.x), by(total.y, o.y)};
      }
      const float inverse = arith::divide(1.0f, weight);
      const float2 step =
          *reinterpret_cast<const float2*>(work_.args.value_step + int64_t{part_.group} * kHeadDim + channel);
      *reinterpret_cast<float2*>(work_.args.out + row_of_head(head) * kHeadDim + channel) = {
          arith::mul(arith::mul(total.x, inverse), step.x), arith::mul(arith::mul(total.y, inverse), step.y)};
    }
  }

  const ScaledDecodeWork& work_;
  ScaledDecodeShared<Shape>& shared_;
  ScaledShare share_;
  ScaledPart part_;
  int32_t warp_ = __shfl_sync(0xFFFFFFFFu, thread() / 32, 0);  // the compiler then knows that all lanes have the same
  RingPlace<Shape::kKeySlots> keys_;
  RingPlace<Shape::kValueSlots> values_;
  uint32_t query_[kHeadDim / 32][2];
  // Of this thread's two heads.
  float z_[2], floor_[2], maximum_[2], largest_ = 0.0f;
  float total_maximum_[2], total_weight_[2];
  Totals totals_;
};

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    sm90_scaled_decode_kernel(const __grid_constant__ ScaledDecodeWork work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) uint8_t memory[];
  auto& shared = *reinterpret_cast<ScaledDecodeShared<Shape>*>(memory);
  let_next_start();
  const int32_t warp = __shfl_sync(0xFFFFFFFFu, static_cast<int32_t>(threadIdx.x) / 32, 0);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shape::kKeySlots; ++i) {
      barrier_init(shared_address(&shared.key_full[i]), 1);
      barrier_init(shared_address(&shared.key_empty[i]), kWarpArrivals);
    }
    for (int i = 0; i < Shape::kValueSlots; ++i) {
      barrier_init(shared_address(&shared.value_full[i]), 1);
      barrier_init(shared_address(&shared.value_empty[i]), kWarpArrivals * Shape::kWarps);
    }
    barrier_init_done();
  }
  __syncthreads();
  if (warp < Shape::kWarps)
    ScaledDecode<Shape>(work, shared).run();
  else if (warp == Shape::kWarps)
    copy_parts<Shape, false>(work, shared);
  else
    copy_parts<Shape, true>(work, shared);
#else
  __trap();  // never launched elsewhere
#endif
}

// By at most as many thread blocks as run at once.
template <class Shape>
cudaError_t launch_scaled_decode(cudaStream_t stream, const Chip& chip, const ScaledDecodeWork& work) {
  constexpr auto kBytes = static_cast<int32_t>(sizeof(ScaledDecodeShared<Shape>));
  static_assert(Shape::kBlocks * (kBytes + 1024) <= 228 << 10);
  const auto kernel = sm90_scaled_decode_kernel<Shape>;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
      error != cudaSuccess)
    return error;
  const int64_t most_chunks = work.kv.window == 0 ? INT32_MAX : work.kv.window / arith::kChunkKeys + 2,
                units = int64_t{work.segment_count} * work.kv.kv_heads * most_chunks;
  return launch(stream, chip, kernel,
                {std::min<int64_t>(units, Shape::kBlocks * chip.multiprocessors), Shape::kThreads, kBytes}, work);
}

}  // namespace kaiju::cuda
