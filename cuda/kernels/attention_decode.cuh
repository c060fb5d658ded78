// Attention of few rows a sequence (decode) on Hopper: a block of three warpgroups takes a chunk of up to 512 keys at a time, kRows rows.
//
// Three steps with a barrier after each. First the scores, keys by rows (S^T = K Q^T, so that rows beyond the last cost nothing but
// matrix time): a warpgroup has up to three blocks of 64 keys, and keeps the scores in registers while the maximum is found. Then their
// weights, once, whose high and low bytes go to shared memory. Then the sums over all keys, channels by rows (V^T P^T), high and low bytes
// side by side: a warpgroup for each 64 channels; exact integers. Meanwhile the last finds the factors of the fold, and what to do next.
// Keys are asked for as soon as the scores of the chunk before are there, values as soon as its sums are.
//
// An item whose chunks all are this block's is folded in registers. Of others the sums of each chunk are kept apart, and the block that is
// done last folds them (rows of more than kFoldedHere chunks: merge_chunks_kernel). Bound: memory.
#pragma once

#include "attention_sm90.cuh"

namespace kaiju::cuda {

constexpr int32_t kDecodeGroups = 3;  // warpgroups; of four, none would have registers enough
constexpr int32_t kDecodeThreads = 128 * kDecodeGroups;
constexpr int32_t kGroupBlocks = (kChunkBlocks + kDecodeGroups - 1) / kDecodeGroups;  // of keys, that a warpgroup has of a chunk

// Where things are in shared memory.
template <int kHeadDim, int kRows>
struct DecodeMap {
  static_assert(kRows == 8 || kRows == 16 || kRows == 40 || kRows == 64);
  static constexpr int32_t kScoreRows = kRows == 40 ? 48 : kRows;  // the instruction has no 40
  static constexpr int32_t kKeys = 0;
  static constexpr int32_t kValues = kKeys + kChunkBlocks * kTileBytes<kHeadDim>;
  static constexpr int32_t kWeights = kValues + kChunkBlocks * kTileBytes<kHeadDim>;  // in columns of 2 kRows: high bytes, then low bytes
  static constexpr int32_t kQueries = kWeights + 2 * kRows * arith::kChunkKeys;
  static constexpr int32_t kTotals = kQueries + kScoreRows * kHeadDim;  // of a thread, one a sum
  static constexpr bool kKeepsTotals = kRows <= 40;                     // here; else in registers, which have room then
  static constexpr int32_t kBytes = kTotals + (kKeepsTotals ? kRows * kHeadDim * static_cast<int32_t>(sizeof(float)) : 0);
};

struct DecodeShared {
  uint64_t keys_full, values_full;
  // Of rows; of this unit and the next.
  int64_t row_at[2][64];              // where results go
  alignas(8) int32_t maximum[2][64];  // of scores
  alignas(8) uint32_t sum[2][64];     // of weights
  // Of this unit's.
  alignas(8) int32_t see_from[64];
  alignas(8) int32_t see_to[64];
  alignas(8) float factor[64];  // of the fold
  alignas(8) int32_t later[64];
  alignas(8) float inverse[64];  // of the sum of all weights
  Unit unit[3];                  // this one and the next two
  DecodeWalk walk;
  int32_t is_last;
};

template <int kHeadDim, int kRows, class Weight>
class Decoder {
  using Map = DecodeMap<kHeadDim, kRows>;
  static constexpr int32_t kTile = kTileBytes<kHeadDim>, kColumns = kRows / 8, kScoreRows = Map::kScoreRows;
  static constexpr int32_t kSummers = 2 * kHeadDim;  // threads that have sums
  using Score = int32_t[kScoreRows / 2];             // of a block of keys
  static constexpr bool kKeepsScores = kRows <= 40;  // in registers, until they are weighed; else they are found again
  static constexpr int32_t kKept = kKeepsScores ? kGroupBlocks : 1;
  static_assert(kSummers <= kDecodeThreads - 128);

