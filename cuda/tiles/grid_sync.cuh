// Synchronisation through global memory among the thread blocks of one kernel, which must all run at once: counters
// with release and acquire, and words with a tag. Data that other blocks write during the kernel must be read past the
// L1 cache (__ldcg).
#pragma once

#include <cstdint>

namespace kaiju::cuda {

// Adds 1 with release: a thread that has acquired the count can read what this thread wrote, or saw before a barrier of
// its block.
__device__ __forceinline__ void add_released(int32_t* counter) {
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
}
// Adds `count` and returns the value before, with acquire and release: the thread sees what all earlier adders wrote.
__device__ __forceinline__ int32_t add_acquired_released(int32_t* to, int32_t count) {
  int32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;" : "=r"(before) : "l"(to), "r"(count) : "memory");
  return before;
}
__device__ __forceinline__ int32_t load_acquired(const int32_t* counter) {
  int32_t value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}
// Spins until look() is true.
template <class Look>
__device__ __forceinline__ void look_until(Look look) {
#if defined(KAIJU_WATCHDOG)
  int64_t turns = 0;
#endif
  while (!look()) {
#if defined(KAIJU_WATCHDOG)  // as in sm90_barrier.cuh
    if (++turns > (1 << 22)) __trap();
#endif
  }
}
__device__ __forceinline__ void wait_for_count(const int32_t* counter, int32_t count) {
  look_until([&] { return load_acquired(counter) >= count; });
}

// A word and its tag are stored as one, so that a reader that finds the tag has the word: faster than a store, a
// counter and a read of the counter. Orders nothing else.
__device__ __forceinline__ void store_tagged(uint64_t* to, uint32_t word, uint32_t tag) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(uint64_t{tag} << 32 | word) : "memory");
}
__device__ __forceinline__ uint64_t load_tagged(const uint64_t* from) {
  uint64_t both;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(both) : "l"(from) : "memory");
  return both;
}
// Between two looks at many words a thread sleeps, which leaves memory bandwidth to others.
__device__ __forceinline__ void rest() { __nanosleep(100); }

// Waits for the words at place(0) ... place(kCount - 1), without a rest: for few words that are due.
template <int kCount, class Place>
__device__ __forceinline__ void take_tagged(Place place, uint32_t tag, uint32_t (&words)[kCount]) {
  look_until([&] {
    uint64_t both[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) both[i] = load_tagged(place(i));
    bool complete = true;
#pragma unroll
    for (int i = 0; i < kCount; ++i) words[i] = static_cast<uint32_t>(both[i]), complete &= both[i] >> 32 == tag;
    return complete;
  });
}
// The same of pairs of words at even places.
template <int kCount, class Place>
__device__ __forceinline__ void take_tagged_pairs(Place place, uint32_t tag, uint2 (&words)[kCount]) {
  look_until([&] {
    uint64_t both[kCount][2];
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                   : "=l"(both[i][0]), "=l"(both[i][1])
                   : "l"(place(i))
                   : "memory");
    bool complete = true;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      complete &= both[i][0] >> 32 == tag && both[i][1] >> 32 == tag;
      words[i] = {static_cast<uint32_t>(both[i][0]), static_cast<uint32_t>(both[i][1])};
    }
    if (!complete) rest();
    return complete;
  });
}
// The same with 16 bits each, which four at a time are read with.
__device__ __forceinline__ void store_half_tagged(uint32_t* to, uint16_t value, uint32_t tag) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(tag << 16 | value) : "memory");
}
// Four values each at place(0) ... place(kCount - 1), two and two, as soon as all are there.
template <int kCount, class Place>
__device__ __forceinline__ void take_half_tagged(Place place, uint32_t tag, uint2 (&values)[kCount]) {
  tag &= 0xFFFF;
  look_until([&] {
    uint4 four[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(four[i].x), "=r"(four[i].y), "=r"(four[i].z), "=r"(four[i].w)
                   : "l"(place(i))
                   : "memory");
    bool complete = true;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      complete &= four[i].x >> 16 == tag && four[i].y >> 16 == tag && four[i].z >> 16 == tag && four[i].w >> 16 == tag;
      values[i] = {__byte_perm(four[i].x, four[i].y, 0x5410), __byte_perm(four[i].z, four[i].w, 0x5410)};
    }
    if (!complete) rest();
    return complete;
  });
}

}  // namespace kaiju::cuda
