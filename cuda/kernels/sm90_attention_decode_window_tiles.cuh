// The shared memory of decode attention over a window on Hopper, and the copies into it: which keys each block of a
// pair has, and the tiles of keys, queries and values (sm90_attention_decode_window.cuh). Values replace keys, weights
// replace queries, and the other block's sums replace weights, so that blocks of the next matmul fit beside a pair.
#pragma once

#include <algorithm>

#include "../launch/tiles.hpp"
#include "../tiles/sm90_cluster.cuh"
#include "sm90_attention_decode_chunk.cuh"

namespace kaiju::cuda {

constexpr int32_t kPairGroups = 3;  // warpgroups
constexpr int32_t kPairThreads = 128 * kPairGroups;
constexpr int32_t kPairRegisters =
    104;  // of a thread: with more, blocks of o would find no room beside a pair's (sm90_matmul.cuh)
constexpr int32_t kPairBlocks = kChunkBlocks + 1;                // of keys, that a block of threads has at most
constexpr int32_t kPairGroupBlocks = kPairBlocks / kPairGroups;  // that a warpgroup has
constexpr int64_t kPairChunks = 3;                               // that an item has at most
// Items for which this is faster than sm90_attention_decode.cuh: some 66 pairs run at once on an H200, the others
// after them.
constexpr int64_t kMostWindows = 160;

// Where things are in shared memory.
template <int kHeadDim, int kRows>
struct WindowMap {
  static constexpr int32_t kTile = kTileBytes<kHeadDim>;
  static constexpr int32_t kQueryRows = kRows == 40 ? 48 : kRows;  // no product has 40 columns
  static constexpr int32_t kFours = (kRows / 4 + 3) / 4;           // of a thread's sums of every second row
  static constexpr int32_t kWeightBytes = 2 * kRows * kBlockTokens, kFourBytes = kFours * 2 * kHeadDim * 16;
  static constexpr int32_t kTiles = 0, kWeights = kPairBlocks * kTile, kQueries = kWeights, kInbox = kWeights,
                           kTold =
                               kWeights + std::max({kPairBlocks * kWeightBytes, kQueryRows * kHeadDim, 2 * kFourBytes}),
                           kFolds = kTold + kRows / 2 * 16, kScales = kFolds + kRows / 2 * 16,
                           kEnd = kScales + kHeadDim * static_cast<int32_t>(sizeof(float));
};

template <int kRows>
struct WindowShared : ChunkShared<kRows> {
  uint64_t keys[kPairBlocks], values[kPairBlocks];  // that tiles are there
  uint64_t told;                                    // maxima and sums of weights of the other's chunks
  uint64_t arrived;                                 // its sums
};

// The share of a block of threads in its item.
template <int kHeadDim, int kRows, class Weight>
class WindowTiles : protected ChunkSteps<kHeadDim, kRows, Weight> {
 protected:
  using Steps = ChunkSteps<kHeadDim, kRows, Weight>;
  using Steps::kTile, Steps::thread, Steps::warpgroup, Steps::lane, Steps::uniform, Steps::copy_async, Steps::work_,
      Steps::base_;
  using Map = WindowMap<kHeadDim, kRows>;

  __device__ WindowTiles(const AttentionWork& work, WindowShared<kRows>& shared, uint8_t* memory)
      : Steps(work, shared, memory), shared_(shared), rank_(static_cast<int32_t>(cluster_rank())) {}

  // A sequence's token and rows of a KV head.
  struct Item {
    int32_t segment, group, place, rows,
        position;  // place: of its first row in queries and results; segment -1: there is none
    const BlockId* table;
  };
  __device__ Item find() const {
    const int32_t items = work_.kv.kv_heads * work_.row_parts, at = cluster_index();
    const Found found = work_.one_row_each ? Found{at / items, at % items}
                                           : find_unit(at, work_, work_.segment_count, [&](const BatchSegment& s) {
                                               return is_narrow(s, work_) ? items : 0;
                                             });
    if (found.segment < 0) return {-1};
    const int32_t group = found.offset / work_.row_parts,
                  first_row = found.offset % work_.row_parts * work_.narrow_rows;
    const BatchSegment& segment = work_.segments[found.segment];
    const BlockId* table = segment.table[static_cast<int32_t>(work_.kv.kind)];
    return {found.segment,
            group,
            segment.first_row * work_.args.heads + group * work_.heads + first_row,
            min(work_.heads - first_row, work_.narrow_rows),
            segment.position,
            table};
  }

