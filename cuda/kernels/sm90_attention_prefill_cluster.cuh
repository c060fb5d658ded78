// Prefill attention on Hopper for few tiles: the thread blocks of a cluster share a tile of 128 rows, or of 64 rows,
// which then the two warpgroups of a block share too (the steps: sm90_attention_prefill_steps.cuh).
//
// The blocks take the chunks of a tile in turn. Chunks are folded in the order that the contract requires: the totals
// of a warp's rows pass from block to block through distributed shared memory while the blocks compute their next
// chunks. So no partial sums are stored in global memory, however long the history is. If warpgroups share rows, each
// has every second block of a chunk's keys. They exchange the maxima of rows, and then half of the sums: in the end
// warpgroup 0 has the upper one of a thread's two rows and warpgroup 1 the lower. Bound: as for many tiles, plus the
// waits between chunks.
#pragma once

#include "../tiles/sm90_cluster.cuh"
#include "sm90_attention_prefill.cuh"

namespace kaiju::cuda {

template <int kHeadDim, class Weight, int kSharers>
class SharedTile : TileSteps<kHeadDim, Weight, kSharers> {
  using Steps = TileSteps<kHeadDim, Weight, kSharers>;
  using Steps::kPieces, Steps::kFours, Steps::forget, Steps::warp, Steps::lane, Steps::column, Steps::sync_rows,
      Steps::row, Steps::row_total, Steps::writes_rows, Steps::four, Steps::total, Steps::load_queries, Steps::begin,
      Steps::is_masked, Steps::find_maxima, Steps::find_against, Steps::sum_values, Steps::take_turn, Steps::give_turn,
      Steps::whole, Steps::join, Steps::result_of, Steps::store, Steps::warpgroup_, Steps::tiles_, Steps::keys_,
      Steps::values_, Steps::masked_, Steps::maximum_, Steps::high_sums_, Steps::low_sums_;
  using typename Steps::Join;

 public:
  using typename Steps::Map;
  __device__ SharedTile(const AttentionWork& work, uint8_t* memory, int32_t warpgroup)
      : Steps(work, memory, warpgroup), rank_(cluster_rank()), blocks_(cluster_blocks()) {}
  // By a warp: what is handed on has a place once the blocks have met.
  __device__ static void init(uint8_t* memory) {
    if (threadIdx.x < 8) barrier_init(shared_address(memory + kHanded + 8 * threadIdx.x), 1);
    barrier_init_done();
  }

  __device__ void run() {
    wait_for_inputs();
    if (!Map::kShared && warpgroup_ == 1) give_turn();  // the other is the first
    // A cluster has one tile at most. That it is looked for in a loop, and the last barrier, are for the compiler
    // (13.0), which else spills registers and puts products in turn.
    for (; tiles_.front().rows > 0; tiles_.pop()) {
      const RowTile& tile = tiles_.front();
      uint4 queries[kPieces];
      load_queries(tile, queries);
      begin(tile, queries);
      if (Map::kShared && warpgroup_ == 1) keys_.advance(), values_.advance();
      int32_t before = 0;  // blocks of keys that have gone through the rings
      for (int32_t chunk = tile.chunk + rank_; chunk < tile.end_chunk; chunk += blocks_) {
        const int32_t begin_block = tile.begin_block(chunk), end_block = tile.end_block(chunk);
        const int32_t first = begin_block + (Map::kShared ? (warpgroup_ ^ before) & 1 : 0);  // of this warpgroup's
        before += end_block - begin_block;
        int32_t high[kHeadDim / 2], low[kHeadDim / 2];
        masked_ = is_masked(begin_block) || is_masked(end_block - 1);
        if constexpr (Map::kShared) {
          find_maxima(first, end_block);
          share_maxima();
        } else {
          take_turn();
          find_maxima(first, end_block);
          give_turn();
        }
        sum_values(first, end_block, high, low);
        fold(tile, high, low, chunk);
      }
    }
    if (!Map::kShared && warpgroup_ == 0) take_turn();  // the last that was given
    sync_rows();
  }

