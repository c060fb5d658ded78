// Attention of few rows on Hopper, second half: combines the partial sums of chunks that several thread blocks have
// computed (split KV). Each block that has chunks of an item folds a part of the item's rows over all chunks, in the
// order that the contract requires. Sums are loaded through shared memory, whose tiles are no longer needed. Bound:
// latency, then the L2 cache.
#pragma once

#include <algorithm>

#include "../tiles/grid_sync.cuh"
#include "sm90_attention_decode_chunk.cuh"

namespace kaiju::cuda {

// An item whose chunks are shared by several blocks of threads, this one among them.
struct KeptItem {
  int32_t place, rows, group;  // as of a unit
  int32_t first, chunks;       // where the item's partial sums are kept, and of how many chunks
  int32_t begin, end;  // this block's chunks, counted from the item's first; later: whose part of the rows it folds
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
class DecodeCombine : protected ChunkSteps<kHeadDim, kRows, Weight> {
 protected:
  using Steps = ChunkSteps<kHeadDim, kRows, Weight>;
  using Steps::thread, Steps::lane, Steps::wait_for_copies, Steps::row_offset, Steps::step, Steps::work_,
      Steps::memory_;
  using typename Steps::Map, typename Steps::Step;
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

 protected:
  __device__ DecodeCombine(const AttentionWork& work, DecodeShared<kRows>& shared, uint8_t* memory)
      : Steps(work, shared, memory), shared_(shared) {}

  // The bits of a factor; with the sign, where the total keeps its scale.
  __device__ static int32_t fold_of(const Step& step) {
    return __float_as_int(step.factor) | (step.later ? 0 : INT32_MIN);
  }
  __device__ static Step step_of(int32_t fold) { return {fold >= 0, __int_as_float(fold & INT32_MAX)}; }

  // Items of which this block has kept chunks are two at most: the first and the last of its share. When all chunks of
  // an item are there, each block that has some of them folds a part of the item's rows. A block that has waited for
  // long leaves its part to the block that comes last, which then folds all rows: the missing blocks may not have
  // begun, for lack of room on the GPU.
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
    if (thread() == 0) ended_before = atomicAdd(ended, 1);  // the counters that it waits for have been seen
    fold_rows();
    // The last block to have looked at the counters resets them for the next launch.
    if (thread() == 0) shared_.is_last = ended_before == static_cast<int32_t>(gridDim.x) - 1 ? 1 : 0;
    __syncthreads();
    if (shared_.is_last == 0) return;
    for (int32_t i = thread(); i <= work_.scratch.units; i += kDecodeThreads) work_.scratch.counters[i] = 0;
  }

  DecodeShared<kRows>& shared_;

 private:
  // How many of the item's chunks are there, times 2^16, plus how many blocks have left their part.
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

