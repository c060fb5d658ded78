// The steps of prefill attention on Hopper: what a warpgroup computes for 64 rows and a chunk of 512 keys. It makes two
// passes over a chunk, as the contract requires (docs/arithmetic.md, section 5): scores for the maximum, then scores
// again for the weights, whose two bytes go from the registers of the first wgmma directly to the second. Sums are
// exact integers.
//
// Two kernels use these steps: one with tiles of 128 rows, of which each warpgroup has half
// (sm90_attention_prefill.cuh), and one with tiles that a cluster shares (sm90_attention_prefill_cluster.cuh).
#pragma once

#include "../tiles/sm90_wgmma_attention.cuh"
#include "attention_weight.cuh"
#include "kaiju/arith/quantise.hpp"
#include "sm90_attention_prefill_copy.cuh"

namespace kaiju::cuda {

__device__ __forceinline__ int32_t quad_max(int32_t x) {
  x = max(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
  return max(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}
__device__ __forceinline__ uint32_t quad_sum(uint32_t x) {
  x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

__device__ __forceinline__ uint8_t* shared_memory() {
  extern __shared__ __align__(128) uint8_t memory[];
  return memory;
}

// What a warpgroup does with a tile of rows and a chunk of keys. Of sharers each has every second block of the keys.
template <int kHeadDim, class Weight, int kSharers>
class TileSteps {
 protected:
  using Map = TileMap<kHeadDim, kSharers>;
  __device__ TileSteps(const AttentionWork& work, uint8_t* memory, int32_t warpgroup)
      : work_(work), weight_(work), warpgroup_(warpgroup), tiles_(memory + Map::kTiles) {
    const uint32_t base = shared_address(memory);
    keys_ = make_ring<kHeadDim, Map>(work, base, false);
    values_ = make_ring<kHeadDim, Map>(work, base, true);
    queries_ = base + static_cast<uint32_t>(Map::kQueries + first_row() * kHeadDim);
    key_operand_ = operand(keys_.data, kBlockTokens);
    value_operand_ = operand(values_.data, kHeadDim);
    query_operand_ = operand(queries_, kTileRows);
  }

  static constexpr int kBytes = kTileBytes<kHeadDim>;
  static constexpr int32_t kNoBlock = 1 << 24;            // beyond all blocks
  static constexpr int kSteps = kHeadDim / 32;            // of a score
  static constexpr int kThreads = 128 * kSharers;         // that have the same rows
  static constexpr int kPieces = kBytes / 16 / kThreads;  // of their queries, a thread
  static constexpr int kColumns = kThreads / kTileRows;   // of them, at a time

  // From here on nothing is known of thread(): else what follows from it would be kept in registers that are not there.
  __device__ __forceinline__ void forget() { asm volatile("" : "+r"(thread_)); }
  __device__ int32_t thread() const { return thread_; }
  __device__ int32_t warp() const { return thread() / 32; }
  __device__ int32_t lane() const { return thread() % 32; }
  __device__ int32_t column() const { return lane() % 4 * 2; }  // first of the two of each eight

  // Of all that have the same rows.
  __device__ int32_t thread_of_rows() const { return thread() + (Map::kShared ? warpgroup_ * 128 : 0); }
  __device__ void sync_rows() const {
    if constexpr (Map::kShared)
      await_warpgroup(5);
    else
      sync_warpgroup(1 + warpgroup_);
  }
  // Of the tile's rows the warpgroup's first, and the upper (0) or lower (1) row of this thread.
  __device__ int32_t first_row() const { return Map::kShared ? 0 : warpgroup_ * kTileRows; }
  __device__ int32_t row(int r) const { return first_row() + warp() * 16 + lane() / 4 + 8 * r; }
  // What four threads have in common; the first of them writes it.
  __device__ RowSees& sees(int r) const { return reinterpret_cast<RowSees*>(shared_memory() + Map::kSees)[row(r)]; }
  __device__ RowTotal& row_total(int r) const {
    return reinterpret_cast<RowTotal*>(shared_memory() + Map::kRowTotals)[row(r)];
  }
  __device__ bool writes_rows() const { return lane() % 4 == 0; }
  // Four of this thread's totals: two of both rows, of the j-th eight channels; of sharers four of one row, of the j-th
  // sixteen.
  static constexpr int kFours = kHeadDim / 8 / kSharers;
  template <class Four>
  __device__ Four& four(int32_t at, int32_t warpgroup, int j) const {
    return reinterpret_cast<Four*>(shared_memory() + at +
                                   warpgroup * Map::kTotalBytes)[(warp() * kFours + j) * 32 + lane()];
  }
  __device__ float4& total(int j) const { return four<float4>(Map::kTotals, warpgroup_, j); }
  // Offset of a row in queries and results.
  __device__ int64_t row_offset(const RowTile& tile, int32_t row) const {
    const int32_t token = row / work_.heads, head = row - token * work_.heads;
    return (int64_t{tile.batch_row + token} * work_.args.heads + tile.group * work_.heads + head) * kHeadDim;
  }
  __device__ int32_t first_visible(int32_t position) const {
    return work_.kv.window > 0 && position >= work_.kv.window ? position - work_.kv.window + 1 : 0;
  }

  __device__ __forceinline__ void load_queries(const RowTile& tile, uint4 (&queries)[kPieces]) const {
    const int32_t mine = tile.first_row + first_row() + thread_of_rows() % kTileRows;
    const int8_t* from = mine < tile.rows
                             ? work_.args.queries + row_offset(tile, mine) + thread_of_rows() / kTileRows * kColumnBytes
                             : nullptr;
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      queries[i] = from ? *reinterpret_cast<const uint4*>(from + kColumns * i * kColumnBytes) : uint4{0, 0, 0, 0};
  }

  __device__ __forceinline__ void begin(const RowTile& tile, const uint4 (&queries)[kPieces]) {
    sync_rows();  // the last tile's queries have been read
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(
                       queries_ + static_cast<uint32_t>(thread_of_rows() + kThreads * i) * 16),
                   "r"(queries[i].x), "r"(queries[i].y), "r"(queries[i].z), "r"(queries[i].w)
                   : "memory");
    publish_stores();
    for (int r = 0; r < 2; ++r) {
      const int32_t mine = tile.first_row + row(r), position = tile.position + mine / work_.heads;
      const bool there = mine < tile.rows;
      if (writes_rows() && (!Map::kShared || r == warpgroup_))
        sees(r) = {there ? first_visible(position) : 0, there ? position : -1};
    }
    sync_rows();
    // What every row of the warpgroup sees needs no mask.
    const int32_t first = tile.first_row + first_row(), last = min(first + kTileRows, tile.rows) - 1;
    all_from_ = last < first ? 0 : first_visible(tile.position + last / work_.heads);
    all_to_ = last < first ? INT32_MAX : tile.position + first / work_.heads;
  }

  // Two warpgroups with rows of their own go over a chunk for the first time in turn: that is little but products, and
  // runs beside the weights of the other. Else both come to do the same at the same time.
  __device__ void take_turn() { await_warpgroup(3 + warpgroup_); }
  __device__ void give_turn() { tell_warpgroup(4 - warpgroup_); }

  __device__ bool is_masked(int32_t block) const {
    return block * kBlockTokens < all_from_ || block * kBlockTokens + kBlockTokens - 1 > all_to_;
  }
  // Which of 32 keys, from `key` on, the upper or lower row sees: bit 0 is the first that this thread has scores of.
  __device__ uint32_t seen(int r, int32_t key) const {
    const auto below = [](int32_t count) {
      uint32_t bits;
      asm("bmsk.clamp.b32 %0, 0, %1;" : "=r"(bits) : "r"(max(count, 0)));
      return bits;
    };
    return (below(sees(r).to + 1 - key) & ~below(sees(r).from - key)) >> column();
  }

  // Scores of 2 kCount keys of a slot, from key `first` on.
  template <int kCount>
  __device__ __forceinline__ void score(int32_t (&s)[kCount], int32_t slot, int32_t first = 0) {
    const uint64_t b = advanced(key_operand_, slot * kBytes + first * kColumnBytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      multiply_shared(s, advanced(query_operand_, k * 2 * kTileRows * kColumnBytes),
                      advanced(b, k * 2 * kBlockTokens * kColumnBytes), k > 0);
    wgmma_commit();
  }

  // Scores of keys that a row does not see become the least.
  __device__ __forceinline__ void mask(int32_t (&s)[32], int32_t block) const {
    if (!masked_ || !is_masked(block)) return;
#pragma unroll
    for (int part = 0; part < 4; ++part) {  // 32 keys of one row
      const int r = part % 2, first = part / 2 * 16;
      const uint32_t bits = seen(r, block * kBlockTokens + part / 2 * 32);
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (!(bits >> (i / 2 * 8 + i % 2) & 1)) s[first + i / 2 * 4 + 2 * r + i % 2] = INT32_MIN;
    }
  }
  __device__ __forceinline__ void take_maximum(const int32_t (&s)[32]) {
#pragma unroll
    for (int i = 0; i < 32; i += 2) maximum_[i / 2 % 2] = __vimax3_s32(maximum_[i / 2 % 2], s[i], s[i + 1]);
  }

  // First time over the chunk's keys. Leaves the ring where it was: the keys stay.
  __device__ void find_maxima(int32_t block, int32_t end) {
    maximum_[0] = maximum_[1] = Weight::kMaximaFirst ? INT32_MIN : 0;
    if constexpr (!Weight::kMaximaFirst) {
      against_[0] = against_[1] = Weight::against(0);
      return;
    }
    Ring at = keys_;
    const auto score_next = [&](int32_t (&s)[32]) {
      barrier_wait(at.full + 8 * at.slot, at.phase);
      score(s, at.slot);
      advance(at);
    };
    constexpr int kMost = kChunkBlocks / kSharers;
    if (end - block > kChunkBlocks - kSharers && !masked_) {  // most chunks: three tiles' scores under way
      int32_t s[3][32];
      score_next(s[0]), score_next(s[1]), score_next(s[2]);
#pragma unroll
      for (int i = 0; i < kMost; ++i) {
        i + 2 < kMost ? wgmma_wait<2>() : i + 1 < kMost ? wgmma_wait<1>() : wgmma_wait<0>();
        wgmma_settle(s[i % 3]);
        take_maximum(s[i % 3]);
        if (i + 3 < kMost) score_next(s[i % 3]);
      }
    } else {
      for (; block < end; block += 2 * kSharers) {
        int32_t even[32], odd[32];
        score_next(even);
        if (block + kSharers < end) {
          score_next(odd);
          wgmma_wait<1>();
          wgmma_settle(even);
          mask(even, block);
          take_maximum(even);
          wgmma_wait<0>();
          wgmma_settle(odd);
          mask(odd, block + kSharers);
          take_maximum(odd);
        } else {
          wgmma_wait<0>();
          wgmma_settle(even);
          mask(even, block);
          take_maximum(even);
        }
      }
    }
    for (int r = 0; r < 2; ++r) {
      maximum_[r] = quad_max(maximum_[r]);
      find_against(r);
    }
  }
  __device__ void find_against(int r) { against_[r] = Weight::against(maximum_[r] == INT32_MIN ? 0 : maximum_[r]); }

  // The weights of half a tile's scores (32 keys), as the left operand of the second product: p[0 ... 3] high bytes,
  // p[4 ... 7] low bytes. Adds them to the sums.
  template <int kHalf>
  __device__ __forceinline__ void weigh(const int32_t (&s)[16], uint32_t (&p)[8], int32_t block) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {  // four keys of one row
      const int r = q % 2, j = q / 2 * 2;
      uint32_t w[4];
      weight_({s[4 * j + 2 * r], s[4 * j + 2 * r + 1], s[4 * j + 4 + 2 * r], s[4 * j + 5 + 2 * r]},
              {against_[r], against_[r], against_[r], against_[r]}, w);
      const uint32_t first = __byte_perm(w[0], w[1], 0x5140), second = __byte_perm(w[2], w[3], 0x5140);
      p[q] = __byte_perm(first, second, 0x7632);
      p[4 + q] = __byte_perm(first, second, 0x5410);
    }
    if (__builtin_expect(masked_ && is_masked(block), false)) {
      const uint32_t bits[2] = {seen(0, block * kBlockTokens + kHalf * 32), seen(1, block * kBlockTokens + kHalf * 32)};
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        // Bits 0, 1, 8 and 9 are those of the four keys: each comes to the top of a byte, whose sign then fills a byte.
        const uint32_t four = bits[q % 2] >> q / 2 * 16;
        uint32_t mask;
        asm("prmt.b32 %0, %1, %2, 0xD9C8;" : "=r"(mask) : "r"(four << 7), "r"(four << 6));
        p[q] &= mask;
        p[4 + q] &= mask;
      }
    }
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      high_sums_[q % 2] = __dp4a(p[q], 0x01010101u, high_sums_[q % 2]);
      low_sums_[q % 2] = __dp4a(p[4 + q], 0x01010101u, low_sums_[q % 2]);
    }
  }

  // The products of half a tile's weights with their values, of the ring's present slot.
  template <int kHalf>
  __device__ __forceinline__ void add_values(int32_t (&high)[kHeadDim / 2], int32_t (&low)[kHeadDim / 2],
                                             const uint32_t (&p)[8], int32_t more) {
    const uint64_t b = advanced(value_operand_, values_.slot * kBytes + kHalf * 2 * kHeadDim * kColumnBytes);
    wgmma_fence();
    multiply_registers(high, p, b, more);
    multiply_registers(low, p + 4, b, more);
    wgmma_commit();
  }
  __device__ void release(uint32_t barrier) {
    if (lane() == 0) barrier_arrive(barrier);
  }
  // To the next slot that is this warpgroup's.
  __device__ static void advance(Ring& ring) {
    for (int i = 0; i < kSharers; ++i) ring.advance();
  }
  __device__ void await_values() { barrier_wait(values_.full + 8 * values_.slot, values_.phase); }
  __device__ void release_values() {
    release(values_.empty + 8 * values_.slot);
    advance(values_);
  }
  __device__ void release_keys() {
    release(keys_.empty + 8 * keys_.slot);
    advance(keys_);
  }
  // Waits for keys where find_maxima() has not.
  __device__ void await_keys() {
    if constexpr (!Weight::kMaximaFirst) barrier_wait(keys_.full + 8 * keys_.slot, keys_.phase);
  }
  // The compiler does not move code from below to above: else it would put products after the weights that they should
  // overlap with.
  __device__ __forceinline__ void fence() const {
    if (work_.segment_count < 0) __trap();
  }

  // Second time over the chunk's keys: sum p V of the high and the low bytes, both exact. Gives the slots back. The
  // weights of each half of a tile are computed while the products of the half before run, followed by the scores of
  // the same half of the next tile. Where a warpgroup has no block of a chunk it goes over one that is not there, of
  // which no row sees a key.
  __device__ void sum_values(int32_t block, int32_t end, int32_t (&high)[kHeadDim / 2], int32_t (&low)[kHeadDim / 2]) {
    const bool is_there = !Map::kShared || block < end;
    if (!is_there) block = kNoBlock, masked_ = true;
    int32_t s[16], t[16];  // scores of the first and of the second half
    uint32_t p[8], q[8];
    high_sums_[0] = high_sums_[1] = low_sums_[0] = low_sums_[1] = 0;
    await_keys();
    score(s, keys_.slot, 0);
    score(t, keys_.slot, 32);
    wgmma_wait<1>();
    wgmma_settle(s);
    weigh<0>(s, p, block);
    wgmma_wait<0>();
    wgmma_settle(t);
    if (is_there) await_values();
    add_values<0>(high, low, p, 0);
    for (;;) {
      if (is_there) release_keys();
      if (block + kSharers < end) await_keys();
      score(s, keys_.slot, 0);  // after the last tile of keys: of whatever lies there, not used
      fence();
      weigh<1>(t, q, block);
      add_values<1>(high, low, q, 1);
      score(t, keys_.slot, 32);
      wgmma_wait<2>();
      wgmma_settle(s);
      if ((block += kSharers) >= end) break;
      weigh<0>(s, p, block);
      wgmma_wait<0>();
      wgmma_settle(t);
      release_values();
      await_values();
      add_values<0>(high, low, p, 1);
    }
    wgmma_wait<0>();
    wgmma_settle(t);
    wgmma_settle(high);
    wgmma_settle(low);
    if (is_there) release_values();
  }

  __device__ static float whole(int32_t high, int32_t low) {
    return arith::fma(256.0f, static_cast<float>(high), static_cast<float>(low));
  }
  // The same of all of a chunk's sums, by integers where these hold them, which is nearly always: no value is beyond
  // 128 either way, so 256 high + low is not beyond 128 times the sum of its row's weights, of which this thread's two
  // rows have at most `most`.
  __device__ __forceinline__ static void whole(const int32_t (&high)[kHeadDim / 2], const int32_t (&low)[kHeadDim / 2],
                                               uint32_t most, float (&sums)[kHeadDim / 2]) {
    if (__all_sync(0xFFFFFFFFu, most <= INT32_MAX / 128)) {
#pragma unroll
      for (int i = 0; i < kHeadDim / 2; ++i) sums[i] = static_cast<float>(256 * high[i] + low[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kHeadDim / 2; ++i) sums[i] = whole(high[i], low[i]);
    }
  }

  // What a chunk does to a row's totals.
  struct Join {
    bool later;  // the chunk keeps its scale, the total is multiplied
    float factor;
    __device__ float operator()(float total, float chunk) const {
      return arith::fma(later ? total : chunk, factor, later ? chunk : total);
    }
  };
  __device__ Join join(int32_t total, int32_t chunk) const {
    const bool later = total <= chunk;
    return {later, total == INT32_MIN || chunk == INT32_MIN
                       ? 0.0f
                       : fold_factor(later ? total - chunk : chunk - total, work_.args.z)};
  }

  __device__ int8_t* result_of(const RowTile& tile, int r) const {
    const int32_t mine = tile.first_row + row(r);
    return mine < tile.rows ? work_.args.out + row_offset(tile, mine) : nullptr;
  }
  // Two channels of a row, from `channel` on.
  __device__ void store(int8_t* to, int32_t group, int32_t channel, float x, float y, float inverse) const {
    const float2 c = *reinterpret_cast<const float2*>(work_.args.out_inverse + int64_t{group} * kHeadDim + channel);
    if (to)
      *reinterpret_cast<char2*>(to + channel) =
          make_char2(arith::quantise(arith::mul(x, inverse), c.x), arith::quantise(arith::mul(y, inverse), c.y));
  }
  const AttentionWork& work_;
  Weight weight_;
  int32_t warpgroup_;  // 0 or 1 of those that compute
  int32_t thread_ = static_cast<int32_t>(threadIdx.x) % 128;
  TileRing tiles_;
  Ring keys_, values_;
  uint64_t key_operand_, value_operand_, query_operand_;
  uint32_t queries_;  // in shared memory

  // Of this thread's two rows.
  int32_t all_from_, all_to_;
  bool masked_;                      // whether a row does not see some key of the chunk
  int32_t maximum_[2], against_[2];  // of scores; what weights hold them against
  uint32_t high_sums_[2], low_sums_[2];
};

}  // namespace kaiju::cuda