 public:
  __device__ Decoder(const AttentionWork& work, DecodeShared& shared, uint8_t* memory)
      : work_(work), shared_(shared), memory_(memory), base_(shared_address(memory)), weight_(work) {}

  __device__ void run() {
    if (thread() == 0) {
      barrier_init(shared_address(&shared_.keys_full), 1);
      barrier_init(shared_address(&shared_.values_full), 1);
      publish_stores();
    }
    if (is_planner()) {  // segments and tables were copied before any of the kernels in front began
      DecodeWalk walk;
      walk.start(work_);
      walk.next(work_, shared_.unit[0]);
      walk.next(work_, shared_.unit[1]);
      if (lane() == 0) shared_.walk = walk;
    }
    __syncthreads();
    const Unit& first = shared_.unit[0];
    if (first.valid && warpgroup() == 0 && warp() == 0 && lane() < first.end_block - first.begin_block)
      for (const bool values : {false, true}) prefetch_bulk(half(first, lane(), values), kTile);
    wait_for_inputs();
    if (!first.valid) return;
    if (warpgroup() == 0 && warp() == 0) copy(first, false), copy(first, true);
    if (warpgroup() == kDecodeGroups - 1 && in_group() < 64) {
      shared_.maximum[0][in_group()] = INT32_MIN;
      shared_.sum[0][in_group()] = 0;
      describe_row(first, 0);
    }
    Pieces queries;
    load_queries(first, queries);
    store_queries(queries);
    publish_stores();
    __syncthreads();

    int32_t total_maximum = INT32_MIN;  // of row in_group(), in the last warpgroup
    float total_weight = 0.0f;
    Totals total;  // of the summers: of rows and channels as sums lie
    if constexpr (Map::kKeepsTotals) {
      if (thread() < kSummers)
        for (int i = 0; i < kRows / 2; ++i) kept_total(i) = 0.0f;
    } else {
#pragma unroll
      for (float& t : total) t = 0.0f;
    }
    for (int32_t i = 0;; ++i) {
      const Unit& unit = shared_.unit[i % 3];
      const Unit& next = shared_.unit[(i + 1) % 3];
      if (!unit.valid) return;
      const int32_t turn = i % 2;

      forget();
      // Scores and their maxima.
      Score s[kKept];
      barrier_wait(shared_address(&shared_.keys_full), static_cast<uint32_t>(turn));
      if constexpr (kKeepsScores) score_all(s);
      if constexpr (Weight::kMaximaFirst) find_maxima(unit, s, turn);
      __syncthreads();
      if (kKeepsScores && warpgroup() == 0 && warp() == 0 && next.valid) copy(next, false);

      forget();
      // Weights.
      const bool others = next.valid && next.fresh;
      if (others) load_queries(next, queries);
      weigh(unit, s, turn);
      if constexpr (!kKeepsScores) __syncthreads();  // the queries have been read
      if (others) store_queries(queries);
      publish_stores();
      __syncthreads();
      if (!kKeepsScores && warpgroup() == 0 && warp() == 0 && next.valid) copy(next, false);

      forget();
      // Sums.
      int32_t sums[kRows];
      if (thread() < kSummers) {
        barrier_wait(shared_address(&shared_.values_full), static_cast<uint32_t>(turn));
        add_values(unit, sums);
      } else if (warpgroup() == kDecodeGroups - 1 && in_group() < 64) {
        take_row(unit, turn, total_maximum, total_weight);
        shared_.maximum[1 - turn][in_group()] = INT32_MIN;
        shared_.sum[1 - turn][in_group()] = 0;
        if (next.valid) describe_row(next, 1 - turn);
      } else if (is_planner()) {
        DecodeWalk walk = shared_.walk;
        __syncwarp();
        walk.next(work_, shared_.unit[(i + 2) % 3]);
        if (lane() == 0) shared_.walk = walk;
      }
      __syncthreads();
      forget();
      if (warpgroup() == 0 && warp() == 0 && next.valid) copy(next, true);
      if (thread() < kSummers) {
        if (unit.kept >= 0) {
          keep_apart(unit, sums);
          if (unit.kept_count <= kFoldedHere) fold_if_last(unit, turn);
        } else {
          fold(unit, sums, total);
          if (unit.last) finish(unit, total, turn);
        }
      }
    }
  }