 private:
  // Barriers, one a warp; and of rows, what each warpgroup has found of a chunk: maximum, and sum of weights.
  static constexpr int32_t kHanded = Map::kOfShared, kParts = kHanded + 64;
  static_assert(kParts + (Map::kShared ? 2 * kTileRows * static_cast<int32_t>(sizeof(int2)) : 0) <= Map::kQueries);
  __device__ int2& part(int32_t warpgroup, int r) const {
    return reinterpret_cast<int2*>(shared_memory() + kParts)[warpgroup * kTileRows + row(r)];
  }
  __device__ void share_maxima() {
    forget();
    for (int r = 0; r < 2; ++r)
      if (writes_rows()) part(warpgroup_, r).x = maximum_[r];
    sync_rows();
    for (int r = 0; r < 2; ++r) {
      maximum_[r] = max(maximum_[r], part(1 - warpgroup_, r).x);
      find_against(r);
    }
  }

  // Whoever has folded its chunk hands the totals to the block that has the next one, whose place for them is free,
  // since they are in one place at a time.
  static constexpr int kOwn = 2 / kSharers;  // rows of a thread in the end
  static constexpr uint32_t kHandedBytes = 8 * kOwn * (sizeof(RowTotal) + kHeadDim * sizeof(float));  // of a warp
  // Of the own rows, and of a thread's four sums.
  __device__ int own_row(int r) const { return Map::kShared ? warpgroup_ : r; }
  __device__ static constexpr int row_of(int i) { return Map::kShared ? 0 : i / 2; }
  __device__ uint32_t handed() const {
    return shared_address(shared_memory() + kHanded) + static_cast<uint32_t>((warpgroup_ * 4 + warp()) * 8);
  }
  __device__ void await_totals() {
    if (lane() == 0) barrier_expect(handed(), kHandedBytes);
    barrier_wait(handed(), phase_);
    phase_ ^= 1;
  }

  // The sums of a chunk of the own rows, in fours as totals are, and of their weights.
  __device__ __forceinline__ void own_sums(const int32_t (&high)[kHeadDim / 2], const int32_t (&low)[kHeadDim / 2],
                                           float4 (&own)[kFours], float (&weight)[kOwn]) const {
    uint32_t weights[2];
    for (int r = 0; r < 2; ++r) weights[r] = quad_sum(256 * high_sums_[r] + low_sums_[r]);
    if constexpr (Map::kShared) {
      const bool upper = warpgroup_ == 0;
      // Of half a chunk |256 high + low| is less than 2^31: 256 keys, two bytes of weight, seven bits of value.
      int4 mine[kFours];
#pragma unroll
      for (int j = 0; j < kFours; ++j) {
        const auto sum = [&](int i) { return 256 * high[8 * j + i] + low[8 * j + i]; };
        const int4 of_upper{sum(0), sum(1), sum(4), sum(5)}, of_lower{sum(2), sum(3), sum(6), sum(7)};
        mine[j] = upper ? of_upper : of_lower;
        this->template four<int4>(Map::kGiven, 1 - warpgroup_, j) = upper ? of_lower : of_upper;
      }
      if (writes_rows()) part(warpgroup_, 1 - warpgroup_).y = static_cast<int32_t>(upper ? weights[1] : weights[0]);
      sync_rows();
      weight[0] = static_cast<float>((upper ? weights[0] : weights[1]) +
                                     static_cast<uint32_t>(part(1 - warpgroup_, warpgroup_).y));
      const auto both = [](int32_t a, int32_t b) { return whole((a >> 8) + (b >> 8), (a & 255) + (b & 255)); };
#pragma unroll
      for (int j = 0; j < kFours; ++j) {
        const int4 theirs = this->template four<int4>(Map::kGiven, warpgroup_, j);
        own[j] = {both(mine[j].x, theirs.x), both(mine[j].y, theirs.y), both(mine[j].z, theirs.z),
                  both(mine[j].w, theirs.w)};
      }
    } else {
      for (int r = 0; r < 2; ++r) weight[r] = static_cast<float>(weights[r]);
      float sums[kHeadDim / 2];
      whole(high, low, max(weights[0], weights[1]), sums);
#pragma unroll
      for (int j = 0; j < kFours; ++j) own[j] = {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]};
    }
  }

