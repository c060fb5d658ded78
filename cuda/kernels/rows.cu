// The row operations of version 2 of the arithmetic; kaiju/arith/rows.hpp defines every bit of them. Bound: memory;
// with few rows latency.
//
// A block of threads takes a row of the batch, or a cluster of blocks does, each a part of the row. Warps transform
// pieces of the row in registers and keep them in shared memory. Once the largest magnitude is known, the block makes
// bytes of them. So a row is read once, and only its bytes are written. Additions with a norm, and rows to quantise, of
// up to kMostHeld values stay in registers from the loads to the bytes.
#include <algorithm>

#include "../tiles/dependent_launch.cuh"
#include "../tiles/peers.cuh"
#include "../tiles/sm90_cluster.cuh"
#include "gate_steps.hpp"
#include "held_row.cuh"

namespace kaiju::cuda {
namespace {

using namespace row_block;

constexpr int32_t kPieceEach = 8, kPiece = 32 * kPieceEach;  // values that a warp transforms at once
static_assert(kMostHadamard <= kPiece);
constexpr int32_t kMostParts = 8;               // blocks of a cluster that share a row
constexpr int32_t kMostSharedBytes = 96 << 10;  // of a row; longer rows are kept in the operation's scratch memory

// Values [first, end) of a row, which are a block's.
struct Range {
  int32_t first, end;
};
// Of `parts` blocks, whole pieces.
__device__ __forceinline__ Range part_of_row(int32_t width, int32_t parts) {
  const int32_t all = (width + kPiece - 1) / kPiece, part = static_cast<int32_t>(blockIdx.x) % parts;
  return {all * part / parts * kPiece, min(all * (part + 1) / parts * kPiece, width)};
}

// Calls use(i, y) for every value y of the range after the transform; make(load(i), i) is what it was before. All loads
// of a piece are on their way before the first value is made, and a warp has read all of a piece before it uses any.
template <class Load, class Make, class Use>
__device__ __forceinline__ void transform_row(const Range& range, int32_t block, Load&& load, Make&& make, Use&& use) {
  for (int32_t first = range.first + thread() / 32 * kPiece; first < range.end; first += thread_count() * kPieceEach) {
    const auto place = [&](int j) { return first + lane() + 32 * j; };
    decltype(load(0)) loaded[kPieceEach];
#pragma unroll
    for (int j = 0; j < kPieceEach; ++j) loaded[j] = load(min(place(j), range.end - 1));
    float x[kPieceEach];
#pragma unroll
    for (int j = 0; j < kPieceEach; ++j) {
      const float value = make(loaded[j], min(place(j), range.end - 1));
      x[j] = place(j) < range.end ? value : 0.0f;
    }
    hadamard(x, block);
    __syncwarp();  // lanes beyond the end have read what another lane replaces
#pragma unroll
    for (int j = 0; j < kPieceEach; ++j)
      if (place(j) < range.end) use(place(j), x[j]);
  }
}

// Calls use(i, load(i)) for every i of a row, a few loads at a time.
template <class Load, class Use>
__device__ __forceinline__ void for_row(int32_t width, Load&& load, Use&& use) {
  constexpr int kAtOnce = 4;
  for (int32_t first = thread(); first < width; first += kAtOnce * thread_count()) {
    decltype(load(0)) loaded[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) loaded[j] = load(min(first + j * thread_count(), width - 1));
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (const int32_t i = first + j * thread_count(); i < width) use(i, loaded[j]);
  }
}

// Once by every thread of a cluster before most_of_cluster(), which waits until all blocks have begun: no memory of a
// block may be written before.
__device__ __forceinline__ void begin_cluster(int32_t parts) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (parts > 1) cluster_arrive();
#endif
}

// Of all blocks of the cluster: each tells it to all.
__device__ __forceinline__ uint32_t most_of_cluster(uint32_t most, int32_t parts) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __shared__ uint32_t of_block[kMostParts];
  cluster_wait();
  if (thread() < parts) {
    const auto place = static_cast<uint32_t>(__cvta_generic_to_shared(&of_block[cluster_rank()]));
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address_in(place, static_cast<uint32_t>(thread()))), "r"(most)
                 : "memory");
  }
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  for (int32_t p = 0; p < parts; ++p) most = max(most, of_block[p]);
#endif
  return most;
}