  // From here on nothing is known of thread(): else what follows from it would be found before the loop and kept in registers that are not
  // there.
  __device__ __forceinline__ void forget() { asm volatile("" : "+r"(thread_)); }
  __device__ int32_t thread() const { return thread_; }
  __device__ int32_t warpgroup() const { return thread() / 128; }
  __device__ int32_t in_group() const { return thread() % 128; }
  __device__ int32_t warp() const { return in_group() / 32; }
  __device__ bool is_planner() const { return warpgroup() == kDecodeGroups - 1 && warp() == 3; }
  __device__ int32_t lane() const { return thread() % 32; }
  __device__ int32_t g() const { return lane() / 4; }
  __device__ int32_t t() const { return lane() % 4; }

  // Of the warpgroup's blocks of a chunk; and that one as the sequence counts them.
  __device__ int32_t place(int k) const { return warpgroup() + kDecodeGroups * k; }
  __device__ int32_t block(const Unit& unit, int k) const { return unit.chunk * kChunkBlocks + place(k); }
  __device__ bool has(const Unit& unit, int k) const {
    return __any_sync(0xFFFFFFFFu, place(k) < kChunkBlocks && block(unit, k) >= unit.begin_block && block(unit, k) < unit.end_block);
  }

  // Keys or values of block `nth` of the unit.
  __device__ const std::byte* half(const Unit& unit, int32_t nth, bool values) const {
    return work_.kv.pool + work_.kv.slot_offset + int64_t{unit.group} * 2 * kTile + (values ? kTile : 0) +
           unit.ids[nth] * work_.kv.block_bytes;
  }
  // The unit's keys, or values, where its block is in the chunk. By one warp.
  __device__ void copy(const Unit& unit, bool values) {
    const uint32_t full = shared_address(values ? &shared_.values_full : &shared_.keys_full);
    const int32_t count = unit.end_block - unit.begin_block, first = unit.begin_block - unit.chunk * kChunkBlocks;
    if (lane() == 0) barrier_expect(full, static_cast<uint32_t>(count * kTile));
    __syncwarp();
    if (lane() < count) {
      copy_bulk(base_ + static_cast<uint32_t>((values ? Map::kValues : Map::kKeys) + (first + lane()) * kTile), half(unit, lane(), values),
                kTile, full);
    }
  }

  // Pieces of 16 bytes of a row; rows beyond the last are zero.
  static constexpr int32_t kPieces = kScoreRows * kHeadDim / 16, kThreadPieces = (kPieces + kDecodeThreads - 1) / kDecodeThreads;
  using Pieces = uint4[kThreadPieces];
  __device__ __forceinline__ void load_queries(const Unit& unit, Pieces& pieces) const {
#pragma unroll
    for (int i = 0; i < kThreadPieces; ++i) {
      const int32_t at = thread() + i * kDecodeThreads, row = at % kScoreRows;
      pieces[i] = {0, 0, 0, 0};
      if (at < kPieces && row < unit.rows)
        pieces[i] = *reinterpret_cast<const uint4*>(work_.args.queries + row_offset(unit, row) + at / kScoreRows * 16);
    }
  }
  __device__ __forceinline__ void store_queries(const Pieces& pieces) {
#pragma unroll
    for (int i = 0; i < kThreadPieces; ++i) {
      const int32_t at = thread() + i * kDecodeThreads;
      if (at < kPieces) *reinterpret_cast<uint4*>(memory_ + Map::kQueries + at * 16) = pieces[i];
    }
  }
  // Of a row in queries and results.
  __device__ int64_t row_offset(const Unit& unit, int32_t row) const {
    const int32_t token = row / work_.heads, head = row - token * work_.heads;
    return (int64_t{unit.batch_row + token} * work_.args.heads + unit.group * work_.heads + head) * kHeadDim;
  }
  __device__ int32_t first_visible(int32_t position) const {
    return work_.kv.window > 0 && position >= work_.kv.window ? position - work_.kv.window + 1 : 0;
  }
  // What row in_group() sees, and where it lies.
  __device__ void describe_row(const Unit& unit, int32_t turn) {
    const int32_t row = in_group(), position = unit.position + row / work_.heads;
    const bool valid = row < unit.rows;
    shared_.see_from[row] = valid ? first_visible(position) : 0;
    shared_.see_to[row] = valid ? position : -1;
    shared_.row_at[turn][row] = valid ? row_offset(unit, row) : -1;
  }
  // Whether a row of the item does not see a key of the block.
  __device__ static bool is_masked(const Unit& unit, int32_t block) {
    return block * kBlockTokens < unit.all_from || block * kBlockTokens + kBlockTokens - 1 > unit.position;
  }

