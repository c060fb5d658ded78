// The plan of decode attention on Hopper: which units of work each thread block takes. A small kernel makes the plan on
// the GPU, once for all layers whose KV slots have the same kind and window.
//
// A narrow segment becomes one item for each KV head, or several items with a part of the rows each if a KV head has
// more than 40 rows. A unit is one chunk of an item. Every thread block gets a share of all narrow keys, in order.
// Shares are either whole items, whose chunks the block folds as it goes, or chunks; in that case the partial sums of
// an item in several shares are stored until all are complete. DecodeLoad decides this for the whole batch, with the
// same result in every block. If rows are divided into parts, each part gets the same number of blocks, and
// neighbouring blocks process the same keys at the same time.
#pragma once

#include "attention_work.cuh"

namespace kaiju::cuda {

// Of narrow segments, times KV heads: at most 2^29 (kMostSeenBlocks).
struct NarrowCount {
  int32_t items = 0, units = 0, blocks = 0;  // blocks of keys
  __device__ NarrowCount operator+(const NarrowCount& b) const {
    return {items + b.items, units + b.units, blocks + b.blocks};
  }
  __device__ NarrowCount operator-(const NarrowCount& b) const {
    return {items - b.items, units - b.units, blocks - b.blocks};
  }
};
__device__ inline NarrowCount narrow_count(const AttentionWork& work, int32_t segment) {
  const BatchSegment& s = work.segments[segment];
  if (!is_narrow(s, work)) return {};
  const SeenBlocks seen(s, work.kv);
  return {work.kv.kv_heads, seen.chunk_count() * work.kv.kv_heads, seen.count() * work.kv.kv_heads};
}
// Sum of this lane's and all lower lanes'.
__device__ inline NarrowCount add_lower(NarrowCount count) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  for (int distance = 1; distance < 32; distance *= 2) {
    const NarrowCount lower = {__shfl_up_sync(0xFFFFFFFFu, count.items, distance),
                               __shfl_up_sync(0xFFFFFFFFu, count.units, distance),
                               __shfl_up_sync(0xFFFFFFFFu, count.blocks, distance)};
    if (lane >= distance) count = count + lower;
  }
  return count;
}
__device__ inline NarrowCount of_lane(const NarrowCount& count, int lane) {
  return {__shfl_sync(0xFFFFFFFFu, count.items, lane), __shfl_sync(0xFFFFFFFFu, count.units, lane),
          __shfl_sync(0xFFFFFFFFu, count.blocks, lane)};
}

// The narrow segments of a batch. By a whole warp, of which every lane has as many segments as every other.
class DecodeLoad {
 public:
  NarrowCount all;
  bool split = false;

