// The steps of decode attention on Hopper for one chunk of up to 512 keys and up to 40 rows. A block of two warpgroups
// computes scores, weights and sums. Two blocks share a multiprocessor, so that the loads and matrix products of one
// run while the other computes weights. Used by sm90_attention_decode.cuh; sm90_attention_decode_window.cuh, which
// divides its chunks among three warpgroups, uses the parts that do not depend on that.
//
// Scores are computed as keys by rows (S^T = K Q^T), so that unused rows cost only wgmma time. A warpgroup has every
// second block of 64 keys and keeps the scores in registers until the maximum is known. Then, half a chunk at a time,
// it computes their weights once and writes the high and low bytes to shared memory. The sums are computed as channels
// by rows (V^T P^T), with high and low bytes side by side and one warpgroup for each 64 channels. They are exact
// integers.
#pragma once

#include "attention_weight.cuh"
#include "kaiju/arith/quantise.hpp"
#include "sm90_attention_decode_tiles.cuh"

namespace kaiju::cuda {

template <int kHeadDim, int kRows, class Weight>
class ChunkSteps : protected ChunkTiles<kHeadDim, kRows, Weight> {
 protected:
  using Tiles = ChunkTiles<kHeadDim, kRows, Weight>;
  using Tiles::block, Tiles::forget, Tiles::g, Tiles::has, Tiles::is_masked, Tiles::is_summer, Tiles::kColumns,
      Tiles::kSummers, Tiles::lane, Tiles::place, Tiles::slot, Tiles::t, Tiles::thread, Tiles::wait_for_copies,
      Tiles::wait_for_tile, Tiles::warp, Tiles::warpgroup, Tiles::work_, Tiles::chunk_, Tiles::memory_, Tiles::base_;
  using typename Tiles::Blocks, typename Tiles::Map;
  using Score = int32_t[kRows / 2];  // of a block of keys

  __device__ ChunkSteps(const AttentionWork& work, ChunkShared<kRows>& shared, uint8_t* memory)
      : Tiles(work, shared, memory) {}

  // s [64 keys, kRows] of a block of keys: thread (g, t) of warp w has keys 16 w + g and + 8 of rows 8 j + 2 t and + 1:
  // s[4 j + 2 upper + odd]. Without `all` only of the first 32 channels: scores that are not used.
  __device__ __forceinline__ void score(Score& s, uint32_t keys, bool all) {
    const uint64_t a = operand(keys, kBlockTokens), b = operand(base_ + static_cast<uint32_t>(Map::kQueries), kRows);
    multiply<false>(s, a, b);
    if (!all) return;
#pragma unroll
    for (int k = 1; k < kHeadDim / 32; ++k)
      multiply<true>(s, advanced(a, k * 2 * kBlockTokens * kColumnBytes), advanced(b, k * 2 * kRows * kColumnBytes));
  }
  template <bool kAdds>
  __device__ __forceinline__ static void multiply(Score& s, uint64_t a, uint64_t b) {
    if constexpr (kRows == 40) {  // no instruction has 40 columns
      multiply_shared_by<32, Sign::kSigned, kAdds>(reinterpret_cast<int32_t (&)[16]>(s[0]), a, b);
      multiply_shared_by<8, Sign::kSigned, kAdds>(reinterpret_cast<int32_t (&)[4]>(s[16]), a,
                                                  advanced(b, 32 * kColumnBytes));
    } else {
      multiply_shared_by<kRows, Sign::kSigned, kAdds>(s, a, b);
    }
  }
  // Of rows 8 j + 2 t and + 1.
  template <class T>
  __device__ int2 two(const T* of_rows, int j) const {
    static_assert(sizeof(T) == 4);
    return *reinterpret_cast<const int2*>(of_rows + 8 * j + 2 * t());
  }

  // Scores that a row does not see become kUnseen, which is never a maximum.
  __device__ __forceinline__ void mask(const Unit& unit, Score& s, int k) const {
    const int32_t key = block(unit, k) * kBlockTokens + warp() * 16 + g();
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int2 from = two(chunk_.see_from, j), to = two(chunk_.see_to, j);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int32_t at = key + e / 2 * 8;
        if (at < (e % 2 == 0 ? from.x : from.y) || at > (e % 2 == 0 ? to.x : to.y)) s[4 * j + e] = kUnseen;
      }
    }
  }
  // Of the warpgroup's k-th block; its scores and those of later blocks may still be running.
  template <int k>
  __device__ __forceinline__ void take_maxima(const Unit& unit, const Blocks& blocks, Score (&s)[kGroupBlocks],
                                              int32_t (&most)[kColumns][2]) const {
    wgmma_wait<kGroupBlocks - 1 - k>();
    wgmma_settle(s[k]);
    if (!has(blocks, k)) return;
    if (is_masked(blocks, k)) mask(unit, s[k], k);
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd)
        most[j][odd] = __vimax3_s32(most[j][odd], s[k][4 * j + odd], s[k][4 * j + 2 + odd]);
  }
  // Scores of the warpgroup's blocks, and the maxima of rows. kAll: also where the chunk has no such block, of whatever
  // lies there, and not used: in a loop, registers that are set only sometimes would be kept for what they
  // held before.
  template <bool kAll>
  __device__ __forceinline__ void score_all(const Unit& unit, const Blocks& blocks, int32_t tile,
                                            Score (&s)[kGroupBlocks], int32_t turn) {
    int32_t most[kColumns][2];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) most[j][0] = most[j][1] = kUnseen;
