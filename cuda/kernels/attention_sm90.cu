// The contract's attention on Hopper (attention_sm90.cuh, attention_decode.cuh), and the kernel that folds many chunks kept apart.
#include <algorithm>

#include "attention_decode.cuh"

namespace kaiju::cuda {
namespace {

// One row of an item, by kHeadDim threads.
template <int kHeadDim>
__device__ __forceinline__ void merge_row(const AttentionWork& work, const Found& item, int32_t row) {
  constexpr int32_t kBatch = kHeadDim, kWarps = kHeadDim / 32;  // chunks looked at together: one a thread
  __shared__ float factor[kBatch], weight[kBatch];
  __shared__ uint8_t keeps[kBatch];  // whether the chunk keeps its scale; else the total does
  __shared__ int32_t warp_maximum[kWarps];
  const int32_t tid = static_cast<int32_t>(threadIdx.x), groups = work.kv.kv_heads;
  const BatchSegment& segment = work.segments[item.segment];
  const int32_t chunks = chunk_count(segment, work.kv);
  if (chunks <= kFoldedHere) return;  // done already
  int32_t unit = 0;
  for (int32_t s = tid % 32; s < item.segment; s += 32)
    unit += is_narrow(work.segments[s], work.heads) ? chunk_count(work.segments[s], work.kv) * groups : 0;
  unit = __reduce_add_sync(0xFFFFFFFFu, unit) + item.offset * chunks;
  const AttentionPart* parts = work.scratch.parts + int64_t{unit} * kTileRows + row;
  const float* sums = work.scratch.sums + (int64_t{unit} * kTileRows + row) * kHeadDim + tid;

  int32_t maximum = INT32_MIN;  // of all chunks before the batch
  float total = 0.0f, sum = 0.0f;
  for (int32_t from = 0; from < chunks; from += kBatch) {
    const AttentionPart part = from + tid < chunks ? parts[int64_t{from + tid} * kTileRows] : AttentionPart{INT32_MIN, 0.0f};
    // The maximum of everything before each chunk, so that all factors are found at once.
    int32_t through = part.maximum;
    for (int distance = 1; distance < 32; distance *= 2) {
      const int32_t before = __shfl_up_sync(0xFFFFFFFFu, through, distance);
      if (tid % 32 >= distance) through = max(through, before);
    }
    int32_t before = __shfl_up_sync(0xFFFFFFFFu, through, 1);
    if (tid % 32 == 0) before = INT32_MIN;
    __syncthreads();  // the last batch has been read
    if (tid % 32 == 31) warp_maximum[tid / 32] = through;
    __syncthreads();
    before = max(before, maximum);
    for (int32_t w = 0; w < kWarps; ++w) {
      if (w < tid / 32) before = max(before, warp_maximum[w]);
      maximum = max(maximum, warp_maximum[w]);
    }
    const bool later = before <= part.maximum;
    keeps[tid] = later;
    factor[tid] = before == INT32_MIN || part.maximum == INT32_MIN
                      ? 0.0f
                      : arith::exp2_product(later ? before - part.maximum : part.maximum - before, work.args.z);
    weight[tid] = part.weight;
    __syncthreads();
    const int32_t count = min(kBatch, chunks - from);
    constexpr int32_t kAhead = 64;  // a trip to the L2 cache takes as long as folding so many
    for (int32_t c = 0; c < count; c += kAhead) {
      float o[kAhead];
#pragma unroll
      for (int32_t i = 0; i < kAhead; ++i) o[i] = c + i < count ? sums[int64_t{from + c + i} * kTileRows * kHeadDim] : 0.0f;
#pragma unroll
      for (int32_t i = 0; i < kAhead; ++i) {
        if (c + i >= count) break;
        const float chunk = o[i];
        const float a = factor[c + i], l = weight[c + i];
        total = keeps[c + i] ? arith::fma(total, a, l) : arith::fma(l, a, total);
        sum = keeps[c + i] ? arith::fma(sum, a, chunk) : arith::fma(chunk, a, sum);
      }
    }
  }
  const int32_t token = row / work.heads, head = item.offset * work.heads + row - token * work.heads;
  work.args.out[(int64_t{segment.first_row + token} * work.args.heads + head) * kHeadDim + tid] =
      arith::quantise(arith::mul(sum, arith::divide(1.0f, total)), work.args.out_inverse[item.offset * kHeadDim + tid]);
}

// Rows of items, one after another; folds a row's chunks, where they are kept apart and many, in order. Bound by the memory (mostly
// cache) it reads.
template <int kHeadDim>
__global__ void __launch_bounds__(kHeadDim) merge_chunks_kernel(const __grid_constant__ AttentionWork work, int32_t all_rows) {
  const int32_t groups = work.kv.kv_heads;
  let_next_start();
  const DecodeLoad load = decode_load(work);
  wait_for_inputs();
  if (!load.split) return;
  for (auto at = static_cast<int32_t>(blockIdx.x); at < all_rows; at += static_cast<int32_t>(gridDim.x)) {
    const int32_t row = at % work.narrow_rows;
    const Found item = find_unit(at / work.narrow_rows, work, work.segment_count,
                                 [&](const BatchSegment& s) { return is_narrow(s, work.heads) ? groups : 0; });
    if (item.segment < 0) return;
    if (row < work.segments[item.segment].row_count * work.heads) merge_row<kHeadDim>(work, item, row);
  }
}

// Of an item of any length.
int64_t most_chunks(const AttentionWork& work) {
  return work.kv.window > 0 ? (int64_t{work.kv.window} + work.narrow_rows) / arith::kChunkKeys + 2 : INT32_MAX;
}

// As few columns as the rows of an item fit into.
template <int kHeadDim>
cudaError_t launch_decode(cudaStream_t stream, const AttentionWork& work) {
  if (work.narrow_rows <= 8) return launch_decode_of<kHeadDim, 8, ContractWeight>(stream, work);
  if (work.narrow_rows <= 16) return launch_decode_of<kHeadDim, 16, ContractWeight>(stream, work);
  if (work.narrow_rows <= 40) return launch_decode_of<kHeadDim, 40, ContractWeight>(stream, work);
  return launch_decode_of<kHeadDim, 64, ContractWeight>(stream, work);
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
                             {std::min(all_rows, 8 * work.scratch.multiprocessors), kHeadDim}, work, all_rows);
}

}  // namespace

bool attends_sm90(const AttentionArgs& args, const KvSlot& kv, const AttentionScratch& scratch) {
  // Beyond that z the least difference whose weight is surely 0 is out of the exponential's range.
  return scratch.multiprocessors > 0 && (kv.head_dim == 64 || kv.head_dim == 128) && args.z > 0.0f && args.z <= 100.0f;
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
  const int64_t items = int64_t{work.segment_count} * kv.kv_heads, units = items * most_chunks(work);
  work.decode_blocks = static_cast<int32_t>(std::min<int64_t>(units, scratch.multiprocessors));
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
