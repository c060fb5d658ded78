// The exchange among GPUs by memory that all of them reach (exchange.hpp). Matmuls send their sums to where they are
// wanted while they run; what is left is to meet, to add up, and the norm. Bound: NVLink, and for few rows the time of
// one meeting.
//
// Meetings. A GPU arrives by writing the number of its meeting to every other GPU's memory, with release; it goes on
// when all numbers are in its own memory. The numbers are kept on the GPUs, so a recorded graph meets anew each time it
// runs. Memory for sums is written again two meetings later at the earliest, when everybody has read it.
#include <algorithm>

#include "../tiles/dependent_launch.cuh"
#include "../tiles/epilogue.cuh"
#include "../tiles/peers.cuh"
#include "../tiles/rms.cuh"
#include "exchange.hpp"

namespace kaiju::cuda {
namespace {

constexpr int32_t kThreads = 512;

// All threads of a block call it; `tells`: the block tells the others that this GPU has come.
__device__ void meet(const Peers& peers, int32_t meeting, bool tells) {
  const auto tid = static_cast<int32_t>(threadIdx.x);
  if (tid < peers.count) {
    if (tells) {
      __threadfence_system();
      store_released(peers.arrived[tid] + peers.rank, meeting);
    }
    const int32_t* const from = peers.arrived[peers.rank] + tid;
    wait_for_peer(peers.lost, [&] { return load_acquired_of_all(from) - meeting >= 0; });
  }
  __syncthreads();
}

// The first meeting of a kernel, by all of its blocks.
__device__ int32_t meet_first(const Peers& peers) {
  const int32_t meeting = load_volatile(peers.state) + 1;
  meet(peers, meeting, blockIdx.x == 0);
  return meeting;
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

// Four neighbouring sums at `at`, from all GPUs; past the L1 cache, which may have what was there before.
template <int kGpus>
__device__ __forceinline__ void add_up(const Peers& peers, const ReceivedSums& received, int64_t at,
                                       int32_t (&sum)[4]) {
  int4 four[kGpus] = {};
#pragma unroll
  for (int p = 0; p < kGpus; ++p)
    if (p < peers.count) four[p] = __ldcg(reinterpret_cast<const int4*>(received.sums + p * received.part + at));
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] = 0;
#pragma unroll
  for (int p = 0; p < kGpus; ++p) sum[0] += four[p].x, sum[1] += four[p].y, sum[2] += four[p].z, sum[3] += four[p].w;
}

// Calls put(p) for every GPU p where rows are spread, else for this one.
template <class Put>
__device__ __forceinline__ void put_to_all(const Peers& peers, bool spread, Put&& put) {
  if (!spread) return put(peers.rank);
  for (int32_t p = 0; p < peers.count; ++p) put(p);
}

// Row `own` of those that this GPU adds up, among all.
template <bool kSpread>
__device__ __forceinline__ int32_t row_of_own(const Peers& peers, int32_t own) {
  return kSpread ? (own / kOwnedRun * peers.count + peers.rank) * kOwnedRun + own % kOwnedRun : own;
}

// A block takes a row at a time. kGpus: the most that there are.
template <int kGpus, bool kSpread>
__global__ void __launch_bounds__(kThreads, kGpus <= 4 ? 3 : 2)
    add_sums_kernel(const __grid_constant__ Peers peers, const __grid_constant__ ReceivedSums received, int32_t count) {
  extern __shared__ __align__(16) uint8_t memory[];  // norm_bytes(): the row's bytes, the row, its partial sums
  let_next_start();
  wait_for_inputs();
  const int32_t meeting = meet_first(peers);
  const auto tid = static_cast<int32_t>(threadIdx.x);
  const int32_t width = received.out;
  const bool norms = received.to == ReceivedSums::To::kNorm;
  for (auto own = static_cast<int32_t>(blockIdx.x); own < count; own += static_cast<int32_t>(gridDim.x)) {
    const int64_t from = int64_t{own} * width, at = int64_t{row_of_own<kSpread>(peers, own)} * width;
#pragma unroll 3
    for (int32_t i = 4 * tid; i < width; i += 4 * kThreads) {
      int32_t sum[4];
      add_up<kGpus>(peers, received, from + i, sum);
      const float4 four = *reinterpret_cast<const float4*>(received.scale + i);
      const float scale[4] = {four.x, four.y, four.z, four.w};
      const auto run_of = [&](int32_t p) -> Bf16Run<4>& { return *reinterpret_cast<Bf16Run<4>*>(peers.x[p] + at + i); };
      const Bf16Run<4> after = residuals_added(run_of(peers.rank), sum, scale);
      if (norms) {
        run_of(peers.rank) = after;
        *reinterpret_cast<Bf16Run<4>*>(memory + width + 2 * i) = after;
      } else {
        put_to_all(peers, kSpread, [&](int32_t p) { run_of(p) = after; });
      }
    }
    if (!norms) continue;
    norm_loaded_row<kThreads>(memory, width, received.eps, received.inverse_scale);
    for (int32_t i = 16 * tid; i < width; i += 16 * kThreads) {
      const uint4 bytes = *reinterpret_cast<const uint4*>(memory + i);
      put_to_all(peers, kSpread, [&](int32_t p) { *reinterpret_cast<uint4*>(peers.a[p] + at + i) = bytes; });
    }
  }
  leave(peers, meeting, kSpread);
}

// Version 2 of the arithmetic: floats [rows, out] = scale * sum, as MatmulKind::kLinear has it.
template <int kGpus, bool kSpread>
__global__ void __launch_bounds__(kThreads)
    scale_sums_kernel(const __grid_constant__ Peers peers, const __grid_constant__ ReceivedSums received,
                      int32_t count) {
  let_next_start();
  wait_for_inputs();
  const int32_t meeting = meet_first(peers);
  const int32_t fours = received.out / 4;
  const int64_t all = int64_t{count} * fours, step = int64_t{gridDim.x} * kThreads;
#pragma unroll 2
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < all; i += step) {
    const auto own = static_cast<int32_t>(i / fours), n = static_cast<int32_t>(i % fours) * 4;
    int32_t sum[4];
    add_up<kGpus>(peers, received, 4 * i, sum);
    const float4 scale = *reinterpret_cast<const float4*>(received.scale + n);
    const float4 out{arith::mul(static_cast<float>(sum[0]), scale.x), arith::mul(static_cast<float>(sum[1]), scale.y),
                     arith::mul(static_cast<float>(sum[2]), scale.z), arith::mul(static_cast<float>(sum[3]), scale.w)};
    const int64_t at = int64_t{row_of_own<kSpread>(peers, own)} * received.out + n;
    put_to_all(peers, kSpread, [&](int32_t p) { *reinterpret_cast<float4*>(peers.floats[p] + at) = out; });
  }
  leave(peers, meeting, kSpread);
}

__global__ void __launch_bounds__(kThreads)
    gather_logits_kernel(const __grid_constant__ Peers peers, int32_t rows, float* logits) {
  let_next_start();
  wait_for_inputs();
  const int32_t meeting = meet_first(peers);
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
  leave(peers, meeting, true);
}

template <int kGpus>
cudaError_t add_sums(cudaStream_t stream, const Chip& chip, const Peers& peers, const ReceivedSums& received) {
  const int32_t count = received.spread ? owned_rows(received.rows, peers.count, peers.rank) : received.rows;
  if (received.to == ReceivedSums::To::kFloats) {
    const auto kernel = received.spread ? scale_sums_kernel<kGpus, true> : scale_sums_kernel<kGpus, false>;
    const int64_t wanted = (int64_t{count} * received.out / 4 + kThreads - 1) / kThreads,
                  blocks = std::clamp<int64_t>(wanted, 1, 3 * chip.multiprocessors);
    return launch(stream, chip, kernel, {blocks, kThreads}, peers, received, count);
  }
  const int32_t bytes = received.to == ReceivedSums::To::kNorm ? norm_bytes(received.out) : 0;
  const auto kernel = received.spread ? add_sums_kernel<kGpus, true> : add_sums_kernel<kGpus, false>;
  if (bytes > 48 << 10)
    if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        error != cudaSuccess)
      return error;
  const int64_t blocks = std::clamp<int64_t>(count, 1, 3 * chip.multiprocessors);
  return launch(stream, chip, kernel, {blocks, kThreads, bytes}, peers, received, count);
}

}  // namespace

cudaError_t add_sums_of_all(cudaStream_t stream, const Chip& chip, const Peers& peers, const ReceivedSums& received) {
  return peers.count <= 2   ? add_sums<2>(stream, chip, peers, received)
         : peers.count <= 4 ? add_sums<4>(stream, chip, peers, received)
                            : add_sums<kMostGpus>(stream, chip, peers, received);
}

cudaError_t gather_logits(cudaStream_t stream, const Chip& chip, const Peers& peers, int32_t rows, float* logits) {
  const int64_t fours = int64_t{rows} * (peers.first_column[peers.count] / peers.count) / 4,
                blocks = std::clamp<int64_t>((fours + kThreads - 1) / kThreads, 1, 2 * chip.multiprocessors);
  return launch(stream, chip, gather_logits_kernel, {blocks, kThreads}, peers, rows, logits);
}

}  // namespace kaiju::cuda
