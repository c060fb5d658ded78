// The shared memory of prefill attention on Hopper, and the copies into it. The warp that copies keys finds the tiles
// (Walk) and passes them to all other warps through a small ring. Keys and values have one ring each.
#pragma once

#include "../tiles/dependent_launch.cuh"
#include "../tiles/sm90_barrier.cuh"
#include "../tiles/sm90_copy.cuh"
#include "../tiles/sm90_wgmma_attention.cuh"
#include "attention_work.cuh"

namespace kaiju::cuda {

// The wide tiles of one of `takers` (blocks of threads, or clusters of them): the longest histories first, dealt out
// forwards and backwards in turn, so that no taker has the longest every time.
class Walk {
 public:
  __device__ explicit Walk(const AttentionWork& work) : work_(work) {}
  // By a whole warp.
  __device__ bool next(int32_t taker, int32_t takers, int32_t tile_rows, RowTile& tile) {
    const int32_t groups = work_.kv.kv_heads, heads = work_.heads;
    const auto tiles = [&](const BatchSegment& s) {
      return is_narrow(s, work_) ? 0 : (s.row_count * heads + tile_rows - 1) / tile_rows;
    };
    for (; round_ * takers < work_.wide_tiles; ++round_) {
      const int32_t at = round_ * takers + (round_ % 2 != 0 ? takers - 1 - taker : taker);
      if (at >= work_.wide_tiles) continue;
      const Found found = find_unit(work_.wide_tiles - 1 - at, work_, work_.wide_segments,
                                    [&](const BatchSegment& s) { return tiles(s) * groups; });
      if (found.segment < 0) continue;
      tile = make_tile(work_, found.segment, found.offset % groups, found.offset / groups * tile_rows, tile_rows);
      ++round_;
      return true;
    }
    return false;
  }

 private:
  const AttentionWork& work_;
  int32_t round_ = 0;
};

// A few tiles in shared memory: found by the warp that copies keys, before the others need them. A tile without rows is
// the last.
class TileRing {
 public:
  static constexpr uint32_t kCount = 4, kBytes = kCount * (16 + sizeof(RowTile));
  __device__ explicit TileRing(uint8_t* memory)
      : tiles_(reinterpret_cast<RowTile*>(memory)), barriers_(shared_address(tiles_ + kCount)) {}
  __device__ void init() const {
    for (uint32_t i = 0; i < kCount; ++i) barrier_init(full(i), 1), barrier_init(empty(i), kReaders * kWarpArrivals);
  }
  // These by whole warps.
  // There until as many more have been put.
  __device__ const RowTile& put(const RowTile& tile) {
    RowTile& to = tiles_[slot_];
    barrier_wait(empty(slot_), phase_ ^ 1);
    if (threadIdx.x % 32 == 0) {
      to = tile;
      barrier_arrive(full(slot_));
    }
    __syncwarp();
    advance();
    return to;
  }
  // There until it is popped.
  __device__ const RowTile& front() const {
    barrier_wait(full(slot_), phase_);
    return tiles_[slot_];
  }
  __device__ const RowTile& second() const {
    TileRing next = *this;
    next.advance();
    return next.front();
  }
  __device__ void pop() {
    __syncwarp();
    if (kWarpArrivals == 32 || threadIdx.x % 32 == 0) barrier_arrive(empty(slot_));
    advance();
  }

