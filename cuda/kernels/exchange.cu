// The exchange among GPUs by memory that all of them reach (exchange.hpp). Bound: NVLink, and for few rows the time of
// one meeting.
//
// Meetings. A GPU arrives by writing the number of its meeting to every other GPU's memory, with release; it goes on
// when all numbers are in its own memory. The numbers are kept on the GPUs, so a recorded graph meets anew each time it
// runs. A buffer of sums is written again two meetings later at the earliest, when everybody has read it.
//
// No GPU waits for ever: one that has not come within kPatienceNs, or that the host has seen fail, ends the wait of
// all, and the host finds `lost` set. The results are worthless then.
#include <algorithm>

#include "../tiles/dependent_launch.cuh"
#include "../tiles/epilogue.cuh"
#include "exchange.hpp"

namespace kaiju::cuda {
namespace {

constexpr int32_t kThreads = 256;
constexpr int kRun = 8;  // neighbouring outputs of a thread: 16 bytes of the stream
// Rows that every GPU adds up by itself: reading them from all takes less time than a second meeting.
constexpr int32_t kFewRows = 32;
constexpr uint64_t kPatienceNs = 20'000'000'000;

__device__ __forceinline__ void store_released(int32_t* to, int32_t value) {
  asm volatile("st.release.sys.global.s32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ int32_t load_acquired_of_all(const int32_t* from) {
  int32_t value;
  asm volatile("ld.acquire.sys.global.s32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
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

// All threads of all blocks call it. The first block tells the others that this GPU has come.
__device__ void meet(const Peers& peers, int32_t meeting) {
  const auto tid = static_cast<int32_t>(threadIdx.x);
  if (tid < peers.count) {
    if (blockIdx.x == 0) {
      __threadfence_system();
      store_released(peers.arrived[tid] + peers.rank, meeting);
    }
    const int32_t* const from = peers.arrived[peers.rank] + tid;
    const uint64_t until = now_ns() + kPatienceNs;
    for (int32_t turn = 1; load_acquired_of_all(from) - meeting < 0; ++turn) {
      if (turn % 4096 != 0) continue;
      if (load_volatile(peers.lost) != 0) break;
      if (now_ns() > until) {
        *static_cast<volatile int32_t*>(peers.lost) = 1;
        break;
      }
    }
  }
  __syncthreads();
}

// Counts the meeting once the last block has ended.
__device__ void leave(const Peers& peers, int32_t meeting) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  if (atomicAdd(peers.state + 1, 1) + 1 < static_cast<int32_t>(gridDim.x)) return;
  peers.state[1] = 0;
  peers.state[0] = meeting;
}

// kRun neighbouring outputs at `at` of a row, from all GPUs.
__device__ __forceinline__ void add_up(const Peers& peers, int32_t turn, int64_t at, int32_t (&sum)[kRun]) {
#pragma unroll
  for (int i = 0; i < kRun; ++i) sum[i] = 0;
  for (int32_t p = 0; p < peers.count; ++p) {
    const auto* from = reinterpret_cast<const int4*>(peers.sums[turn][p] + at);
#pragma unroll
    for (int i = 0; i < kRun / 4; ++i) {
      const int4 four = __ldcv(from + i);
      sum[4 * i] += four.x, sum[4 * i + 1] += four.y, sum[4 * i + 2] += four.z, sum[4 * i + 3] += four.w;
    }
  }
}

// Rows [first, end) of the stream; kAll: of every GPU's.
template <bool kAll>
__global__ void __launch_bounds__(kThreads)
    add_sums_kernel(Peers peers, int32_t turn, int32_t first, int32_t end, int32_t out, const float* scale) {
  let_next_start();
  wait_for_inputs();
  const int32_t meeting = load_volatile(peers.state) + 1;
  meet(peers, meeting);
  const int32_t runs = out / kRun;
  const int64_t count = int64_t{end - first} * runs, step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const auto n = static_cast<int32_t>(i % runs) * kRun;
    const int64_t at = (first + i / runs) * out + n;
    int32_t sum[kRun];
    add_up(peers, turn, at, sum);
    float scales[kRun];
#pragma unroll
    for (int k = 0; k < kRun; ++k) scales[k] = scale[n + k];
    const Bf16Run<kRun> after =
        residuals_added(*reinterpret_cast<const Bf16Run<kRun>*>(peers.x[peers.rank] + at), sum, scales);
    if constexpr (kAll)
      for (int32_t p = 0; p < peers.count; ++p) *reinterpret_cast<Bf16Run<kRun>*>(peers.x[p] + at) = after;
    else
      *reinterpret_cast<Bf16Run<kRun>*>(peers.x[peers.rank] + at) = after;
  }
  leave(peers, meeting);
}

// For what was written to other GPUs, or read from them.
__global__ void __launch_bounds__(kThreads) meet_kernel(Peers peers) {
  let_next_start();
  wait_for_inputs();
  const int32_t meeting = load_volatile(peers.state) + 1;
  meet(peers, meeting);
  leave(peers, meeting);
}

__global__ void __launch_bounds__(kThreads) gather_logits_kernel(Peers peers, int32_t rows, float* logits) {
  let_next_start();
  wait_for_inputs();
  const int32_t meeting = load_volatile(peers.state) + 1;
  meet(peers, meeting);
  const int32_t vocab = peers.first_column[peers.count];
  for (int32_t p = 0; p < peers.count; ++p) {
    const int32_t first = peers.first_column[p], columns = peers.first_column[p + 1] - first, fours = columns / 4;
    const int64_t count = int64_t{rows} * fours, step = int64_t{gridDim.x} * kThreads;
    for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
      const int64_t row = i / fours;
      const auto column = static_cast<int32_t>(i % fours) * 4;
      const float4 four = __ldcv(reinterpret_cast<const float4*>(peers.logits[p] + row * columns + column));
      *reinterpret_cast<float4*>(logits + row * vocab + first + column) = four;
    }
  }
  leave(peers, meeting);
}

// Blocks for so many threads' work: at most two for each multiprocessor, which all run at once.
int64_t blocks_for(const Chip& chip, int64_t threads) {
  return std::clamp<int64_t>((threads + kThreads - 1) / kThreads, 1, 2 * chip.multiprocessors);
}

}  // namespace

cudaError_t add_sums_of_all(cudaStream_t stream, const Chip& chip, const Peers& peers, int32_t turn, int32_t rows,
                            int32_t out, const float* scale) {
  const int64_t runs = out / kRun;
  if (rows <= kFewRows)
    return launch(stream, chip, add_sums_kernel<false>, {blocks_for(chip, rows * runs), kThreads}, peers, turn, 0, rows,
                  out, scale);
  const auto first_row = [&](int32_t rank) { return static_cast<int32_t>(int64_t{rows} * rank / peers.count); };
  const int32_t first = first_row(peers.rank), end = first_row(peers.rank + 1);
  const cudaError_t added =
      launch(stream, chip, add_sums_kernel<true>, {blocks_for(chip, (end - first) * runs), kThreads}, peers, turn,
             first, end, out, scale);
  return added == cudaSuccess ? launch(stream, chip, meet_kernel, {1, kThreads}, peers) : added;
}

cudaError_t gather_logits(cudaStream_t stream, const Chip& chip, const Peers& peers, int32_t rows, float* logits) {
  const int64_t threads = int64_t{rows} * (peers.first_column[peers.count] / peers.count) / 4;
  const cudaError_t gathered =
      launch(stream, chip, gather_logits_kernel, {blocks_for(chip, threads), kThreads}, peers, rows, logits);
  return gathered == cudaSuccess ? launch(stream, chip, meet_kernel, {1, kThreads}, peers) : gathered;
}

}  // namespace kaiju::cuda
