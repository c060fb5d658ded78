// Asynchronous copies by the tensor memory accelerator (TMA): boxes of a tensor map, and contiguous bytes (bulk). A
// copy to shared memory counts its bytes at an mbarrier (sm90_barrier.cuh). Addresses of shared memory are 32-bit.
// Compiles for sm_90a only.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace kaiju::cuda {

// ---- L2 policies ----

// Of what is read once: it leaves the L2 cache first, so that what is read again stays.
__device__ __forceinline__ uint64_t policy_evict_first() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ uint64_t policy_evict_normal() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// ---- boxes of a tensor map ----

__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// The box at (k, row) to shared memory.
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap* map, uint32_t barrier, int32_t k,
                                         int32_t row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          to),
      "l"(map), "r"(barrier), "r"(k), "r"(row)
      : "memory");
}
// Of a map of five dimensions, 1 ... 3 of which are taken whole.
__device__ __forceinline__ void copy_box_5d(uint32_t to, const CUtensorMap* map, uint32_t barrier, int32_t k,
                                            int32_t group, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %5, "
      "%5, %5, %4}], [%2], %6;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(k), "r"(group), "r"(0), "l"(policy)
      : "memory");
}
// The same to every block of the cluster in `mask`, each of which counts the bytes at its own barrier.
__device__ __forceinline__ void multicast_box_5d(uint32_t to, const CUtensorMap* map, uint32_t barrier, int32_t k,
                                                 int32_t group, uint64_t policy, uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
      "[%0], [%1, {%3, %5, %5, %5, %4}], [%2], %6, %7;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(k), "r"(group), "r"(0), "h"(mask), "l"(policy)
      : "memory");
}
// A box from shared memory to global memory, after publish_stores() of what was written there. Nothing is stored
// outside of the tensor.
__device__ __forceinline__ void store_box(const CUtensorMap* map, int32_t column, int32_t row, uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];\ncp.async.bulk.commit_group;" ::"l"(
          map),
      "r"(column), "r"(row), "r"(from)
      : "memory");
}
// Waits until all stores of this thread have read shared memory; until they are in global memory.
__device__ __forceinline__ void stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ __forceinline__ void stores_done() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// ---- contiguous bytes ----

// `bytes` (a multiple of 16) from global to shared memory.
__device__ __forceinline__ void copy_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void copy_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier,
                                          uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
__device__ __forceinline__ void copy_bulk_once(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  copy_bulk(to, from, bytes, barrier, policy_evict_first());
}
// `bytes` to the L2 cache.
__device__ __forceinline__ void prefetch_bulk(const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void prefetch_bulk_once(const void* from, uint32_t bytes) {
  const uint64_t policy = policy_evict_first();
  asm volatile("cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], %1, %2;" ::"l"(from), "r"(bytes), "l"(policy)
               : "memory");
}
// The cache line at `from` to the L2 cache.
__device__ __forceinline__ void prefetch_line(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

}  // namespace kaiju::cuda