  // s [64 keys, kScoreRows] of block `place` of the chunk: thread (g, t) of warp w has keys 16 w + g and + 8 of rows 8 j + 2 t and + 1:
  // s[4 j + 2 upper + odd].
  __device__ __forceinline__ void score(Score& s, int32_t place) {
    const uint64_t a = operand(base_ + static_cast<uint32_t>(Map::kKeys + place * kTile), kBlockTokens),
                   b = operand(base_ + static_cast<uint32_t>(Map::kQueries), kScoreRows);
#pragma unroll
    for (int k = 0; k < kHeadDim / 32; ++k)
      multiply_shared_by<kScoreRows, Sign::kSigned>(s, advanced(a, k * 2 * kBlockTokens * kColumnBytes),
                                                    advanced(b, k * 2 * kScoreRows * kColumnBytes), k > 0);
  }
  // Where the chunk has no such block, of whatever lies there: nobody asks.
  __device__ __forceinline__ void score_all(Score (&s)[kKept]) {
    begin_products();
#pragma unroll
    for (int k = 0; k < kKept; ++k) score(s[k], place(k));
    commit_products();
    wait_products<0>();
#pragma unroll
    for (int k = 0; k < kKept; ++k) pin(s[k]);
  }
  __device__ __forceinline__ void score_one(Score& s, int k) {
    begin_products();
    score(s, place(k));
    commit_products();
    wait_products<0>();
    pin(s);
  }
  __device__ static bool sees(const int2& from, const int2& to, int32_t key, int odd) {
    return odd != 0 ? key >= from.y && key <= to.y : key >= from.x && key <= to.x;
  }
  // Of rows 8 j + 2 t and + 1.
  template <class T>
  __device__ int2 two(const T* of_rows, int j) const {
    static_assert(sizeof(T) == 4);
    return *reinterpret_cast<const int2*>(of_rows + 8 * j + 2 * t());
  }

