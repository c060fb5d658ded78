// The shared memory of decode attention on Hopper, and the copies into it. The tiles of a chunk (64 keys, or the values
// of 64 keys) pass through one ring, the keys of a chunk before its values; queries have a place beside the ring. This
// file also defines which thread has which rows, keys and channels.
#pragma once

#include "../tiles/dependent_launch.cuh"
#include "../tiles/sm90_barrier.cuh"
#include "../tiles/sm90_copy.cuh"
#include "../tiles/sm90_wgmma_attention.cuh"
#include "sm90_attention_decode_plan.cuh"

namespace kaiju::cuda {

constexpr int32_t kDecodeGroups = 2;  // warpgroups
constexpr int32_t kDecodeThreads = 128 * kDecodeGroups;
constexpr int32_t kDecodeBlocks = 2;                            // of threads, on a multiprocessor
constexpr int32_t kGroupBlocks = kChunkBlocks / kDecodeGroups;  // of keys, that a warpgroup has of a chunk
constexpr int32_t kSlots = kChunkBlocks;                        // of the ring
constexpr int32_t kHalfBlocks = kChunkBlocks / 2;
constexpr int32_t kUnseen = -(1 << 30);  // no score

// Where things are in shared memory.
template <int kHeadDim, int kRows>
struct ChunkMap {
  static_assert(kRows == 8 || kRows == 16 || kRows == 32 || kRows == 40);
  static constexpr int32_t kRing = 0;
  static constexpr int32_t kWeights =
      kRing + kSlots * kTileBytes<kHeadDim>;  // of half a chunk: columns of 2 kRows, high bytes, then low
  static constexpr int32_t kQueries = kWeights + kRows * arith::kChunkKeys;
  static constexpr int32_t kEnd = kQueries + kRows * kHeadDim;
};

template <int kRows>
struct ChunkShared {
  uint64_t full[kSlots];
  alignas(16) int32_t maximum[2][kRows];  // of scores; of this unit and the next
  alignas(8) uint32_t sum[2][kRows];      // of weights
  alignas(8) int32_t see_from[kRows];     // of this unit's rows
  alignas(8) int32_t see_to[kRows];
};

// A block of threads that goes through the chunks of its units.
template <int kHeadDim, int kRows, class Weight>
class ChunkTiles {
 protected:
  using Map = ChunkMap<kHeadDim, kRows>;
  static constexpr int32_t kTile = kTileBytes<kHeadDim>, kColumns = kRows / 8;
  static constexpr int32_t kSummers = 2 * kHeadDim;  // threads that have sums
  static_assert(kSummers <= kDecodeThreads);

  __device__ ChunkTiles(const AttentionWork& work, ChunkShared<kRows>& shared, uint8_t* memory)
      : work_(work), chunk_(shared), memory_(memory), base_(shared_address(memory)), weight_(work) {}

  // By one thread, before the first barrier of the block.
  __device__ void begin() {
    for (int32_t slot = 0; slot < kSlots; ++slot) barrier_init(shared_address(&chunk_.full[slot]), 1);
    publish_stores();
  }

  // From here on nothing is known of thread(): else what follows from it would be found before the loop and kept in
  // registers that are not there.
  __device__ __forceinline__ void forget() { asm volatile("" : "+r"(thread_)); }
  __device__ int32_t thread() const { return thread_; }
  __device__ int32_t warpgroup() const { return warpgroup_; }
  __device__ int32_t warp() const { return thread() % 128 / 32; }
  __device__ bool is_planner() const { return thread() / 32 == 7; }
  __device__ bool is_summer() const { return kSummers == kDecodeThreads || thread() < kSummers; }
  __device__ bool in_rows() const { return thread() < kRows; }
  __device__ int32_t lane() const { return thread() % 32; }
  __device__ int32_t g() const { return lane() / 4; }
  __device__ int32_t t() const { return lane() % 4; }

  // Of what all lanes have, so that the compiler knows.
  __device__ static int32_t uniform(int32_t x) { return __shfl_sync(0xFFFFFFFFu, x, 0); }

  // A unit's blocks of keys, counted from the first that is seen: how many there are, and which of them all rows see
  // whole.
  struct Blocks {
    int32_t count, clear_from, clear_end;
    __device__ explicit Blocks(const Unit& unit)
        : count(uniform(unit.end_block - unit.begin_block)),
          clear_from(uniform((unit.all_from + kBlockTokens - 1) / kBlockTokens - unit.begin_block)),
          clear_end(uniform((unit.position + 1) / kBlockTokens - unit.begin_block)) {}
  };
  // Of the warpgroup's blocks of a chunk, counted so; and that one as the sequence counts them.
  __device__ int32_t place(int k) const { return warpgroup() + kDecodeGroups * k; }
  __device__ int32_t block(const Unit& unit, int k) const { return unit.begin_block + place(k); }
  __device__ static int32_t block_count(const Unit& unit) { return unit.end_block - unit.begin_block; }
  __device__ bool has(const Blocks& blocks, int k) const { return place(k) < blocks.count; }
  // Whether a row does not see a key of the block.
  __device__ bool is_masked(const Blocks& blocks, int k) const {
    return place(k) < blocks.clear_from || place(k) >= blocks.clear_end;
  }

