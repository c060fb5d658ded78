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
// What NVLink moves in the time of a meeting.
constexpr int64_t kMeetingBytes = 1'500'000;
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

// All threads of a block call it; `tells`: the block tells the others that this GPU has come.
__device__ void meet(const Peers& peers, int32_t meeting, bool tells) {
  const auto tid = static_cast<int32_t>(threadIdx.x);
  if (tid < peers.count) {
    if (tells) {
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

// The last block to end counts the meeting. `meets_again`: it waits until the last blocks of all GPUs have come, so
// that what was written to other GPUs is there, or what was read from them may be written again.
__device__ void leave(const Peers& peers, int32_t meeting, bool meets_again) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence_system();
    is_last = atomicAdd(peers.state + 1, 1) + 1 == static_cast<int32_t>(gridDim.x);
  }
  __syncthreads();
  if (!is_last) return;
  if (meets_again) meet(peers, ++meeting, true);
  if (threadIdx.x != 0) return;
  peers.state[1] = 0;
  peers.state[0] = meeting;
}

// Past the L1 cache, which may have what was there before the meeting.
template <class Four>
__device__ __forceinline__ Four load_of_any(const Four* from) {
  static_assert(sizeof(Four) == 16);
  uint4 v;
  asm volatile("ld.relaxed.sys.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return *reinterpret_cast<const Four*>(&v);
}

// kRun neighbouring outputs at `at` of a row, from all GPUs, of which there are at most kGpus.
template <int kGpus>
__device__ __forceinline__ void add_up(const Peers& peers, int32_t turn, int64_t at, int32_t (&sum)[kRun]) {
  int4 parts[kGpus][kRun / 4] = {};
#pragma unroll
  for (int p = 0; p < kGpus; ++p)
#pragma unroll
    for (int i = 0; i < kRun / 4; ++i)
      if (p < peers.count) parts[p][i] = load_of_any(reinterpret_cast<const int4*>(peers.sums[turn][p] + at) + i);
#pragma unroll
  for (int i = 0; i < kRun; ++i) sum[i] = 0;
#pragma unroll
  for (int p = 0; p < kGpus; ++p)
#pragma unroll
    for (int i = 0; i < kRun / 4; ++i) {
      const int4 four = parts[p][i];
      sum[4 * i] += four.x, sum[4 * i + 1] += four.y, sum[4 * i + 2] += four.z, sum[4 * i + 3] += four.w;
    }
}

// Rows [first, end) of the stream; kAll: of every GPU's.
template <int kGpus, bool kAll>
__global__ void __launch_bounds__(kThreads)
    add_sums_kernel(Peers peers, int32_t turn, int32_t first, int32_t end, int32_t out, const float* scale) {
  let_next_start();
  wait_for_inputs();
  const int32_t meeting = load_volatile(peers.state) + 1;
  meet(peers, meeting, blockIdx.x == 0);
  const int32_t runs = out / kRun;
  const int64_t count = int64_t{end - first} * runs, step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const auto n = static_cast<int32_t>(i % runs) * kRun;
    const int64_t at = (first + i / runs) * out + n;
    int32_t sum[kRun];
    add_up<kGpus>(peers, turn, at, sum);
    float scales[kRun];
#pragma unroll
    for (int k = 0; k < kRun; ++k) scales[k] = scale[n + k];
    const Bf16Run<kRun> after =
        residuals_added(*reinterpret_cast<const Bf16Run<kRun>*>(peers.x[peers.rank] + at), sum, scales);
    if constexpr (kAll) {
#pragma unroll
      for (int p = 0; p < kGpus; ++p)
        if (p < peers.count) *reinterpret_cast<Bf16Run<kRun>*>(peers.x[p] + at) = after;
    } else {
      *reinterpret_cast<Bf16Run<kRun>*>(peers.x[peers.rank] + at) = after;
    }
  }
  leave(peers, meeting, kAll);
}

__global__ void __launch_bounds__(kThreads) gather_logits_kernel(Peers peers, int32_t rows, float* logits) {
  let_next_start();
  wait_for_inputs();
  const int32_t meeting = load_volatile(peers.state) + 1;
  meet(peers, meeting, blockIdx.x == 0);
  const int32_t vocab = peers.first_column[peers.count];
  for (int32_t p = 0; p < peers.count; ++p) {
    const int32_t first = peers.first_column[p], columns = peers.first_column[p + 1] - first, fours = columns / 4;
    const int64_t count = int64_t{rows} * fours, step = int64_t{gridDim.x} * kThreads;
    for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
      const int64_t row = i / fours;
      const auto column = static_cast<int32_t>(i % fours) * 4;
      const auto* const from = reinterpret_cast<const float4*>(peers.logits[p] + row * columns + column);
      *reinterpret_cast<float4*>(logits + row * vocab + first + column) = load_of_any(from);
    }
  }
  leave(peers, meeting, true);
}

// Whether every GPU should add up all rows by itself, for which it reads 4 bytes an output from each other GPU.
// Otherwise it reads those of its own rows, writes 2 bytes an output to each, and all meet once more.
bool adds_all(const Peers& peers, int64_t outputs) {
  const int64_t others = peers.count - 1;
  return outputs * others * 4 <= outputs * others * 6 / peers.count + kMeetingBytes;
}

// Blocks for so many threads' work: at most two for each multiprocessor, which all run at once.
int64_t blocks_for(const Chip& chip, int64_t threads) {
  return std::clamp<int64_t>((threads + kThreads - 1) / kThreads, 1, 2 * chip.multiprocessors);
}

template <int kGpus>
cudaError_t add_sums(cudaStream_t stream, const Chip& chip, const Peers& peers, int32_t turn, int32_t rows, int32_t out,
                     const float* scale) {
  const int64_t runs = out / kRun;
  if (adds_all(peers, int64_t{rows} * out))
    return launch(stream, chip, add_sums_kernel<kGpus, false>, {blocks_for(chip, rows * runs), kThreads}, peers, turn,
                  0, rows, out, scale);
  const auto first_row = [&](int32_t rank) { return static_cast<int32_t>(int64_t{rows} * rank / peers.count); };
  const int32_t first = first_row(peers.rank), end = first_row(peers.rank + 1);
  return launch(stream, chip, add_sums_kernel<kGpus, true>, {blocks_for(chip, (end - first) * runs), kThreads}, peers,
                turn, first, end, out, scale);
}

}  // namespace

cudaError_t add_sums_of_all(cudaStream_t stream, const Chip& chip, const Peers& peers, int32_t turn, int32_t rows,
                            int32_t out, const float* scale) {
  if (peers.count <= 2) return add_sums<2>(stream, chip, peers, turn, rows, out, scale);
  if (peers.count <= 4) return add_sums<4>(stream, chip, peers, turn, rows, out, scale);
  return add_sums<kMostGpus>(stream, chip, peers, turn, rows, out, scale);
}

cudaError_t gather_logits(cudaStream_t stream, const Chip& chip, const Peers& peers, int32_t rows, float* logits) {
  const int64_t threads = int64_t{rows} * (peers.first_column[peers.count] / peers.count) / 4;
  return launch(stream, chip, gather_logits_kernel, {blocks_for(chip, threads), kThreads}, peers, rows, logits);
}

}  // namespace kaiju::cuda