// Of the row's parts on all GPUs. Two places take turns: what the others told last may not have been read by all.
__device__ __forceinline__ uint32_t most_of_gpus(const SharedMost& shared, int32_t row, uint32_t most) {
  const auto time = static_cast<uint32_t>(load_volatile(shared.state)) + 1;
  uint32_t other = most;
  if (const int32_t p = thread(); p < shared.count) {
    const auto place = [&](int32_t rank) {
      return (static_cast<int32_t>(time % 2) * shared.count + rank) * int64_t{shared.rows} + row;
    };
    store_relaxed(shared.of[p] + place(shared.rank), uint64_t{time} << 32 | most);
    uint64_t told = 0;
    wait_for_peer(shared.lost, [&] {
      told = load_relaxed(shared.of[shared.rank] + place(p));
      return static_cast<uint32_t>(told >> 32) == time;
    });
    other = static_cast<uint32_t>(told);
  }
  __syncthreads();  // before most_of_block() uses its memory again
  return most_of_block(max(most, other));
}
// Counts the time once all rows are done.
__device__ __forceinline__ void leave(const SharedMost& shared) {
  if (shared.count == 1 || thread() != 0) return;
  if (atomicAdd(shared.state + 1, 1) + 1 < static_cast<int32_t>(gridDim.x)) return;
  shared.state[1] = 0;
  ++shared.state[0];
}

// Values of a row between the transform and their bytes. Those that are rounded to bf16 are kept as such in shared
// memory. `values` is the memory of value `first`.
template <bool kShared>
class Kept {
 public:
  __device__ Kept(void* values, bool bf16) : values_(values), bf16_(kShared && bf16) {}
  __device__ __forceinline__ void put(int32_t i, float y) const {
    if (bf16_)
      static_cast<arith::bf16*>(values_)[i] = arith::to_bf16(y);
    else
      static_cast<float*>(values_)[i] = y;
  }
  // Four neighbours.
  __device__ __forceinline__ float4 get(int32_t i) const {
    if (!bf16_) return *reinterpret_cast<const float4*>(static_cast<const float*>(values_) + i);
    const uint2 both = *reinterpret_cast<const uint2*>(static_cast<const arith::bf16*>(values_) + i);
    return {arith::float_of(both.x << 16), arith::float_of(both.x & 0xFFFF0000u), arith::float_of(both.y << 16),
            arith::float_of(both.y & 0xFFFF0000u)};
  }

 private:
  void* values_;
  bool bf16_;
};

// The range of row `row`, of the values make(load(i), i), to bytes. `parts` blocks of a cluster share the row.
template <bool kShared, class Load, class Make>
__device__ __forceinline__ void quantise_row(void* memory, const Range& range, int32_t width, const Quantiser& to,
                                             int32_t row, int32_t parts, Load&& load, Make&& make,
                                             const SharedMost* shared = nullptr) {
  const Kept<kShared> kept(memory, to.bf16);
  uint32_t most = 0;
  transform_row(range, to.hadamard, load, make, [&](int32_t i, float y) {
    if (to.bf16) y = arith::from_bf16(arith::to_bf16(y));
    kept.put(i - range.first, y);
    most = max(most, magnitude(y));
  });
  most = most_of_block(most);
  if (parts > 1) most = most_of_cluster(most, parts);
  if (shared && shared->count > 1) most = most_of_gpus(*shared, row, most);
  const RowSteps whole = steps_of_row(to, row, most, thread() == 0 && range.first == 0);
  int8_t* const bytes = to.bytes + (to.wide ? 2 : 1) * int64_t{row} * width;
  for (int32_t i = range.first + 4 * thread(); i < range.end; i += 4 * thread_count())
    store_bytes(bytes, i, width, kept.get(i - range.first), whole, to.wide);
}

