// StepLists: pinned memory through which the lists of a step (table writes, histories, biases) are copied to one GPU.
// The lists of the previous step, which may still be running, keep their memory. If a list does not fit, the host waits
// until the GPU has read everything sent so far.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>

#include "device.hpp"
#include "memory.hpp"
#include "step_inputs.hpp"

namespace kaiju::cuda {

class StepLists {
 public:
  // Room for the lists of a step and of the one before it: all tables, 4 million tokens of history, 1 MiB of biases.
  static Result<StepLists> make(std::shared_ptr<Device> device, const ExecutorInfo& info);

  // Begins the lists of a step; `alone`: no earlier step is running. The step before the last has ended.
  void begin(bool alone);

  // Copies `items` to the GPU, in pieces where they are many, and calls use(items on the GPU, count) for each piece.
  template <class T, class Use>
  void send(std::span<const T> items, const char* what, Use&& use) {
    for (size_t done = 0; done < items.size() && device_->ok();) {
      if (free_.used + sizeof(T) > free_.end) wait(what);
      const size_t count = std::min(items.size() - done, (free_.end - free_.used) / sizeof(T)),
                   bytes = count * sizeof(T);
      std::byte *const there = memory_.data() + free_.used, *const here = host_memory_.data() + free_.used;
      std::memcpy(here, items.data() + done, bytes);
      device_->attempt(what,
                       [&] { return cudaMemcpyAsync(there, here, bytes, cudaMemcpyHostToDevice, device_->stream()); });
      device_->attempt(what, [&] { return use(reinterpret_cast<const T*>(there), static_cast<int32_t>(count)); });
      free_.used = std::min(aligned_for_copy(free_.used + bytes), free_.end);
      done += count;
    }
  }

  // For recordings that never run: a list of anything.
  template <class T>
  const T* any() const {
    return reinterpret_cast<const T*>(memory_.data());
  }

 private:
  explicit StepLists(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  void wait(const char* what);

  // Where this step's lists begin and end so far, and the end of what they may use.
  struct Range {
    size_t begin = 0, used = 0, end = 0;
  };

  std::shared_ptr<Device> device_;
  DeviceBuffer<std::byte> memory_;
  PinnedBuffer host_memory_;
  Range free_;
};

}  // namespace kaiju::cuda