  // Tiles go through the ring in order: a unit's keys, its values, the next unit's keys and values. Tile n has slot n %
  // kSlots.
  __device__ uint32_t full(int32_t n) { return shared_address(&chunk_.full[n % kSlots]); }
  __device__ void wait_for_tile(int32_t n) { barrier_wait(full(n), static_cast<uint32_t>(n / kSlots % 2)); }
  __device__ uint32_t slot(int32_t n) const { return base_ + static_cast<uint32_t>(Map::kRing + n % kSlots * kTile); }
  // Asks for tiles `from` ... `end` - 1, kSlots at most, of this unit, whose first is `first`, and of the next. By all
  // warps, one each.
  __device__ void copy_tiles(int32_t first, int32_t from, int32_t end, const Unit& unit, const Unit& next) {
    const int32_t n = from + thread() / 32, behind = first + 2 * block_count(unit);
    if (n >= end || lane() != 0) return;
    if (n < behind)
      ask_for_tile(unit, n - first, n);
    else
      ask_for_tile(next, n - behind, n);
  }
  // Tile `at` of the unit's, the n-th of all.
  __device__ void ask_for_tile(const Unit& unit, int32_t at, int32_t n) {
    const std::byte* from = tile_of(unit, at);
    barrier_expect(full(n), kTile);
    copy_bulk(slot(n), from, kTile, full(n), work_.keys_once ? policy_evict_first() : policy_evict_normal());
  }
  __device__ const std::byte* tile_of(const Unit& unit, int32_t at) const {
    const bool values = at >= block_count(unit);
    return work_.kv.pool + work_.kv.slot_offset + int64_t{unit.group} * 2 * kTile + (values ? kTile : 0) +
           unit.ids[values ? at - block_count(unit) : at] * work_.kv.block_bytes;
  }
  // Asks for the first tiles of the first unit: before the kernels in front have ended for those that no kernel of this
  // step writes, and then for the others, and the L2 cache for those behind, which would delay the first. By all warps,
  // twice.
  __device__ void ask_first(const Unit& unit, bool old) {
    const int32_t count = block_count(unit), at = thread() / 32 + lane() * kSlots;
    if (lane() > (old ? 0 : 1) || at >= 2 * count) return;
    if (lane() == 1)
      prefetch_bulk_once(tile_of(unit, at), kTile);
    else if ((unit.begin_block + (at < count ? at : at - count) < unit.position / kBlockTokens) == old)
      ask_for_tile(unit, at, at);
  }
  static_assert(kDecodeThreads / 32 == kSlots);

  // Pieces of 16 bytes of a row.
  __device__ __forceinline__ void ask_for_queries(const Unit& unit) const {
    constexpr int32_t kPieces = kRows * kHeadDim / 16;
#pragma unroll 1
    for (int32_t at = thread(); at < kPieces; at += kDecodeThreads) {
      const int32_t row = at % kRows;
      if (row < unit.rows)
        copy_async(base_ + static_cast<uint32_t>(Map::kQueries + at * 16),
                   work_.args.queries + row_offset(unit, row) + at / kRows * 16);
    }
  }
  __device__ __forceinline__ static void copy_async(uint32_t to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  }
  __device__ __forceinline__ static void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
  // Of a row in queries and results: which it is there, and where.
  template <class Item>
  __device__ int64_t place_of_row(const Item& item, int32_t row) const {
    const int32_t token = row < work_.heads ? 0 : row / work_.heads, head = row - token * work_.heads;
    return int64_t{item.place} + token * work_.args.heads + head;
  }
  template <class Item>
  __device__ int64_t row_offset(const Item& item, int32_t row) const {
    return place_of_row(item, row) * kHeadDim;
  }
  __device__ int32_t first_visible(int32_t position) const {
    return work_.kv.window > 0 && position >= work_.kv.window ? position - work_.kv.window + 1 : 0;
  }
  // What row thread() sees.
  __device__ __forceinline__ void describe_row(const Unit& unit) {
    const int32_t row = thread(), position = unit.position + row / work_.heads;
    const bool valid = row < unit.rows;
    chunk_.see_from[row] = valid ? first_visible(position) : 0;
    chunk_.see_to[row] = valid ? position : -1;
  }

  const AttentionWork& work_;
  ChunkShared<kRows>& chunk_;
  uint8_t* memory_;
  uint32_t base_;  // of memory_
  Weight weight_;
  int32_t thread_ = static_cast<int32_t>(threadIdx.x), warpgroup_ = uniform(static_cast<int32_t>(threadIdx.x) / 128);
};

}  // namespace kaiju::cuda
