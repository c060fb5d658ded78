// Attention of few rows a sequence (decode) over a window, for few sequences: a cluster of blocks takes an item (the steps of a chunk:
// attention_chunk.cuh).
//
// The item's chunks are divided into parts of as few blocks of keys as make no more parts than the cluster has blocks of threads; a block
// takes one. Blocks begin late, when products in front give shared memory back, so every warp finds its first tile by itself and asks for
// it at once. Where a chunk lies in several parts its blocks tell one another the maxima of its scores. Then each has a share of the rows,
// and gets these rows' sums from all others: integers, of which those of a chunk are added, then the chunks folded in order. Bound: the
// latency of one step after the other.
#pragma once

#include <type_traits>

#include "../tiles/hopper.cuh"
#include "../tiles/quantise.cuh"
#include "attention_chunk.cuh"

namespace kaiju::cuda {

constexpr int32_t kMostParts = 8;

template <int kRows>
struct WindowShared : ChunkShared<kRows> {
  uint64_t met;      // the maxima of the other parts of this block's chunk
  uint64_t arrived;  // the sums of this block's rows
  Unit unit;         // this block's part
  int32_t chunk_of_part[kMostParts];
};

template <int kHeadDim, int kRows, class Weight>
class WindowDecoder : ChunkSteps<kHeadDim, kRows, Weight> {
  using Steps = ChunkSteps<kHeadDim, kRows, Weight>;
  using Steps::kTile, Steps::kColumns, Steps::begin, Steps::thread, Steps::is_planner, Steps::is_summer, Steps::in_rows, Steps::lane,
      Steps::full, Steps::slot, Steps::copy_async, Steps::wait_for_copies, Steps::row_offset, Steps::describe_row, Steps::add_all,
      Steps::whole, Steps::channel, Steps::row, Steps::step, Steps::folded, Steps::work_, Steps::chunk_, Steps::memory_, Steps::base_;
  using typename Steps::Map, typename Steps::Score, typename Steps::Step;
  // A row of sums on its way: of all channels, then maximum and sum of weights.
  static constexpr int32_t kStride = kHeadDim + 4, kRowBytes = kStride * static_cast<int32_t>(sizeof(int32_t));
  // Of rows that come from the other blocks of a cluster, part after part.
  static constexpr int32_t inbox_rows(int32_t cluster) { return (cluster - 1) * ((kRows + cluster - 1) / cluster); }
  static constexpr int32_t kInboxRows = std::max(inbox_rows(6), inbox_rows(8));  // of clusters of 3 and 4 fewer
  static constexpr int32_t kLeaving = Map::kWeights, kInbox = Map::kEnd, kScales = kInbox + kInboxRows * kRowBytes;
  static_assert(kLeaving + kRows * kRowBytes <= kInbox);
  static constexpr int32_t kWholeChunk = kChunkBlocks;

 public:
  static constexpr int32_t kBytes = kScales + kHeadDim * static_cast<int32_t>(sizeof(float));

  __device__ WindowDecoder(const AttentionWork& work, WindowShared<kRows>& shared, uint8_t* memory)
      : Steps(work, shared, memory), shared_(shared), rank_(static_cast<int32_t>(cluster_rank())) {}