__device__ __forceinline__ void* shared_row() {
  extern __shared__ __align__(16) uint8_t row_memory[];
  return row_memory;
}
// The memory of a row: shared memory, or its place in `scratch` [rows, stride].
template <bool kShared>
__device__ __forceinline__ float* memory_of_row(float* scratch, int32_t row, int32_t stride) {
  if constexpr (kShared) return static_cast<float*>(shared_row());
  return scratch + int64_t{row} * stride;
}

__global__ void __launch_bounds__(kThreads) embed_rows_kernel(const __grid_constant__ EmbedRows args) {
  let_next_start();
  wait_for_inputs();
  const int32_t row = row_of_block();
  const int64_t from = int64_t{args.tokens[row]} * args.each;
  const int8_t* bytes = args.weight + from * args.width;
  const float factor = args.factor[from];
  float* x = args.x + int64_t{row} * args.width;
  transform_row(
      {0, args.width}, args.hadamard, [&](int32_t i) { return bytes[i]; },
      [&](int8_t byte, int32_t) { return arith::mul(static_cast<float>(byte), factor); },
      [&](int32_t i, float y) { x[i] = arith::residual(y, args.bf16); });
}

// The norm of a row in `kept`, in place, and its bytes.
__device__ __forceinline__ void quantise_normed(float* kept, const NormRows& norm, int32_t row, int32_t width) {
  const float r = inverse_rms(kept, width, norm.eps);
  quantise_row<false>(
      kept, {0, width}, width, norm.to, row, 1,
      [&](int32_t i) { return float2{kept[i], norm.gain ? norm.gain[i] : 1.0f}; },
      [&](float2 x, int32_t) { return normed(x.x, r, norm.gain ? &x.y : nullptr, 0); });
}

template <bool kShared>
__global__ void norm_rows_kernel(const __grid_constant__ NormRows args) {
  let_next_start();
  wait_for_inputs();
  const int32_t row = row_of_block(), width = args.width;
  const float* x = args.x + int64_t{row} * width;
  float* const kept = memory_of_row<kShared>(args.scratch, row, width);
  for_row(width, [&](int32_t i) { return x[i]; }, [&](int32_t i, float value) { kept[i] = value; });
  quantise_normed(kept, args, row, width);
}

// Adds to the residual stream, and unless `norm` has no bytes computes the norm of the sums.
template <bool kShared>
__global__ void add_rows_kernel(const __grid_constant__ AddRows args, const __grid_constant__ NormRows norm) {
  let_next_start();
  wait_for_inputs();
  const int32_t row = row_of_block(), width = args.y.width;
  float* const x = args.x + int64_t{row} * width;
  float* const kept = memory_of_row<kShared>(norm.scratch, row, width);
  const RowOutputs outputs(args.y, row);
  const auto add = [&](int32_t i, float before, float y) {
    x[i] = kept[i] = arith::residual(arith::mul(arith::add(before, y), args.factor), args.bf16);
  };
  if (args.norms) {
    for_row(
        width, [&](int32_t i) { return outputs.load(i); }, [&](int32_t i, float sum) { kept[i] = outputs(sum, i); });
    const float r = inverse_rms(kept, width, args.eps);
    for_row(
        width, [&](int32_t i) { return float2{x[i], args.gain ? args.gain[i] : 1.0f}; },
        [&](int32_t i, float2 l) { add(i, l.x, normed(kept[i], r, args.gain ? &l.y : nullptr, 0)); });
  } else {
    for_row(
        width, [&](int32_t i) { return float2{x[i], outputs.load(i)}; },
        [&](int32_t i, float2 l) { add(i, l.x, outputs(l.y, i)); });
  }
  if (norm.to.bytes != nullptr) quantise_normed(kept, norm, row, width);
}

