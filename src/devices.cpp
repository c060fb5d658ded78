// Lists the host and the GPUs.
#include "kaiju/run/devices.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

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

// The number behind a word of a file such as "MemAvailable:  1024 kB"; with an empty word, its first number. 0: none.
uint64_t number_in(const std::string& file, const std::string& word) {
  std::ifstream in(file);
  uint64_t number = 0;
  if (word.empty()) return in >> number ? number : 0;
  for (std::string each; in >> each;)
    if (each == word) return in >> number ? number : 0;
  return 0;
}

// What the process's control group (version 2) has left of its limit; its file cache makes room. Without a limit, all.
uint64_t left_in_group(uint64_t all) {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::")) continue;
    const std::string folder = "/sys/fs/cgroup" + line.substr(3);
    const uint64_t limit = number_in(folder + "/memory.max", ""), used = number_in(folder + "/memory.current", ""),
                   cached = number_in(folder + "/memory.stat", "inactive_file");
    if (limit > 0) return std::min(all, limit - std::min(limit, used - std::min(used, cached)));
  }
  return all;
}

// File cache that the system would give up counts as free: the weights of a model that was just read are in it.
uint64_t free_host_memory() {
  const uint64_t available = number_in("/proc/meminfo", "MemAvailable:") << 10;
  return left_in_group(available > 0 ? available : bytes_of(sysconf(_SC_AVPHYS_PAGES)));
}

}  // namespace

std::vector<DeviceInfo> devices() {
  DeviceInfo host;
  host.name = "cpu";
  host.backends = CpuBackend::isas();
  host.backends.push_back("reference");
  host.memory_total = bytes_of(sysconf(_SC_PHYS_PAGES));
  host.memory_free = free_host_memory();
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