  __device__ __forceinline__ void take_maxima(const Unit& unit, const Score& s, int k, int32_t (&most)[kColumns][2]) {
    if (is_masked(unit, block(unit, k))) {
      const int32_t key = block(unit, k) * kBlockTokens + warp() * 16 + g();
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const int2 from = two(shared_.see_from, j), to = two(shared_.see_to, j);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (sees(from, to, key + e / 2 * 8, e % 2)) most[j][e % 2] = max(most[j][e % 2], s[4 * j + e]);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) most[j][odd] = __vimax3_s32(most[j][odd], s[4 * j + odd], s[4 * j + 2 + odd]);
    }
  }
  __device__ __forceinline__ void find_maxima(const Unit& unit, Score (&s)[kKept], int32_t turn) {
    int32_t most[kColumns][2];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) most[j][0] = most[j][1] = INT32_MIN;
    if constexpr (kKeepsScores) {
#pragma unroll
      for (int k = 0; k < kGroupBlocks; ++k)
        if (has(unit, k)) take_maxima(unit, s[k], k, most);
    } else {
#pragma unroll 1
      for (int k = 0; k < kGroupBlocks; ++k) {
        score_one(s[0], k);
        if (has(unit, k)) take_maxima(unit, s[0], k, most);
      }
    }
    // Even lanes go on with the even rows, odd ones with the odd.
    const bool odd = g() % 2 != 0;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      int32_t mine = odd ? most[j][1] : most[j][0];
      mine = max(mine, __shfl_xor_sync(0xFFFFFFFFu, odd ? most[j][0] : most[j][1], 4));
      mine = max(mine, __shfl_xor_sync(0xFFFFFFFFu, mine, 8));
      mine = max(mine, __shfl_xor_sync(0xFFFFFFFFu, mine, 16));
      if (lane() < 8) atomicMax(&shared_.maximum[turn][8 * j + 2 * t() + (odd ? 1 : 0)], mine);
    }
  }

  // The weights of this thread's scores, to shared memory as layout.cuh wants values' places, and their sums. Four places in a row are keys
  // 2 c, 2 c + 1, 2 c + 8 and 2 c + 9 of the warp's 16: of two neighbouring lanes, of which the even one stores the even row, the odd one
  // the odd.
  template <bool kMasked>
  __device__ __forceinline__ void weigh_block(const Unit& unit, const Score& s, int k, int32_t turn, uint32_t (&sum)[kColumns][2]) {
    const bool odd = g() % 2 != 0;
    const uint32_t low_bytes = odd ? 0x1504 : 0x5140, high_bytes = odd ? 0x3726 : 0x7362;
    uint8_t* to = memory_ + Map::kWeights + (place(k) * 4 + warp()) * 2 * kRows * kColumnBytes + (2 * t() + (odd ? 1 : 0)) * kColumnBytes +
                  g() / 2 * 4;
    const int32_t key = block(unit, k) * kBlockTokens + warp() * 16 + g();
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      int2 maximum{0, 0};
      if constexpr (Weight::kMaximaFirst) maximum = two(shared_.maximum[turn], j);
      // For a row that sees no key both are rubbish, and all of it is masked.
      const auto even = static_cast<int32_t>(static_cast<uint32_t>(kBiasBits) - static_cast<uint32_t>(maximum.x)),
                 uneven = static_cast<int32_t>(static_cast<uint32_t>(kBiasBits) - static_cast<uint32_t>(maximum.y));
      uint32_t w[4];
      weight_({s[4 * j], s[4 * j + 1], s[4 * j + 2], s[4 * j + 3]}, {even, uneven, even, uneven}, w);
      if constexpr (kMasked) {
        const int2 from = two(shared_.see_from, j), to_key = two(shared_.see_to, j);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (!sees(from, to_key, key + e / 2 * 8, e % 2)) w[e] = static_cast<uint32_t>(kBiasBits);
      }
      sum[j][0] += w[0] + w[2];
      sum[j][1] += w[1] + w[3];
      const uint32_t even_row = __byte_perm(w[0], w[2], 0x5140), odd_row = __byte_perm(w[1], w[3], 0x5140);
      const uint32_t mine = odd ? odd_row : even_row, theirs = __shfl_xor_sync(0xFFFFFFFFu, odd ? even_row : odd_row, 4);
      *reinterpret_cast<uint32_t*>(to + j * 8 * kColumnBytes) = __byte_perm(mine, theirs, high_bytes);
      *reinterpret_cast<uint32_t*>(to + (kRows + j * 8) * kColumnBytes) = __byte_perm(mine, theirs, low_bytes);
    }
  }
  __device__ __forceinline__ void weigh(const Unit& unit, Score (&s)[kKept], int32_t turn) {
    uint32_t sum[kColumns][2];
    uint32_t bias = 0;  // that all weights bring
#pragma unroll
    for (int j = 0; j < kColumns; ++j) sum[j][0] = sum[j][1] = 0;
    const auto one = [&](const Score& score, int k) {
      if (!has(unit, k)) return;
      bias += 2u * static_cast<uint32_t>(kBiasBits);
      if (__any_sync(0xFFFFFFFFu, is_masked(unit, block(unit, k))))
        weigh_block<true>(unit, score, k, turn, sum);
      else
        weigh_block<false>(unit, score, k, turn, sum);
    };
    if constexpr (kKeepsScores) {
#pragma unroll
      for (int k = 0; k < kGroupBlocks; ++k) one(s[k], k);
    } else {
#pragma unroll 1
      for (int k = 0; k < kGroupBlocks; ++k) {
        score_one(s[0], k);
        one(s[0], k);
      }
    }
    const bool odd = g() % 2 != 0;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      uint32_t mine = (odd ? sum[j][1] : sum[j][0]) - bias;
      mine += __shfl_xor_sync(0xFFFFFFFFu, (odd ? sum[j][0] : sum[j][1]) - bias, 4);
      mine += __shfl_xor_sync(0xFFFFFFFFu, mine, 8);
      mine += __shfl_xor_sync(0xFFFFFFFFu, mine, 16);
      if (lane() < 8) atomicAdd(&shared_.sum[turn][8 * j + 2 * t() + (odd ? 1 : 0)], mine);
    }
  }

  // sums [64 channels, 2 kRows]: thread (g, t) of warp w has channels 16 w + g and + 8 of columns 8 j + 2 t and + 1; columns are the rows'
  // high bytes, then their low bytes.
  __device__ __forceinline__ void add_values(const Unit& unit, int32_t (&sums)[kRows]) {
    const int32_t first = unit.begin_block - unit.chunk * kChunkBlocks, end = unit.end_block - unit.chunk * kChunkBlocks;
    for (int32_t place = first; place < end; ++place) {
      begin_products();
      const uint64_t a = operand(base_ + static_cast<uint32_t>(Map::kValues + place * kTile + warpgroup() * 64 * kColumnBytes), kHeadDim),
                     b = operand(base_ + static_cast<uint32_t>(Map::kWeights + place * 4 * 2 * kRows * kColumnBytes), 2 * kRows);
#pragma unroll
      for (int k = 0; k < 2; ++k)
        multiply_shared_by<2 * kRows, Sign::kUnsigned>(sums, advanced(a, k * 2 * kHeadDim * kColumnBytes),
                                                       advanced(b, k * 2 * 2 * kRows * kColumnBytes), place > first || k > 0);
      commit_products();
    }
    wait_products<0>();
    pin(sums);
  }
  __device__ __forceinline__ static float whole(const int32_t (&sums)[kRows], int j, int e) {
    return arith::fma(256.0f, static_cast<float>(sums[4 * j + e]), static_cast<float>(sums[4 * (j + kColumns) + e]));
  }
  // Of sums[4 j + e].
  __device__ int32_t channel(int e) const { return warpgroup() * 64 + warp() * 16 + g() + e / 2 * 8; }
  __device__ int32_t row(int j, int e) const { return 8 * j + 2 * t() + e % 2; }

  // Of a fold: the chunk (its maximum, the total's before it).
  struct Step {
    bool later;  // the chunk keeps its scale, the total is multiplied
    float factor;
  };
  __device__ Step step(int32_t before, int32_t chunk) const {
    const bool later = before <= chunk;
    return {later,
            before == INT32_MIN || chunk == INT32_MIN ? 0.0f : arith::exp2_product(later ? before - chunk : chunk - before, work_.args.z)};
  }
  __device__ static float folded(const Step& step, float total, float chunk) {
    return arith::fma(step.later ? total : chunk, step.factor, step.later ? chunk : total);
  }

  // What a thread knows of row in_group().
  __device__ void take_row(const Unit& unit, int32_t turn, int32_t& total_maximum, float& total_weight) {
    const int32_t row = in_group();
    if (row >= unit.rows) return;
    const int32_t maximum = Weight::kMaximaFirst ? shared_.maximum[turn][row] : 0;
    const auto weight = static_cast<float>(shared_.sum[turn][row]);
    if (unit.kept >= 0) {
      work_.scratch.parts[int64_t{unit.kept} * kTileRows + row] = {maximum, weight};
      return;
    }
    if (unit.fresh) total_maximum = INT32_MIN, total_weight = 0.0f;
    const Step fold = step(total_maximum, maximum);
    total_weight = folded(fold, total_weight, weight);
    total_maximum = max(total_maximum, maximum);
    shared_.factor[row] = fold.factor;
    shared_.later[row] = fold.later ? 1 : 0;
    if (unit.last) shared_.inverse[row] = arith::divide(1.0f, total_weight);
  }
  using Totals = float[Map::kKeepsTotals ? 1 : kRows / 2];
  __device__ float& kept_total(int i) const { return reinterpret_cast<float*>(memory_ + Map::kTotals)[i * kSummers + thread()]; }
  __device__ __forceinline__ void fold(const Unit& unit, const int32_t (&sums)[kRows], Totals& total) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      if (8 * j >= unit.rows) break;
      const int2 factor = two(shared_.factor, j), later = two(shared_.later, j);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Step by{(e % 2 == 0 ? later.x : later.y) != 0, __int_as_float(e % 2 == 0 ? factor.x : factor.y)};
        if constexpr (Map::kKeepsTotals)
          kept_total(4 * j + e) = folded(by, kept_total(4 * j + e), whole(sums, j, e));
        else
          total[4 * j + e] = folded(by, total[4 * j + e], whole(sums, j, e));
      }
    }
  }
  __device__ __forceinline__ void finish(const Unit& unit, const Totals& total, int32_t turn) {
    const float* scale = work_.args.out_inverse + int64_t{unit.group} * kHeadDim;
    const float scales[2] = {scale[channel(0)], scale[channel(2)]};
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (row(j, e) < unit.rows)
          work_.args.out[shared_.row_at[turn][row(j, e)] + channel(e)] = arith::quantise(
              arith::mul(Map::kKeepsTotals ? kept_total(4 * j + e) : total[Map::kKeepsTotals ? 0 : 4 * j + e], shared_.inverse[row(j, e)]),
              scales[e / 2]);
  }
  __device__ __forceinline__ void keep_apart(const Unit& unit, const int32_t (&sums)[kRows]) {
    float* to = work_.scratch.sums + int64_t{unit.kept} * kTileRows * kHeadDim;
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (row(j, e) < unit.rows) to[row(j, e) * kHeadDim + channel(e)] = whole(sums, j, e);
  }

  // Of all who keep chunks of the item apart, the last one folds them. By the summers.
  __device__ static void sync_summers() { asm volatile("bar.sync 1, %0;" ::"n"(kSummers) : "memory"); }
  __device__ void fold_if_last(const Unit& unit, int32_t turn) {
    sync_summers();
    if (thread() == 0) {
      __threadfence();
      int32_t* counter = work_.scratch.counters + unit.first_kept;
      const bool is_last = atomicAdd(counter, 1) == unit.kept_count - 1;
      if (is_last) *counter = 0;  // for the next launch
      __threadfence();
      shared_.is_last = is_last ? 1 : 0;
    }
    sync_summers();
    if (shared_.is_last == 0) return;

    // Maxima and weights, then the fold's factors, in the place of the weights, whose products are done.
    auto* maximum = reinterpret_cast<int32_t*>(memory_ + Map::kWeights);  // [kFoldedHere][kRows] each
    auto* weight = reinterpret_cast<float*>(maximum + kFoldedHere * kRows);
    auto* factor = weight + kFoldedHere * kRows;
    auto* later = reinterpret_cast<int32_t*>(factor + kFoldedHere * kRows);
    static_assert(4 * kFoldedHere * kRows * 4 <= 2 * kRows * arith::kChunkKeys);
    const int32_t count = unit.kept_count, all = count * kRows;
    const AttentionPart* parts = work_.scratch.parts + int64_t{unit.first_kept} * kTileRows;
    for (int32_t i = thread(); i < all; i += kSummers) {
      const int2 part = __ldcg(reinterpret_cast<const int2*>(parts + i / kRows * kTileRows + i % kRows));
      maximum[i] = part.x, weight[i] = __int_as_float(part.y);
    }
    sync_summers();
    for (int32_t i = thread(); i < all; i += kSummers) {
      int32_t before = INT32_MIN;
      for (int32_t j = i % kRows; j < i; j += kRows) before = max(before, maximum[j]);
      const Step fold = step(before, maximum[i]);
      factor[i] = fold.factor, later[i] = fold.later ? 1 : 0;
    }
    sync_summers();
    if (thread() < unit.rows) {
      float total = 0.0f;
      for (int32_t i = thread(); i < all; i += kRows) total = folded(Step{later[i] != 0, factor[i]}, total, weight[i]);
      shared_.inverse[thread()] = arith::divide(1.0f, total);
    }
    sync_summers();
    constexpr int32_t kFours = kHeadDim / 4, kAtOnce = kSummers / kFours, kAhead = 8;
    const int32_t four = thread() % kFours;
    const auto* kept = reinterpret_cast<const float4*>(work_.scratch.sums) + int64_t{unit.first_kept} * kTileRows * kFours + four;
    const float4 scale = *(reinterpret_cast<const float4*>(work_.args.out_inverse + int64_t{unit.group} * kHeadDim) + four);
    for (int32_t r = thread() / kFours; r < unit.rows; r += kAtOnce) {
      float4 total = {0.0f, 0.0f, 0.0f, 0.0f};
      for (int32_t from = 0; from < count; from += kAhead) {
        float4 o[kAhead];
#pragma unroll
        for (int32_t c = 0; c < kAhead; ++c)
          if (from + c < count) o[c] = __ldcg(kept + (int64_t{from + c} * kTileRows + r) * kFours);
#pragma unroll
        for (int32_t c = 0; c < kAhead; ++c) {
          if (from + c >= count) break;
          const int32_t at = (from + c) * kRows + r;
          const Step fold{later[at] != 0, factor[at]};
          total.x = folded(fold, total.x, o[c].x), total.y = folded(fold, total.y, o[c].y);
          total.z = folded(fold, total.z, o[c].z), total.w = folded(fold, total.w, o[c].w);
        }
      }
      const float inverse = shared_.inverse[r];
      const auto byte = [&](float x, float c) { return arith::quantise(arith::mul(x, inverse), c); };
      *reinterpret_cast<char4*>(work_.args.out + shared_.row_at[turn][r] + 4 * four) =
          make_char4(byte(total.x, scale.x), byte(total.y, scale.y), byte(total.z, scale.z), byte(total.w, scale.w));
    }
  }

  const AttentionWork& work_;
  DecodeShared& shared_;
  uint8_t* memory_;
  uint32_t base_;  // of memory_
  Weight weight_;
  int32_t thread_ = static_cast<int32_t>(threadIdx.x);
};

template <int kHeadDim, int kRows, class Weight>
__global__ void __launch_bounds__(kDecodeThreads, 1) decode_kernel(const __grid_constant__ AttentionWork work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ DecodeShared shared;
  let_next_start();
  Decoder<kHeadDim, kRows, Weight>(work, shared, memory).run();
#else
  __trap();  // never launched elsewhere
#endif
}

template <int kHeadDim, int kRows, class Weight>
cudaError_t launch_decode_of(cudaStream_t stream, const AttentionWork& work) {
  constexpr int32_t kBytes = DecodeMap<kHeadDim, kRows>::kBytes;
  const auto kernel = decode_kernel<kHeadDim, kRows, Weight>;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes); error != cudaSuccess)
    return error;
  return launch(stream, Chip{.capability = 90}, kernel, {work.decode_blocks, kDecodeThreads, kBytes}, work);
}

}  // namespace kaiju::cuda
