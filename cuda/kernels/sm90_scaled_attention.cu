// Attention with scales on Hopper: of sequences with one row (sm90_attention_scaled_decode.cuh) and of others
// (sm90_attention_scaled_prefill.cuh).
#include <algorithm>
#include <limits>

#include "sm90_attention_scaled_decode.cuh"
#include "sm90_attention_scaled_prefill.cuh"

namespace kaiju::cuda {
namespace {

template <int kHeadDim>
cudaError_t launch_columns(cudaStream_t stream, const Chip& chip, const ScaledDecodeWork& work) {
  if (work.heads <= 2) return launch_scaled_decode<ScaledDecodeShape<kHeadDim, 2>>(stream, chip, work);
  if (work.heads <= 4) return launch_scaled_decode<ScaledDecodeShape<kHeadDim, 4>>(stream, chip, work);
  return launch_scaled_decode<ScaledDecodeShape<kHeadDim, 8>>(stream, chip, work);
}

int32_t tile_rows(int32_t head_dim) { return head_dim == 256 ? ScaledMap<256>::kRows : ScaledMap<128>::kRows; }

}  // namespace

bool decodes_scaled_sm90(const ScaledAttentionArgs& args, const KvSlot& kv, const AttentionScratch& scratch) {
  return scratch.hopper && scratch.units >= 2 * scratch.multiprocessors && args.heads / kv.kv_heads <= 8 &&
         (kv.head_dim == 64 || kv.head_dim == 128 || kv.head_dim == 256);
}

cudaError_t decode_scaled_sm90(cudaStream_t stream, const Chip& chip, const ScaledAttentionArgs& args,
                               std::span<const BatchSegment> segments, const KvSlot& kv,
                               const AttentionScratch& scratch) {
  ScaledDecodeWork work{};
  work.args = args;
  work.kv = kv;
  work.segments = segments.data();
  work.segment_count = static_cast<int32_t>(segments.size());
  work.heads = args.heads / kv.kv_heads;
  const int64_t rows = int64_t{scratch.units_of(kv.head_dim)} * kAttentionTileRows;
  work.kept_units = static_cast<int32_t>(std::min<int64_t>(rows / work.heads, std::numeric_limits<int32_t>::max()));
  work.kept = scratch.sums;
  work.parts = scratch.parts;
  work.counters = scratch.counters;
  if (kv.head_dim == 64) return launch_columns<64>(stream, chip, work);
  if (kv.head_dim == 128) return launch_columns<128>(stream, chip, work);
  return launch_columns<256>(stream, chip, work);
}

// A tile has a multiprocessor: fewer tiles than half of these are sooner done in parts.
bool prefills_scaled_sm90(const ScaledAttentionArgs& args, const Batch& batch, const KvSlot& kv,
                          const AttentionScratch& scratch) {
  const int64_t tiles = int64_t{batch.row_count} * args.heads / tile_rows(kv.head_dim);
  return scratch.hopper && 2 * tiles >= scratch.multiprocessors &&
         (kv.head_dim == 64 || kv.head_dim == 128 || kv.head_dim == 256);
}

cudaError_t prefill_scaled_sm90(cudaStream_t stream, const Chip& chip, const ScaledAttentionArgs& args,
                                const Batch& batch, const KvSlot& kv) {
  ScaledPrefillWork work{};
  work.args.queries = args.queries;
  work.args.heads = args.heads;
  work.z = args.z;
  work.value_step = args.value_step;
  work.out = args.out;
  work.kv = kv;
  work.segments = batch.segments.data();
  work.segment_count = work.wide_segments = static_cast<int32_t>(batch.segments.size());
  work.heads = args.heads / kv.kv_heads;
  const int64_t rows = int64_t{batch.row_count} * work.heads, segments = work.segment_count;
  const auto tiles = static_cast<int32_t>(((rows - segments) / tile_rows(kv.head_dim) + segments) * kv.kv_heads);
  if (kv.head_dim == 64) return launch_scaled_prefill<64>(stream, chip, work, tiles);
  if (kv.head_dim == 128) return launch_scaled_prefill<128>(stream, chip, work, tiles);
  return launch_scaled_prefill<256>(stream, chip, work, tiles);
}

}  // namespace kaiju::cuda