  __device__ void fold(const RowTile& tile, const int32_t (&high)[kHeadDim / 2], const int32_t (&low)[kHeadDim / 2],
                       int32_t chunk) {
    const bool first = chunk == tile.chunk, last = chunk + 1 == tile.end_chunk;
    forget();
    float4 own[kFours];
    float weight[kOwn];
    own_sums(high, low, own, weight);
    if (!first) await_totals();
    const auto next = static_cast<uint32_t>(rank_ + 1 == blocks_ ? 0 : rank_ + 1);
    const uint32_t there = address_in(shared_address(&total(0)), next), handed_there = address_in(handed(), next);
    Join by[kOwn];
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
      RowTotal& of_row = row_total(own_row(r));
      const RowTotal before = first ? RowTotal{INT32_MIN, 0.0f} : of_row;
      const int32_t maximum = own_row(r) == 0 ? maximum_[0] : maximum_[1];
      by[r] = join(before.maximum, maximum);
      weight[r] = by[r](before.weight, weight[r]);
      if (!last && writes_rows())
        push_to_block(address_in(shared_address(&of_row), next),
                      make_int2(max(before.maximum, maximum), __float_as_int(weight[r])), handed_there);
    }
#pragma unroll
    for (int j = 0; j < kFours; ++j) {
      const float4 t = first ? float4{0.0f, 0.0f, 0.0f, 0.0f} : total(j);
      own[j] = {by[row_of(0)](t.x, own[j].x), by[row_of(1)](t.y, own[j].y), by[row_of(2)](t.z, own[j].z),
                by[row_of(3)](t.w, own[j].w)};
      if (!last)
        push_to_block(there + static_cast<uint32_t>(j * 32 * sizeof(float4)),
                      make_int4(__float_as_int(own[j].x), __float_as_int(own[j].y), __float_as_int(own[j].z),
                                __float_as_int(own[j].w)),
                      handed_there);
    }
    if (!last) return;
    float inverse[kOwn];
    int8_t* to[kOwn];
#pragma unroll
    for (int r = 0; r < kOwn; ++r) inverse[r] = arith::divide(1.0f, weight[r]), to[r] = result_of(tile, own_row(r));
#pragma unroll
    for (int j = 0; j < kFours; ++j) {
      const int32_t channel = 8 * kSharers * j + column();
      store(to[0], tile.group, channel, own[j].x, own[j].y, inverse[0]);
      store(to[kOwn - 1], tile.group, channel + (Map::kShared ? 8 : 0), own[j].z, own[j].w, inverse[kOwn - 1]);
    }
  }

  int32_t rank_, blocks_;  // in the cluster, and how many it has
  uint32_t phase_ = 0;
};

template <int kHeadDim, class Weight, int kSharers>
__global__ void __launch_bounds__(kPrefillThreads, 1)
    sm90_prefill_cluster_kernel(const __grid_constant__ AttentionWork work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Consumer = SharedTile<kHeadDim, Weight, kSharers>;
  uint8_t* memory = shared_memory();
  let_next_start();
  if (threadIdx.x < 32) {
    Consumer::init(memory);
    init_rings<kHeadDim, typename Consumer::Map>(work, memory);
  }
  __syncthreads();
  cluster_sync();
  run_tiles<kHeadDim, Consumer>(work, memory, cluster_rank(), cluster_blocks());
#else
  __trap();  // never launched elsewhere
#endif
}

// How tiles are shared: warpgroups that have the same rows, and blocks of threads in a cluster; none: there are too
// many.
struct Sharing {
  int32_t sharers = 0, blocks = 0;
};
// `tiles`: at most so many, of 64 rows and of 128.
inline Sharing sharing_of(const AttentionWork& work, int32_t tiles_of_64, int32_t tiles_of_128) {
  // As many clusters as run at once on one H200 (132 multiprocessors, by its driver), one block a multiprocessor.
  constexpr struct {
    int32_t sharers, blocks, clusters;
  } kClusters[] = {{2, 8, 15}, {2, 6, 17}, {2, 5, 22}, {2, 4, 30}, {2, 3, 39}, {2, 2, 66}, {1, 3, 39}, {1, 2, 66}};
  const int32_t chunks =
      work.kv.window > 0 ? (work.kv.window - 1) / arith::kChunkKeys + 2 : INT32_MAX;  // that a row sees, at most
  if (work.scratch.apart == ChunksApart::kNever) return {};
  for (const auto& [sharers, blocks, clusters] : kClusters)
    if ((sharers > 1 ? tiles_of_64 : tiles_of_128) <= clusters && blocks <= chunks) return {sharers, blocks};
  return {};
}

template <int kHeadDim, class Weight, int kSharers>
cudaError_t launch_prefill_cluster(cudaStream_t stream, const AttentionWork& work, int32_t tiles, int32_t blocks) {
  return launch_tiles<kHeadDim, TileMap<kHeadDim, kSharers>>(
      stream, sm90_prefill_cluster_kernel<kHeadDim, Weight, kSharers>, work, tiles, tiles, blocks);
}

}  // namespace kaiju::cuda