  // A block's blocks of keys: those of its first chunk, then those of its second; places count them.
  struct Parts {
    int32_t begin[2], count[2];
    Parts() = default;
    __device__ Parts(int32_t position, const KvSlot& kv, int32_t rank) {
      const SeenBlocks seen(BatchSegment{0, 1, position}, kv);
      const int32_t border = (seen.first_chunk() + 1) * kChunkBlocks, next = border + kChunkBlocks;
      begin[0] = rank == 0 ? border : seen.first;
      count[0] = uniform(max(0, min(rank == 0 ? next : border, seen.end) - begin[0]));
      begin[1] = next;
      count[1] = uniform(rank == 0 ? 0 : max(0, seen.end - next));
    }
    __device__ int32_t all() const { return count[0] + count[1]; }
    __device__ int32_t chunks() const { return (count[0] > 0 ? 1 : 0) + (count[1] > 0 ? 1 : 0); }
    __device__ int32_t part(int32_t place) const { return place >= count[0] ? 1 : 0; }
    __device__ int32_t block(int32_t place) const {
      return place < count[0] ? begin[0] + place : begin[1] + place - count[0];
    }
  };

  // The tile that a thread asks for: lane 0 of a warp one of keys, lane 1 the values of these.
  struct Tile {
    const std::byte* from;
    bool values, is_old;  // is_old: no kernel of this step writes it
  };
  __device__ Tile tile_of(const Item& item) const {
    const int32_t place = thread() / 32;
    const bool values = lane() == 1;
    if (lane() > 1 || place >= part_.all()) return {nullptr, values, true};
    const KvSlot& kv = work_.kv;
    const int32_t block = part_.block(place);
    return {kv.pool + kv.slot_offset + int64_t{item.group} * 2 * kTile + (values ? kTile : 0) +
                item.table[block] * kv.block_bytes,
            values, block < item.position / kBlockTokens};
  }
  static_assert(kPairThreads / 32 >= kPairBlocks);
  __device__ void ask(const Tile& tile) {
    if (!tile.from) return;
    const int32_t place = thread() / 32;
    const uint32_t barrier = shared_address(tile.values ? &shared_.values[place] : &shared_.keys[place]);
    barrier_expect(barrier, kTile);
    copy_bulk(slot(place), tile.from, kTile, barrier, work_.keys_once ? policy_evict_first() : policy_evict_normal());
  }
  // In pieces of 16 bytes, a row's all kQueryRows pieces apart.
  __device__ __forceinline__ void ask_for_queries(const Item& item) const {
    constexpr int32_t kPieces = kRows * kHeadDim / 16;
#pragma unroll
    for (int i = 0; i < (kPieces + kPairThreads - 1) / kPairThreads; ++i) {
      const int32_t at = thread() + i * kPairThreads, row = at % kRows, piece = at / kRows;
      if (at < kPieces && row < item.rows)
        copy_async(base_ + static_cast<uint32_t>(Map::kQueries + (piece * Map::kQueryRows + row) * kColumnBytes),
                   work_.args.queries + int64_t{item.place + row} * kHeadDim + piece * 16);
    }
  }

  __device__ uint32_t slot(int32_t place) const { return base_ + static_cast<uint32_t>(Map::kTiles + place * kTile); }
  // Of the warpgroup's blocks.
  __device__ int32_t place(int k) const { return warpgroup() * kPairGroupBlocks + k; }
  __device__ bool has(int k) const { return place(k) < part_.all(); }
  __device__ void wait(uint64_t& barrier) const { barrier_wait(shared_address(&barrier), 0); }

  WindowShared<kRows>& shared_;
  int32_t rank_;  // in the pair
  Parts part_;
};

}  // namespace kaiju::cuda
