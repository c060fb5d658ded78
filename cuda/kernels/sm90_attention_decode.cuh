// Attention of few rows a sequence (decode) on Hopper: every block of threads has a share of the keys, chunk after
// chunk (the steps of a chunk: sm90_attention_decode_chunk.cuh).
//
// An item whose chunks all are this block's is folded as it goes. Of others the sums of each chunk are kept apart, and
// when all are there its blocks fold them, each a part of the rows. Bound: memory.
#pragma once

#include <algorithm>

#include "../tiles/grid_sync.cuh"
#include "sm90_attention_decode_chunk.cuh"

namespace kaiju::cuda {

// An item of which a block of threads has kept chunks.
struct KeptItem {
  int32_t place, rows, group;  // as of a unit
  int32_t first, chunks;       // where the item's are kept, and how many
  int32_t begin, end;  // this block's, counted from the item's first; then those whose part of the rows it folds
  int32_t first_row, row_count;  // that this block folds
};

template <int kRows>
struct DecodeShared : ChunkShared<kRows> {
  // Of this unit's rows.
  alignas(8) int32_t fold[kRows];  // the bits of its factor; with the sign, where the total keeps its scale
  alignas(16) int2
      result[kRows];  // the bits of the inverse of the sum of all weights, and the row's place in the results; -1: none
  int32_t total_maximum[kRows];  // of the item so far
  float total_weight[kRows];
  DecodePlan plan;  // of units this one and the next two
  KeptItem kept_item[2];
  int32_t kept_items, is_last;
  int32_t segment_maximum[kMostKept / 16];  // of 32 chunks of a row, while rows are folded
};

template <int kHeadDim, int kRows, class Weight>
class Decoder : ChunkSteps<kHeadDim, kRows, Weight> {
  using Steps = ChunkSteps<kHeadDim, kRows, Weight>;
  using Steps::kTile, Steps::kColumns, Steps::kSummers, Steps::begin, Steps::forget, Steps::thread, Steps::is_planner,
      Steps::is_summer, Steps::in_rows, Steps::lane, Steps::t, Steps::ask_first, Steps::copy_tiles, Steps::block_count,
      Steps::uniform, Steps::ask_for_queries, Steps::wait_for_copies, Steps::copy_async, Steps::place_of_row,
      Steps::row_offset, Steps::describe_row, Steps::add_all, Steps::two, Steps::whole, Steps::channel, Steps::row,
      Steps::step, Steps::folded, Steps::work_, Steps::chunk_, Steps::memory_;
  using typename Steps::Map, typename Steps::Score, typename Steps::Step;
  static constexpr int32_t kTotals = Map::kEnd;  // of a thread, one a sum

 public:
  static constexpr int32_t kWarps = kDecodeThreads / 32;
  // Of a fold of chunks that were kept apart: a table of what each does, then what warps have of their sums, in groups
  // of chunks.
  static constexpr int32_t kTableBytes = kMostKept * static_cast<int32_t>(sizeof(int2));
  static constexpr int32_t kHalf = 64, kHalves = kHeadDim / kHalf;  // of a row of 128 channels: a lane has two
  static constexpr int32_t kGroup = 8, kGroupBytes = kGroup * kHalf * static_cast<int32_t>(sizeof(float));
  static constexpr int32_t kBytes = std::max(kTotals + kRows * kHeadDim * static_cast<int32_t>(sizeof(float)),
                                             kTableBytes + 2 * kWarps * kGroupBytes);
  static constexpr int32_t kGroups = (kBytes - kTableBytes) / (kWarps * kGroupBytes);  // that a warp has room for

