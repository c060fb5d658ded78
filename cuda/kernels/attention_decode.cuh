// Attention of few rows a sequence (decode) on Hopper: every block of threads has a share of the keys, chunk after chunk (the steps of a
// chunk: attention_chunk.cuh).
//
// An item whose chunks all are this block's is folded as it goes. Of others the sums of each chunk are kept apart, and when all are there
// its blocks fold them, each a part of the rows. Bound: memory.
#pragma once

#include "../tiles/meet.cuh"
#include "attention_chunk.cuh"

namespace kaiju::cuda {

// An item of which a block of threads has kept chunks.
struct KeptItem {
  int32_t batch_row, rows, group;  // as of a unit
  int32_t first, chunks;           // where the item's are kept, and how many
  int32_t begin, end;              // this block's, counted from the item's first; then those whose part of the rows it folds
  int32_t all_there;
};

template <int kRows>
struct DecodeShared : ChunkShared<kRows> {
  // Of this unit's rows.
  alignas(8) int32_t fold[kRows];  // the bits of its factor; with the sign, where the total keeps its scale
  alignas(16) int2 result[kRows];  // the bits of the inverse of the sum of all weights, and the row's place in the results; -1: none
  int32_t total_maximum[kRows];    // of the item so far
  float total_weight[kRows];
  Unit unit[3];  // this one and the next two
  DecodeWalk walk;
  KeptItem kept_item[2];
  int32_t kept_items, apart, is_last;
};

template <int kHeadDim, int kRows, class Weight>
class Decoder : ChunkSteps<kHeadDim, kRows, Weight> {
  using Steps = ChunkSteps<kHeadDim, kRows, Weight>;
  using Steps::kTile, Steps::kColumns, Steps::kSummers, Steps::begin, Steps::forget, Steps::thread, Steps::is_planner, Steps::is_summer,
      Steps::in_rows, Steps::lane, Steps::t, Steps::ask_first, Steps::copy_tiles, Steps::block_count, Steps::uniform,
      Steps::ask_for_queries, Steps::wait_for_copies, Steps::copy_async, Steps::place_of_row, Steps::row_offset, Steps::describe_row,
      Steps::add_all, Steps::two, Steps::whole, Steps::channel, Steps::row, Steps::step, Steps::folded, Steps::work_, Steps::chunk_,
      Steps::memory_;
  using typename Steps::Map, typename Steps::Score, typename Steps::Step;
  static constexpr int32_t kTotals = Map::kEnd;  // of a thread, one a sum

 public:
  static constexpr int32_t kBytes = kTotals + kRows * kHeadDim * static_cast<int32_t>(sizeof(float));

  __device__ Decoder(const AttentionWork& work, DecodeShared<kRows>& shared, uint8_t* memory)
      : Steps(work, shared, memory), shared_(shared) {}

  __device__ __forceinline__ void run() {
    if (thread() == 0) begin();
    if (is_planner()) {  // segments and tables were copied before any of the kernels in front began
      DecodeWalk walk;
      const bool apart = walk.start(work_);
      if (lane() == 0) shared_.walk = walk, shared_.apart = apart ? 1 : 0, shared_.kept_items = 0;
      __syncwarp();
#pragma unroll 1
      for (int32_t i = 0; i < 2; ++i) {
        shared_.walk.next(work_, shared_.unit[i], i > 0 ? &shared_.unit[0] : nullptr);
        __syncwarp();
      }
      wait_for_copies();
    }
    __syncthreads();
    const Unit& first = shared_.unit[0];
#pragma unroll 1
    for (int32_t late = 0; late < 2; ++late) {
      if (late > 0) wait_for_inputs();
      if (!first.valid) continue;
      if (late > 0) ask_for_queries(first);
      ask_first(first, late == 0);
    }
    if (first.valid) decode(first);
    if (shared_.apart != 0) fold_kept(), end();
  }

