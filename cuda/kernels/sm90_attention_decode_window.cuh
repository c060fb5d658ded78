// Attention of few rows in each sequence (decode) on Hopper, over a window of up to three chunks, for few sequences. A
// pair of thread blocks takes an item, each on its own multiprocessor (the steps of a chunk:
// sm90_attention_decode_chunk.cuh).
//
// One thread block takes the middle chunk, the other the first and the last chunk, which have nine blocks of keys
// together. So no chunk is divided, and maxima stay within a thread block. Three warpgroups have three blocks of keys
// each and compute their weights with the same instructions, because fetching instructions takes long. One thread block
// of the pair finishes the even rows, the other the odd rows: a thread writes its sums of the other's rows to the
// other's shared memory, where the thread with the same number folds them with its own.
//
// Small thread blocks of the next matmul fit on the multiprocessor beside a pair. They may start when the queries have
// arrived; earlier, their loads of weights would come before the queries. Bound: the latency of consecutive steps, then
// instructions.
#pragma once

#include "../tiles/quantise.cuh"
#include "sm90_attention_decode_window_tiles.cuh"

namespace kaiju::cuda {

template <int kHeadDim, int kRows, class Weight>
class WindowDecoder : WindowTiles<kHeadDim, kRows, Weight> {
  using Tiles = WindowTiles<kHeadDim, kRows, Weight>;
  using Steps = ChunkSteps<kHeadDim, kRows, Weight>;
  using Steps::kTile, Steps::kColumns, Steps::kSummers, Steps::thread, Steps::warpgroup, Steps::warp, Steps::in_rows,
      Steps::lane, Steps::g, Steps::t, Steps::copy_async, Steps::wait_for_copies, Steps::two, Steps::whole,
      Steps::channel, Steps::step, Steps::folded, Steps::first_visible, Steps::tell_maxima, Steps::work_, Steps::chunk_,
      Steps::memory_, Steps::base_, Steps::weight_;
  using Tiles::ask, Tiles::ask_for_queries, Tiles::find, Tiles::has, Tiles::place, Tiles::slot, Tiles::tile_of,
      Tiles::wait, Tiles::shared_, Tiles::rank_, Tiles::part_;
  using typename Steps::Step;
  using typename Tiles::Item, typename Tiles::Parts, typename Tiles::Tile, typename Tiles::Map;
  using Score = int32_t[Map::kQueryRows / 2];
  static constexpr int32_t kOwn = kRows / 4;  // sums of a thread of every second row

 public:
  static constexpr int32_t kBytes = Map::kEnd;
  // With a block of the next matmul beside, on a multiprocessor; each has a KiB more.
  static_assert(kBytes + sizeof(WindowShared<kRows>) + 1024 + kBesidePairBytes + 1024 <= 228 * 1024);

  __device__ WindowDecoder(const AttentionWork& work, WindowShared<kRows>& shared, uint8_t* memory)
      : Tiles(work, shared, memory) {}

