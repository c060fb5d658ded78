// Attention on Hopper: chooses the kernels for a batch (sm90_attention_prefill.cuh, sm90_attention_prefill_cluster.cuh,
// sm90_attention_decode.cuh, sm90_attention_decode_window.cuh) and launches the kernel that plans decode.
#include <algorithm>

#include "sm90_attention_decode.cuh"
#include "sm90_attention_decode_window.cuh"
#include "sm90_attention_prefill_cluster.cuh"

namespace kaiju::cuda {
namespace {

// Of an item of any length.
int64_t most_chunks(const AttentionWork& work) {
  const int64_t keys =
      int64_t{work.kv.window} + std::max(work.narrow_rows / work.heads, 1) - 1;  // that rows of one item see
  return work.kv.window == 0 ? INT32_MAX : keys < 2 ? 1 : (keys - 2) / arith::kChunkKeys + 2;
}

template <int kHeadDim, int kRows>
cudaError_t launch_decode_rows(cudaStream_t stream, const AttentionWork& work) {
  const int64_t items = int64_t{work.segment_count} * work.kv.kv_heads * work.row_parts;
  if (items <= kMostWindows && most_chunks(work) <= kPairChunks && work.narrow_rows <= work.heads)  // one token an item
    return launch_window_of<kHeadDim, kRows, FewWeight>(stream, work, items);
  if (work.scratch.planned[static_cast<int32_t>(work.kv.kind)] != 1 + work.kv.window)
    if (const cudaError_t error = plan_decode(stream, work); error != cudaSuccess) return error;
  return launch_decode_of<kHeadDim, kRows, FewWeight>(stream, work);
}
// As few columns as the rows of an item fit into.
template <int kHeadDim>
cudaError_t launch_decode(cudaStream_t stream, const AttentionWork& work) {
  if (work.narrow_rows <= 8) return launch_decode_rows<kHeadDim, 8>(stream, work);
  if (work.narrow_rows <= 16) return launch_decode_rows<kHeadDim, 16>(stream, work);
  if (work.narrow_rows <= 32) return launch_decode_rows<kHeadDim, 32>(stream, work);
  return launch_decode_rows<kHeadDim, kNarrowRows>(stream, work);
}

// Rows that make at most so many tiles, of 64 rows and of 128.
template <int kHeadDim>
cudaError_t launch_wide(cudaStream_t stream, const AttentionWork& work, const Sharing& sharing, int32_t tiles_of_64,
                        int32_t tiles_of_128) {
  if (sharing.sharers == 2)
    return launch_prefill_cluster<kHeadDim, FewWeight, 2>(stream, work, tiles_of_64, sharing.blocks);
  if (sharing.sharers == 1)
    return launch_prefill_cluster<kHeadDim, FewWeight, 1>(stream, work, tiles_of_128, sharing.blocks);
  return launch_prefill<kHeadDim, TileWeight>(stream, work, tiles_of_128);
}

template <int kHeadDim>
cudaError_t launch_both(cudaStream_t stream, const AttentionWork& work, const Batch& batch) {
  const auto segments = static_cast<int32_t>(batch.segments.size());
  const int64_t rows = int64_t{batch.row_count} * work.heads;
  const bool all_one = batch.row_count == segments;
  const bool some_wide = all_one ? !work.one_row_each : rows > work.narrow_limit,
             some_narrow = work.heads <= work.narrow_limit && (all_one || segments > 1 || rows <= work.narrow_limit);
  if (some_wide) {
    const int64_t wide_rows = rows - int64_t{segments - work.wide_segments} * work.heads;  // at most
    const auto tiles = [&](int32_t tile_rows) {
      return static_cast<int32_t>(((wide_rows - work.wide_segments) / tile_rows + work.wide_segments) *
                                  work.kv.kv_heads);
    };
    const int32_t of_64 = tiles(kTileRows), of_128 = tiles(kWideRows);
    const cudaError_t error = launch_wide<kHeadDim>(stream, work, sharing_of(work, of_64, of_128), of_64, of_128);
    if (error != cudaSuccess) return error;
  }
  return some_narrow ? launch_decode<kHeadDim>(stream, work) : cudaSuccess;
}

template <int kHeadDim>
cudaError_t load_all(cudaStream_t stream, AttentionWork work) {
  for (const int32_t sharers : {0, 1, 2})
    if (const cudaError_t error = launch_wide<kHeadDim>(stream, work, {sharers, 2}, 1, 1); error != cudaSuccess)
      return error;
  work.segment_count = kMostWindows + 1;  // whose windows do not go by pairs
  work.scratch.planned[static_cast<int32_t>(work.kv.kind)] = 0;
  return launch_decode<kHeadDim>(stream, work);
}

// A warp for each block of threads of sm90_decode_kernel.
__global__ void __launch_bounds__(32) sm90_decode_plan_kernel(const __grid_constant__ AttentionWork work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __shared__ DecodePlan plan;
  make_plan(work, plan);
  wait_for_inputs();  // an earlier kernel may still read the previous plan; no later one begins before this one
                      // has ended
  constexpr int32_t kWords = sizeof(DecodePlan) / sizeof(int32_t);
  auto* to = reinterpret_cast<int32_t*>(plan_of_block(work));
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < kWords; i += 32)
    to[i] = reinterpret_cast<const int32_t*>(&plan)[i];
  __threadfence();  // sm90_decode_kernel reads it before the wait that would make it visible
#else
  __trap();  // never launched elsewhere
#endif
}

}  // namespace