  __device__ explicit DecodeLoad(const AttentionWork& work) : work_(work), each_((work.segment_count + 31) / 32) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32, end = min((lane + 1) * each_, work.segment_count);
    int32_t longest = 0, most = 0;
#pragma unroll 4
    for (int32_t s = lane * each_; s < end; ++s) {
      const NarrowCount count = narrow_count(work, s);
      mine_ = mine_ + count;
      longest = max(longest, count.blocks);
      most = max(most, count.units);
    }
    through_ = add_lower(mine_);
    all = of_lane(through_, 31);
    longest = __reduce_max_sync(0xFFFFFFFFu, longest) / work.kv.kv_heads;
    most = __reduce_max_sync(0xFFFFFFFFu, most) / work.kv.kv_heads;
    if (all.items == 0 || all.units * work.row_parts > work.scratch.units || most > kMostKept ||
        work.scratch.apart == ChunksApart::kNever)
      return;
    // Tenths of a microsecond, from times on one H200 (docs/kernels/attention_decode.md): a chunk's and each of its
    // blocks'; the fold of chunks kept apart, and so many of them that they take one more.
    constexpr int32_t kChunk = 20, kBlock = 9, kFold = 40, kFoldSome = 8;
    const int32_t blocks = work.decode_blocks / work.row_parts;
    const auto rounds = [&](int32_t count, int32_t at_once) { return (count + at_once - 1) / at_once; };
    const auto time = [&](int32_t units, int32_t of_keys) {
      return int64_t{units} * kChunk + int64_t{of_keys} * kBlock;
    };
    const int64_t whole =
                      max(time(most, longest), rounds(all.items, blocks) * (time(all.units, all.blocks) / all.items)),
                  apart = rounds(all.blocks, kChunkBlocks * blocks) * time(1, kChunkBlocks) + kFold + most / kFoldSome;
    split = work.scratch.apart == ChunksApart::kAlways || 10 * whole > 11 * apart;
  }

  // Where, of all items (units, blocks), number `target` is.
  struct Place {
    int32_t segment, group;
    NarrowCount before;  // the segment's KV head
  };
  __device__ Place find(int32_t NarrowCount::* what, int32_t target) const {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const int owner = __ffs(static_cast<int>(__ballot_sync(0xFFFFFFFFu, target < through_.*what))) - 1;
    if (owner < 0) return {-1, 0, {}};
    NarrowCount before = of_lane(through_ - mine_, owner);
    const int32_t end = min((owner + 1) * each_, work_.segment_count);
    for (int32_t base = owner * each_;; base += 32) {
      const NarrowCount count = base + lane < end ? narrow_count(work_, base + lane) : NarrowCount{},
                        through = before + add_lower(count);
      const int at = __ffs(static_cast<int>(__ballot_sync(0xFFFFFFFFu, target < through.*what))) - 1;
      if (at < 0) {
        before = of_lane(through, 31);
        continue;
      }
      const NarrowCount found = of_lane(count, at);
      before = of_lane(through - count, at);
      const int32_t groups = work_.kv.kv_heads, group = (target - before.*what) / (found.*what / groups);
      return {base + at, group,
              before + NarrowCount{group, group * (found.units / groups), group * (found.blocks / groups)}};
    }
  }

 private:
  const AttentionWork& work_;
  int32_t each_;
  NarrowCount mine_, through_;
};

// One unit of narrow work as a block sees it.
struct Unit {
  int32_t valid;
  int32_t place, position, rows, group;  // of the item; its first row's place in queries and results
  int32_t begin_block, end_block;        // blocks of keys that are seen
  int32_t all_from;                      // keys that every row sees, up to the first row's position
  int32_t fresh, last;                   // whether the previous unit was another item's, and the next one is
  int32_t kept;                          // where its sums are kept apart; -1: they are not
  int32_t first_kept, kept_count;        // of its item
  int32_t kept_here;                     // of those, by this block so far
  BlockId ids[kChunkBlocks];             // of the chunk's blocks, from begin_block on
};

// To shared memory, in the background.
__device__ inline void load_id(BlockId& to, const BlockId* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(&to))),
               "l"(from)
               : "memory");
}
// What a unit has of its item. `first_row`: where a segment's rows are shared, the item's first.
__device__ inline void describe(Unit& unit, const AttentionWork& work, const BatchSegment& segment, int32_t group,
                                int32_t first_row) {
  const int32_t last = segment.position + segment.row_count - 1;
  unit.place = segment.first_row * work.args.heads + group * work.heads + first_row;
  unit.position = segment.position;
  unit.rows = min(segment.row_count * work.heads - first_row, work.narrow_rows);
  unit.group = group;
  unit.all_from = work.kv.window > 0 && last >= work.kv.window ? last - work.kv.window + 1 : 0;
}

