// StepInputs: the rows of a step and the block tables in the memory of one GPU. A step's rows are written to pinned
// memory and sent in one copy. There are two buffers, used in turn, so that a step can be written while the copy of the
// previous step is pending.
#pragma once

#include "kaiju/backend/batch.hpp"
#include "memory.hpp"
#include "step_rows.hpp"

namespace kaiju::cuda {

class StepInputs {
 public:
  // A step's rows where they lie on the GPU. The addresses depend on the counts alone.
  struct Placed {
    Batch batch;
    int32_t* tokens = nullptr;  // the batch's, writable
    const int32_t* segment_slot = nullptr;
    const int32_t* sampled_row = nullptr;
    int32_t sample_rows = 0;
    const SampleRow* samples = nullptr;
    size_t bytes = 0;
  };

  static Result<StepInputs> make(const ExecutorInfo& info);

  BlockId* tables() const { return tables_.data(); }  // as table_offset() has them

  // Lays out rows in turn 0 or 1. Sample i is answered at place turn * slot_count + i.
  Placed place(const StepRows& rows, int32_t turn);
  // Copies what was placed in that turn to the GPU.
  cudaError_t send(const Placed& placed, int32_t turn, cudaStream_t stream);

 private:
  explicit StepInputs(const ExecutorInfo& info) : info_(info) {}

  ExecutorInfo info_;
  size_t bytes_ = 0;  // of a layout
  DeviceBuffer<BlockId> tables_;
  DeviceBuffer<std::byte> memory_;
  PinnedBuffer host_memory_;  // two layouts
};

// Sizes of what is sent to the GPU are rounded up to this.
constexpr size_t aligned_for_copy(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace kaiju::cuda