  __device__ void run() {
    const int32_t items = work_.kv.kv_heads * work_.row_parts, item = static_cast<int32_t>(blockIdx.x) / blocks();
    const Found found = work_.one_row_each ? Found{item / items, item % items}
                                           : find_unit(item, work_, work_.segment_count,
                                                       [&](const BatchSegment& s) { return is_narrow(s, work_) ? items : 0; });
    if (found.segment < 0) return wait_for_inputs();  // the whole cluster
    const int32_t group = found.offset / work_.row_parts;
    const BatchSegment& segment = work_.segments[found.segment];
    const BlockId* table = segment.table[static_cast<int32_t>(work_.kv.kind)];
    const SeenBlocks seen(segment, work_.kv);
    if (thread() == kDecodeThreads - 1) {  // the last warp asks for nothing where parts are short
      begin();
      barrier_init(shared_address(&shared_.met), 1);
      barrier_init(shared_address(&shared_.arrived), 1);
      barrier_init_done();
    }
    if (in_rows()) {
      chunk_.maximum[0][thread()] = kUnseen;
      chunk_.sum[0][thread()] = chunk_.sum[1][thread()] = 0;
    }
    const Division division(seen, blocks());
    const Part part = division.part(rank_);
    const bool has_part = rank_ < division.parts;
    const OwnTile own(*this, table, segment.position, group, part);
    if (thread() == 0) {
      describe(shared_.unit, work_, segment, group, found.offset % work_.row_parts * work_.narrow_rows);
      shared_.unit.begin_block = part.begin, shared_.unit.end_block = part.end;
    }
    __syncthreads();
    cluster_arrive();  // that others may write here
    if (has_part && own.is_old) own.ask();
    if (is_planner()) plan_rest(group, division);
    const Unit& unit = shared_.unit;
    constexpr int32_t kPieces = kRows * kHeadDim / 16, kMine = (kPieces + kDecodeThreads - 1) / kDecodeThreads;  // of 16 bytes of queries
    const int8_t* queries[kMine];
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const int32_t at = thread() + i * kDecodeThreads, row = at % kRows;
      queries[i] = has_part && at < kPieces && row < unit.rows ? work_.args.queries + row_offset(unit, row) + at / kRows * 16 : nullptr;
    }
    if (has_part && in_rows()) describe_row(unit);
    wait_for_inputs();
    const int32_t turn = division.shares_chunks() ? 1 : 0;  // where the chunk's maxima come to lie
    int32_t sums[kRows];
    Score s[kGroupBlocks];
    if (has_part) {
#pragma unroll
      for (int i = 0; i < kMine; ++i)
        if (queries[i]) copy_async(base_ + static_cast<uint32_t>(Map::kQueries + (thread() + i * kDecodeThreads) * 16), queries[i]);
      if (!own.is_old) own.ask();
      wait_for_copies();
      publish_stores();
      __syncthreads();
      this->template score_all<false>(unit, typename Steps::Blocks(unit), 0, s, 0);
      publish_stores();
      __syncthreads();
      own.follow();
    } else {
      wait_for_copies();
      __syncthreads();
    }
    cluster_wait();
    if (has_part && division.shares_chunks()) tell_maxima(part);
    const int32_t each = (unit.rows + blocks() - 1) / blocks(), mine = max(0, min(each, unit.rows - rank_ * each));
    const int32_t senders = division.parts - (has_part ? 1 : 0);  // but for this block
    if (thread() == 0) barrier_expect(shared_address(&shared_.arrived), static_cast<uint32_t>(senders * mine * kRowBytes));
    if (has_part) {
      add_all(typename Steps::Blocks(unit), 0, s, turn, sums, [] {}, [] {}, [] {});
      __syncthreads();  // the weights have been read
      if (is_summer()) leave(sums, !division.shares_chunks());
      if (in_rows()) {
        auto* to = reinterpret_cast<int32_t*>(memory_ + kLeaving + thread() * kRowBytes) + kHeadDim;
        to[0] = chunk_.maximum[turn][thread()], to[1] = static_cast<int32_t>(chunk_.sum[turn][thread()]);
      }
      publish_stores();
      __syncthreads();
      const int32_t to = thread() / 32;  // a block each
      if (lane() == 0 && to < blocks() && to * each < unit.rows && to != rank_) {
        const int32_t first = to * each, count = min(each, unit.rows - first);
        send(inbox(rank_, to, count), base_ + static_cast<uint32_t>(kLeaving + first * kRowBytes), count * kRowBytes,
             shared_address(&shared_.arrived), to);
      }
    }
    barrier_wait(shared_address(&shared_.arrived), 0);
    cluster_arrive();  // what was on its way to this block has left
    for (int32_t r = thread() / kRowLanes; r < mine; r += kDecodeThreads / kRowLanes) {
      if (division.shares_chunks())
        finish<false>(unit, division.parts, rank_ * each + r, r, mine);
      else
        finish<true>(unit, division.parts, rank_ * each + r, r, mine);
    }
    cluster_wait();
  }

