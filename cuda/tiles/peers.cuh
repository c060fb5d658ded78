// What a kernel tells other GPUs through memory that all of them reach, and how it waits for them.
//
// No GPU waits for ever: one that has not come within kPatienceNs, or that the host has seen fail, ends the wait of
// all, and the host finds `lost` set. The results are worthless then.
#pragma once

#include <cstdint>

namespace kaiju::cuda {

constexpr uint64_t kPatienceNs = 20'000'000'000;

// What this thread has seen or written before is there for whoever acquires the value.
__device__ __forceinline__ void store_released(int32_t* to, int32_t value) {
  asm volatile("st.release.sys.global.s32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ int32_t load_acquired_of_all(const int32_t* from) {
  int32_t value;
  asm volatile("ld.acquire.sys.global.s32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
// A value alone.
__device__ __forceinline__ void store_relaxed(uint64_t* to, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
__device__ __forceinline__ uint64_t load_relaxed(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ int32_t load_volatile(const int32_t* from) {
  return *static_cast<const volatile int32_t*>(from);
}
__device__ __forceinline__ uint64_t now_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Until has_come(), or somebody is lost.
template <class HasCome>
__device__ __forceinline__ void wait_for_peer(int32_t* lost, HasCome&& has_come) {
  const uint64_t until = now_ns() + kPatienceNs;
  for (int32_t turn = 1; !has_come(); ++turn) {
    if (turn % 4096 != 0) continue;
    if (load_volatile(lost) != 0) return;
    if (now_ns() > until) {
      *static_cast<volatile int32_t*>(lost) = 1;
      return;
    }
  }
}

}  // namespace kaiju::cuda
