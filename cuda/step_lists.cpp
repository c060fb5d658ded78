// StepLists: copies a step's lists to the GPU. See step_lists.hpp.
#include "step_lists.hpp"

namespace kaiju::cuda {

constexpr size_t kBiasBytes = 1 << 20, kMostBytes = 32 << 20;

Result<StepLists> StepLists::make(std::shared_ptr<Device> device, const ExecutorInfo& info) {
  StepLists made(std::move(device));
  const auto slots = static_cast<size_t>(info.slot_count);
  const size_t table_bytes = slots * kBlockKinds * static_cast<size_t>(table_blocks(info)) * sizeof(TableWrite),
               history_bytes = slots * static_cast<size_t>(info.context) * sizeof(TokenMark);
  const size_t bytes = std::min(kMostBytes, table_bytes + history_bytes + kBiasBytes);
  KAIJU_TRY(take(made.memory_, bytes, "a step's lists"));
  KAIJU_TRY(take(made.host_memory_, bytes, "a step's lists"));
  return made;
}

// The step before occupies [begin, used); the longer of what lies before and after that is free.
void StepLists::begin(bool alone) {
  if (alone) {
    free_ = {0, 0, memory_.size()};
    return;
  }
  const size_t before = free_.begin, after = memory_.size() - free_.used;
  free_ = after >= before ? Range{free_.used, free_.used, memory_.size()} : Range{0, 0, before};
}

void StepLists::wait(const char* what) {
  device_->check(cudaStreamSynchronize(device_->stream()), what);
  free_ = {0, 0, memory_.size()};
}

}  // namespace kaiju::cuda