  __device__ void run() {
    const Item item = find();
    if (item.segment < 0) return wait_for_inputs();  // both blocks
    if (thread() == kPairThreads - 1) {
      for (int32_t n = 0; n < kPairBlocks; ++n)
        barrier_init(shared_address(&shared_.keys[n]), 1), barrier_init(shared_address(&shared_.values[n]), 1);
      barrier_init(shared_address(&shared_.told), 1), barrier_init(shared_address(&shared_.arrived), 1);
      barrier_init_done();
      publish_stores();
    }
    part_ = Parts(item.position, work_.kv, rank_);
    const Tile tile = tile_of(item);
    if (in_rows()) {
      chunk_.maximum[0][thread()] = chunk_.maximum[1][thread()] = kUnseen;
      chunk_.sum[0][thread()] = chunk_.sum[1][thread()] = 0;
    }
    __syncthreads();
    const int32_t their_chunks = Parts(item.position, work_.kv, 1 - rank_).chunks();
    if (thread() == 0) {
      barrier_expect(shared_address(&shared_.told), kRows / 2 * 16);
      barrier_expect(shared_address(&shared_.arrived), static_cast<uint32_t>(their_chunks * Map::kFourBytes));
    }
    cluster_arrive();  // that the other may write here
    if (!tile.values && tile.is_old) ask(tile);
    wait_for_inputs();
    ask_for_queries(item);
    if (!tile.values && !tile.is_old) ask(tile);
    if (tile.values && tile.from) prefetch_bulk_once(tile.from, kTile);
    wait_for_copies();
    publish_stores();
    __syncthreads();
    let_next_start();
    Score s[kPairGroupBlocks];
    uint32_t seen_keys[kPairGroupBlocks];
    score_all(item, s, seen_keys);
    __syncthreads();  // keys and queries have been read
    if (tile.values) ask(tile);
    weigh_all(s, seen_keys);
    publish_stores();
    __syncthreads();
    cluster_wait();
    if (is_summer()) {
      float mine[2][kOwn], theirs[2][kOwn];  // of two chunks
#pragma unroll 1
      for (int32_t part = 0; part < 2; ++part) {
#pragma unroll
        for (int i = 0; i < kOwn; ++i)
          mine[0][i] = mine[1][i], theirs[0][i] = theirs[1][i], mine[1][i] = theirs[1][i] = 0.0f;
        add_part(part, mine[1], theirs[1]);
      }
      cluster_arrive();
      cluster_wait();  // the other block has read its weights
#pragma unroll
      for (int part = 0; part < 2; ++part)
        if (part < part_.chunks()) push(part, theirs[part]);
      __syncthreads();  // the folds are there
      finish(mine, their_chunks);
    } else {
      if (warpgroup() == kPairGroups - 1) tell_and_fold(item);
      cluster_arrive();
      cluster_wait();
      __syncthreads();
    }
  }

 private:
  __device__ bool is_summer() const { return warpgroup() < kSummers / 128; }

  // of_part(part) for every part that the warpgroup has blocks of: mostly one.
  template <class OfPart>
  __device__ __forceinline__ void each_part(OfPart of_part) const {
    const int32_t last = part_.part(min(place(kPairGroupBlocks - 1), part_.all() - 1));
#pragma unroll 1
    for (int32_t part = part_.part(place(0)); part <= last; ++part) of_part(part);
  }