 private:
  // This block's part of the item.
  struct Part {
    int32_t chunk;                         // counted from the item's first
    int32_t first_of_chunk, end_of_chunk;  // parts of the same chunk
    int32_t begin, end;                    // blocks of keys
  };
  // Of an item's blocks of keys: every chunk into parts of `size` blocks, the last one of what is left. Sums of half a chunk fit 32 bits;
  // of more they are sent as floats, a chunk whole.
  struct Division {
    int32_t size, parts;
    int32_t of_first, of_others;  // parts of a chunk, but for the last
    int32_t first_block, end_block;

    __device__ Division(const SeenBlocks& seen, int32_t most_parts) : first_block(seen.first), end_block(seen.end) {
      const int32_t chunks = seen.chunk_count(), border = (seen.first_chunk() + 1) * kChunkBlocks;
      const int32_t first = min(border, seen.end) - seen.first, last = chunks > 1 ? seen.end - border - (chunks - 2) * kChunkBlocks : 0;
#pragma unroll
      for (const int32_t by : {kWholeChunk, 4, 3, 2, 1}) {
        const auto pieces = [&](int32_t count) { return (count + by - 1) / by; };
        const int32_t all = pieces(first) + max(chunks - 2, 0) * pieces(kChunkBlocks) + pieces(last);
        if (all <= most_parts) size = by, parts = all, of_first = pieces(first), of_others = pieces(kChunkBlocks);
      }
    }
    __device__ bool shares_chunks() const { return size < kWholeChunk; }
    __device__ Part part(int32_t rank) const {
      const int32_t chunk = rank < of_first ? 0 : 1 + (rank - of_first) / of_others;
      const int32_t first = chunk == 0 ? 0 : of_first + (chunk - 1) * of_others;
      const int32_t chunk_begin = first_block / kChunkBlocks * kChunkBlocks + chunk * kChunkBlocks,
                    begin = max(chunk_begin, first_block) + (rank - first) * size;
      return {chunk, first, min(first + (chunk == 0 ? of_first : of_others), parts), begin,
              min(begin + size, min(chunk_begin + kChunkBlocks, end_block))};
    }
  };
  static_assert(kHalfBlocks == 4);

  // The tile that the thread asks for: lane 0 of a warp one of the first, that fill the ring; lane 1 that which comes into the same slot
  // behind it.
  struct OwnTile {
    const std::byte* from = nullptr;
    uint32_t to, barrier;
    bool is_first, is_old = true;  // is_old: no kernel of this step writes it

    __device__ OwnTile(WindowDecoder& decoder, const BlockId* table, int32_t position, int32_t group, const Part& part) {
      const int32_t warp = decoder.thread() / 32, at = warp + decoder.lane() * kSlots, count = part.end - part.begin;
      to = decoder.slot(warp), barrier = decoder.full(warp), is_first = decoder.lane() == 0;
      if (decoder.lane() > 1 || at >= 2 * count) return;
      const KvSlot& kv = decoder.work_.kv;
      const int32_t block = part.begin + (at < count ? at : at - count);
      is_old = block < position / kBlockTokens;
      from = kv.pool + kv.slot_offset + int64_t{group} * 2 * kTile + (at < count ? 0 : kTile) + table[block] * kv.block_bytes;
    }
    __device__ void copy() const {
      barrier_expect(barrier, kTile);
      copy_bulk(to, from, kTile, barrier);
    }
    __device__ void ask() const {
      if (!from) return;
      if (is_first)
        copy();
      else
        prefetch_bulk_once(from, kTile);
    }
    // With what was first in the slot read.
    __device__ void follow() const {
      if (from && !is_first) copy();
    }
  };
  static_assert(kDecodeThreads / 32 == kSlots);