 private:
  __device__ __forceinline__ void decode(const Unit& first) {
    if (in_rows()) {
      chunk_.maximum[0][thread()] = kUnseen;
      chunk_.sum[0][thread()] = 0;
      shared_.fold[thread()] = 0;  // rows that no item has yet stay finite
      describe_row(first);
    }
    wait_for_copies();
    publish_stores();
    __syncthreads();

    if (is_summer())
      for (int i = 0; i < kRows / 2; ++i) kept_total(i) = 0.0f;
    int32_t tile = 0;  // the unit's first, of all that go through the ring
    for (int32_t i = 0;; ++i) {
      const Unit& unit = shared_.unit[i % 3];
      const Unit& next = shared_.unit[(i + 1) % 3];
      if (!unit.valid) return;
      const int32_t turn = i % 2;
      const typename Steps::Blocks blocks(unit);
      const int32_t count = blocks.count, all = tile + 2 * count + uniform(next.valid ? 2 * block_count(next) : 0);
      int32_t asked = tile + min(kSlots, 2 * count);
      const auto copy = [&](int32_t read) {  // these tiles have been
        const int32_t end = min(read + kSlots, all);
        copy_tiles(tile, asked, end, unit, next);
        asked = max(asked, end);
      };

      forget();
      // Scores and their maxima.
      Score s[kGroupBlocks];
      this->template score_all<true>(unit, blocks, tile, s, turn);
      wait_for_copies();  // the ids of the next unit's blocks
      __syncthreads();
      copy(tile + count);
      const bool others = next.valid && next.fresh;
      if (others) ask_for_queries(next);

      int32_t sums[kRows];
      add_all(
          blocks, tile, s, turn, sums,
          [&] {
            forget();
            if (in_rows()) {
              begin_row(unit, turn);
              chunk_.maximum[1 - turn][thread()] = kUnseen;
              chunk_.sum[1 - turn][thread()] = 0;
              if (next.valid && next.fresh) describe_row(next);
            } else if (is_planner()) {
              shared_.walk.next(work_, shared_.unit[(i + 2) % 3], &next);
            }
          },
          [&] { copy(tile + count + kHalfBlocks); },
          [&] {
            if (in_rows()) end_row(unit, turn);
          });
      forget();
      const float* scale = work_.args.out_inverse + int64_t{unit.group} * kHeadDim;  // asked for before they are wanted
      const float scales[2] = {is_summer() ? scale[channel(0)] : 0.0f, is_summer() ? scale[channel(2)] : 0.0f};
      __syncthreads();
      copy(tile + 2 * count);
      if (is_summer()) {
        if (unit.kept >= 0) {
          keep_apart(unit, sums);
        } else {
          fold(sums);
          if (unit.last) finish(scales);
        }
      }
      if (unit.kept >= 0 && unit.last && thread() == 0) {
        const int32_t end = unit.kept - unit.first_kept + 1;
        shared_.kept_item[shared_.kept_items++] = {unit.batch_row,       unit.rows, unit.group, unit.first_kept, unit.kept_count,
                                                   end - unit.kept_here, end,       0};
      }
      tile += 2 * count;
    }
  }