  // Of 64 keys: thread (g, t) of warp w has keys 16 w + g and + 8 of rows 8 j + 2 t and + 1: s[4 j + 2 upper + odd].
  // seen_keys: of each block the bytes of these two keys that the rows see, as weights lie in registers.
  __device__ __forceinline__ void score_all(const Item& item, Score (&s)[kPairGroupBlocks],
                                            uint32_t (&seen_keys)[kPairGroupBlocks]) {
    const int32_t first = first_visible(item.position);
#pragma unroll
    for (int k = 0; k < kPairGroupBlocks; ++k) {
      const int32_t key = part_.block(place(k)) * kBlockTokens + warp() * 16 + g();
      const auto sees = [&](int32_t at) { return has(k) && at >= first && at <= item.position; };
      seen_keys[k] = (sees(key) ? 0x00FF00FF : 0) | (sees(key + 8) ? 0xFF00FF00 : 0);
    }
#pragma unroll
    for (int k = 0; k < kPairGroupBlocks; ++k) {
      if (has(k)) wait(shared_.keys[place(k)]);
      const uint64_t a = operand(slot(place(k)), kBlockTokens),
                     b = operand(base_ + static_cast<uint32_t>(Map::kQueries), Map::kQueryRows);
      wgmma_fence();  // of whatever lies there, where there is no block
      multiply_shared_by<Map::kQueryRows, Sign::kSigned, false>(s[k], a, b);
#pragma unroll
      for (int i = 1; i < kHeadDim / 32; ++i)
        multiply_shared_by<Map::kQueryRows, Sign::kSigned, true>(s[k], advanced(a, i * 2 * kBlockTokens * kColumnBytes),
                                                                 advanced(b, i * 2 * Map::kQueryRows * kColumnBytes));
      wgmma_commit();
    }
    wgmma_wait<0>();
#pragma unroll
    for (int k = 0; k < kPairGroupBlocks; ++k) {
      wgmma_settle(s[k]);
      if (__any_sync(0xFFFFFFFFu, seen_keys[k] != UINT32_MAX)) {
#pragma unroll
        for (int i = 0; i < kRows / 2; ++i)
          if (!(seen_keys[k] >> (i % 4 / 2 * 8) & 1)) s[k][i] = kUnseen;  // never a maximum
      }
    }
    each_part([&](int32_t part) {
      int32_t most[kColumns][2];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) most[j][0] = most[j][1] = kUnseen;
#pragma unroll
      for (int k = 0; k < kPairGroupBlocks; ++k) {
        if (!has(k) || part_.part(place(k)) != part) continue;
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
#pragma unroll
          for (int odd = 0; odd < 2; ++odd)
            most[j][odd] = __vimax3_s32(most[j][odd], s[k][4 * j + odd], s[k][4 * j + 2 + odd]);
      }
      tell_maxima(most, part);
    });
  }
  // The weights, to shared memory as layout.cuh wants values' places (sm90_attention_decode_chunk.cuh), and their sums.
  // All blocks by the same instructions: the next one's scores come to where the first's were.
  __device__ __forceinline__ void weigh_all(Score (&s)[kPairGroupBlocks], uint32_t (&seen_keys)[kPairGroupBlocks]) {
    const bool odd = g() % 2 != 0;
    const uint32_t low_bytes = odd ? 0x1504 : 0x5140, high_bytes = odd ? 0x3726 : 0x7362;
    uint8_t* to = memory_ + Map::kWeights + (place(0) * 4 + warp()) * 2 * kRows * kColumnBytes +
                  (2 * t() + (odd ? 1 : 0)) * kColumnBytes + g() / 2 * 4;
    uint32_t sum[kColumns] = {};
#pragma unroll 1
    for (int32_t at = place(0), end = min(place(kPairGroupBlocks), part_.all()); at < end;
         ++at, to += Map::kWeightBytes) {
      const int32_t part = part_.part(at);
      int2 against[kColumns];  // before anything is stored, which they would wait for
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const int2 maximum = two(chunk_.maximum[part], j);
        against[j] = {Weight::against(maximum.x), Weight::against(maximum.y)};
      }
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const int32_t score[4] = {s[0][4 * j], s[0][4 * j + 1], s[0][4 * j + 2], s[0][4 * j + 3]},
                      against_each[4] = {against[j].x, against[j].y, against[j].x, against[j].y};
        uint32_t w[4];
        weight_(score, against_each, w);
        const uint32_t even_row = __byte_perm(w[0], w[2], 0x5140) & seen_keys[0],
                       odd_row = __byte_perm(w[1], w[3], 0x5140) & seen_keys[0];
        const uint32_t mine = odd ? odd_row : even_row,
                       theirs = __shfl_xor_sync(0xFFFFFFFFu, odd ? even_row : odd_row, 4);
        const uint32_t high = __byte_perm(mine, theirs, high_bytes), low = __byte_perm(mine, theirs, low_bytes);
        *reinterpret_cast<uint32_t*>(to + j * 8 * kColumnBytes) = high;
        *reinterpret_cast<uint32_t*>(to + (kRows + j * 8) * kColumnBytes) = low;
        sum[j] = (__dp4a(high, 0x01010101u, 0u) << 8) + __dp4a(low, 0x01010101u, sum[j]);
      }
      if (at + 1 == end || part_.part(at + 1) != part) {
#pragma unroll
        for (int distance = 8; distance < 32; distance *= 2)
#pragma unroll
          for (uint32_t& x : sum) x += __shfl_xor_sync(0xFFFFFFFFu, x, distance);
        if (lane() < 8) {
          uint32_t* to_sum = &chunk_.sum[part][2 * t() + g() % 2];
#pragma unroll
          for (int j = 0; j < kColumns; ++j) atomicAdd(to_sum + 8 * j, sum[j]);
        }
#pragma unroll
        for (uint32_t& x : sum) x = 0;
      }
#pragma unroll
      for (int k = 0; k + 1 < kPairGroupBlocks; ++k) {
        seen_keys[k] = seen_keys[k + 1];
#pragma unroll
        for (int i = 0; i < kRows / 2; ++i) s[k][i] = s[k + 1][i];
      }
    }
  }

  // Sums of a chunk: 64 channels a warpgroup, by rows' high and low bytes, of the rows that this block finishes and of
  // those of the other.
  __device__ __forceinline__ void add_part(int32_t part, float (&mine)[kOwn], float (&theirs)[kOwn]) {
    const int32_t from = part == 0 ? 0 : part_.count[0], end = part == 0 ? part_.count[0] : part_.all();
    if (from == end) return;
    int32_t sums[kRows];
    add_block<false>(from, sums);
#pragma unroll 1
    for (int32_t n = from + 1; n < end; ++n) add_block<true>(n, sums);
    wgmma_wait<0>();
    wgmma_settle(sums);
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        const float even = whole(sums, j, 2 * upper), odd = whole(sums, j, 2 * upper + 1);
        mine[2 * j + upper] = rank_ == 0 ? even : odd;
        theirs[2 * j + upper] = rank_ == 0 ? odd : even;
      }
  }
  __device__ __forceinline__ void push(int part, const float (&theirs)[kOwn]) {
    const uint32_t other = static_cast<uint32_t>(1 - rank_),
                   to = address_in(base_ + static_cast<uint32_t>(Map::kInbox + part * Map::kFourBytes + thread() * 16),
                                   other),
                   barrier = address_in(shared_address(&shared_.arrived), other);
    const auto at = [&](int i) { return i < kOwn ? __float_as_int(theirs[i]) : 0; };
#pragma unroll
    for (int i = 0; i < Map::kFours; ++i)
      push_to_block(to + static_cast<uint32_t>(i * kSummers * 16),
                    {at(4 * i), at(4 * i + 1), at(4 * i + 2), at(4 * i + 3)}, barrier);
  }
  template <bool kAdds>
  __device__ __forceinline__ void add_block(int32_t place, int32_t (&sums)[kRows]) {
    wait(shared_.values[place]);
    const uint64_t a = operand(slot(place) + static_cast<uint32_t>(warpgroup() * 64 * kColumnBytes), kHeadDim),
                   b = operand(base_ + static_cast<uint32_t>(Map::kWeights + place * Map::kWeightBytes), 2 * kRows);
    wgmma_fence();
    multiply_shared_by<2 * kRows, Sign::kUnsigned, kAdds>(sums, a, b);
    multiply_shared_by<2 * kRows, Sign::kUnsigned, true>(sums, advanced(a, 2 * kHeadDim * kColumnBytes),
                                                         advanced(b, 2 * 2 * kRows * kColumnBytes));
    wgmma_commit();
  }

  // Of a row that this block finishes.
  struct alignas(16) RowFold {
    int32_t middle, last;  // how these chunks are folded
    float inverse;
    int32_t place;  // in results; -1: there is no such row
  };
  __device__ static int32_t fold_of(const Step& step) {
    return __float_as_int(step.factor) | (step.later ? 0 : INT32_MIN);
  }
  __device__ static Step step_of(int32_t fold) { return {fold >= 0, __int_as_float(fold & INT32_MAX)}; }
  __device__ RowFold* folds() const { return reinterpret_cast<RowFold*>(memory_ + Map::kFolds); }
  // By the last warpgroup, while others add up.
  __device__ void tell_and_fold(const Item& item) {
    const int32_t i = thread() % 128;
    constexpr int32_t kPieces = kHeadDim * static_cast<int32_t>(sizeof(float)) / 16;
    if (i < kPieces)
      copy_async(base_ + static_cast<uint32_t>(Map::kScales + i * 16),
                 work_.args.out_inverse + int64_t{item.group} * kHeadDim + i * 4);
    if (i < kRows / 2) {
      const uint32_t other = static_cast<uint32_t>(1 - rank_), told = shared_address(&shared_.told);
      push_to_block(address_in(base_ + static_cast<uint32_t>(Map::kTold + i * 16), other), state(2 * i + 1 - rank_),
                    address_in(told, other));
      const int32_t row = 2 * i + rank_;
      const int4 mine = state(row);
      wait(shared_.told);
      const int4 theirs = reinterpret_cast<const int4*>(memory_ + Map::kTold)[i], outer = rank_ == 0 ? theirs : mine,
                 middle = rank_ == 0 ? mine : theirs;
      const Step first = step(outer.x, middle.x), second = step(max(outer.x, middle.x), outer.z);
      const float weight = folded(second, folded(first, static_cast<float>(outer.y), static_cast<float>(middle.y)),
                                  static_cast<float>(outer.w));
      folds()[i] = {fold_of(first), fold_of(second), arith::divide(1.0f, weight),
                    row < item.rows ? item.place + row : -1};
    }
    wait_for_copies();
  }
  // Of the block's two chunks: maximum and sum of weights.
  __device__ int4 state(int32_t row) const {
    const auto maximum = [&](int part) {
      const int32_t most = chunk_.maximum[part][row];
      return most == kUnseen ? INT32_MIN : most;
    };
    return {maximum(0), static_cast<int32_t>(chunk_.sum[0][row]), maximum(1), static_cast<int32_t>(chunk_.sum[1][row])};
  }

  __device__ __forceinline__ void finish(const float (&mine)[2][kOwn], int32_t their_chunks) {
    wait(shared_.arrived);
    float theirs[2][Map::kFours * 4] = {};
#pragma unroll
    for (int part = 0; part < 2; ++part)
      if (part < their_chunks)
#pragma unroll
        for (int i = 0; i < Map::kFours; ++i) {
          const float4 x = *reinterpret_cast<const float4*>(memory_ + Map::kInbox + part * Map::kFourBytes +
                                                            (i * kSummers + thread()) * 16);
          theirs[part][4 * i] = x.x, theirs[part][4 * i + 1] = x.y, theirs[part][4 * i + 2] = x.z,
                           theirs[part][4 * i + 3] = x.w;
        }
    const bool is_first = rank_ != 0;
    const auto* scales = reinterpret_cast<const float*>(memory_ + Map::kScales);
    const float scale[2] = {scales[channel(0)], scales[channel(2)]};
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const RowFold row = folds()[4 * j + t()];
      if (row.place < 0) continue;
      int8_t* out = work_.args.out + int64_t{row.place} * kHeadDim;
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        const int i = 2 * j + upper;
        const float own = mine[0][i], behind = mine[1][i], got = theirs[0][i], got_behind = theirs[1][i];
        const float first = is_first ? own : got, middle = is_first ? got : own, last = is_first ? behind : got_behind;
        const float total = folded(step_of(row.last), folded(step_of(row.middle), first, middle), last);
        out[channel(2 * upper)] = static_cast<int8_t>(quantised(arith::mul(total, row.inverse), scale[upper]));
      }
    }
  }
};

template <int kHeadDim, int kRows, class Weight>
__global__ void __maxnreg__(kPairRegisters) sm90_decode_window_kernel(const __grid_constant__ AttentionWork work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ WindowShared<kRows> shared;
  WindowDecoder<kHeadDim, kRows, Weight>(work, shared, memory).run();
#else
  __trap();  // never launched elsewhere
#endif
}

template <int kHeadDim, int kRows, class Weight>
cudaError_t launch_window_of(cudaStream_t stream, const AttentionWork& work, int64_t items) {
  constexpr int32_t kBytes = WindowDecoder<kHeadDim, kRows, Weight>::kBytes;
  const auto kernel = sm90_decode_window_kernel<kHeadDim, kRows, Weight>;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
      error != cudaSuccess)
    return error;
  // All shared memory that there is: blocks of the next matmul run beside.
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
      error != cudaSuccess)
    return error;
  return launch(stream, Chip{.capability = 90}, kernel, {items * 2, kPairThreads, kBytes, 2}, work);
}

}  // namespace kaiju::cuda
