// Barriers in shared memory (mbarrier). A phase is complete when all arrivals and all announced bytes of copies have
// come; phases have parity 0, 1, 0, and so on. A barrier is identified by its 32-bit address in shared memory.
// Capability 9.0 and newer.
#pragma once

#include <cstdint>

namespace kaiju::cuda {

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialised barriers visible to TMA and, after a barrier of the cluster, to its other blocks.
__device__ __forceinline__ void barrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives and announces `bytes` that copies will bring.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Announces `bytes` more in the current phase.
__device__ __forceinline__ void barrier_expect_more(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Arrives; orders nothing beyond the block. (A release at the scope of the cluster becomes a fence of all memory and
// takes most of a microsecond.)
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives at the barrier at the same address in block `rank` of the cluster. Orders nothing: earlier reads have been
// used by then.
__device__ __forceinline__ void barrier_arrive(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, "
      "[there];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
// The same for `count` arrivals at once.
__device__ __forceinline__ void barrier_arrive(uint32_t barrier, uint32_t rank, uint32_t count) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, [there], "
      "%2;\n}" ::"r"(barrier),
      "r"(rank), "r"(count)
      : "memory");
}
// A warp that has read what may be overwritten arrives so many times. One lane does it for all, which __syncwarp()
// orders behind their reads; compute-sanitizer's racecheck does not see that, so a build for it may define
// KAIJU_LANES_ARRIVE.
#if defined(KAIJU_LANES_ARRIVE)
constexpr uint32_t kWarpArrivals = 32;
#else
constexpr uint32_t kWarpArrivals = 1;
#endif
__device__ __forceinline__ void barrier_arrive_warp(uint32_t barrier, int32_t lane) {
  __syncwarp();
  if (kWarpArrivals == 32 || lane == 0) barrier_arrive(barrier);
}
// Waits until the phase of this parity is complete.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done;
#if defined(KAIJU_WATCHDOG)
  int64_t turns = 0;
#endif
  do {
#if defined(KAIJU_WATCHDOG)  // a kernel under development that waits for ever ends as a fault
    if (++turns > (1 << 20)) __trap();
#endif
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
  } while (!done);
}

}  // namespace kaiju::cuda