  // What is wanted later. By a whole warp.
  __device__ void plan_rest(int32_t group, const Division& division) {
    constexpr int32_t kPieces = kHeadDim * static_cast<int32_t>(sizeof(float)) / 16;
    if (lane() < kPieces)
      copy_async(base_ + static_cast<uint32_t>(kScales + lane() * 16), work_.args.out_inverse + int64_t{group} * kHeadDim + lane() * 4);
    if (lane() < division.parts) shared_.chunk_of_part[lane()] = division.part(lane()).chunk;
  }

  __device__ static int32_t blocks() {
    uint32_t count;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
    return static_cast<int32_t>(count);
  }
  // From this block's shared memory to the same or another place in another's, whose barrier counts the bytes.
  __device__ static void send(uint32_t to, uint32_t from, int32_t bytes, uint32_t barrier, int32_t rank) {
    asm volatile(
        "{\n.reg .b32 there, barrier;\nmapa.shared::cluster.u32 there, %0, %4;\nmapa.shared::cluster.u32 barrier, %3, %4;\n"
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [there], [%1], %2, [barrier];\n}" ::"r"(to),
        "r"(from), "r"(bytes), "r"(barrier), "r"(rank)
        : "memory");
  }
  // Where the rows of a part come to lie in block `to`, `count` of them.
  __device__ uint32_t inbox(int32_t part, int32_t to, int32_t count) const {
    return base_ + static_cast<uint32_t>(kInbox + (part - (part > to ? 1 : 0)) * count * kRowBytes);
  }

  // The maxima become those of the whole chunk; on their way they lie where the weights will.
  __device__ void tell_maxima(const Part& part_here) {
    constexpr int32_t kSent = kRows * static_cast<int32_t>(sizeof(int32_t));
    const int32_t first = part_here.first_of_chunk, end = part_here.end_of_chunk;
    const uint32_t met = shared_address(&shared_.met);
    if (thread() == 0) barrier_expect(met, static_cast<uint32_t>((end - first - 1) * kSent));
    const int32_t to = first + thread() / 32;
    if (lane() == 0 && to < end && to != rank_)
      send(base_ + static_cast<uint32_t>(Map::kWeights + rank_ * kSent), shared_address(chunk_.maximum[0]), kSent, met, to);
    barrier_wait(met, 0);
    if (in_rows()) {
      int32_t most = chunk_.maximum[0][thread()];
      for (int32_t part = first; part < end; ++part)
        if (part != rank_) most = max(most, reinterpret_cast<const int32_t*>(memory_ + Map::kWeights)[part * kRows + thread()]);
      chunk_.maximum[1][thread()] = most;
    }
    __syncthreads();
  }

  // Of a part of half a chunk at most |256 high + low| is less than 2^31: 256 keys, two bytes of weight, seven bits of value.
  __device__ __forceinline__ void leave(const int32_t (&sums)[kRows], bool in_floats) {
    auto* to = reinterpret_cast<int32_t*>(memory_ + kLeaving);
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        to[row(j, e) * kStride + channel(e)] =
            in_floats ? __float_as_int(whole(sums, j, e)) : 256 * sums[4 * j + e] + sums[4 * (j + kColumns) + e];
  }

  // Row `row` of the item, the r-th of this block's `mine`. By half a warp. kInFloats: a part is a chunk.
  static constexpr int32_t kRowLanes = 16;
  template <bool kInFloats>
  __device__ void finish(const Unit& unit, int32_t parts, int32_t row, int32_t r, int32_t mine) {
    constexpr int kFours = kHeadDim / kRowLanes / 4;  // of channels, of a lane
    const int32_t from = lane() % kRowLanes * 4;      // and every 4 kRowLanes
    const auto sums_of = [&](int32_t part) {
      return reinterpret_cast<const int32_t*>(
          memory_ + (part == rank_ ? kLeaving + row * kRowBytes : inbox(part, rank_, mine) - base_ + r * kRowBytes));
    };
    int32_t maximum = INT32_MIN;
    float weight = 0.0f, total[kFours][4] = {};
    for (int32_t part = 0; part < parts;) {
      const int32_t chunk = shared_.chunk_of_part[part];
      const int32_t told = sums_of(part)[kHeadDim], most = told == kUnseen ? INT32_MIN : told;  // all parts of a chunk tell the same
      uint32_t sum = 0;
      std::conditional_t<kInFloats, float, int64_t> o[kFours][4] = {};
      do {
        const int32_t* sums = sums_of(part);
        sum += static_cast<uint32_t>(sums[kHeadDim + 1]);
#pragma unroll
        for (int f = 0; f < kFours; ++f) {
          const int4 x = *reinterpret_cast<const int4*>(sums + from + 4 * kRowLanes * f);
          const int32_t four[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if constexpr (kInFloats)
              o[f][i] = __int_as_float(four[i]);
            else
              o[f][i] += four[i];
        }
        ++part;
      } while (!kInFloats && part < parts && shared_.chunk_of_part[part] == chunk);
      const Step fold = step(maximum, most);
      maximum = max(maximum, most);
      weight = folded(fold, weight, static_cast<float>(sum));
#pragma unroll
      for (int f = 0; f < kFours; ++f)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if constexpr (kInFloats)
            total[f][i] = folded(fold, total[f][i], o[f][i]);
          else
            total[f][i] = folded(fold, total[f][i], __ll2float_rn(o[f][i]));
        }
    }
    const float inverse = arith::divide(1.0f, weight);
    int8_t* out = work_.args.out + row_offset(unit, row);
#pragma unroll
    for (int f = 0; f < kFours; ++f) {
      const float4 x{arith::mul(total[f][0], inverse), arith::mul(total[f][1], inverse), arith::mul(total[f][2], inverse),
                     arith::mul(total[f][3], inverse)};
      const int32_t at = from + 4 * kRowLanes * f;
      *reinterpret_cast<uint32_t*>(out + at) = four_quantised(x, *reinterpret_cast<const float4*>(memory_ + kScales + at * sizeof(float)));
    }
  }

  WindowShared<kRows>& shared_;
  int32_t rank_;  // in the cluster
};

