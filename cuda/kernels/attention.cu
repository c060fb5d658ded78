// Chooses the attention kernel: one for Hopper if it supports the shape (sm90_attention.cu), otherwise the one for
// every chip (sm80_attention.cuh).
#include "sm80_attention.cuh"

namespace kaiju::cuda {

cudaError_t attend(cudaStream_t stream, const Chip& chip, const AttentionArgs& args, const Batch& batch,
                   const KvSlot& kv, const AttentionScratch& scratch) {
  return attends_sm90(args, kv, scratch) ? attend_sm90(stream, args, batch, kv, scratch)
                                         : attend_sm80(stream, chip, args, batch, kv, scratch);
}

cudaError_t attend_sm80(cudaStream_t stream, const Chip& chip, const AttentionArgs& args, const Batch& batch,
                        const KvSlot& kv, const AttentionScratch& scratch) {
  const bool one_row_each = batch.row_count == static_cast<int32_t>(batch.segments.size());
  MmaWork work;
  work.args = args;
  work.weight = WideWeight(args.z);
  const auto launch = [&]<class Few, class Many>() {
    const bool few = one_row_each && (kv.head_dim < 256 || args.heads / kv.kv_heads <= Few::kRows ||
                                      mma_tiles<Few>(args.heads, batch, kv) <= Few::kBlocks * chip.multiprocessors);
    return few ? launch_mma<Few>(stream, chip, work, batch, kv, scratch)
               : launch_mma<Many>(stream, chip, work, batch, kv, scratch);
  };
  switch (kv.head_dim) {
    case 64:
      return launch.operator()<MmaShape<64, 16, 4, 4>, MmaShape<64, 16, 4, 4>>();
    case 128:
      return launch.operator()<MmaShape<128, 16, 4, 3>, MmaShape<128, 32, 4, 2>>();
    case 256:
      return launch.operator()<MmaShape<256, 16, 8, 2>, MmaShape<256, 48, 8, 1>>();
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace kaiju::cuda