// As add_rows_kernel with a norm, of rows up to kQuads * 4 values for each thread.
template <int32_t kQuads>
__global__ void __launch_bounds__(kManyThreads)
    add_held_rows_kernel(const __grid_constant__ AddRows args, const __grid_constant__ NormRows norm) {
  const int32_t row = row_of_block(), width = args.y.width;
  const HeldRow<kQuads> held(width, static_cast<float*>(shared_row()));
  float4 gain[2][kQuads], x[kQuads], y[kQuads];  // gain: of the outputs' norm, and of the norm behind the addition
  held.ask_for(gain[0], args.norms ? args.gain : nullptr);
  held.ask_for(gain[1], norm.gain);
  let_next_start();
  wait_for_inputs();
  float* const stream = args.x + int64_t{row} * width;
  const RowOutputs outputs(args.y, row);
#pragma unroll
  for (int q = 0; q < kQuads; ++q) x[q] = y[q] = {};
  held.each([&](int q, int32_t i) {
    x[q] = *reinterpret_cast<const float4*>(stream + i);
    y[q] = outputs.load_four(i);
  });
  held.each([&](int q, int32_t i) { y[q] = outputs(y[q], i); });
  if (args.norms) held.norm(y, gain[0], args.eps);
  held.each([&](int q, int32_t i) {
    const auto added = [&](float before, float more) {
      return arith::residual(arith::mul(arith::add(before, more), args.factor), args.bf16);
    };
    x[q] = {added(x[q].x, y[q].x), added(x[q].y, y[q].y), added(x[q].z, y[q].z), added(x[q].w, y[q].w)};
    *reinterpret_cast<float4*>(stream + i) = x[q];
  });
  held.norm(x, gain[1], norm.eps);
  held.quantise(x, norm.to, row);
}

template <int32_t kQuads>
__global__ void __launch_bounds__(kManyThreads) quantise_held_rows_kernel(const __grid_constant__ QuantiseRows args) {
  let_next_start();
  wait_for_inputs();
  const int32_t row = row_of_block();
  const HeldRow<kQuads> held(args.width, nullptr);
  const float* from = args.values + int64_t{row} * args.width;
  float4 x[kQuads];
#pragma unroll
  for (int q = 0; q < kQuads; ++q) x[q] = {};
  held.each([&](int q, int32_t i) { x[q] = *reinterpret_cast<const float4*>(from + i); });
  held.quantise(x, args.to, row);
}

template <bool kShared>
__global__ void __launch_bounds__(kThreads)
    quantise_rows_kernel(const __grid_constant__ QuantiseRows args, const __grid_constant__ SharedMost most,
                         int32_t parts) {
  begin_cluster(parts);
  let_next_start();
  wait_for_inputs();
  const int32_t row = row_of_block() / parts;
  const Range range = part_of_row(args.width, parts);
  const float* x = args.values + int64_t{row} * args.width;
  float* const scratch = (args.scratch ? args.scratch : args.values) + range.first;
  quantise_row<kShared>(
      memory_of_row<kShared>(scratch, row, args.width), range, args.width, args.to, row, parts,
      [&](int32_t i) { return x[i]; }, [](float y, int32_t) { return y; }, &most);
  leave(most);
}

// As arith::gated, of loaded values, without a branch.
template <Gate kGate>
__device__ __forceinline__ float gated(float x, float up) {
  if constexpr (kGate == Gate::kSquaredRelu) {
    const float positive = up > 0.0f ? up : 0.0f;
    return arith::bounded(arith::mul(positive, positive));
  }
  const float gates[1] = {x}, ups[1] = {up};
  float h[1];
  gate_values(kGate, gates, ups, h);
  return h[0];
}

