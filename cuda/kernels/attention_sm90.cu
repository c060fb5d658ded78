// The contract's attention on Hopper (attention_sm90.cuh, attention_decode.cuh), and the kernel that folds many chunks kept apart.
#include <algorithm>

#include "attention_decode.cuh"
#include "attention_window.cuh"

namespace kaiju::cuda {
namespace {

// A row whose chunks are kept apart.
struct KeptRow {
  int32_t batch_row, row, group;
  int32_t first_kept, chunks;
};

// By kHeadDim threads, a channel each. The maximum before every chunk is known when all maxima are, so that factors are found side by side
// and only the fold itself is serial. Sums come through shared memory: the loop over registers was so long that it took its time to be
// fetched.
template <int kHeadDim>
__device__ __forceinline__ void merge_row(const AttentionWork& work, const KeptRow& kept) {
  constexpr int32_t kEach = 2, kBatch = kEach * kHeadDim, kWarps = kHeadDim / 32;  // chunks whose factors a thread finds, and all
  constexpr int32_t kStaged = 32, kPieces = kHeadDim / 4;                          // chunks on their way at a time, twice; of 16 bytes
  __shared__ float4 steps[kBatch];  // factor, sum of weights, whether the chunk keeps its scale
  __shared__ alignas(16) float staged[2][kStaged][kHeadDim];
  __shared__ int32_t warp_maximum[kWarps];
  const int32_t tid = static_cast<int32_t>(threadIdx.x), last = kept.chunks - 1;
  const auto* parts = reinterpret_cast<const int2*>(work.scratch.parts + int64_t{kept.first_kept} * kTileRows + kept.row);
  const float* sums = work.scratch.sums + (int64_t{kept.first_kept} * kTileRows + kept.row) * kHeadDim;
  const auto load = [&](int32_t nth) {
#pragma unroll 1
    for (int32_t piece = tid; piece < kStaged * kPieces; piece += kHeadDim) {
      const int32_t c = piece / kPieces, at = 4 * (piece % kPieces);
      asm volatile(
          "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(&staged[nth % 2][c][at]))),
          "l"(sums + int64_t{min(nth * kStaged + c, last)} * kTileRows * kHeadDim + at)
          : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  __syncthreads();  // the last row's have been read
  load(0);
  load(1);

  int32_t maximum = INT32_MIN;  // of all chunks before the batch
  float total = 0.0f, sum = 0.0f;
  static_assert(kBatch % kStaged == 0);
  for (int32_t nth = 0; nth * kStaged <= last; ++nth) {
    const int32_t from = nth * kStaged;
    if (from % kBatch == 0) {
      const int32_t mine = from + kEach * tid;
      int2 part[kEach];
#pragma unroll
      for (int32_t i = 0; i < kEach; ++i)
        part[i] = mine + i <= last ? __ldcg(parts + int64_t{mine + i} * kTileRows) : make_int2(INT32_MIN, 0);
      int32_t through = max(part[0].x, part[1].x);
      for (int distance = 1; distance < 32; distance *= 2) {
        const int32_t lower = __shfl_up_sync(0xFFFFFFFFu, through, distance);
        if (tid % 32 >= distance) through = max(through, lower);
      }
      int32_t before = __shfl_up_sync(0xFFFFFFFFu, through, 1);
      if (tid % 32 == 0) before = INT32_MIN;
      __syncthreads();  // the last batch's factors have been read
      if (tid % 32 == 31) warp_maximum[tid / 32] = through;
      __syncthreads();
      before = max(before, maximum);
      for (int32_t w = 0; w < kWarps; ++w) {
        if (w < tid / 32) before = max(before, warp_maximum[w]);
        maximum = max(maximum, warp_maximum[w]);
      }
#pragma unroll
      for (int32_t i = 0; i < kEach; ++i) {
        const bool later = before <= part[i].x;
        const float factor = before == INT32_MIN || part[i].x == INT32_MIN
                                 ? 0.0f
                                 : arith::exp2_product(later ? before - part[i].x : part[i].x - before, work.args.z);
        steps[kEach * tid + i] = {factor, __int_as_float(part[i].y), later ? 1.0f : 0.0f, 0.0f};
        before = max(before, part[i].x);
      }
      __syncthreads();
    }
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
#pragma unroll 8
    for (int32_t c = 0; c < min(kStaged, last + 1 - from); ++c) {
      const float4 step = steps[from % kBatch + c];
      const float o = staged[nth % 2][c][tid];
      const bool later = step.z != 0.0f;
      total = arith::fma(later ? total : step.y, step.x, later ? step.y : total);
      sum = arith::fma(later ? sum : o, step.x, later ? o : sum);
    }
    __syncthreads();
    load(nth + 2);
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  const int32_t token = kept.row / work.heads, head = kept.group * work.heads + kept.row - token * work.heads;
  work.args.out[(int64_t{kept.batch_row + token} * work.args.heads + head) * kHeadDim + tid] =
      arith::quantise(arith::mul(sum, arith::divide(1.0f, total)), work.args.out_inverse[kept.group * kHeadDim + tid]);
}

// Rows of items, one after another; folds a row's chunks, where they are kept apart and many, in order. Bound by the memory (mostly
// cache) it reads.
template <int kHeadDim>
__global__ void __launch_bounds__(kHeadDim, 4) merge_chunks_kernel(const __grid_constant__ AttentionWork work, int32_t all_rows) {
  let_next_start();
  wait_for_inputs();
  if (work.scratch.counters[work.scratch.units] == 0) return;  // as mostly
  const DecodeLoad load(work);
  for (auto at = static_cast<int32_t>(blockIdx.x); at < all_rows; at += static_cast<int32_t>(gridDim.x)) {
    const int32_t row = at % work.narrow_rows;
    const DecodeLoad::Place item = load.find(&NarrowCount::items, at / work.narrow_rows);
    if (item.segment < 0) return;
    const BatchSegment& segment = work.segments[item.segment];
    const SeenBlocks seen(segment, work.kv);
    if (row >= segment.row_count * work.heads || seen.chunk_count() <= kFoldedHere) continue;
    const int32_t begin = item.before.blocks - seen.first, second = (seen.first_chunk() + 1) * kChunkBlocks,
                  last = (seen.end - 1) / kChunkBlocks * kChunkBlocks;
    if (load.owner(begin + seen.first, begin + second) == load.owner(begin + last, begin + seen.end)) continue;  // it was one block's
    merge_row<kHeadDim>(work, {segment.first_row, row, item.group, item.before.units, seen.chunk_count()});
  }
}

// Of an item of any length.
int64_t most_chunks(const AttentionWork& work) {
  const int64_t keys = int64_t{work.kv.window} + work.narrow_rows / work.heads - 1;  // that rows of one item see
  return work.kv.window == 0 ? INT32_MAX : keys < 2 ? 1 : (keys - 2) / arith::kChunkKeys + 2;
}

template <int kHeadDim, int kRows>
cudaError_t launch_decode_rows(cudaStream_t stream, const AttentionWork& work) {
  const int64_t items = int64_t{work.segment_count} * work.kv.kv_heads;
  const int32_t cluster = window_cluster<kHeadDim, kRows>(items, most_chunks(work));
  return cluster > 0 ? launch_window_of<kHeadDim, kRows, ContractWeight>(stream, work, items, cluster)
                     : launch_decode_of<kHeadDim, kRows, ContractWeight>(stream, work);
}
// As few columns as the rows of an item fit into.
template <int kHeadDim>
cudaError_t launch_decode(cudaStream_t stream, const AttentionWork& work) {
  if (work.narrow_rows <= 8) return launch_decode_rows<kHeadDim, 8>(stream, work);
  if (work.narrow_rows <= 16) return launch_decode_rows<kHeadDim, 16>(stream, work);
  if (work.narrow_rows <= 40) return launch_decode_rows<kHeadDim, 40>(stream, work);
  return launch_decode_rows<kHeadDim, 64>(stream, work);
}

template <int kHeadDim>
cudaError_t launch_both(cudaStream_t stream, const AttentionWork& work, const Batch& batch) {
  const auto segments = static_cast<int32_t>(batch.segments.size());
  const int64_t rows = int64_t{batch.row_count} * work.heads;
  const bool all_one = batch.row_count == segments;
  const bool some_wide = all_one ? work.heads > kTileRows : rows > kTileRows,
             some_narrow = work.heads <= kTileRows && (all_one || segments > 1 || rows <= kTileRows);
  if (some_wide) {
    const int64_t wide_rows = rows - int64_t{segments - work.wide_segments} * work.heads;  // at most
    const auto most = static_cast<int32_t>((wide_rows + kWideRows - 1) / kWideRows) + work.wide_segments;
    if (const cudaError_t error = launch_sm90<kHeadDim, ContractWeight>(stream, work, most * work.kv.kv_heads); error != cudaSuccess)
      return error;
  }
  if (!some_narrow) return cudaSuccess;
  if (const cudaError_t error = launch_decode<kHeadDim>(stream, work); error != cudaSuccess) return error;
  if (work.scratch.units == 0 || most_chunks(work) <= kFoldedHere) return cudaSuccess;
  // Most batches have no such rows: then every block asks that once and ends, so there are no more of them than run at once.
  const int32_t all_rows = segments * work.kv.kv_heads * work.narrow_rows;
  return kaiju::cuda::launch(stream, Chip{.capability = 90}, merge_chunks_kernel<kHeadDim>,
                             {std::min(all_rows, 4 * work.scratch.multiprocessors), kHeadDim}, work, all_rows);
}

}  // namespace

bool attends_sm90(const AttentionArgs& args, const KvSlot& kv, const AttentionScratch& scratch) {
  // Beyond that z the least difference whose weight is surely 0 is out of the exponential's range.
  return scratch.hopper && (kv.head_dim == 64 || kv.head_dim == 128) && args.z > 0.0f && args.z <= 100.0f;
}

AttentionWork attention_work(const AttentionArgs& args, const Batch& batch, const KvSlot& kv, const AttentionScratch& scratch) {
  AttentionWork work{};
  work.args = args;
  work.kv = kv;
  work.segments = batch.segments.data();
  work.segment_count = static_cast<int32_t>(batch.segments.size());
  work.heads = args.heads / kv.kv_heads;
  work.wide_segments = work.heads <= kTileRows ? std::min(work.segment_count, batch.single_from) : work.segment_count;
  const bool all_one = batch.row_count == work.segment_count;
  work.narrow_rows = all_one ? work.heads : kTileRows / work.heads * work.heads;
  const double least = 18.0 / static_cast<double>(args.z), widest = 4194303.0;  // no difference of scores of 128 channels is wider
  work.least_difference = -static_cast<int32_t>(least < widest ? least + 1.0 : widest);
  work.scratch = scratch;
  const int64_t items = int64_t{work.segment_count} * kv.kv_heads,
                most_blocks = int64_t{work.narrow_rows <= 40 ? 2 : 1} * scratch.multiprocessors;
  work.one_row_each = all_one && work.heads <= kTileRows;
  work.item_each = work.one_row_each && kv.window > 0 && items <= most_blocks;  // windows are short and alike
  work.decode_blocks = static_cast<int32_t>(work.item_each ? items : std::min(items * most_chunks(work), most_blocks));
  return work;
}

cudaError_t attend_sm90(cudaStream_t stream, const AttentionArgs& args, const Batch& batch, const KvSlot& kv,
                        const AttentionScratch& scratch) {
  const AttentionWork work = attention_work(args, batch, kv, scratch);
  switch (kv.head_dim) {
    case 64:
      return launch_both<64>(stream, work, batch);
    case 128:
      return launch_both<128>(stream, work, batch);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace kaiju::cuda