 private:
  static constexpr uint32_t kReaders = 9;  // warps: eight that compute, one that copies values
  __device__ uint32_t full(uint32_t slot) const { return barriers_ + 8 * slot; }
  __device__ uint32_t empty(uint32_t slot) const { return barriers_ + 8 * (kCount + slot); }
  __device__ void advance() {
    slot_ = (slot_ + 1) % kCount;
    if (slot_ == 0) phase_ ^= 1;
  }
  RowTile* tiles_;
  uint32_t barriers_, slot_ = 0, phase_ = 0;
};

constexpr int32_t kRingBarrierBytes = 512;  // 16 slots of keys, 16 of values, full and empty

struct alignas(8) RowSees {
  int32_t from, to;  // keys
};
// Of a row, besides the totals of its channels.
struct alignas(8) RowTotal {
  int32_t maximum;
  float weight;
};

// A ring of slots: full and empty barriers, and the slot that the reader or the writer is at.
struct Ring {
  uint32_t full, empty, data;
  int32_t count, slot = 0;
  uint32_t phase = 0;
  __device__ void advance() {
    if (++slot == count) slot = 0, phase ^= 1;
  }
};
// Where things are in shared memory. kSharers: warpgroups that have the same 64 rows; 1: each has its own.
template <int kHeadDim, int kSharers_>
struct TileMap {
  static constexpr int32_t kSharers = kSharers_, kRows = kWideRows / kSharers;
  static constexpr bool kShared = kSharers > 1;
  static constexpr int32_t kTotalBytes = kRows / 2 * kHeadDim * static_cast<int32_t>(sizeof(float));  // of a warpgroup
  static constexpr int32_t kTiles = kRingBarrierBytes;
  static constexpr int32_t kSees = kTiles + static_cast<int32_t>(TileRing::kBytes);
  static constexpr int32_t kRowTotals = kSees + kRows * static_cast<int32_t>(sizeof(RowSees));
  static constexpr int32_t kOfShared =
      kRowTotals + kRows * static_cast<int32_t>(sizeof(RowTotal));  // sm90_attention_prefill_cluster.cuh
  static constexpr int32_t kQueries = (kOfShared + (kShared ? 64 + 2 * kTileRows * 8 : 64) + 127) / 128 * 128;
  static constexpr int32_t kTotals = kQueries + kRows / kTileRows * kTileBytes<kHeadDim>;
  static constexpr int32_t kGiven =
      kTotals + 2 * kTotalBytes;  // sums of a chunk that one warpgroup has found for the other
  static constexpr int32_t kRings = kGiven + (kShared ? 2 * kTotalBytes : 0);
};

// The ring of keys or of values.
template <int kHeadDim, class Map>
__device__ inline Ring make_ring(const AttentionWork& work, uint32_t base, bool values) {
  constexpr int32_t kBytes = kTileBytes<kHeadDim>;
  const int32_t barriers = values ? kRingBarrierBytes / 2 : 0,
                data = Map::kRings + (values ? work.key_slots * kBytes : 0);
  return {base + static_cast<uint32_t>(barriers), base + static_cast<uint32_t>(barriers + kRingBarrierBytes / 4),
          base + static_cast<uint32_t>(data), values ? work.value_slots : work.key_slots};
}

// One warp: the keys or the values of all tiles into a ring. The warp of the keys finds the tiles. Of `blocks` of
// threads that share tiles each takes a chunk in turn.
template <int kHeadDim, class Map>
__device__ void produce(const AttentionWork& work, uint8_t* memory, bool values, int32_t rank, int32_t blocks) {
  constexpr int32_t kBytes = kTileBytes<kHeadDim>;
  Ring ring = make_ring<kHeadDim, Map>(work, shared_address(memory), values);
  TileRing tiles(memory + Map::kTiles);
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  Walk walk(work);
  for (;;) {
    const auto find = [&] {
      RowTile found;
      const auto block = static_cast<int32_t>(blockIdx.x), all = static_cast<int32_t>(gridDim.x);
      return walk.next(block / blocks, all / blocks, Map::kRows, found) ? found : RowTile{};  // no rows, from row 0 on
    };
    const RowTile& tile = values ? tiles.front() : tiles.put(find());
    if (tile.rows == 0) return wait_for_inputs();
    const std::byte* half =
        work.kv.pool + work.kv.slot_offset + int64_t{tile.group} * 2 * kBytes + (values ? kBytes : 0);
    for (int32_t chunk = tile.chunk + rank; chunk < tile.end_chunk; chunk += blocks) {
      const int32_t begin = tile.begin_block(chunk), count = tile.end_block(chunk) - begin;
      const BlockId ids = lane < count ? tile.table[begin + lane] : 0;  // a lane has one
      for (int32_t i = 0; i < count; ++i) {
        if (begin + i >= tile.position / kBlockTokens) wait_for_inputs();  // kernels of this step write it
        const std::byte* from = half + __shfl_sync(0xFFFFFFFFu, ids, i) * work.kv.block_bytes;
        if (lane == 0) {
          const uint32_t full = ring.full + 8 * ring.slot;
          barrier_wait(ring.empty + 8 * ring.slot, ring.phase ^ 1);
          barrier_expect(full, kBytes);
          copy_bulk(ring.data + static_cast<uint32_t>(ring.slot * kBytes), from, kBytes, full);
        }
        __syncwarp();
        ring.advance();
      }
    }
    if (values) tiles.pop();
  }
}

// By a warp.
template <int kHeadDim, class Map>
__device__ void init_rings(const AttentionWork& work, uint8_t* memory) {
  const auto lane = static_cast<int32_t>(threadIdx.x);
  if (lane == 0) TileRing(memory + Map::kTiles).init();
  for (int values = 0; values < 2; ++values) {
    const Ring at = make_ring<kHeadDim, Map>(work, shared_address(memory), values != 0);
    for (int32_t i = lane; i < at.count; i += 32) {
      barrier_init(at.full + 8 * i, 1);
      barrier_init(at.empty + 8 * i, 8 / Map::kSharers);  // warps that read it
    }
  }
  publish_stores();
}
}  // namespace kaiju::cuda
