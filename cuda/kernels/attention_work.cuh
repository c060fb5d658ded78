// How a batch becomes pieces of work for the attention kernels of sm_90: found on the GPU from the batch itself, by every warp for itself,
// so that a launch needs nothing but upper bounds of the host.
//
// The rows of a segment are its tokens times the query heads that share a KV head, token after token: row r is token r / H, head r % H. A
// segment of more than 64 rows is *wide*: tiles of 128 rows, each folding all its chunks in order. A *narrow* one (decode) is one tile of
// up to 64 rows; its chunks are folded by one warpgroup, or split: one chunk a unit, sums kept apart, folded by a second kernel. Where even
// that leaves most warpgroups without work, a unit is a part of a chunk: it finds the maximum over the whole chunk for itself, and sums its
// part's keys in integers. Which of these the whole batch takes, `is_split` and `chunk_parts` decide alike everywhere.
#pragma once

#include "../kernels.hpp"
#include "kaiju/arith/softmax.hpp"

namespace kaiju::cuda {

constexpr int32_t kTileRows = kAttentionTileRows;  // of a warpgroup
constexpr int32_t kWideRows = 2 * kTileRows;       // of a tile of two warpgroups
constexpr int32_t kChunkBlocks = arith::kChunkKeys / kBlockTokens;

struct AttentionWork {
  AttentionArgs args;
  KvSlot kv;
  const BatchSegment* segments;
  int32_t segment_count;
  int32_t heads;                   // query heads that share a KV head
  int32_t least_difference;        // of a score from its maximum: weights are 0 from there on
  int32_t narrow_rows;             // most rows of a narrow tile
  int32_t key_slots, value_slots;  // of a ring in shared memory, of 64 keys and of 32 values
  int32_t total_warps;             // of a warpgroup, that keep totals
  int32_t workers;                 // warpgroups that take narrow work
  int32_t wide_tiles;              // at least as many as there are
  AttentionScratch scratch;
};

__device__ inline bool is_narrow(const BatchSegment& segment, int32_t heads) { return segment.row_count * heads <= kTileRows; }

__device__ inline int32_t first_chunk(const BatchSegment& segment, const KvSlot& kv) {
  const int32_t first = kv.window > 0 && segment.position >= kv.window ? segment.position - kv.window + 1 : 0;
  return first / arith::kChunkKeys;
}
__device__ inline int32_t chunk_count(const BatchSegment& segment, const KvSlot& kv) {
  return (segment.position + segment.row_count - 1) / arith::kChunkKeys - first_chunk(segment, kv) + 1;
}

struct Found {
  int32_t segment;  // -1: there are fewer units
  int32_t offset;   // of the unit among the segment's
};
// Where unit `unit` is when segment s has count(s) of them. By a whole warp.
template <class Count>
__device__ Found find_unit(int32_t unit, const AttentionWork& work, Count count) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  for (int32_t base = 0; base < work.segment_count; base += 32) {
    const int32_t mine = base + lane < work.segment_count ? count(work.segments[base + lane]) : 0;
    int32_t through = mine;
    for (int distance = 1; distance < 32; distance *= 2) {
      const int32_t before = __shfl_up_sync(0xFFFFFFFFu, through, distance);
      if (lane >= distance) through += before;
    }
    const uint32_t later = __ballot_sync(0xFFFFFFFFu, unit < through);
    if (later != 0) {
      const int at = __ffs(static_cast<int>(later)) - 1;
      return {base + at, unit - __shfl_sync(0xFFFFFFFFu, through - mine, at)};
    }
    unit -= __shfl_sync(0xFFFFFFFFu, through, 31);
  }
  return {-1, 0};
}

// The narrow segments of a batch, times KV heads.
struct NarrowLoad {
  int32_t items = 0, units = 0, longest = 0;  // tiles, chunks of all tiles, chunks of the longest
};
__device__ inline NarrowLoad narrow_load(const AttentionWork& work) {
  NarrowLoad load;
  for (int32_t s = static_cast<int32_t>(threadIdx.x) % 32; s < work.segment_count; s += 32) {
    if (!is_narrow(work.segments[s], work.heads)) continue;
    const int32_t chunks = chunk_count(work.segments[s], work.kv);
    load.items += work.kv.kv_heads;
    load.units += chunks * work.kv.kv_heads;
    load.longest = max(load.longest, chunks);
  }
  load.items = __reduce_add_sync(0xFFFFFFFFu, load.items);
  load.units = __reduce_add_sync(0xFFFFFFFFu, load.units);
  load.longest = __reduce_max_sync(0xFFFFFFFFu, load.longest);
  return load;
}
// Splitting writes and reads the sums of every chunk (a quarter more work) and takes a second kernel, but no warpgroup waits for another's
// long history.
__device__ inline bool is_split(const NarrowLoad& load, const AttentionWork& work) {
  if (load.items == 0 || load.units > work.scratch.units) return false;
  const int32_t workers = work.workers, rounds = (load.items + workers - 1) / workers, average = (load.units + load.items - 1) / load.items;
  return 4 * max(load.longest, rounds * average) > 5 * ((load.units + workers - 1) / workers) + 4;
}

