// core_count and processor_count: on how many cores and processors this process may compute.
#pragma once

#include <cstdint>

namespace kaiju {

// The physical cores on which the system lets the calling thread run, or fewer if the process's control group has a
// smaller share of processor time (cgroup v2, rounded up). Threads that share a core count once: they share its units
// for products too. Where the system does not say, the number of processors. At least 1, at most 256.
int32_t core_count();

// Likewise the processors, as the system schedules threads: those that share a core count each.
int32_t processor_count();

}  // namespace kaiju