#pragma unroll
    for (int k = 0; k < kGroupBlocks; ++k) {
      if (has(blocks, k)) wait_for_tile(tile + place(k));
      wgmma_fence();
      if (kAll || has(blocks, k)) score(s[k], slot(tile + place(k)), has(blocks, k));
      wgmma_commit();
    }
    take_maxima<0>(unit, blocks, s, most);
    take_maxima<1>(unit, blocks, s, most);
    take_maxima<2>(unit, blocks, s, most);
    take_maxima<3>(unit, blocks, s, most);
    if constexpr (!Weight::kMaximaFirst) return;
    tell_maxima(most, turn);
  }

  // A warp's maxima of the even and the odd row of every eight, to those of the block.
  __device__ __forceinline__ void tell_maxima(const int32_t (&most)[kColumns][2], int32_t turn) {
    // Even lanes go on with the even rows, odd ones with the odd.
    const bool odd = g() % 2 != 0;
    int32_t mine[kColumns];  // step by step for all of them, since each step waits for the one before
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
      mine[j] = max(odd ? most[j][1] : most[j][0], __shfl_xor_sync(0xFFFFFFFFu, odd ? most[j][0] : most[j][1], 4));
#pragma unroll
    for (int distance = 8; distance < 32; distance *= 2)
#pragma unroll
      for (int32_t& x : mine) x = max(x, __shfl_xor_sync(0xFFFFFFFFu, x, distance));
    if (lane() < 8) {
      int32_t* to = &chunk_.maximum[turn][2 * t() + (odd ? 1 : 0)];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) atomicMax(to + 8 * j, mine[j]);
    }
  }

  // The weights of this thread's scores, to shared memory as layout.cuh wants values' places, and their sums. Four
  // places in a row are keys 2 c, 2 c + 1, 2 c + 8 and 2 c + 9 of the warp's 16: of two neighbouring lanes, of which
  // the even one stores the even row, the odd one the odd. Of the warpgroup's blocks k, which the chunk has, and k + 1.
  // One block alone takes the same instructions as two: others would not be at hand.
  __device__ __forceinline__ void weigh(const Blocks& blocks, const Score* s, int k, int32_t turn,
                                        uint32_t (&sum)[kColumns]) {
    constexpr int kBlocks = 2;
    const bool odd = g() % 2 != 0, alone = !has(blocks, k + 1),
               masked = alone || is_masked(blocks, k) || is_masked(blocks, k + 1);
    const uint32_t low_bytes = odd ? 0x1504 : 0x5140, high_bytes = odd ? 0x3726 : 0x7362;
    constexpr int32_t kStep = kDecodeGroups * 4 * 2 * kRows * kColumnBytes;  // of one of its blocks to the next
    uint8_t* to = memory_ + Map::kWeights + (place(k) % kHalfBlocks * 4 + warp()) * 2 * kRows * kColumnBytes +
                  (2 * t() + (odd ? 1 : 0)) * kColumnBytes + g() / 2 * 4;
    int2 maxima[kColumns] = {};  // loaded before any store, which the loads would wait for
    if constexpr (Weight::kMaximaFirst)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) maxima[j] = two(chunk_.maximum[turn], j);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int2 maximum = maxima[j];
      // Of a row that sees no key both are meaningless, and all of it is masked.
      const int32_t even = Weight::against(maximum.x), uneven = Weight::against(maximum.y);
      int32_t score[4 * kBlocks], against[4 * kBlocks];
      uint32_t w[4 * kBlocks];
#pragma unroll
      for (int i = 0; i < 4 * kBlocks; ++i) score[i] = s[i / 4][4 * j + i % 4], against[i] = i % 2 == 0 ? even : uneven;
      weight_(score, against, w);
      if (masked) {
#pragma unroll
        for (int i = 0; i < 4 * kBlocks; ++i)
          if (score[i] == kUnseen || (alone && i >= 4)) w[i] = static_cast<uint32_t>(kBiasBits);
      }
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        const uint32_t even_row = __byte_perm(w[4 * b], w[4 * b + 2], 0x5140),
                       odd_row = __byte_perm(w[4 * b + 1], w[4 * b + 3], 0x5140);
        const uint32_t mine = odd ? odd_row : even_row,
                       theirs = __shfl_xor_sync(0xFFFFFFFFu, odd ? even_row : odd_row, 4);
        const uint32_t high = __byte_perm(mine, theirs, high_bytes), low = __byte_perm(mine, theirs, low_bytes);
        *reinterpret_cast<uint32_t*>(to + b * kStep + j * 8 * kColumnBytes) = high;
        *reinterpret_cast<uint32_t*>(to + b * kStep + (kRows + j * 8) * kColumnBytes) = low;
        sum[j] = (__dp4a(high, 0x01010101u, 0u) << 8) + __dp4a(low, 0x01010101u, sum[j]);
      }
    }
  }
  __device__ __forceinline__ void add_weights(const uint32_t (&sum)[kColumns], int32_t turn) {
    uint32_t mine[kColumns];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) mine[j] = sum[j] + __shfl_xor_sync(0xFFFFFFFFu, sum[j], 8);
