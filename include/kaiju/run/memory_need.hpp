// MemoryNeed: how much memory an engine would take, said before it takes any.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kaiju/run/devices.hpp"
#include "kaiju/run/executors.hpp"

namespace kaiju {

// In bytes. Weights, KV and workspace are on one device, or on each of several that share the model. On a processor the
// weights are pages of the model's file, which engines of one model share. On a GPU the workspace is an estimate: the
// driver rounds allocations up.
struct MemoryNeed {
  int32_t device = 0;  // index in devices()
  int64_t weights = 0, kv = 0, workspace = 0;
  int64_t host_tier = 0;        // KV that was evicted from the cache (CacheOptions::host_bytes); always on the host
  std::vector<int32_t> others;  // devices that share the model with `device`, and need as much each

  int64_t on_device() const { return weights + kv + workspace + (device == 0 ? host_tier : 0); }
  int64_t on_host() const { return device == 0 ? on_device() : host_tier; }
};

// Of the executor that make_executor would create. Reads sizes alone: a checkpoint that was opened with Verify::kNone
// will do. Returns the errors of make_executor about options.
Result<MemoryNeed> memory_need(const Checkpoint& checkpoint, const ExecutorOptions& options);

inline constexpr int64_t kFreeMemory = -1;  // as a limit: what the device, and the host, have free now
// Returns kOutOfMemory, with the figures, if the need is above the limit. A limit in bytes counts for what is on the
// each device; 0: no limit.
Status check_memory(const MemoryNeed& need, int64_t limit);
// The same with what `found`, which devices() returned, says is free.
Status check_memory(const MemoryNeed& need, int64_t limit, std::span<const DeviceInfo> found);

}  // namespace kaiju
