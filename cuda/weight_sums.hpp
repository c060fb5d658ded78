// WeightSums: finds bits of the weights on a GPU that have flipped since they were copied there. The memory is divided
// into pieces; each has a sum, taken when the weights had just been copied.
#pragma once

#include <memory>
#include <vector>

#include "device.hpp"
#include "kaiju/step/executor.hpp"
#include "memory.hpp"

namespace kaiju::cuda {

class WeightSums {
 public:
  static Result<WeightSums> make(std::shared_ptr<Device> device, const DeviceBuffer<std::byte>& weights);
  // The weights have been replaced: sums those that are there now. Takes no memory of the GPU.
  Status renew();
  // As Executor::scrub: whole pieces, one at least. Waits for the device.
  Result<Scrubbed> look(size_t most_bytes);

 private:
  WeightSums(std::shared_ptr<Device> device, const std::byte* weights, size_t bytes)
      : device_(std::move(device)), weights_(weights), bytes_(bytes) {}
  // Sums of the pieces `first` to `first` + `count`.
  Result<std::vector<uint64_t>> sums(size_t first, size_t count);
  size_t piece_bytes(size_t piece) const;

  std::shared_ptr<Device> device_;
  const std::byte* weights_;
  size_t bytes_;
  DeviceBuffer<uint64_t> sums_;     // one for each piece
  std::vector<uint64_t> expected_;  // likewise
  size_t next_ = 0;                 // the piece that is looked at next
};

}  // namespace kaiju::cuda
