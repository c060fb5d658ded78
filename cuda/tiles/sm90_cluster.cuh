// Clusters: a block's rank in its cluster, barriers of the cluster, and stores to the shared memory of other blocks of
// the cluster. Addresses of shared memory are 32-bit. Compiles for sm_90a only.
#pragma once

#include <cstdint>

namespace kaiju::cuda {

// The block's place in its cluster, the cluster's in the grid, and how many there are; a block without others is a
// cluster.
__device__ __forceinline__ int32_t cluster_rank() {
  int32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ int32_t cluster_blocks() {
  int32_t count;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
  return count;
}
__device__ __forceinline__ int32_t cluster_index() {
  int32_t index;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}
__device__ __forceinline__ int32_t cluster_count() {
  int32_t count;
  asm("mov.u32 %0, %%nclusterid.x;" : "=r"(count));
  return count;
}
// A barrier of all threads of the cluster, at once or in two steps; orders no memory accesses.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
// Where an address lies in block `rank` of the cluster.
__device__ __forceinline__ uint32_t address_in(uint32_t address, uint32_t rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
// Four integers to a block of the cluster, counted at its barrier; both addresses are the cluster's.
__device__ __forceinline__ void push_to_block(uint32_t to, int4 v, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void push_to_block(uint32_t to, int2 v, uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(to),
               "r"(v.x), "r"(v.y), "r"(barrier)
               : "memory");
}

}  // namespace kaiju::cuda
