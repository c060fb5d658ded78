// Code that all users of wgmma share: fences and waits, registers that move between warpgroups, and barriers of one or
// two warpgroups. The wgmma instructions are in sm90_wgmma_matmul.cuh and sm90_wgmma_attention.cuh. Compiles for sm_90a
// only.
#pragma once

#include <cstdint>

namespace kaiju::cuda {

// Before the first product of a group: earlier accesses to its registers have been made.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most `kPending` committed groups are still running.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// After a wait: keeps the compiler from moving uses of these registers to before it.
template <int kCount, class T>
__device__ __forceinline__ void wgmma_settle(T (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(r[i])::"memory");
}
// What this thread stored to shared memory becomes visible to wgmma and TMA; a barrier among the threads comes after
// it.
__device__ __forceinline__ void publish_stores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Registers of each thread of this warpgroup (setmaxnreg).
template <int kRegisters>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// A barrier among the 128 threads of a warpgroup; id 1 ... 15.
__device__ __forceinline__ void sync_warpgroup(int id) { asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory"); }
// One warpgroup waits until another one arrives.
__device__ __forceinline__ void await_warpgroup(int id) { asm volatile("bar.sync %0, 256;" ::"r"(id) : "memory"); }
__device__ __forceinline__ void tell_warpgroup(int id) { asm volatile("bar.arrive %0, 256;" ::"r"(id) : "memory"); }

}  // namespace kaiju::cuda
