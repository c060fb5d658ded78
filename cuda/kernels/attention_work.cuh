// How a batch becomes pieces of work for the attention kernels of sm_90: found on the GPU from the batch itself, by every warp for itself,
// so that a launch needs nothing but upper bounds of the host.
//
// The rows of a segment are its tokens times the query heads that share a KV head, token after token: row r is token r / H, head r % H. A
// segment of more than 64 rows is *wide*: tiles of 128 rows, each folding all its chunks in order. A *narrow* one (decode) is one tile of
// up to 64 rows, an *item* with each KV head; a unit of work is one chunk of an item. Either a block takes all chunks of an item and folds
// them as it goes, or units are dealt out one by one and their sums kept apart until all are there: DecodeLoad decides that for the whole
// batch, alike everywhere.
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
  int32_t wide_segments;           // no segment behind these is wide
  int32_t heads;                   // query heads that share a KV head
  int32_t least_difference;        // of a score from its maximum: weights are 0 from there on
  int32_t narrow_rows;             // most rows of a narrow tile
  int32_t key_slots, value_slots;  // of a ring in shared memory, of 64 keys and of 32 values
  int32_t decode_blocks;           // of threads, that take narrow work
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
// Where unit `unit` of the first `end` segments is when segment s has count(s) of them. By a whole warp.
template <class Count>
__device__ Found find_unit(int32_t unit, const AttentionWork& work, int32_t end, Count count) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  for (int32_t base = 0; base < end; base += 32) {
    const int32_t mine = base + lane < end ? count(work.segments[base + lane]) : 0;
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

// The chunks of a narrow segment (for each KV head), by how many blocks of keys are seen in them: those of more than half a chunk are
// large. All between the first and the last are whole.
struct SegmentChunks {
  int32_t count, large;
  bool first_is_large;
};
__device__ inline SegmentChunks segment_chunks(const BatchSegment& segment, const KvSlot& kv) {
  const int32_t first_key = kv.window > 0 && segment.position >= kv.window ? segment.position - kv.window + 1 : 0;
  const int32_t first = first_key / kBlockTokens, last = (segment.position + segment.row_count - 1) / kBlockTokens;
  SegmentChunks chunks;
  chunks.count = last / kChunkBlocks - first / kChunkBlocks + 1;
  const int32_t in_first = chunks.count == 1 ? last - first + 1 : kChunkBlocks - first % kChunkBlocks;
  chunks.first_is_large = 2 * in_first > kChunkBlocks;
  chunks.large = (chunks.first_is_large ? 1 : 0) + (chunks.count > 2 ? chunks.count - 2 : 0) +
                 (chunks.count > 1 && 2 * (last % kChunkBlocks + 1) > kChunkBlocks ? 1 : 0);
  return chunks;
}

// Chunks of a row that the last of its blocks folds; of longer rows a kernel of its own does.
constexpr int32_t kFoldedHere = 16;

// The narrow segments of a batch, times KV heads. By a whole warp.
struct DecodeLoad {
  int32_t items = 0, units = 0, large = 0;
  bool split = false;
};
__device__ inline DecodeLoad decode_load(const AttentionWork& work) {
  // Tenths of a microsecond, from times on one H200 (docs/kernels.md): a chunk; one that is kept apart, and what each chunk of a row adds
  // to it where the last block folds the row; one that is kept apart for the kernel that folds long rows, and that kernel.
  constexpr int32_t kLarge = 74, kSmall = 37, kApart = 118, kFold = 6, kLongApart = 85, kMerge = 280;
  DecodeLoad load;
  int32_t longest = 0, most = 0;
  for (int32_t s = static_cast<int32_t>(threadIdx.x) % 32; s < work.segment_count; s += 32) {
    if (!is_narrow(work.segments[s], work.heads)) continue;
    const SegmentChunks chunks = segment_chunks(work.segments[s], work.kv);
    load.items += work.kv.kv_heads;
    load.units += chunks.count * work.kv.kv_heads;
    load.large += chunks.large * work.kv.kv_heads;
    longest = max(longest, chunks.large * kLarge + (chunks.count - chunks.large) * kSmall);
    most = max(most, chunks.count);
  }
  load.items = __reduce_add_sync(0xFFFFFFFFu, load.items);
  load.units = __reduce_add_sync(0xFFFFFFFFu, load.units);
  load.large = __reduce_add_sync(0xFFFFFFFFu, load.large);
  longest = __reduce_max_sync(0xFFFFFFFFu, longest);
  most = __reduce_max_sync(0xFFFFFFFFu, most);
  if (load.items == 0 || load.units > work.scratch.units) return load;
  const int32_t blocks = work.decode_blocks, small = load.units - load.large;
  const auto rounds = [&](int32_t count) { return (count + blocks - 1) / blocks; };
  const int32_t average = (load.large * kLarge + small * kSmall + load.items - 1) / load.items;
  const bool folded_here = most <= kFoldedHere;
  const int32_t each = folded_here ? kApart + kFold * most : kLongApart,
                apart = (load.units <= blocks ? each : rounds(load.large) * each + rounds(small) * each / 2) + (folded_here ? 0 : kMerge);
  load.split = 10 * max(longest, rounds(load.items) * average) > 11 * apart;
  return load;
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
  return tile;
}

// The wide tiles of one block of threads: the longest histories first, dealt out forwards and backwards in turn, so that no block has the
// longest every time.
class Walk {
 public:
  __device__ explicit Walk(const AttentionWork& work) : work_(work) {}
  // By a whole warp.
  __device__ bool next(Tile& tile) {
    const int32_t groups = work_.kv.kv_heads, heads = work_.heads;
    const auto blocks = static_cast<int32_t>(gridDim.x), block = static_cast<int32_t>(blockIdx.x);
    const auto tiles = [&](const BatchSegment& s) { return is_narrow(s, heads) ? 0 : (s.row_count * heads + kWideRows - 1) / kWideRows; };
    for (; round_ * blocks < work_.wide_tiles; ++round_) {
      const int32_t at = round_ * blocks + (round_ % 2 != 0 ? blocks - 1 - block : block);
      if (at >= work_.wide_tiles) continue;
      const Found found =
          find_unit(work_.wide_tiles - 1 - at, work_, work_.wide_segments, [&](const BatchSegment& s) { return tiles(s) * groups; });
      if (found.segment < 0) continue;
      tile = make_tile(work_, found.segment, found.offset % groups, found.offset / groups * kWideRows, kWideRows);
      ++round_;
      return true;
    }
    return false;
  }

 private:
  const AttentionWork& work_;
  int32_t round_ = 0;
};

// One unit of narrow work as a block sees it.
struct Unit {
  int32_t valid;
  int32_t batch_row, position, rows, group;  // of the item
  int32_t chunk, begin_block, end_block;     // blocks of keys that are seen
  int32_t all_from;                          // keys that every row sees, up to the first row's position
  int32_t fresh, last;                       // whether the unit before was another item's, and the unit behind is
  int32_t kept;                              // where its sums are kept apart; -1: they are not
  int32_t first_kept, kept_count;            // of its item
  BlockId ids[kChunkBlocks];                 // of the chunk's blocks, from begin_block on
};

// The units of one block of threads, one after another. By one warp.
struct DecodeWalk {
  DecodeLoad load;
  int32_t at;  // item, or unit
  Found found;
  int32_t chunk, count;  // of the item

  __device__ void start(const AttentionWork& work) {
    load = decode_load(work);
    at = static_cast<int32_t>(blockIdx.x);
    found = {-1, 0};
    chunk = count = 0;
  }

  __device__ void next(const AttentionWork& work, Unit& unit) {
    const int32_t heads = work.heads, groups = work.kv.kv_heads, lane = static_cast<int32_t>(threadIdx.x) % 32;
    const auto blocks = static_cast<int32_t>(gridDim.x);
    if (!load.split) {
      const bool fresh = chunk == count;
      if (fresh) {  // the next item
        found = at < load.items
                    ? find_unit(at, work, work.segment_count, [&](const BatchSegment& s) { return is_narrow(s, heads) ? groups : 0; })
                    : Found{-1, 0};
        at += blocks;
        chunk = 0;
        count = found.segment < 0 ? 0 : chunk_count(work.segments[found.segment], work.kv);
      }
      if (found.segment < 0)
        unit.valid = 0;
      else
        fill(work, unit, found, chunk, fresh, chunk + 1 == count, -1, 0, 0), ++chunk;
      return;
    }
    // Large chunks first, so that who has fewer of them gets the small ones.
    const bool large = at < load.large;
    const auto mine = [&](const BatchSegment& s) {
      if (!is_narrow(s, heads)) return 0;
      const SegmentChunks chunks = segment_chunks(s, work.kv);
      return large ? chunks.large : chunks.count - chunks.large;
    };
    found = at < load.units ? find_unit(at - (large ? 0 : load.large), work, work.segment_count,
                                        [&](const BatchSegment& s) { return mine(s) * groups; })
                            : Found{-1, 0};
    at += blocks;
    if (found.segment < 0) {
      unit.valid = 0;
      return;
    }
    const SegmentChunks chunks = segment_chunks(work.segments[found.segment], work.kv);
    const int32_t each = mine(work.segments[found.segment]), group = found.offset / each, nth = found.offset % each;
    const int32_t which = large ? nth + (chunks.first_is_large ? 0 : 1) : nth == 0 && !chunks.first_is_large ? 0 : chunks.count - 1;
    int32_t before = 0;
    for (int32_t s = lane; s < found.segment; s += 32)
      before += is_narrow(work.segments[s], heads) ? chunk_count(work.segments[s], work.kv) * groups : 0;
    const int32_t first_kept = __reduce_add_sync(0xFFFFFFFFu, before) + group * chunks.count;
    fill(work, unit, {found.segment, group}, which, true, true, first_kept + which, first_kept, chunks.count);
  }

 private:
  // Chunk `chunk` of the item's.
  __device__ static void fill(const AttentionWork& work, Unit& unit, const Found& item, int32_t chunk, bool fresh, bool last, int32_t kept,
                              int32_t first_kept, int32_t kept_count) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const Tile tile = make_tile(work, item.segment, item.offset, 0, kTileRows);
    const int32_t whole = tile.chunk + chunk, begin = max(whole * kChunkBlocks, tile.first_key / kBlockTokens),
                  end = min((whole + 1) * kChunkBlocks, tile.last_key / kBlockTokens + 1);
    if (lane < end - begin) unit.ids[lane] = tile.table[begin + lane];
    if (lane > 0) return;
    unit.valid = 1;
    unit.batch_row = tile.batch_row;
    unit.position = tile.position;
    unit.rows = tile.rows;
    unit.group = item.offset;
    unit.chunk = whole;
    unit.begin_block = begin;
    unit.end_block = end;
    const int32_t last_row = tile.position + (tile.rows - 1) / work.heads;
    unit.all_from = work.kv.window > 0 && last_row >= work.kv.window ? last_row - work.kv.window + 1 : 0;
    unit.fresh = fresh ? 1 : 0;
    unit.last = last ? 1 : 0;
    unit.kept = kept;
    unit.first_kept = first_kept;
    unit.kept_count = kept_count;
  }
};

}  // namespace kaiju::cuda