#pragma unroll
    for (uint32_t& x : mine) x += __shfl_xor_sync(0xFFFFFFFFu, x, 16);
    if (lane() < 8) {
      uint32_t* to = &chunk_.sum[turn][2 * t() + g() % 2];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) atomicAdd(to + 8 * j, mine[j]);
    }
  }

  // sums [64 channels, 2 kRows]: thread (g, t) of warp w has channels 16 w + g and + 8 of columns 8 j + 2 t and + 1;
  // columns are the rows' high bytes, then their low bytes. Begins to add those of the chunk's blocks `first` ... `end`
  // - 1, half of it at most, whose weights are there. `values`: its first tile.
  __device__ __forceinline__ void begin_values(int32_t values, int32_t first, int32_t end, int32_t (&sums)[kRows]) {
    if (first == 0) add_block<false>(values, 0, sums), ++first;
    for (; first < end; ++first) add_block<true>(values, first, sums);
  }
  template <bool kAdds>
  __device__ __forceinline__ void add_block(int32_t values, int32_t place, int32_t (&sums)[kRows]) {
    wait_for_tile(values + place);
    const uint64_t a = operand(slot(values + place) + static_cast<uint32_t>(warpgroup() * 64 * kColumnBytes), kHeadDim),
                   b = operand(base_ + static_cast<uint32_t>(Map::kWeights +
                                                             place % kHalfBlocks * 4 * 2 * kRows * kColumnBytes),
                               2 * kRows);
    wgmma_fence();
    multiply_shared_by<2 * kRows, Sign::kUnsigned, kAdds>(sums, a, b);
    multiply_shared_by<2 * kRows, Sign::kUnsigned, true>(sums, advanced(a, 2 * kHeadDim * kColumnBytes),
                                                         advanced(b, 2 * 2 * kRows * kColumnBytes));
    wgmma_commit();
  }
  __device__ __forceinline__ static float whole(const int32_t (&sums)[kRows], int j, int e) {
    return arith::fma(256.0f, static_cast<float>(sums[4 * j + e]), static_cast<float>(sums[4 * (j + kColumns) + e]));
  }
  // Of sums[4 j + e].
  __device__ int32_t channel(int e) const { return warpgroup() * 64 + warp() * 16 + g() + e / 2 * 8; }
  __device__ int32_t row(int j, int e) const { return 8 * j + 2 * t() + e % 2; }

  // The weights of a unit's scores and their sums. `meanwhile` is called while the first sums are under way, `at_last`
  // while the last are, `half_read` with half of a chunk's values read.
  template <class Meanwhile, class HalfRead, class AtLast>
  __device__ __forceinline__ void add_all(const Blocks& blocks, int32_t tile, const Score (&s)[kGroupBlocks],
                                          int32_t turn, int32_t (&sums)[kRows], Meanwhile meanwhile, HalfRead half_read,
                                          AtLast at_last) {
    constexpr bool kAllSum =
        kSummers == kDecodeThreads;  // else products are in a branch, which must hold no more than them
    const int32_t count = blocks.count;
    uint32_t weights[kColumns];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) weights[j] = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (h > 0 && count <= kHalfBlocks) break;
      forget();
      if (has(blocks, 2 * h)) weigh(blocks, s + 2 * h, 2 * h, turn, weights);
      const bool last = h > 0 || count <= kHalfBlocks;
      if (last) {
        add_weights(weights, turn);
        wait_for_copies();
      }
      publish_stores();
      __syncthreads();
      forget();
      if (is_summer()) {
        begin_values(tile + count, h * kHalfBlocks, min(count, (h + 1) * kHalfBlocks), sums);
        if (h == 0 && kAllSum) meanwhile();
        if (last && kAllSum) at_last();
        wgmma_wait<0>();
        wgmma_settle(sums);
      } else if (h == 0) {
#pragma unroll
        for (int32_t& x : sums) x = 0;
      }
      if (h == 0 && !kAllSum) meanwhile();
      if (last && !kAllSum) at_last();
      if (!last) {
        __syncthreads();
        half_read();
      }
    }
  }

  // Of a fold: the chunk (its maximum, the total's before it).
  struct Step {
    bool later;  // the chunk keeps its scale, the total is multiplied
    float factor;
  };
  __device__ Step step(int32_t before, int32_t chunk) const {
    const bool later = before <= chunk;
    return {later, before == INT32_MIN || chunk == INT32_MIN
                       ? 0.0f
                       : fold_factor(later ? before - chunk : chunk - before, work_.args.z)};
  }
  __device__ static float folded(const Step& step, float total, float chunk) {
    return arith::fma(step.later ? total : chunk, step.factor, step.later ? chunk : total);
  }

  using Tiles::weight_;
};

}  // namespace kaiju::cuda