  // What a thread knows of row thread(): once the maximum is there, and once the sum of weights is.
  __device__ int32_t maximum_of_row(int32_t turn) const {
    const int32_t most = chunk_.maximum[turn][thread()];
    return !Weight::kMaximaFirst ? 0 : most == kUnseen ? INT32_MIN : most;
  }
  __device__ void begin_row(const Unit& unit, int32_t turn) {
    const int32_t row = thread();
    if (row >= unit.rows || unit.kept >= 0) return;
    const int32_t maximum = maximum_of_row(turn), before = unit.fresh ? INT32_MIN : shared_.total_maximum[row];
    const Step fold = step(before, maximum);
    shared_.total_maximum[row] = max(before, maximum);
    shared_.fold[row] = __float_as_int(fold.factor) | (fold.later ? 0 : INT32_MIN);
  }
  __device__ void end_row(const Unit& unit, int32_t turn) {
    const int32_t row = thread();
    if (row >= unit.rows) {
      shared_.result[row].y = -1;
      return;
    }
    const auto weight = static_cast<float>(chunk_.sum[turn][row]);
    if (unit.kept >= 0) {
      work_.scratch.parts[int64_t{unit.kept} * kTileRows + row] = {maximum_of_row(turn), weight};
      return;
    }
    const float total = folded(step_of(shared_.fold[row]), unit.fresh ? 0.0f : shared_.total_weight[row], weight);
    shared_.total_weight[row] = total;
    if (unit.last) shared_.result[row] = {__float_as_int(arith::divide(1.0f, total)), static_cast<int32_t>(place_of_row(unit, row))};
  }
  __device__ float& kept_total(int i) const { return reinterpret_cast<float*>(memory_ + kTotals)[i * kSummers + thread()]; }
  // Of what `fold` of a row says.
  __device__ static Step step_of(int32_t fold) { return {fold >= 0, __int_as_float(fold & INT32_MAX)}; }
  __device__ __forceinline__ void fold(const int32_t (&sums)[kRows]) {
    float total[kRows / 2];  // all are asked for before the first is folded
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) total[i] = kept_total(i);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int2 folds = two(shared_.fold, j);
#pragma unroll
      for (int e = 0; e < 4; ++e) total[4 * j + e] = folded(step_of(e % 2 == 0 ? folds.x : folds.y), total[4 * j + e], whole(sums, j, e));
    }
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) kept_total(i) = total[i];
  }
  // `scales`: of this thread's two channels.
  __device__ __forceinline__ void finish(const float (&scales)[2]) {
    const int4* results = reinterpret_cast<const int4*>(shared_.result) + t();
    int8_t* out = work_.args.out + channel(0);
#pragma unroll 1  // code that runs once an item must be short: it has to come first
    for (int j = 0; j < kColumns; ++j) {
      const int4 rows = results[4 * j];  // two
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int32_t row = e % 2 == 0 ? rows.y : rows.w;
        const float inverse = __int_as_float(e % 2 == 0 ? rows.x : rows.z);
        if (row >= 0) out[int64_t{row} * kHeadDim + e / 2 * 8] = arith::quantise(arith::mul(kept_total(4 * j + e), inverse), scales[e / 2]);
      }
    }
  }
  __device__ __forceinline__ void keep_apart(const Unit& unit, const int32_t (&sums)[kRows]) {
    float* to = work_.scratch.sums + int64_t{unit.kept} * kTileRows * kHeadDim;
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (row(j, e) < unit.rows) to[row(j, e) * kHeadDim + channel(e)] = whole(sums, j, e);
  }

  // ---- chunks kept apart ----
  // Items of which this block has kept chunks, two at most: its share's first and its last. When all chunks of an item are there, each
  // block that has some folds a part of the item's rows. Whoever has waited for long leaves its part to the block that comes last, which
  // then folds all rows: the others may not have begun, for want of room on the GPU.
  __device__ __forceinline__ void fold_kept() {
    __syncthreads();
    if (thread() == 0) {
      __threadfence();
      for (int32_t i = 0; i < shared_.kept_items; ++i) arrive(shared_.kept_item[i]);
    }
#pragma unroll 1
    for (int32_t i = 0; i < shared_.kept_items; ++i) {
      KeptItem& item = shared_.kept_item[i];
      if (thread() == 0) wait_for_chunks(item);
      __syncthreads();
      const int32_t quarters = (item.end - item.begin) * item.rows * (kHeadDim / 32);  // times item.chunks
      if (quarters <= item.chunks * (kDecodeThreads / 32))
        fold_part<1>(item);
      else
        fold_part<kHeadDim / 32>(item);
    }
  }
  // How many of the item's chunks are there, times 2^16, and how many blocks have left their part.
  __device__ int32_t* there_and_left(const KeptItem& item) const { return work_.scratch.counters + item.first; }
  __device__ void arrive(KeptItem& item) {
    const int32_t mine = item.end - item.begin, before = atomicAdd(there_and_left(item), mine << 16);
    item.all_there = before >> 16 == item.chunks - mine ? 1 : 0;
    if (item.all_there != 0 && (before & 0xFFFF) > 0) item.begin = 0, item.end = item.chunks;
  }
  __device__ void wait_for_chunks(KeptItem& item) {
    constexpr int64_t kLong = 200000;  // cycles
    const int64_t begin = clock64();
    while (item.all_there == 0 && item.end > item.begin) {
      if (load_acquired(there_and_left(item)) >> 16 == item.chunks)
        item.all_there = 1;
      else if (clock64() - begin > kLong && atomicAdd(there_and_left(item), 1) >> 16 != item.chunks)
        item.end = item.begin;
    }
    __threadfence();
  }
  // The counters are made ready for the next launch by the block that ends last.
  __device__ __forceinline__ void end() {
    int32_t* ended = work_.scratch.counters + work_.scratch.units;
    __syncthreads();
    if (thread() == 0) shared_.is_last = atomicAdd(ended, 1) == static_cast<int32_t>(gridDim.x) - 1 ? 1 : 0;
    __syncthreads();
    if (shared_.is_last == 0) return;
    for (int32_t i = thread(); i <= work_.scratch.units; i += kDecodeThreads) work_.scratch.counters[i] = 0;
  }

  // This block's part of an item's rows, kEach channels a lane.
  template <int kEach>
  __device__ __forceinline__ void fold_part(const KeptItem& item) {
    constexpr int32_t kPieces = kHeadDim / 32 / kEach;  // of a row
    const int32_t pieces = item.rows * kPieces, begin = (item.begin * pieces + item.chunks - 1) / item.chunks,
                  end = (item.end * pieces + item.chunks - 1) / item.chunks;
#pragma unroll 1
    for (int32_t at = begin + thread() / 32; at < end; at += kDecodeThreads / 32) fold_piece<kEach>(item, at / kPieces, at % kPieces);
  }
  // Sums come by the way of shared memory, whose tiles nobody needs any more.
  template <int kEach>
  __device__ __forceinline__ void fold_piece(const KeptItem& item, int32_t row, int32_t piece) {
    constexpr int32_t kGroupBytes = 2048, kGroup = kGroupBytes / (32 * kEach * 4);  // of chunks that come together
    constexpr int32_t kGroups = kBytes / (kDecodeThreads / 32) / kGroupBytes;       // that a warp has room for
    static_assert(kGroups >= 2 && 32 % kGroup == 0);
    const int32_t count = item.chunks, channel = (piece * 32 + lane()) * kEach;
    const auto* parts = reinterpret_cast<const int2*>(work_.scratch.parts) + int64_t{item.first} * kTileRows + row;
    const auto part_of = [&](int32_t chunk) {
      return chunk < count ? __ldcg(parts + int64_t{chunk} * kTileRows) : make_int2(INT32_MIN, 0);
    };
    const int32_t mine = thread() / 32 * kGroups * kGroupBytes;
    const float* kept = work_.scratch.sums + (int64_t{item.first} * kTileRows + row) * kHeadDim + piece * 32 * kEach;
    const auto load = [&](int32_t from) {
      constexpr int32_t kPieces = 8 * kEach;  // of 16 bytes, of a chunk
#pragma unroll
      for (int32_t at = lane(); at < kGroupBytes / 16; at += 32)
        copy_async(shared_address(memory_) + static_cast<uint32_t>(mine + from / kGroup % kGroups * kGroupBytes + at * 16),
                   kept + int64_t{min(from + at / kPieces, count - 1)} * kTileRows * kHeadDim + at % kPieces * 4);
      asm volatile("cp.async.commit_group;" ::: "memory");
    };
#pragma unroll
    for (int32_t g = 0; g + 1 < kGroups; ++g) load(g * kGroup);
    int2 part = part_of(lane());
    int32_t maximum = INT32_MIN;  // of all chunks before these 32
    float weight = 0.0f, total[kEach] = {}, factor = 0.0f, chunk_weight = 0.0f;
    bool later = false;
#pragma unroll 1
    for (int32_t from = 0; from < count; from += kGroup) {
      load(from + (kGroups - 1) * kGroup);
      if (from % 32 == 0) {  // lane c: the fold of chunk from + c
        int32_t through = part.x;
        for (int distance = 1; distance < 32; distance *= 2) {
          const int32_t lower = __shfl_up_sync(0xFFFFFFFFu, through, distance);
          if (lane() >= distance) through = max(through, lower);
        }
        const int32_t before = __shfl_up_sync(0xFFFFFFFFu, through, 1);
        const Step own = step(lane() == 0 ? maximum : max(maximum, before), part.x);
        maximum = max(maximum, __shfl_sync(0xFFFFFFFFu, through, 31));
        later = own.later, factor = own.factor, chunk_weight = __int_as_float(part.y);
        part = part_of(from + 32 + lane());
      }
      asm volatile("cp.async.wait_group %0;" ::"n"(kGroups - 1) : "memory");
      __syncwarp();
      const float* sums = reinterpret_cast<const float*>(memory_ + mine + from / kGroup % kGroups * kGroupBytes) + lane() * kEach;
#pragma unroll
      for (int c = 0; c < kGroup; ++c) {  // those beyond the last have a factor of 0 and no weight, and change nothing
        const int32_t owner = from % 32 + c;
        const Step fold{__shfl_sync(0xFFFFFFFFu, later ? 1 : 0, owner) != 0, __shfl_sync(0xFFFFFFFFu, factor, owner)};
        weight = folded(fold, weight, __shfl_sync(0xFFFFFFFFu, chunk_weight, owner));
        float o[kEach];
        load_all(sums + c * 32 * kEach, o);
#pragma unroll
        for (int e = 0; e < kEach; ++e) total[e] = folded(fold, total[e], o[e]);
      }
      __syncwarp();
    }
    wait_for_copies();
    __syncwarp();
    float scale[kEach];
    load_all(work_.args.out_inverse + int64_t{item.group} * kHeadDim + channel, scale);
    const float inverse = arith::divide(1.0f, weight);
    int8_t* out = work_.args.out + row_offset(item, row) + channel;
#pragma unroll
    for (int e = 0; e < kEach; ++e) out[e] = arith::quantise(arith::mul(total[e], inverse), scale[e]);
  }
  __device__ static void load_all(const float* from, float (&to)[4]) {
    const float4 x = *reinterpret_cast<const float4*>(from);
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
  }
  __device__ static void load_all(const float* from, float (&to)[2]) {
    const float2 x = *reinterpret_cast<const float2*>(from);
    to[0] = x.x, to[1] = x.y;
  }
  __device__ static void load_all(const float* from, float (&to)[1]) { to[0] = *from; }

  DecodeShared<kRows>& shared_;
};

template <int kHeadDim, int kRows, class Weight>
__global__ void __launch_bounds__(kDecodeThreads, (ChunkMap<kHeadDim, kRows>::kBlocks))
    decode_kernel(const __grid_constant__ AttentionWork work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ DecodeShared<kRows> shared;
  let_next_start();
  Decoder<kHeadDim, kRows, Weight>(work, shared, memory).run();
#else
  __trap();  // never launched elsewhere
#endif
}

template <int kHeadDim, int kRows, class Weight>
cudaError_t launch_decode_of(cudaStream_t stream, const AttentionWork& work) {
  constexpr int32_t kBytes = Decoder<kHeadDim, kRows, Weight>::kBytes;
  const auto kernel = decode_kernel<kHeadDim, kRows, Weight>;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes); error != cudaSuccess)
    return error;
  return launch(stream, Chip{.capability = 90}, kernel, {work.decode_blocks, kDecodeThreads, kBytes}, work);
}

}  // namespace kaiju::cuda
