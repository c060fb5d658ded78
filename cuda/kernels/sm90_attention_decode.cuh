// Attention of few rows in each sequence (decode) on Hopper, head_dim 64 and 128. Every thread block has a share of the
// keys and processes them chunk by chunk (the steps of a chunk: sm90_attention_decode_chunk.cuh). Bound: memory; with
// many sequences instructions.
//
// If one block has all chunks of an item, it folds them as it goes. For other items the sums of each chunk are stored
// in global memory; when all are complete, the item's blocks combine them (sm90_attention_decode_combine.cuh).
#pragma once

#include "sm90_attention_decode_combine.cuh"

namespace kaiju::cuda {

template <int kHeadDim, int kRows, class Weight>
class Decoder : DecodeCombine<kHeadDim, kRows, Weight> {
  using Combine = DecodeCombine<kHeadDim, kRows, Weight>;
  using Steps = ChunkSteps<kHeadDim, kRows, Weight>;
  using Combine::kHalf, Combine::kTotals, Combine::shared_, Combine::fold_of, Combine::step_of, Combine::fold_kept;
  using Steps::kTile, Steps::kColumns, Steps::kSummers, Steps::begin, Steps::forget, Steps::thread, Steps::is_planner,
      Steps::is_summer, Steps::in_rows, Steps::lane, Steps::t, Steps::ask_first, Steps::copy_tiles, Steps::block_count,
      Steps::uniform, Steps::ask_for_queries, Steps::wait_for_copies, Steps::place_of_row, Steps::row_offset,
      Steps::describe_row, Steps::add_all, Steps::two, Steps::whole, Steps::channel, Steps::row, Steps::step,
      Steps::folded, Steps::work_, Steps::chunk_, Steps::memory_;
  using typename Steps::Map, typename Steps::Score, typename Steps::Step;

 public:
  using Combine::kBytes;

  __device__ Decoder(const AttentionWork& work, DecodeShared<kRows>& shared, uint8_t* memory)
      : Combine(work, shared, memory) {}

  __device__ __forceinline__ void run() {
    if (thread() == 0) begin();
    constexpr int32_t kPlanWords = sizeof(DecodePlan) / sizeof(int32_t);
    static_assert(kPlanWords <= kDecodeThreads);
    if (thread() < kPlanWords)  // in the L2 cache since before this kernel began (sm90_decode_plan_kernel)
      reinterpret_cast<int32_t*>(&shared_.plan)[thread()] =
          __ldcg(reinterpret_cast<const int32_t*>(plan_of_block(work_)) + thread());
    if (thread() == 0) shared_.kept_items = 0;
    __syncthreads();
    const Unit& first = shared_.plan.unit[0];
#pragma unroll 1
    for (int32_t late = 0; late < 2; ++late) {
      if (late > 0) wait_for_inputs();
      if (!first.valid) continue;
      if (late > 0) ask_for_queries(first);
      ask_first(first, late == 0);
    }
    if (uniform(first.valid) != 0) decode(first);
    if (shared_.plan.apart != 0) fold_kept();
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
      const Unit& unit = shared_.plan.unit[i % 3];
      const Unit& next = shared_.plan.unit[(i + 1) % 3];
      if (uniform(unit.valid) == 0) return;
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
              shared_.plan.walk.next(work_, shared_.plan.unit[(i + 2) % 3], &next);
            }
          },
          [&] { copy(tile + count + kHalfBlocks); },
          [&] {
            if (in_rows()) end_row(unit, turn);
          });
      forget();
      const float* scale = work_.args.out_inverse + int64_t{unit.group} * kHeadDim;  // loaded before they are needed
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
        shared_.kept_item[shared_.kept_items++] = {
            unit.place, unit.rows, unit.group, unit.first_kept, unit.kept_count, end - unit.kept_here, end, 0, 0};
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
    shared_.fold[row] = fold_of(fold);
  }
  __device__ void end_row(const Unit& unit, int32_t turn) {
    const int32_t row = thread();
    if (row >= unit.rows) {
      shared_.result[row].y = -1;
      return;
    }
    const auto weight = static_cast<float>(chunk_.sum[turn][row]);
    if (unit.kept >= 0) {
      work_.scratch.parts[int64_t{unit.first_kept} * kTileRows + row * unit.kept_count + unit.kept - unit.first_kept] =
          {maximum_of_row(turn), weight};
      return;
    }
    const float total = folded(step_of(shared_.fold[row]), unit.fresh ? 0.0f : shared_.total_weight[row], weight);
    shared_.total_weight[row] = total;
    if (unit.last)
      shared_.result[row] = {__float_as_int(arith::divide(1.0f, total)), static_cast<int32_t>(place_of_row(unit, row))};
  }
  __device__ float& kept_total(int i) const {
    return reinterpret_cast<float*>(memory_ + kTotals)[i * kSummers + thread()];
  }
  __device__ __forceinline__ void fold(const int32_t (&sums)[kRows]) {
    float total[kRows / 2];  // all are loaded before the first is folded
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) total[i] = kept_total(i);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int2 folds = two(shared_.fold, j);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        total[4 * j + e] = folded(step_of(e % 2 == 0 ? folds.x : folds.y), total[4 * j + e], whole(sums, j, e));
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
        if (row >= 0)
          out[int64_t{row} * kHeadDim + e / 2 * 8] =
              arith::quantise(arith::mul(kept_total(4 * j + e), inverse), scales[e / 2]);
      }
    }
  }
  // [row, half, chunk, channel of the half]: what a warp folds together lies together. A half is what a warpgroup sums.
  __device__ __forceinline__ void keep_apart(const Unit& unit, const int32_t (&sums)[kRows]) {
    const int32_t chunks = unit.kept_count;
    float* to = work_.scratch.sums + int64_t{unit.first_kept} * kTileRows * kHeadDim +
                (channel(0) / kHalf * chunks + unit.kept - unit.first_kept) * kHalf + channel(0) % kHalf;
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (row(j, e) < unit.rows) to[row(j, e) * chunks * kHeadDim + e / 2 * 8] = whole(sums, j, e);
  }
};

template <int kHeadDim, int kRows, class Weight>
__global__ void __launch_bounds__(kDecodeThreads, kDecodeBlocks)
    sm90_decode_kernel(const __grid_constant__ AttentionWork work) {
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
  const auto kernel = sm90_decode_kernel<kHeadDim, kRows, Weight>;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
      error != cudaSuccess)
    return error;
  return launch(stream, Chip{.capability = 90}, kernel, {work.decode_blocks, kDecodeThreads, kBytes}, work);
}

}  // namespace kaiju::cuda
