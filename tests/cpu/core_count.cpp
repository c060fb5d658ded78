// How many threads an engine has when nobody says.
#include "kaiju/base/detail/core_count.hpp"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "catch.hpp"

namespace kaiju {

TEST_CASE("a process counts no more cores than it has processors, and at least one") {
  CHECK(core_count() >= 1);
  CHECK(core_count() <= processor_count());
  CHECK(processor_count() <= static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency())));
}

#if defined(__linux__)
TEST_CASE("cores and processors that the system keeps from a thread are not counted") {
  int32_t cores = 0, processors = 0;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    cores = core_count();
    processors = processor_count();
  }).join();
  CHECK(cores == 1);
  CHECK(processors == 1);
}
#endif

}  // namespace kaiju
