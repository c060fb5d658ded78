// Counts cores by what Linux says in sched_getaffinity, /sys/devices/system/cpu and /sys/fs/cgroup.
#include "kaiju/base/detail/core_count.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <thread>
#if defined(__linux__)
#include <sched.h>
#endif

namespace kaiju {
namespace {

constexpr int32_t kMostCores = 256;

#if defined(__linux__)

// The first line of a file of the system's; empty if there is none.
std::string line_of(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "r"), std::fclose);
  char line[256] = "";
  if (!file || !std::fgets(line, sizeof line, file.get())) return {};
  return line;
}

// 0 if the system does not say.
int32_t allowed_processors() {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? static_cast<int32_t>(CPU_COUNT(&allowed)) : 0;
}

// Each core by the processors that share it. 0 if the system does not say.
int32_t allowed_cores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 0;
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::string shared =
        line_of("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    cores.insert(shared.empty() ? std::to_string(cpu) : shared);
  }
  return static_cast<int32_t>(cores.size());
}

// Whole cores that a control group's share of time is worth. INT32_MAX if it has no limit.
int32_t quota_cores() {
  long long quota = 0, period = 0;
  const std::string line = line_of("/sys/fs/cgroup/cpu.max");
  if (std::sscanf(line.c_str(), "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0) return INT32_MAX;
  return static_cast<int32_t>(std::min<long long>((quota + period - 1) / period, INT32_MAX));
}

#else

int32_t allowed_processors() { return 0; }
int32_t allowed_cores() { return 0; }
int32_t quota_cores() { return INT32_MAX; }

#endif

int32_t limited(int32_t allowed) {
  if (allowed == 0) allowed = static_cast<int32_t>(std::thread::hardware_concurrency());
  return std::clamp(std::min(allowed, quota_cores()), 1, kMostCores);
}

}  // namespace

int32_t core_count() { return limited(allowed_cores()); }
int32_t processor_count() { return limited(allowed_processors()); }

}  // namespace kaiju
