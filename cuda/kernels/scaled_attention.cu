// Attention in version 2 of the arithmetic: chooses the kernels for a batch. Those for Hopper serve the sequences that
// have one row (sm90_scaled_attention.cu), the one by mma.sync everything on every chip (sm80_attention.cuh,
// sm80_attention_scaled.cuh).
#include "sm80_attention.cuh"

namespace kaiju::cuda {

cudaError_t attend_scaled(cudaStream_t stream, const Chip& chip, const ScaledAttentionArgs& args, const Batch& batch,
                          const KvSlot& kv, const AttentionScratch& scratch) {
  const int32_t singles = decodes_scaled_sm90(args, kv, scratch) ? single_segments(batch) : 0,
                others = static_cast<int32_t>(batch.segments.size()) - singles;
  if (others > 0) {
    Batch first = batch;
    first.segments = batch.segments.first(static_cast<size_t>(others));
    first.row_count -= singles;
    const cudaError_t error = prefills_scaled_sm90(args, first, kv, scratch)
                                  ? prefill_scaled_sm90(stream, chip, args, first, kv)
                                  : attend_scaled_sm80(stream, chip, args, first, kv, scratch);
    if (error != cudaSuccess) return error;
  }
  if (singles == 0) return cudaSuccess;
  return decode_scaled_sm90(stream, chip, args, batch.segments.subspan(static_cast<size_t>(others)), kv, scratch);
}

cudaError_t attend_scaled_sm80(cudaStream_t stream, const Chip& chip, const ScaledAttentionArgs& args,
                               const Batch& batch, const KvSlot& kv, const AttentionScratch& scratch) {
  const bool one_row_each = batch.row_count == static_cast<int32_t>(batch.segments.size());
  ScaledMmaWork work;
  work.args.queries = args.queries;
  work.args.heads = args.heads;
  work.z = args.z;
  work.value_step = args.value_step;
  work.out = args.out;
  const auto launch = [&]<class Few, class Many>() {
    return one_row_each ? launch_mma<Few>(stream, chip, work, batch, kv, scratch)
                        : launch_mma<Many>(stream, chip, work, batch, kv, scratch);
  };
  switch (kv.head_dim) {
    case 64:
      return launch.operator()<MmaShape<64, 16, 4, 3, true>, MmaShape<64, 16, 4, 3, true>>();
    case 128:
      return launch.operator()<MmaShape<128, 16, 8, 2, true>, MmaShape<128, 32, 8, 1, true>>();
    case 256:
      return launch.operator()<MmaShape<256, 16, 8, 2, true>, MmaShape<256, 32, 8, 1, true>>();
    case 512:
      return launch.operator()<MmaShape<512, 16, 8, 1, true>, MmaShape<512, 16, 8, 1, true>>();
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace kaiju::cuda