// Of a split chunk: its parts' sums are 32-bit integers, which two blocks of keys fit.
constexpr int32_t kMostParts = 4;
static_assert(kChunkBlocks <= 2 * kMostParts);
__device__ inline int32_t chunk_parts(const NarrowLoad& load, const AttentionWork& work) {
  return kMostParts * load.units <= min(work.workers, work.scratch.units) ? kMostParts : 1;
}

// One tile of rows of a segment and the chunks to take.
struct Tile {
  const BlockId* table;
  int32_t batch_row;            // of the segment's first token
  int32_t position;             // of the segment's first token
  int32_t rows;                 // of the segment
  int32_t first_row;            // of the tile
  int32_t group;                // KV head
  int32_t first_key, last_key;  // that any row of the tile sees
  int32_t chunk, end_chunk;
  int32_t unit;         // where the sums of a split chunk go; -1: all chunks are here
  int32_t part, parts;  // of the chunk
};
__device__ inline Tile make_tile(const AttentionWork& work, int32_t segment_index, int32_t group, int32_t first_row, int32_t tile_rows) {
  const BatchSegment& segment = work.segments[segment_index];
  Tile tile;
  tile.table = segment.table[static_cast<int32_t>(work.kv.kind)];
  tile.batch_row = segment.first_row;
  tile.position = segment.position;
  tile.rows = segment.row_count * work.heads;
  tile.first_row = first_row;
  tile.group = group;
  const int32_t first = tile.position + first_row / work.heads, window = work.kv.window;
  tile.first_key = window > 0 && first >= window ? first - window + 1 : 0;
  tile.last_key = tile.position + (min(first_row + tile_rows, tile.rows) - 1) / work.heads;
  tile.chunk = tile.first_key / arith::kChunkKeys;
  tile.end_chunk = tile.last_key / arith::kChunkKeys + 1;
  tile.unit = -1;
  tile.part = 0;
  tile.parts = 1;
  return tile;
}

// The tiles of one warpgroup (narrow) or one block of threads (wide), one after another. Wide: the longest histories first, dealt out forwards and
// backwards in turn, so that no block has the longest every time.
template <bool kWide>
class Walk {
 public:
  // `worker`: among the warpgroups that take narrow work.
  __device__ Walk(const AttentionWork& work, int32_t worker) : work_(work) {
    if constexpr (kWide) {
      unit_ = static_cast<int32_t>(blockIdx.x);
      end_ = work.wide_tiles;
    } else {
      const NarrowLoad load = narrow_load(work);
      split_ = is_split(load, work);
      parts_ = split_ ? chunk_parts(load, work) : 1;
      step_ = split_ ? 1 : work.workers;
      unit_ = split_ ? static_cast<int32_t>(int64_t{load.units} * parts_ * worker / work.workers) : worker;
      end_ = split_ ? static_cast<int32_t>(int64_t{load.units} * parts_ * (worker + 1) / work.workers) : load.items;
    }
  }
  // By a whole warp.
  __device__ bool next(Tile& tile) {
    const int32_t groups = work_.kv.kv_heads, heads = work_.heads;
    if constexpr (kWide) {
      const auto blocks = static_cast<int32_t>(gridDim.x);
      const auto tiles = [&](const BatchSegment& s) { return is_narrow(s, heads) ? 0 : (s.row_count * heads + kWideRows - 1) / kWideRows; };
      for (; round_ * blocks < end_; ++round_) {
        const int32_t at = round_ * blocks + (round_ % 2 != 0 ? blocks - 1 - unit_ : unit_);
        if (at >= end_) continue;
        const Found found = find_unit(end_ - 1 - at, work_, [&](const BatchSegment& s) { return tiles(s) * groups; });
        if (found.segment < 0) continue;
        tile = make_tile(work_, found.segment, found.offset % groups, found.offset / groups * kWideRows, kWideRows);
        ++round_;
        return true;
      }
      return false;
    }
    if (unit_ >= end_) return false;
    const int32_t unit = unit_;
    unit_ += step_;
    if (!split_) {
      const Found found = find_unit(unit, work_, [&](const BatchSegment& s) { return is_narrow(s, heads) ? groups : 0; });
      if (found.segment < 0) return false;
      tile = make_tile(work_, found.segment, found.offset, 0, kTileRows);
    } else {
      const Found found =
          find_unit(unit, work_, [&](const BatchSegment& s) { return is_narrow(s, heads) ? chunk_count(s, work_.kv) * groups * parts_ : 0; });
      if (found.segment < 0) return false;
      const int32_t chunks = chunk_count(work_.segments[found.segment], work_.kv), chunk = found.offset / parts_;
      tile = make_tile(work_, found.segment, chunk / chunks, 0, kTileRows);
      tile.chunk += chunk % chunks;
      tile.end_chunk = tile.chunk + 1;
      tile.unit = unit;
      tile.part = found.offset % parts_;
      tile.parts = parts_;
    }
    return true;
  }

 private:
  const AttentionWork& work_;
  int32_t unit_ = 0, end_ = 0, step_ = 1, parts_ = 1, round_ = 0;
  bool split_ = false;
};

// The blocks of keys of a chunk that a tile's unit sums: all but for parts.
struct Blocks {
  int32_t begin, end;
};
__device__ inline Blocks part_of(const Tile& tile, int32_t begin, int32_t end) {
  const int32_t count = end - begin;
  return {begin + count * tile.part / tile.parts, begin + count * (tile.part + 1) / tile.parts};
}

}  // namespace kaiju::cuda
