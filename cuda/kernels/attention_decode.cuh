// Attention of few rows a sequence (decode) on Hopper: every block of threads has a share of the keys, chunk after chunk (the steps of a
// chunk: attention_chunk.cuh).
//
// An item whose chunks all are this block's is folded as it goes. Of others the sums of each chunk are kept apart, and the block that is
// done last folds them (rows of more than kFoldedHere chunks: merge_chunks_kernel). Bound: memory.
#pragma once

#include "attention_chunk.cuh"

namespace kaiju::cuda {

template <int kRows>
struct DecodeShared : ChunkShared<kRows> {
  // Of this unit's rows.
  alignas(8) float factor[kRows];  // of the fold
  alignas(8) int32_t later[kRows];
  alignas(8) float inverse[kRows];  // of the sum of all weights
  int32_t total_maximum[kRows];     // of the item so far
  float total_weight[kRows];
  Unit unit[3];  // this one and the next two
  DecodeWalk walk;
  int32_t is_last, long_rows;
};

template <int kHeadDim, int kRows, class Weight>
class Decoder : ChunkSteps<kHeadDim, kRows, Weight> {
  using Steps = ChunkSteps<kHeadDim, kRows, Weight>;
  using Steps::kTile, Steps::kColumns, Steps::kSummers, Steps::begin, Steps::forget, Steps::thread, Steps::is_planner, Steps::is_summer,
      Steps::in_rows, Steps::lane, Steps::ask_first, Steps::copy_tiles, Steps::block_count, Steps::uniform, Steps::ask_for_queries,
      Steps::wait_for_copies, Steps::row_offset, Steps::describe_row, Steps::add_all, Steps::two, Steps::whole, Steps::channel, Steps::row,
      Steps::step, Steps::folded, Steps::work_, Steps::chunk_, Steps::memory_;
  using typename Steps::Map, typename Steps::Score, typename Steps::Step;
  static constexpr int32_t kTotals = Map::kEnd;  // of a thread, one a sum

 public:
  static constexpr int32_t kBytes = kTotals + kRows * kHeadDim * static_cast<int32_t>(sizeof(float));

  __device__ Decoder(const AttentionWork& work, DecodeShared<kRows>& shared, uint8_t* memory)
      : Steps(work, shared, memory), shared_(shared) {}

  __device__ void run() {
    if (thread() == 0) begin();
    if (is_planner()) {  // segments and tables were copied before any of the kernels in front began
      DecodeWalk walk;
      const bool long_rows = walk.start(work_);
      if (lane() == 0) shared_.walk = walk, shared_.long_rows = long_rows;
      __syncwarp();
      shared_.walk.next(work_, shared_.unit[0], nullptr);
      __syncwarp();
      wait_for_copies();
    }
    __syncthreads();
    const Unit& first = shared_.unit[0];
    if (first.valid) ask_first(first, true);
    wait_for_inputs();
    if (blockIdx.x == 0 && thread() == 0 && work_.scratch.units > 0)
      work_.scratch.counters[work_.scratch.units] = shared_.long_rows ? 1 : 0;
    if (!first.valid) return;
    ask_first(first, false);
    if (is_planner()) shared_.walk.next(work_, shared_.unit[1], &first);
    if (in_rows()) {
      chunk_.maximum[0][thread()] = kUnseen;
      chunk_.sum[0][thread()] = 0;
      describe_row(first);
    }
    ask_for_queries(first);
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
      add_all(blocks, tile, s, turn, sums, [&] { copy(tile + count + kHalfBlocks); });
      forget();
      if (in_rows()) {
        take_row(unit, turn);
        chunk_.maximum[1 - turn][thread()] = kUnseen;
        chunk_.sum[1 - turn][thread()] = 0;
        if (next.valid) describe_row(next);
      } else if (is_planner()) {
        shared_.walk.next(work_, shared_.unit[(i + 2) % 3], &next);
      }
      __syncthreads();
      copy(tile + 2 * count);
      if (is_summer()) {
        if (unit.kept >= 0) {
          keep_apart(unit, sums);
          if (unit.last && unit.kept_count <= kFoldedHere) fold_if_last(unit);
        } else {
          fold(unit, sums);
          if (unit.last) finish(unit);
        }
      }
      tile += 2 * count;
    }
  }