// The units of one block of threads, one after another. In shared memory; by one warp.
class DecodeWalk {
 public:
  // Tells whether chunks may be kept apart, alike in all blocks.
  __device__ bool start(const AttentionWork& work) {
    const int32_t block = static_cast<int32_t>(blockIdx.x) / work.row_parts,
                  blocks = work.decode_blocks / work.row_parts,
                  row_part = static_cast<int32_t>(blockIdx.x) % work.row_parts;
    first_row_ = row_part * work.narrow_rows;
    const auto one_item = [&] {
      take(work, block / work.kv.kv_heads, block % work.kv.kv_heads);
      low_ = 0, high_ = 2 * (end_block_ - first_block_);
      return false;
    };
    segment_ = -1, split_ = false;
    if (work.item_each) return one_item();
    const DecodeLoad load(work);
    if (work.one_row_each && !load.split && load.all.items <= blocks) return block < load.all.items && one_item();
    if (load.all.items == 0) return false;
    split_ = load.split;
    const auto share = [&](int32_t b) { return static_cast<int32_t>(int64_t{2} * load.all.blocks * b / blocks); };
    low_ = share(block), high_ = share(block + 1);
    const DecodeLoad::Place place = load.find(&NarrowCount::blocks, low_ / 2);
    before_ = place.before;
    before_.units += row_part * load.all.units;
    take(work, place.segment, place.group);
    if (split_)  // to the chunk before the one that low_ lies in
      chunk_ = max(0, (low_ / 2 - before_.blocks + first_block_) / kChunkBlocks - first_chunk_ - 1);
    else if (segment_ >= 0 && middle_of(first_block_, end_block_) < low_)
      chunk_ = chunk_count_;
    return split_;
  }

  // The next unit; of the one before, which `previous` is, most is copied where it goes on in the same item. The warp's
  // own copies of block ids are under way when it returns.
  __device__ void next(const AttentionWork& work, Unit& unit, const Unit* previous) {
    if (previous && previous->valid && !previous->last) {
      const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32, begin = previous->end_block,
                    end = min(begin + kChunkBlocks, end_block_), chunk = chunk_, taken = taken_;
      const bool last = is_last(chunk);
      constexpr int32_t kWords = (sizeof(Unit) - sizeof(Unit::ids)) / sizeof(int32_t);
      static_assert(kWords <= 32);
      if (lane < kWords) reinterpret_cast<int32_t*>(&unit)[lane] = reinterpret_cast<const int32_t*>(previous)[lane];
      if (lane < end - begin) load_id(unit.ids[lane], table_ + begin + lane);
      __syncwarp();
      if (lane > 0) return;
      unit.begin_block = begin, unit.end_block = end;
      unit.fresh = 0, unit.last = last ? 1 : 0;
      if (previous->kept >= 0) unit.kept = previous->kept + 1;
      unit.kept_here = taken + 1;
      chunk_ = chunk + 1, taken_ = taken + 1;
      return;
    }
    DecodeWalk walk = *this;
    __syncwarp();
    walk.find_next(work, unit);
    if (threadIdx.x % 32 == 0) *this = walk;
  }

 private:
  __device__ void find_next(const AttentionWork& work, Unit& unit) {
    while (segment_ >= 0) {
      if (chunk_ == chunk_count_) {
        to_next_item(work);
        continue;
      }
      const int32_t begin = max((first_chunk_ + chunk_) * kChunkBlocks, first_block_),
                    end = min((first_chunk_ + chunk_ + 1) * kChunkBlocks, end_block_);
      const int32_t middle = split_ ? middle_of(begin, end) : middle_of(first_block_, end_block_);
      if (middle >= high_) segment_ = -1;
      if (middle >= low_ && middle < high_) {
        fill(work, unit, begin, end);
        ++chunk_;
        return;
      }
      ++chunk_;
    }
    unit.valid = 0;
  }
  // Whether chunk `chunk` of the item is the last one here.
  __device__ bool is_last(int32_t chunk) const {
    const int32_t behind = (first_chunk_ + chunk + 1) * kChunkBlocks;  // the next chunk
    return chunk + 1 == chunk_count_ || (split_ && middle_of(behind, min(behind + kChunkBlocks, end_block_)) >= high_);
  }
  // Twice.
  __device__ int32_t middle_of(int32_t begin, int32_t end) const {
    return 2 * (before_.blocks - first_block_) + begin + end;
  }