  __device__ Decoder(const AttentionWork& work, DecodeShared<kRows>& shared, uint8_t* memory)
      : Steps(work, shared, memory), shared_(shared) {}

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
  // The bits of a factor; with the sign, where the total keeps its scale.
  __device__ static int32_t fold_of(const Step& step) {
    return __float_as_int(step.factor) | (step.later ? 0 : INT32_MIN);
  }
  __device__ static Step step_of(int32_t fold) { return {fold >= 0, __int_as_float(fold & INT32_MAX)}; }
  __device__ __forceinline__ void fold(const int32_t (&sums)[kRows]) {
    float total[kRows / 2];  // all are asked for before the first is folded
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

  // ---- chunks kept apart ----
  // Items of which this block has kept chunks, two at most: its share's first and its last. When all chunks of an item
  // are there, each block that has some folds a part of the item's rows. Whoever has waited for long leaves its part to
  // the block that comes last, which then folds all rows: the others may not have begun, for want of room on the GPU.
  __device__ __forceinline__ void fold_kept() {
    __syncthreads();
    const bool has_item = thread() < shared_.kept_items;  // a thread for each
    KeptItem& item = shared_.kept_item[has_item ? thread() : 0];
    const bool all_there = has_item && arrive(item);
    __syncwarp();  // all have arrived before any is waited for
    if (has_item) {
      wait_for_chunks(item, all_there);
      const auto share = [&](int32_t chunk) { return (chunk * item.rows + item.chunks - 1) / item.chunks; };
      item.first_row = share(item.begin), item.row_count = share(item.end) - item.first_row;
    }
    __syncthreads();
    int32_t* ended = work_.scratch.counters + work_.scratch.units;
    int32_t ended_before = 0;
    if (thread() == 0) ended_before = atomicAdd(ended, 1);  // what it looks for in counters it has seen
    fold_rows();
    // The counters are made ready for the next launch by the block that is the last to have looked at them.
    if (thread() == 0) shared_.is_last = ended_before == static_cast<int32_t>(gridDim.x) - 1 ? 1 : 0;
    __syncthreads();
    if (shared_.is_last == 0) return;
    for (int32_t i = thread(); i <= work_.scratch.units; i += kDecodeThreads) work_.scratch.counters[i] = 0;
  }
  // How many of the item's chunks are there, times 2^16, and how many blocks have left their part.
  __device__ int32_t* there_and_left(const KeptItem& item) const { return work_.scratch.counters + item.first; }
  __device__ bool arrive(KeptItem& item) {
    const int32_t mine = item.end - item.begin, before = add_acquired_released(there_and_left(item), mine << 16);
    const bool all_there = before >> 16 == item.chunks - mine;
    if (all_there && (before & 0xFFFF) > 0) item.begin = 0, item.end = item.chunks;
    return all_there;
  }
  __device__ void wait_for_chunks(KeptItem& item, bool all_there) {
    constexpr int64_t kLong = 200000;  // cycles
    const int64_t begin = clock64();
    while (!all_there && item.end > item.begin) {
      if (load_acquired(there_and_left(item)) >> 16 == item.chunks)
        all_there = true;
      else if (clock64() - begin > kLong && atomicAdd(there_and_left(item), 1) >> 16 != item.chunks)
        item.end = item.begin;
    }
  }

  // The rows of both items that are this block's, one list; of a row: the fold of every chunk, and of few chunks at a
  // time their sums, by the way of shared memory, whose tiles nobody needs any more.
  __device__ __forceinline__ void fold_rows() {
    const int32_t items = shared_.kept_items, first = items > 0 ? shared_.kept_item[0].row_count : 0,
                  all = items > 1 ? first + shared_.kept_item[1].row_count : first;
    if (all == 0) return;
    const int32_t most = max(shared_.kept_item[0].chunks, items > 1 ? shared_.kept_item[1].chunks : 0),
                  stride = (most + kGroup - 1) / kGroup * kGroup, each = min(all, kMostKept / stride);
#pragma unroll 1
    for (int32_t begin = 0; begin < all; begin += each) fold_some(begin, min(begin + each, all), first, stride);
  }
  // Row `at` of the list.
  struct KeptRow {
    const KeptItem* item;
    int32_t row;
  };
  __device__ __forceinline__ KeptRow row_of(int32_t at, int32_t first) const {
    const KeptItem& item = shared_.kept_item[at < first ? 0 : 1];
    return {&item, item.first_row + (at < first ? at : at - first)};
  }
  __device__ __forceinline__ void fold_some(int32_t begin, int32_t end, int32_t first, int32_t stride) {
    auto* table = reinterpret_cast<int2*>(memory_);
    const int32_t warp = uniform(thread() / 32), rows = end - begin, halves = rows * kHalves;
    // Maxima and weights of all chunks.
    const int32_t width = min(stride, 32), together = 32 / width,
                  part_of_warp = lane() / width;  // lanes of a row; rows of a warp
    __syncthreads();
#pragma unroll 1
    for (int32_t r = warp * together + part_of_warp; r < rows && part_of_warp < together; r += kWarps * together) {
      const KeptRow at = row_of(begin + r, first);
      const auto* parts = reinterpret_cast<const int2*>(work_.scratch.parts) + int64_t{at.item->first} * kTileRows +
                          at.row * at.item->chunks;
      for (int32_t c = lane() % width; c < stride; c += width) {
        if (c < at.item->chunks)
          copy_8(shared_address(table + r * stride + c), parts + c);
        else
          table[r * stride + c] = make_int2(INT32_MIN, 0);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");

    // The groups of a warp's half rows, `group` chunks each, one after another.
    const int32_t active = min(kWarps, halves), group = kGroup * (kWarps / active),
                  bytes = kGroupBytes * (kWarps / active), mine = kTableBytes + warp * kGroups * bytes;
    int32_t asked = warp, asked_from = 0, asked_slot = 0, asked_chunks = 0;
    const float* asked_sums = nullptr;
    const auto take = [&] {
      if (asked >= halves) return;
      const KeptRow at = row_of(begin + asked / kHalves, first);
      asked_chunks = at.item->chunks;
      asked_sums = work_.scratch.sums + int64_t{at.item->first} * kTileRows * kHeadDim +
                   (at.row * kHalves + asked % kHalves) * asked_chunks * kHalf;
    };
    take();
    const auto ask = [&] {
      if (asked < halves) {
        const uint32_t to = shared_address(memory_) + static_cast<uint32_t>(mine + asked_slot * bytes + lane() * 16);
        const float* from = asked_sums + asked_from * kHalf + lane() * 4;
        const int32_t left = asked_chunks - asked_from - lane() / 16;
#pragma unroll 4
        for (int32_t c = 0; c < group; c += 2) copy_or_zero(to + c * kHalf * 4, from + c * kHalf, c < left);
        asked_slot = asked_slot + 1 == kGroups ? 0 : asked_slot + 1;
        asked_from += group;
        if (asked_from >= asked_chunks) asked_from = 0, asked += kWarps, take();
      }
      asm volatile("cp.async.commit_group;" ::: "memory");
    };
#pragma unroll 1
    for (int g = 0; g + 1 < kGroups; ++g) ask();

    asm volatile("cp.async.wait_group %0;" ::"n"(kGroups - 1) : "memory");
    __syncthreads();
    // Their folds: by a warp those of a segment of 32 chunks, or of few chunks of several rows.
    const int32_t segments = (stride + 31) / 32,
                  units = segments > 1 ? rows * segments : (rows + together - 1) / together;
    const auto part_at = [&](int32_t unit, int2*& place) {
      const int32_t r = unit / segments * together + part_of_warp, c = unit % segments * 32 + lane() % width;
      place = part_of_warp < together && r < rows && c < stride ? table + r * stride + c : nullptr;
      return place ? *place : make_int2(INT32_MIN, 0);
    };
    int2* place;
    if (segments > 1) {
#pragma unroll 1
      for (int32_t unit = warp; unit < units; unit += kWarps) {
        const int32_t most = __reduce_max_sync(0xFFFFFFFFu, part_at(unit, place).x);
        if (lane() == 0) shared_.segment_maximum[unit] = most;
      }
      __syncthreads();
    }
#pragma unroll 1
    for (int32_t unit = warp; unit < units; unit += kWarps) {
      const int2 part = part_at(unit, place);
      int32_t maximum = INT32_MIN, through = part.x;  // of the segments before; of this one until here
      for (int32_t segment = lane(); segment < unit % segments; segment += 32)
        maximum = max(maximum, shared_.segment_maximum[unit / segments * segments + segment]);
      maximum = __reduce_max_sync(0xFFFFFFFFu, maximum);
      for (int distance = 1; distance < width; distance *= 2) {
        const int32_t lower = __shfl_up_sync(0xFFFFFFFFu, through, distance);
        if (lane() % width >= distance) through = max(through, lower);
      }
      const int32_t before = __shfl_up_sync(0xFFFFFFFFu, through, 1);
      const Step own = step(lane() % width == 0 ? maximum : max(maximum, before), part.x);
      if (place) *place = make_int2(fold_of(own), part.y);
    }
    __syncthreads();

    int32_t slot = 0;
#pragma unroll 1
    for (int32_t h = warp; h < halves; h += kWarps) {
      const int32_t r = h / kHalves, channel = h % kHalves * kHalf + lane() * 2;
      const KeptRow at = row_of(begin + r, first);
      const int32_t chunks = at.item->chunks;
      const float2 scale =
          *reinterpret_cast<const float2*>(work_.args.out_inverse + int64_t{at.item->group} * kHeadDim + channel);
      const int2* folds = table + r * stride;
      float weight = 0.0f, total[2] = {};
#pragma unroll 1
      for (int32_t from = 0; from < chunks; from += group) {
        ask();
        asm volatile("cp.async.wait_group %0;" ::"n"(kGroups - 1) : "memory");
        __syncwarp();
        const auto* sums = reinterpret_cast<const float2*>(memory_ + mine + slot * bytes) + lane();
        slot = slot + 1 == kGroups ? 0 : slot + 1;
        const int32_t count = min(group, chunks - from);
#pragma unroll 1
        for (int32_t c = 0; c < count; c += kGroup, folds += kGroup, sums += kGroup * kHalf / 2) {
          int2 by[kGroup];  // those beyond the last have a factor of 0, no sums and no weight, and change nothing
          int32_t signs = -1;
#pragma unroll
          for (int i = 0; i < kGroup; ++i) by[i] = folds[i], signs &= by[i].x;
          if (signs < 0) {  // the total keeps its scale, as it mostly does
#pragma unroll
            for (int i = 0; i < kGroup; ++i) {
              const float2 o = sums[i * kHalf / 2];
              const Step fold{false, __int_as_float(by[i].x & INT32_MAX)};
              weight = folded(fold, weight, __int_as_float(by[i].y));
              total[0] = folded(fold, total[0], o.x), total[1] = folded(fold, total[1], o.y);
            }
          } else {
#pragma unroll
            for (int i = 0; i < kGroup; ++i) {
              const float2 o = sums[i * kHalf / 2];
              const Step fold = step_of(by[i].x);
              weight = folded(fold, weight, __int_as_float(by[i].y));
              total[0] = folded(fold, total[0], o.x), total[1] = folded(fold, total[1], o.y);
            }
          }
        }
        __syncwarp();
      }
      const float inverse = arith::divide(1.0f, weight);
      int8_t* out = work_.args.out + row_offset(*at.item, at.row) + channel;
      const int8_t bytes[2] = {arith::quantise(arith::mul(total[0], inverse), scale.x),
                               arith::quantise(arith::mul(total[1], inverse), scale.y)};
      *reinterpret_cast<uint16_t*>(out) =
          static_cast<uint16_t>(static_cast<uint8_t>(bytes[0]) | static_cast<uint8_t>(bytes[1]) << 8);
    }
    wait_for_copies();
  }
  __device__ __forceinline__ static void copy_8(uint32_t to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
  }
  // 16 bytes.
  __device__ __forceinline__ static void copy_or_zero(uint32_t to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
  }

  DecodeShared<kRows>& shared_;
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
