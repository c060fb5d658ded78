// Attention of few rows a sequence (decode) over a window, for few sequences: a cluster of blocks takes an item (the steps of a chunk:
// attention_chunk.cuh).
//
// The item's chunks are divided into parts of as few blocks of keys as make no more parts than the cluster has blocks of threads; a block
// takes one. Where a chunk lies in several parts its blocks tell one another the maxima of its scores. Then each has a share of the rows,
// and gets these rows' sums from all others: integers, of which those of a chunk are added, then the chunks folded in order. Bound: the
// latency of one step after the other.
#pragma once

#include "../tiles/hopper.cuh"
#include "attention_chunk.cuh"

namespace kaiju::cuda {

constexpr int32_t kMostParts = 8;

template <int kRows>
struct WindowShared : ChunkShared<kRows> {
  uint64_t met;                          // the maxima of the other parts of this block's chunk
  uint64_t arrived;                      // the sums of this block's rows
  Unit unit;                             // this block's part
  int32_t found;                         // whether the cluster has an item
  int32_t parts, shared_chunks;          // parts of the item; whether a chunk may have several
  int32_t first_of_chunk, end_of_chunk;  // parts of this block's chunk
  int32_t chunk_of_part[kMostParts];
};

template <int kHeadDim, int kRows, class Weight>
class WindowDecoder : ChunkSteps<kHeadDim, kRows, Weight> {
  using Steps = ChunkSteps<kHeadDim, kRows, Weight>;
  using Steps::kColumns, Steps::begin, Steps::thread, Steps::is_planner, Steps::is_summer, Steps::in_rows, Steps::lane, Steps::ask_first,
      Steps::copy_tiles, Steps::block_count, Steps::ask_for_queries, Steps::wait_for_copies, Steps::row_offset, Steps::describe_row,
      Steps::add_all, Steps::whole, Steps::channel, Steps::row, Steps::step, Steps::folded, Steps::work_, Steps::chunk_, Steps::memory_,
      Steps::base_;
  using typename Steps::Map, typename Steps::Score, typename Steps::Step;
  // A row of sums on its way: of all channels, then maximum and sum of weights.
  static constexpr int32_t kStride = kHeadDim + 4, kRowBytes = kStride * static_cast<int32_t>(sizeof(int32_t));
  static constexpr int32_t kLeaving = Map::kWeights, kInbox = Map::kEnd;  // rows [kRows]; rows of all parts, part after part
  static constexpr int32_t kInboxRows = kRows == 40 ? 42 : kRows + 4;
  static_assert(kLeaving + kRows * kRowBytes <= kInbox);
  static constexpr int32_t kWholeChunk = kChunkBlocks;

 public:
  static constexpr int32_t kBytes = kInbox + kInboxRows * kRowBytes;
  // Whether the rows of all parts have room.
  static constexpr bool fits(int32_t cluster) { return cluster <= kMostParts && cluster * ((kRows + cluster - 1) / cluster) <= kInboxRows; }

  __device__ WindowDecoder(const AttentionWork& work, WindowShared<kRows>& shared, uint8_t* memory)
      : Steps(work, shared, memory), shared_(shared), rank_(static_cast<int32_t>(cluster_rank())) {}

  __device__ void run() {
    if (thread() == 0) {
      begin();
      barrier_init(shared_address(&shared_.met), 1);
      barrier_init(shared_address(&shared_.arrived), 1);
      barrier_init_done();
    }
    if (in_rows()) {
      chunk_.maximum[0][thread()] = kUnseen;
      chunk_.sum[0][thread()] = chunk_.sum[1][thread()] = 0;
    }
    if (is_planner()) {
      plan();
      wait_for_copies();
    }
    __syncthreads();
    if (!shared_.found) return wait_for_inputs();  // the whole cluster
    cluster_arrive();            // that others may write here
    const Unit& unit = shared_.unit;
    const bool has_part = rank_ < shared_.parts;
    if (has_part) ask_first(unit, true);
    wait_for_inputs();
    const int32_t turn = shared_.shared_chunks;  // where the chunk's maxima come to lie
    int32_t sums[kRows];
    Score s[kGroupBlocks];
    if (has_part) {
      ask_first(unit, false);
      if (in_rows()) describe_row(unit);
      ask_for_queries(unit);
      wait_for_copies();
      publish_stores();
      __syncthreads();
      this->template score_all<false>(unit, typename Steps::Blocks(unit), 0, s, 0);
      publish_stores();
      __syncthreads();
      copy_tiles(0, kSlots, 2 * block_count(unit), unit, unit);
    }
    cluster_wait();
    if (has_part && shared_.shared_chunks) tell_maxima();
    const int32_t each = (unit.rows + blocks() - 1) / blocks(), mine = max(0, min(each, unit.rows - rank_ * each));
    const int32_t senders = shared_.parts - (has_part ? 1 : 0);  // but for this block
    if (thread() == 0) barrier_expect(shared_address(&shared_.arrived), static_cast<uint32_t>(senders * mine * kRowBytes));
    if (has_part) {
      add_all(typename Steps::Blocks(unit), 0, s, turn, sums, [] {}, [] {});
      __syncthreads();  // the weights have been read
      if (is_summer()) leave(unit, sums);
      if (in_rows()) {
        auto* to = reinterpret_cast<int32_t*>(memory_ + kLeaving + thread() * kRowBytes) + kHeadDim;
        to[0] = chunk_.maximum[turn][thread()], to[1] = static_cast<int32_t>(chunk_.sum[turn][thread()]);
      }
      publish_stores();
      __syncthreads();
      if (thread() < blocks() && thread() * each < unit.rows && thread() != rank_) {
        const int32_t first = thread() * each, count = min(each, unit.rows - first);
        send(base_ + static_cast<uint32_t>(kInbox + rank_ * count * kRowBytes), base_ + static_cast<uint32_t>(kLeaving + first * kRowBytes),
             count * kRowBytes, shared_address(&shared_.arrived), thread());
      }
    }
    barrier_wait(shared_address(&shared_.arrived), 0);
    cluster_arrive();  // what was on its way to this block has left
    for (int32_t r = thread() / 32; r < mine; r += kDecodeThreads / 32) finish(unit, rank_ * each + r, r, mine);
    cluster_wait();
  }

