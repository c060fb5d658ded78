// StepInputs: writes a step's rows to pinned memory and copies them. See step_inputs.hpp.
#include "step_inputs.hpp"

#include <cstring>
#include <span>

namespace kaiju::cuda {

Result<StepInputs> StepInputs::make(const ExecutorInfo& info) {
  StepInputs made(info);
  const auto rows = static_cast<size_t>(info.step_tokens), slots = static_cast<size_t>(info.slot_count);
  made.bytes_ = 3 * aligned_for_copy(rows * sizeof(int32_t)) + aligned_for_copy(slots * sizeof(BatchSegment)) +
                2 * aligned_for_copy(slots * sizeof(int32_t)) + aligned_for_copy(slots * sizeof(SampleRow));
  KAIJU_TRY(take(made.tables_, slots * kBlockKinds * static_cast<size_t>(table_blocks(info)), "the block tables"));
  KAIJU_TRY(take(made.memory_, made.bytes_, "a step's inputs"));
  KAIJU_TRY(take(made.host_memory_, 2 * made.bytes_, "a step's inputs"));
  return made;
}

StepInputs::Placed StepInputs::place(const StepRows& rows, int32_t turn) {
  Placed placed;
  std::byte* const host = host_memory_.data() + static_cast<size_t>(turn) * bytes_;
  std::byte* const device = memory_.data();
  // Copies `items` to the layout; answers where they are on the host and will be on the GPU.
  const auto put = [&]<class T>(std::span<const T> items, T*& on_host) {
    on_host = reinterpret_cast<T*>(host + placed.bytes);
    std::memcpy(on_host, items.data(), items.size_bytes());
    const std::span<T> on_device(reinterpret_cast<T*>(device + placed.bytes), items.size());
    placed.bytes = aligned_for_copy(placed.bytes + items.size_bytes());
    return on_device;
  };
  int32_t* ignored = nullptr;
  BatchSegment* segments_here = nullptr;
  SampleRow* samples_here = nullptr;
  const auto tokens = put(rows.tokens(), ignored);
  const auto positions = put(rows.positions(), ignored);
  const auto segments = put(rows.segments(), segments_here);
  placed.batch = {rows.row_count(), tokens, positions, segments, put(rows.row_segment(), ignored), rows.single_from()};
  placed.tokens = tokens.data();
  placed.segment_slot = put(rows.segment_slot(), ignored).data();
  placed.sampled_row = put(rows.sampled_row(), ignored).data();
  placed.sample_rows = static_cast<int32_t>(rows.samples().size());
  placed.samples = put(rows.samples(), samples_here).data();

  for (size_t s = 0; s < segments.size(); ++s)
    for (int32_t kind = 0; kind < kBlockKinds; ++kind)
      segments_here[s].table[kind] = tables_.data() + table_offset(info_, rows.segment_slot()[s], kind);
  for (int32_t i = 0; i < placed.sample_rows; ++i) samples_here[i].answer = turn * info_.slot_count + i;
  return placed;
}

cudaError_t StepInputs::send(const Placed& placed, int32_t turn, cudaStream_t stream) {
  return cudaMemcpyAsync(memory_.data(), host_memory_.data() + static_cast<size_t>(turn) * bytes_, placed.bytes,
                         cudaMemcpyHostToDevice, stream);
}

}  // namespace kaiju::cuda
