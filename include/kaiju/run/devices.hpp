// devices: what this machine has that an executor can compute on. Device 0 is the host; the GPUs follow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kaiju {

enum class DeviceKind : int32_t { kCpu = 1, kGpu = 2 };  // the same values as in the C header

struct DeviceInfo {
  DeviceKind kind = DeviceKind::kCpu;
  std::string name;         // "cpu", "cuda:0"
  std::string description;  // the product's name of a GPU; empty for the host
  // Names of the backends that compute on it, the fastest first. Empty: this build or its arithmetic cannot use it.
  std::vector<std::string> backends;
  uint64_t memory_total = 0, memory_free = 0;  // bytes; 0: not known
};

// Looks at the machine again at every call. The host's free memory is what the system says a program can have
// (MemAvailable), and no more than the process's control group has left. A GPU's free memory comes from NVIDIA's
// management library where that is installed; no CUDA context is made for it.
std::vector<DeviceInfo> devices();

}  // namespace kaiju