template <Gate kGate, bool kShared>
__global__ void __launch_bounds__(kThreads)
    gate_rows_kernel(const __grid_constant__ GateRows args, const __grid_constant__ SharedMost most, int32_t parts) {
  begin_cluster(parts);
  let_next_start();
  wait_for_inputs();
  const int32_t row = row_of_block() / parts, width = args.ups.width;
  const Range range = part_of_row(width, parts);
  float* const scratch = args.ups.sums + range.first;
  const RowOutputs gates(args.gates, row), ups(args.ups, row);
  quantise_row<kShared>(
      memory_of_row<kShared>(scratch, row, args.ups.stride > 0 ? args.ups.stride : width), range, width, args.to, row,
      parts, [&](int32_t i) { return float2{gates.load(i), ups.load(i)}; },
      [&](float2 sums, int32_t i) {
        return gated<kGate>(kGate != Gate::kSquaredRelu ? gates(sums.x, i) : 0.0f, ups(sums.y, i));
      },
      &most);
  leave(most);
}

__global__ void __launch_bounds__(kThreads)
    logit_rows_kernel(const __grid_constant__ LogitRows args, int32_t blocks_of_row) {
  let_next_start();
  wait_for_inputs();
  const int32_t row = row_of_block() / blocks_of_row, i = row_of_block() % blocks_of_row * kThreads + thread();
  if (i >= args.y.width) return;
  const float value = arith::output(args.y, row, i);
  args.out[int64_t{row} * args.y.width + i] = args.cap != 0.0f ? arith::soft_cap(value, args.cap) : value;
}

// ---- launches ----

// A kernel <true> that keeps a row of so many bytes in shared memory, or <false> if the row is too long.
template <class Kernel, class... Arguments>
cudaError_t launch_row(cudaStream_t stream, const Chip& chip, Kernel shared, Kernel other, int32_t row_bytes,
                       LaunchShape shape, const Arguments&... arguments) {
  if (row_bytes > kMostSharedBytes) return launch(stream, chip, other, shape, arguments...);
  shape.shared_bytes = row_bytes;
  constexpr int32_t kUnasked = 40 << 10;  // what a launch may have unasked, beside the kernel's own
  if (row_bytes > kUnasked)
    if (const cudaError_t error =
            cudaFuncSetAttribute(shared, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostSharedBytes);
        error != cudaSuccess)
      return error;
  return launch(stream, chip, shared, shape, arguments...);
}

// Threads for each of so many rows that need a whole block.
int32_t threads_for(int32_t rows) { return rows <= 264 ? kManyThreads : kThreads; }

// Blocks that share each of so many rows.
int32_t parts_for(const Chip& chip, int32_t rows, int32_t width, const SharedMost& most) {
  if (chip.capability < 90 || most.count > 1) return 1;
  const int32_t wanted = rows <= 64 ? kMostParts : rows <= 256 ? 2 : 1;
  return std::min(wanted, (width + kPiece - 1) / kPiece);
}
// Bytes of the longest part that a block keeps.
int32_t part_bytes(const Quantiser& to, int32_t width, int32_t parts) {
  const int32_t pieces_each = ((width + kPiece - 1) / kPiece + parts - 1) / parts;
  return pieces_each * kPiece * (to.bf16 ? 2 : 4);
}

// Calls launch_held.operator()<kQuads>(threads) for kernels in which a block holds a row of so many values.
template <class Launch>
cudaError_t for_held(int32_t rows, int32_t width, Launch&& launch_held) {
  const auto threads = [&](int32_t each) { return std::max(kThreads, (width + 32 * each - 1) / (32 * each) * 32); };
  if (rows <= 264 && width <= 4 * kManyThreads) return launch_held.template operator()<1>(threads(4));
  return launch_held.template operator()<kMostQuads>(threads(4 * kMostQuads));
}

int32_t f32_bytes(int32_t width) { return width * static_cast<int32_t>(sizeof(float)); }

}  // namespace

