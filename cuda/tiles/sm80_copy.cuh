// cp.async (capability 8.0 and newer): asynchronous copies from global to shared memory. The thread that started a copy
// waits for it.
#pragma once

#include <cstdint>

namespace kaiju::cuda {

// 16 bytes from global to shared memory, in the background; zeros when `valid` is false.
__device__ __forceinline__ void copy_async(uint32_t to, const void* from, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most `kPending` groups of this thread are still under way.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
// A word from global to shared memory, in the background, until copies_done() of the same thread.
__device__ __forceinline__ void copy_async_word(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copies_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace kaiju::cuda