 private:
  __device__ static int32_t blocks() {
    uint32_t count;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
    return static_cast<int32_t>(count);
  }
  // Order nothing.
  __device__ static void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
  __device__ static void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
  // From this block's shared memory to the same or another place in another's, whose barrier counts the bytes.
  __device__ static void send(uint32_t to, uint32_t from, int32_t bytes, uint32_t barrier, int32_t rank) {
    asm volatile(
        "{\n.reg .b32 there, barrier;\nmapa.shared::cluster.u32 there, %0, %4;\nmapa.shared::cluster.u32 barrier, %3, %4;\n"
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [there], [%1], %2, [barrier];\n}" ::"r"(to),
        "r"(from), "r"(bytes), "r"(barrier), "r"(rank)
        : "memory");
  }
  // The maxima become those of the whole chunk; on their way they lie where the weights will.
  __device__ void tell_maxima() {
    constexpr int32_t kSent = kRows * static_cast<int32_t>(sizeof(int32_t));
    const int32_t first = shared_.first_of_chunk, end = shared_.end_of_chunk;
    const uint32_t met = shared_address(&shared_.met);
    if (thread() == 0) barrier_expect(met, static_cast<uint32_t>((end - first - 1) * kSent));
    if (thread() < end - first && first + thread() != rank_)
      send(base_ + static_cast<uint32_t>(Map::kWeights + rank_ * kSent), shared_address(chunk_.maximum[0]), kSent, met, first + thread());
    barrier_wait(met, 0);
    if (in_rows()) {
      int32_t most = chunk_.maximum[0][thread()];
      for (int32_t part = first; part < end; ++part)
        if (part != rank_) most = max(most, reinterpret_cast<const int32_t*>(memory_ + Map::kWeights)[part * kRows + thread()]);
      chunk_.maximum[1][thread()] = most;
    }
    __syncthreads();
  }

  // The block's part. By a whole warp.
  __device__ void plan() {
    const int32_t groups = work_.kv.kv_heads;
    const int32_t item = static_cast<int32_t>(blockIdx.x) / blocks();
    const Found found = work_.one_row_each ? Found{item / groups, item % groups}
                                           : find_unit(item, work_, work_.segment_count,
                                                       [&](const BatchSegment& s) { return is_narrow(s, work_.heads) ? groups : 0; });
    if (lane() == 0) shared_.found = found.segment >= 0;
    if (found.segment < 0) return;
    const BatchSegment& segment = work_.segments[found.segment];
    const SeenBlocks seen(segment, work_.kv);
    const int32_t chunks = seen.chunk_count();
    const auto begin_of = [&](int32_t c) { return max((seen.first_chunk() + c) * kChunkBlocks, seen.first); };
    const auto end_of = [&](int32_t c) { return min((seen.first_chunk() + c + 1) * kChunkBlocks, seen.end); };
    // Sums of half a chunk fit 32 bits; of more they are sent as floats, a chunk whole.
    int32_t size = 0;
    for (int32_t parts = INT32_MAX; parts > blocks();) {
      size = size == kHalfBlocks ? kWholeChunk : size + 1;
      parts = 0;
      for (int32_t c = 0; c < chunks; ++c) parts += (end_of(c) - begin_of(c) + size - 1) / size;
    }
    int32_t part = 0;
    Unit& unit = shared_.unit;
    for (int32_t c = 0; c < chunks; ++c) {
      const int32_t first = part, end = part + (end_of(c) - begin_of(c) + size - 1) / size;
      if (lane() == 0)
        for (; part < end; ++part) shared_.chunk_of_part[part] = c;
      part = end;
      if (rank_ < first || rank_ >= end) continue;
      const int32_t from = begin_of(c) + (rank_ - first) * size, to = min(from + size, end_of(c));
      if (lane() < to - from) load_id(unit.ids[lane()], segment.table[static_cast<int32_t>(work_.kv.kind)] + from + lane());
      if (lane() != 0) continue;
      unit.chunk = seen.first_chunk() + c;
      unit.begin_block = from, unit.end_block = to;
      shared_.first_of_chunk = first, shared_.end_of_chunk = end;
    }
    if (lane() > 0) return;
    shared_.parts = part;
    shared_.shared_chunks = size < kWholeChunk ? 1 : 0;
    describe(unit, work_, segment, found.offset);
  }