 private:
  // What a thread knows of row thread().
  __device__ void take_row(const Unit& unit, int32_t turn) {
    const int32_t row = thread();
    if (row >= unit.rows) return;
    const int32_t most = chunk_.maximum[turn][row], maximum = !Weight::kMaximaFirst ? 0 : most == kUnseen ? INT32_MIN : most;
    const auto weight = static_cast<float>(chunk_.sum[turn][row]);
    if (unit.kept >= 0) {
      work_.scratch.parts[int64_t{unit.kept} * kTileRows + row] = {maximum, weight};
      return;
    }
    const int32_t before = unit.fresh ? INT32_MIN : shared_.total_maximum[row];
    const Step fold = step(before, maximum);
    const float total_weight = folded(fold, unit.fresh ? 0.0f : shared_.total_weight[row], weight);
    shared_.total_maximum[row] = max(before, maximum);
    shared_.total_weight[row] = total_weight;
    shared_.factor[row] = fold.factor;
    shared_.later[row] = fold.later ? 1 : 0;
    if (unit.last) shared_.inverse[row] = arith::divide(1.0f, total_weight);
  }
  __device__ float& kept_total(int i) const { return reinterpret_cast<float*>(memory_ + kTotals)[i * kSummers + thread()]; }
  __device__ __forceinline__ void fold(const Unit& unit, const int32_t (&sums)[kRows]) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      if (8 * j >= unit.rows) break;
      const int2 factor = two(shared_.factor, j), later = two(shared_.later, j);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Step by{(e % 2 == 0 ? later.x : later.y) != 0, __int_as_float(e % 2 == 0 ? factor.x : factor.y)};
        kept_total(4 * j + e) = folded(by, kept_total(4 * j + e), whole(sums, j, e));
      }
    }
  }
  __device__ __forceinline__ void finish(const Unit& unit) {
    const float* scale = work_.args.out_inverse + int64_t{unit.group} * kHeadDim;
    const float scales[2] = {scale[channel(0)], scale[channel(2)]};
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (row(j, e) < unit.rows)
          work_.args.out[row_offset(unit, row(j, e)) + channel(e)] =
              arith::quantise(arith::mul(kept_total(4 * j + e), shared_.inverse[row(j, e)]), scales[e / 2]);
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
  __device__ void fold_if_last(const Unit& unit) {
    sync_summers();
    if (thread() == 0) {
      __threadfence();
      int32_t* counter = work_.scratch.counters + unit.first_kept;
      const bool is_last = atomicAdd(counter, unit.kept_here) == unit.kept_count - unit.kept_here;
      if (is_last) *counter = 0;  // for the next launch
      __threadfence();
      shared_.is_last = is_last ? 1 : 0;
    }
    sync_summers();
    if (shared_.is_last == 0) return;

#pragma unroll 1
    for (int32_t r = thread() / 32; r < unit.rows; r += 2 * kSummers / 32) fold_rows(unit, r, r + kSummers / 32);
  }
  // Two rows of an item whose chunks are kept apart, for the time that loads take; the second may be beyond the last. By a warp.
  __device__ void fold_rows(const Unit& unit, int32_t first, int32_t second) {
    constexpr int32_t kEach = kHeadDim / 32, kAhead = 8;  // channels of a lane; chunks
    const int32_t count = unit.kept_count, rows[2] = {first, min(second, unit.rows - 1)};
    const auto* parts = reinterpret_cast<const int2*>(work_.scratch.parts) + int64_t{unit.first_kept} * kTileRows;
    const float* kept = work_.scratch.sums + int64_t{unit.first_kept} * kTileRows * kHeadDim + lane() * kEach;
    float o[2][kAhead][kEach];
    const auto load = [&](int32_t from) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int c = 0; c < kAhead; ++c) load_all(kept + (int64_t{min(from + c, count - 1)} * kTileRows + rows[i]) * kHeadDim, o[i][c]);
    };
    load(0);
    // Lane c: the fold of chunk c.
    Step mine[2];
    float weight[2], total_weight[2] = {0.0f, 0.0f}, total[2][kEach] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int2 part = lane() < count ? __ldcg(parts + int64_t{lane()} * kTileRows + rows[i]) : make_int2(INT32_MIN, 0);
      int32_t through = part.x;
      for (int distance = 1; distance < kFoldedHere; distance *= 2) {
        const int32_t lower = __shfl_up_sync(0xFFFFFFFFu, through, distance);
        if (lane() >= distance) through = max(through, lower);
      }
      const int32_t before = __shfl_up_sync(0xFFFFFFFFu, through, 1);
      mine[i] = step(lane() == 0 ? INT32_MIN : before, part.x);
      weight[i] = __int_as_float(part.y);
    }
    static_assert(kFoldedHere == 2 * kAhead);
    for (int32_t from = 0; from < count; from += kAhead) {
      if (from > 0) load(from);
#pragma unroll
      for (int c = 0; c < kAhead; ++c) {
        if (from + c >= count) break;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const Step fold{__shfl_sync(0xFFFFFFFFu, mine[i].later ? 1 : 0, from + c) != 0,
                          __shfl_sync(0xFFFFFFFFu, mine[i].factor, from + c)};
          total_weight[i] = folded(fold, total_weight[i], __shfl_sync(0xFFFFFFFFu, weight[i], from + c));
#pragma unroll
          for (int e = 0; e < kEach; ++e) total[i][e] = folded(fold, total[i][e], o[i][c][e]);
        }
      }
    }
    float scale[kEach];
    load_all(work_.args.out_inverse + int64_t{unit.group} * kHeadDim + lane() * kEach, scale);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i > 0 && second >= unit.rows) break;
      const float inverse = arith::divide(1.0f, total_weight[i]);
      int8_t* out = work_.args.out + row_offset(unit, rows[i]) + lane() * kEach;
#pragma unroll
      for (int e = 0; e < kEach; ++e) out[e] = arith::quantise(arith::mul(total[i][e], inverse), scale[e]);
    }
  }
  __device__ static void load_all(const float* from, float (&to)[4]) {
    const float4 x = __ldcg(reinterpret_cast<const float4*>(from));
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
  }
  __device__ static void load_all(const float* from, float (&to)[2]) {
    const float2 x = __ldcg(reinterpret_cast<const float2*>(from));
    to[0] = x.x, to[1] = x.y;
  }

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