cudaError_t plan_decode(cudaStream_t stream, const AttentionWork& work) {
  return launch(stream, Chip{.capability = 90}, sm90_decode_plan_kernel, {work.decode_blocks, 32, 0}, work);
}

bool attends_sm90(const AttentionArgs& args, const KvSlot& kv, const AttentionScratch& scratch) {
  return scratch.hopper && (kv.head_dim == 64 || kv.head_dim == 128) && args.z > 0.0f &&
         args.z < ContractWeight::kMostZ;
}

// More sequences have keys that the L2 cache cannot hold until the next layer that reads them; then it had better hold
// what else a step reads again. Windows are short; of whole histories 4,096 keys are taken for granted.
constexpr int32_t kWindowsKept = 80, kHistoriesKept = 32;

// Sequences of one row each and whole histories, which are taken to be alike: with many heads on a KV head a
// multiprocessor is sooner done with a tile of them all than with an item for each part, where tiles nearly fill their
// rounds (256 of 96 heads on one H200: 173 us, 195; docs/kernels/attention_decode.md).
bool tiles_are_faster(const AttentionWork& work) {
  if (work.kv.window > 0 || work.heads <= 2 * kNarrowRows || work.heads > kWideRows) return false;
  const int64_t tiles = int64_t{work.segment_count} * work.kv.kv_heads, at_once = work.scratch.multiprocessors,
                rounds = (tiles + at_once - 1) / at_once;
  return 8 * tiles > 7 * rounds * at_once;
}

AttentionWork attention_work(const AttentionArgs& args, const Batch& batch, const KvSlot& kv,
                             const AttentionScratch& scratch) {
  AttentionWork work{};
  work.args = args;
  work.kv = kv;
  work.segments = batch.segments.data();
  work.segment_count = static_cast<int32_t>(batch.segments.size());
  work.scratch = scratch;
  work.heads = args.heads / kv.kv_heads;
  const bool all_one = batch.row_count == work.segment_count, by_tiles = all_one && tiles_are_faster(work);
  work.narrow_limit = by_tiles ? kNarrowRows : std::max(kNarrowRows, work.heads);
  work.wide_segments = by_tiles ? work.segment_count : std::min(work.segment_count, batch.single_from);
  work.row_parts = (work.heads + kNarrowRows - 1) / kNarrowRows;
  const int32_t tokens = all_one ? 1 : std::max(kNarrowRows / work.heads, 1);
  work.narrow_rows = (tokens * work.heads + work.row_parts - 1) / work.row_parts;
  const double least = 18.0 / static_cast<double>(args.z),
               widest = 4194303.0;  // no difference of scores of 128 channels is wider
  work.least_difference = -static_cast<int32_t>(least < widest ? least + 1.0 : widest);
  const int64_t items = int64_t{work.segment_count} * kv.kv_heads * work.row_parts,
                most_blocks = kDecodeBlocks * scratch.multiprocessors / work.row_parts * work.row_parts;
  work.one_row_each = all_one && !by_tiles;
  work.keys_once = work.segment_count > (kv.window > 0 ? kWindowsKept : kHistoriesKept);
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

cudaError_t load_attention_sm90(cudaStream_t stream, const AttentionArgs& args, const Batch& batch, const KvSlot& kv,
                                const AttentionScratch& scratch) {
  const AttentionWork work = attention_work(args, batch, kv, scratch);
  return kv.head_dim == 64 ? load_all<64>(stream, work) : load_all<128>(stream, work);
}

}  // namespace kaiju::cuda