cudaError_t embed_rows(cudaStream_t stream, const Chip& chip, const EmbedRows& args) {
  if (args.hadamard > kMostHadamard) return cudaErrorInvalidValue;
  return launch(stream, chip, embed_rows_kernel, {args.rows, kThreads}, args);
}

cudaError_t norm_rows(cudaStream_t stream, const Chip& chip, const NormRows& args) {
  if (args.to.hadamard > kMostHadamard) return cudaErrorInvalidValue;
  return launch_row(stream, chip, norm_rows_kernel<true>, norm_rows_kernel<false>, f32_bytes(args.width),
                    {args.rows, threads_for(args.rows)}, args);
}

cudaError_t quantise_rows(cudaStream_t stream, const Chip& chip, const QuantiseRows& args, const SharedMost& most) {
  if (args.to.hadamard > kMostHadamard) return cudaErrorInvalidValue;
  if (most.count == 1 && args.width <= kMostHeld)
    return for_held(args.rows, args.width, [&]<int32_t kQuads>(int32_t threads) {
      return launch(stream, chip, quantise_held_rows_kernel<kQuads>, {args.rows, threads}, args);
    });
  const int32_t parts = parts_for(chip, args.rows, args.width, most);
  return launch_row(stream, chip, quantise_rows_kernel<true>, quantise_rows_kernel<false>,
                    part_bytes(args.to, args.width, parts), {int64_t{args.rows} * parts, kThreads, 0, parts}, args,
                    most, parts);
}

template <Gate kGate>
static cudaError_t launch_gate(cudaStream_t stream, const Chip& chip, const GateRows& args, const SharedMost& most) {
  const int32_t width = args.ups.width, parts = parts_for(chip, args.rows, width, most);
  return launch_row(stream, chip, gate_rows_kernel<kGate, true>, gate_rows_kernel<kGate, false>,
                    part_bytes(args.to, width, parts), {int64_t{args.rows} * parts, kThreads, 0, parts}, args, most,
                    parts);
}
cudaError_t gate_rows(cudaStream_t stream, const Chip& chip, const GateRows& args, const SharedMost& most) {
  if (args.to.hadamard > kMostHadamard) return cudaErrorInvalidValue;
  switch (args.gate) {
    case Gate::kSilu:
      return launch_gate<Gate::kSilu>(stream, chip, args, most);
    case Gate::kGelu:
      return launch_gate<Gate::kGelu>(stream, chip, args, most);
    default:
      return launch_gate<Gate::kSquaredRelu>(stream, chip, args, most);
  }
}

cudaError_t add_rows(cudaStream_t stream, const Chip& chip, const AddRows& args) {
  NormRows none;
  none.scratch = args.y.sums;
  return add_norm_rows(stream, chip, args, none);
}

cudaError_t add_norm_rows(cudaStream_t stream, const Chip& chip, const AddRows& args, const NormRows& norm) {
  if (norm.to.hadamard > kMostHadamard) return cudaErrorInvalidValue;
  if (const int32_t width = args.y.width; norm.to.bytes != nullptr && width <= kMostHeld)
    return for_held(args.rows, width, [&]<int32_t kQuads>(int32_t threads) {
      return launch(stream, chip, add_held_rows_kernel<kQuads>, {args.rows, threads, f32_bytes(width)}, args, norm);
    });
  return launch_row(stream, chip, add_rows_kernel<true>, add_rows_kernel<false>, f32_bytes(args.y.width),
                    {args.rows, threads_for(args.rows)}, args, norm);
}

cudaError_t logit_rows(cudaStream_t stream, const Chip& chip, const LogitRows& args) {
  const auto blocks_of_row = (args.y.width + kThreads - 1) / kThreads;
  return launch(stream, chip, logit_rows_kernel, {int64_t{args.rows} * blocks_of_row, kThreads}, args, blocks_of_row);
}

}  // namespace kaiju::cuda