  __device__ void take(const AttentionWork& work, int32_t segment, int32_t group) {
    segment_ = segment, group_ = group;
    if (segment < 0) return;
    const BatchSegment& s = work.segments[segment];
    const SeenBlocks seen(s, work.kv);
    table_ = s.table[static_cast<int32_t>(work.kv.kind)];
    first_block_ = seen.first, end_block_ = seen.end;
    first_chunk_ = seen.first_chunk(), chunk_count_ = seen.chunk_count();
    chunk_ = taken_ = 0;
  }
  __device__ void to_next_item(const AttentionWork& work) {
    before_ = before_ + NarrowCount{1, chunk_count_, end_block_ - first_block_};
    if (2 * before_.blocks >= high_) {
      segment_ = -1;
    } else if (group_ + 1 < work.kv.kv_heads) {
      take(work, segment_, group_ + 1);
    } else {
      int32_t segment = segment_ + 1;
      while (!is_narrow(work.segments[segment], work)) ++segment;  // there is one
      take(work, segment, 0);
    }
  }

  __device__ void fill(const AttentionWork& work, Unit& unit, int32_t begin, int32_t end) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    if (lane < end - begin) load_id(unit.ids[lane], table_ + begin + lane);
    const int32_t last_chunk = (first_chunk_ + chunk_count_ - 1) * kChunkBlocks;
    const bool whole =
        !split_ || (middle_of(first_block_, min((first_chunk_ + 1) * kChunkBlocks, end_block_)) >= low_ &&
                    middle_of(max(last_chunk, first_block_), end_block_) < high_);
    const bool last = is_last(chunk_);
    ++taken_;
    if (lane > 0) return;
    describe(unit, work, work.segments[segment_], group_, first_row_);
    unit.valid = 1;
    unit.begin_block = begin;
    unit.end_block = end;
    unit.fresh = taken_ == 1 ? 1 : 0;
    unit.last = last ? 1 : 0;
    unit.kept = whole ? -1 : before_.units + chunk_;
    unit.first_kept = before_.units;
    unit.kept_count = chunk_count_;
    unit.kept_here = taken_;
  }

  NarrowCount before_;  // the item
  bool split_;
  int32_t first_row_;        // of the items'
  int32_t low_, high_;       // of the block's share, of twice all blocks of keys: it has what has its middle there
  int32_t segment_, group_;  // of the item; -1: there are no more
  int32_t chunk_, taken_;    // of the item's: the next, and how many were this block's
  // Of the item.
  int32_t first_block_, end_block_, first_chunk_, chunk_count_;
  const BlockId* table_;
};

// What a block of threads takes, as it is when the block begins; the same in all layers whose slots are of one kind and
// window.
struct DecodePlan {
  DecodeWalk walk;
  Unit unit[3];   // the first two, and room for the next one
  int32_t apart;  // whether chunks may be kept apart, alike in all blocks
};
static_assert(sizeof(DecodePlan) <= kAttentionPlanBytes);
__device__ inline DecodePlan* plan_of_block(const AttentionWork& work) {
  const int64_t at = int64_t{static_cast<int32_t>(work.kv.kind)} * 2 * work.scratch.multiprocessors + blockIdx.x;
  return reinterpret_cast<DecodePlan*>(work.scratch.plans + at * kAttentionPlanBytes);
}
// By a warp.
__device__ inline void make_plan(const AttentionWork& work, DecodePlan& plan) {
  DecodeWalk walk;
  const bool apart = walk.start(work);
  if (threadIdx.x == 0) plan.walk = walk, plan.apart = apart ? 1 : 0;
  __syncwarp();
  for (int32_t i = 0; i < 2; ++i) {
    plan.walk.next(work, plan.unit[i], i > 0 ? &plan.unit[0] : nullptr);
    __syncwarp();
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncwarp();
}

// Launches sm90_decode_plan_kernel.
cudaError_t plan_decode(cudaStream_t stream, const AttentionWork& work);

}  // namespace kaiju::cuda
