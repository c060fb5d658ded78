// Lists the host and the GPUs.
#include "kaiju/run/devices.hpp"

#include <unistd.h>

#include "kaiju/backend/cpu.hpp"
#if KAIJU_CUDA
#include "cuda.hpp"
#endif

namespace kaiju {
namespace {

uint64_t bytes_of(long pages) {
  const long page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page) : 0;
}

}  // namespace

std::vector<DeviceInfo> devices() {
  DeviceInfo host;
  host.name = "cpu";
  host.backends = CpuBackend::isas();
  host.backends.push_back("reference");
  host.memory_total = bytes_of(sysconf(_SC_PHYS_PAGES));
  host.memory_free = bytes_of(sysconf(_SC_AVPHYS_PAGES));
  std::vector<DeviceInfo> found = {std::move(host)};
#if KAIJU_CUDA
  for (cuda::Gpu& gpu : cuda::gpus()) {
    DeviceInfo info;
    info.kind = DeviceKind::kGpu;
    info.name = "cuda:" + std::to_string(found.size() - 1);
    info.description = std::move(gpu.name);
    if (gpu.fit) info.backends = {"cuda"};
    info.memory_total = gpu.memory_total;
    info.memory_free = gpu.memory_free;
    found.push_back(std::move(info));
  }
#endif
  return found;
}

}  // namespace kaiju