template <int kHeadDim, int kRows, class Weight>
__global__ void __launch_bounds__(kDecodeThreads, kDecodeBlocks)
    window_kernel(const __grid_constant__ AttentionWork work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ WindowShared<kRows> shared;
  let_next_start();
  WindowDecoder<kHeadDim, kRows, Weight>(work, shared, memory).run();
#else
  __trap();  // never launched elsewhere
#endif
}

// Blocks of threads in a cluster, for items of at most `chunks` chunks; 0: there are too many items, or chunks.
inline int32_t window_cluster(int64_t items, int64_t chunks) {
  // As many clusters as run at once on one H200 (132 multiprocessors, by its driver), two blocks on a multiprocessor: where one cluster has
  // to wait for another, all take twice as long.
  constexpr struct {
    int32_t blocks, clusters;
  } kClusters[] = {{8, 30}, {6, 39}, {4, 62}, {3, 83}};
  for (const auto& [blocks, clusters] : kClusters)
    if (items <= clusters && chunks <= blocks) return blocks;
  return 0;
}

template <int kHeadDim, int kRows, class Weight>
cudaError_t launch_window_of(cudaStream_t stream, const AttentionWork& work, int64_t items, int32_t cluster) {
  constexpr int32_t kBytes = WindowDecoder<kHeadDim, kRows, Weight>::kBytes;
  const auto kernel = window_kernel<kHeadDim, kRows, Weight>;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes); error != cudaSuccess)
    return error;
  // Blocks of a cluster may share a multiprocessor, so that more clusters find room.
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeClusterSchedulingPolicyPreference, cudaClusterSchedulingPolicyLoadBalancing);
      error != cudaSuccess)
    return error;
  return launch(stream, Chip{.capability = 90}, kernel, {items * cluster, kDecodeThreads, kBytes, cluster}, work);
}

}  // namespace kaiju::cuda