  // The rows of both items that this block folds are one list, taken some at a time: as many as a table of the folds of
  // all their chunks has room for.
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
  // Some rows of the list, and how the lanes of a warp share them.
  struct Some {
    int32_t begin, rows, first;  // first: how many rows of the list are the first item's
    int2* table;  // [rows, stride] of each chunk its maximum and the bits of its weight, then its fold for the maximum
    int32_t stride;
    int32_t warp;
    int32_t width, together, part_of_warp;  // lanes that share a row's chunks; rows of a warp; this lane's row of them
  };
  __device__ __forceinline__ void fold_some(int32_t begin, int32_t end, int32_t first, int32_t stride) {
    const int32_t warp = Steps::uniform(thread() / 32), rows = end - begin, halves = rows * kHalves,
                  width = min(stride, 32), together = 32 / width, part_of_warp = lane() / width;
    const Some some{begin, rows, first, reinterpret_cast<int2*>(memory_), stride, warp, width, together, part_of_warp};
    __syncthreads();
    load_table(some);
    asm volatile("cp.async.commit_group;" ::: "memory");

    // Partial sums come in groups of chunks, a half row of the warp after the other, through a ring of kGroups.
    const int32_t active = min(kWarps, halves), group = kGroup * (kWarps / active),
                  bytes = kGroupBytes * (kWarps / active), ring = kTableBytes + warp * kGroups * bytes;
    int32_t asked = warp, asked_from = 0, asked_slot = 0, asked_chunks = 0;  // the next group: half row, first chunk
    const float* asked_sums = nullptr;
    const auto take_half = [&] {
      if (asked >= halves) return;
      const KeptRow at = row_of(begin + asked / kHalves, first);
      asked_chunks = at.item->chunks;
      asked_sums = work_.scratch.sums + int64_t{at.item->first} * kTileRows * kHeadDim +
                   (at.row * kHalves + asked % kHalves) * asked_chunks * kHalf;
    };
    take_half();
    const auto ask = [&] {
      if (asked < halves) {
        const uint32_t to = shared_address(memory_) + static_cast<uint32_t>(ring + asked_slot * bytes + lane() * 16);
        const float* from = asked_sums + asked_from * kHalf + lane() * 4;
        const int32_t left = asked_chunks - asked_from - lane() / 16;
#pragma unroll 4
        for (int32_t c = 0; c < group; c += 2) copy_or_zero(to + c * kHalf * 4, from + c * kHalf, c < left);
        asked_slot = asked_slot + 1 == kGroups ? 0 : asked_slot + 1;
        asked_from += group;
        if (asked_from >= asked_chunks) asked_from = 0, asked += kWarps, take_half();
      }
      asm volatile("cp.async.commit_group;" ::: "memory");
    };
#pragma unroll 1
    for (int g = 0; g + 1 < kGroups; ++g) ask();
    wait_for_groups();
    __syncthreads();
    find_folds(some);
    __syncthreads();

    int32_t slot = 0;
#pragma unroll 1
    for (int32_t h = warp; h < halves; h += kWarps) {
      const int32_t r = h / kHalves, channel = h % kHalves * kHalf + lane() * 2;
      const KeptRow at = row_of(begin + r, first);
      const int32_t chunks = at.item->chunks;
      const float2 scale =
          *reinterpret_cast<const float2*>(work_.args.out_inverse + int64_t{at.item->group} * kHeadDim + channel);
      const int2* folds = some.table + r * stride;
      float weight = 0.0f, total[2] = {};
#pragma unroll 1
      for (int32_t from = 0; from < chunks; from += group) {
        ask();
        wait_for_groups();
        __syncwarp();
        const auto* sums = reinterpret_cast<const float2*>(memory_ + ring + slot * bytes) + lane();
        slot = slot + 1 == kGroups ? 0 : slot + 1;
        const int32_t count = min(group, chunks - from);
#pragma unroll 1
        for (int32_t c = 0; c < count; c += kGroup, folds += kGroup, sums += kGroup * kHalf / 2)
          fold_group(folds, sums, weight, total);
        __syncwarp();
      }
      store_half(at, channel, weight, total, scale);
    }
    wait_for_copies();
  }
  __device__ __forceinline__ static void wait_for_groups() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kGroups - 1) : "memory");
  }

  // Asks for maxima and weights of all chunks.
  __device__ __forceinline__ void load_table(const Some& some) const {
#pragma unroll 1
    for (int32_t r = some.warp * some.together + some.part_of_warp; r < some.rows && some.part_of_warp < some.together;
         r += kWarps * some.together) {
      const KeptRow at = row_of(some.begin + r, some.first);
      const auto* parts = reinterpret_cast<const int2*>(work_.scratch.parts) + int64_t{at.item->first} * kTileRows +
                          at.row * at.item->chunks;
      for (int32_t c = lane() % some.width; c < some.stride; c += some.width) {
        if (c < at.item->chunks)
          copy_8(shared_address(some.table + r * some.stride + c), parts + c);
        else
          some.table[r * some.stride + c] = make_int2(INT32_MIN, 0);
      }
    }
  }

  // The folds of all chunks, in place of their maxima: by a warp those of a segment of 32 chunks, or of few chunks of
  // several rows.
  __device__ __forceinline__ void find_folds(const Some& some) {
    const int32_t segments = (some.stride + 31) / 32,
                  units = segments > 1 ? some.rows * segments : (some.rows + some.together - 1) / some.together;
    const auto part_at = [&](int32_t unit, int2*& place) {
      const int32_t r = unit / segments * some.together + some.part_of_warp,
                    c = unit % segments * 32 + lane() % some.width;
      place = some.part_of_warp < some.together && r < some.rows && c < some.stride ? some.table + r * some.stride + c
                                                                                    : nullptr;
      return place ? *place : make_int2(INT32_MIN, 0);
    };
    int2* place;
    if (segments > 1) {
#pragma unroll 1
      for (int32_t unit = some.warp; unit < units; unit += kWarps) {
        const int32_t most = __reduce_max_sync(0xFFFFFFFFu, part_at(unit, place).x);
        if (lane() == 0) shared_.segment_maximum[unit] = most;
      }
      __syncthreads();
    }
#pragma unroll 1
    for (int32_t unit = some.warp; unit < units; unit += kWarps) {
      const int2 part = part_at(unit, place);
      int32_t maximum = INT32_MIN, through = part.x;  // of the segments before; of this one until here
      for (int32_t segment = lane(); segment < unit % segments; segment += 32)
        maximum = max(maximum, shared_.segment_maximum[unit / segments * segments + segment]);
      maximum = __reduce_max_sync(0xFFFFFFFFu, maximum);
      for (int distance = 1; distance < some.width; distance *= 2) {
        const int32_t lower = __shfl_up_sync(0xFFFFFFFFu, through, distance);
        if (lane() % some.width >= distance) through = max(through, lower);
      }
      const int32_t before = __shfl_up_sync(0xFFFFFFFFu, through, 1);
      const Step own = step(lane() % some.width == 0 ? maximum : max(maximum, before), part.x);
      if (place) *place = make_int2(fold_of(own), part.y);
    }
  }

  // kGroup chunks join the total. Those after the last have a factor of 0, no sums and no weight, and change nothing.
  __device__ __forceinline__ static void fold_group(const int2* folds, const float2* sums, float& weight,
                                                    float (&total)[2]) {
    int2 by[kGroup];
    int32_t signs = -1;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) by[i] = folds[i], signs &= by[i].x;
    if (signs < 0) {  // the total keeps its scale, as it mostly does
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const float2 o = sums[i * kHalf / 2];
        const Step fold{false, __int_as_float(by[i].x & INT32_MAX)};
        weight = Steps::folded(fold, weight, __int_as_float(by[i].y));
        total[0] = Steps::folded(fold, total[0], o.x), total[1] = Steps::folded(fold, total[1], o.y);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const float2 o = sums[i * kHalf / 2];
        const Step fold = step_of(by[i].x);
        weight = Steps::folded(fold, weight, __int_as_float(by[i].y));
        total[0] = Steps::folded(fold, total[0], o.x), total[1] = Steps::folded(fold, total[1], o.y);
      }
    }
  }
  // Two channels of a row.
  __device__ __forceinline__ void store_half(const KeptRow& at, int32_t channel, float weight, const float (&total)[2],
                                             const float2& scale) const {
    const float inverse = arith::divide(1.0f, weight);
    int8_t* out = work_.args.out + row_offset(*at.item, at.row) + channel;
    const int8_t bytes[2] = {arith::quantise(arith::mul(total[0], inverse), scale.x),
                             arith::quantise(arith::mul(total[1], inverse), scale.y)};
    *reinterpret_cast<uint16_t*>(out) =
        static_cast<uint16_t>(static_cast<uint8_t>(bytes[0]) | static_cast<uint8_t>(bytes[1]) << 8);
  }

  __device__ __forceinline__ static void copy_8(uint32_t to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
  }
  // 16 bytes.
  __device__ __forceinline__ static void copy_or_zero(uint32_t to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
  }
};

}  // namespace kaiju::cuda