  // Of a part of half a chunk at most |256 high + low| is less than 2^31: 256 keys, two bytes of weight, seven bits of value.
  __device__ __forceinline__ void leave(const Unit& unit, const int32_t (&sums)[kRows]) {
    auto* to = reinterpret_cast<int32_t*>(memory_ + kLeaving);
    const bool in_floats = !shared_.shared_chunks;
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        to[row(j, e) * kStride + channel(e)] =
            in_floats ? __float_as_int(whole(sums, j, e)) : 256 * sums[4 * j + e] + sums[4 * (j + kColumns) + e];
  }

  // Row `row` of the item, the r-th of this block's `mine`. By a warp.
  __device__ void finish(const Unit& unit, int32_t row, int32_t r, int32_t mine) {
    constexpr int kEach = kHeadDim / 32;  // channels of a lane
    const bool in_floats = !shared_.shared_chunks;
    float scales[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) scales[i] = work_.args.out_inverse[int64_t{unit.group} * kHeadDim + lane() + 32 * i];
    int32_t maximum = INT32_MIN;
    float weight = 0.0f, total[kEach] = {};
    for (int32_t part = 0; part < shared_.parts;) {
      const int32_t chunk = shared_.chunk_of_part[part];
      int32_t most = 0;
      uint32_t sum = 0;
      int64_t o[kEach] = {};
      float o_float[kEach] = {};
      for (; part < shared_.parts && shared_.chunk_of_part[part] == chunk; ++part) {
        const auto* from = reinterpret_cast<const int32_t*>(
            memory_ + (part == rank_ ? kLeaving + row * kRowBytes : kInbox + (part * mine + r) * kRowBytes));
        most = from[kHeadDim];
        sum += static_cast<uint32_t>(from[kHeadDim + 1]);
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          const int32_t x = from[lane() + 32 * i];
          if (in_floats)
            o_float[i] = __int_as_float(x);
          else
            o[i] += x;
        }
      }
      if (most == kUnseen) most = INT32_MIN;
      const Step fold = step(maximum, most);
      maximum = max(maximum, most);
      weight = folded(fold, weight, static_cast<float>(sum));
#pragma unroll
      for (int i = 0; i < kEach; ++i) total[i] = folded(fold, total[i], in_floats ? o_float[i] : __ll2float_rn(o[i]));
    }
    const float inverse = arith::divide(1.0f, weight);
    int8_t* out = work_.args.out + row_offset(unit, row);
#pragma unroll
    for (int i = 0; i < kEach; ++i) out[lane() + 32 * i] = arith::quantise(arith::mul(total[i], inverse), scales[i]);
  }

  WindowShared<kRows>& shared_;
  int32_t rank_;  // in the cluster
};

template <int kHeadDim, int kRows, class Weight>
__global__ void __launch_bounds__(kDecodeThreads, (ChunkMap<kHeadDim, kRows>::kBlocks))
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
template <int kHeadDim, int kRows>
int32_t window_cluster(int64_t items, int64_t chunks) {
  // As many clusters as run at once on one H200 (132 multiprocessors), by the blocks on a multiprocessor.
  constexpr struct { int32_t blocks, clusters; } kClusters[] = {{8, 15}, {6, 20}, {4, 30}, {3, 40}};
  for (const auto& [blocks, clusters] : kClusters)
    if (items <= clusters * ChunkMap<kHeadDim, kRows>::kBlocks && chunks <= blocks &&
        WindowDecoder<kHeadDim, kRows, ContractWeight>::fits(blocks))
      return blocks;
  return 0;
}

template <int kHeadDim, int kRows, class Weight>
cudaError_t launch_window_of(cudaStream_t stream, const AttentionWork& work, int64_t items, int32_t cluster) {
  constexpr int32_t kBytes = WindowDecoder<kHeadDim, kRows, Weight>::kBytes;
  const auto kernel = window_kernel<kHeadDim, kRows, Weight>;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes); error != cudaSuccess)
    return error;
  return launch(stream, Chip{.capability = 90}, kernel, {items * cluster, kDecodeThreads, kBytes, cluster}, work);
}

}  // namespace kaiju::cuda
