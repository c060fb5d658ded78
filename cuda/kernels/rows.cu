// The row operations of version 2 of the arithmetic; kaiju/arith/rows.hpp defines every bit of them. Bound: memory;
// with few rows latency.
//
// A block of threads takes a row of the batch. Its warps transform pieces of the row in registers and store them, and
// then the block quantises the row by the largest magnitude that was found. A head of queries, keys or values is one
// warp's work.
#include "../tiles/dependent_launch.cuh"
#include "../tiles/layout.cuh"
#include "../tiles/peers.cuh"
#include "../tiles/rms.cuh"
#include "kaiju/arith/rows.hpp"

namespace kaiju::cuda {
namespace {

constexpr auto kThreads = static_cast<int32_t>(arith::kRmsPartials);  // thread t owns partial sum t
constexpr int32_t kWarps = kThreads / 32;
constexpr int32_t kPieceEach = 8, kPiece = 32 * kPieceEach;  // values that a warp transforms at once
static_assert(kMostHadamard <= kPiece);

__device__ __forceinline__ int32_t thread() { return static_cast<int32_t>(threadIdx.x); }
__device__ __forceinline__ int32_t lane() { return thread() % 32; }

// Lane l holds values l, l + 32, l + 64, ... of neighbours; each `block` of them are transformed.
template <int kEach>
__device__ __forceinline__ void hadamard(float (&x)[kEach], int32_t block) {
#pragma unroll
  for (int32_t stride = 1; stride < 32; stride *= 2) {
    if (stride >= block) return;
    const bool upper = (lane() & stride) != 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const float other = __shfl_xor_sync(0xFFFFFFFFu, x[j], stride);
      x[j] = upper ? arith::add(other, -x[j]) : arith::add(x[j], other);
    }
  }
#pragma unroll
  for (int stride = 1; stride < kEach; stride *= 2) {
    if (32 * stride >= block) return;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      if ((j & stride) != 0) continue;
      const float u = x[j], v = x[j + stride];
      x[j] = arith::add(u, v);
      x[j + stride] = arith::add(u, -v);
    }
  }
}

// Calls use(i, y) for every value y of the row after the transform; value(i) is what it was before.
template <class Value, class Use>
__device__ __forceinline__ void transform_row(int32_t width, int32_t block, Value&& value, Use&& use) {
  for (int32_t first = thread() / 32 * kPiece + lane(); first - lane() < width; first += kThreads * kPieceEach) {
    float x[kPieceEach];
#pragma unroll
    for (int j = 0; j < kPieceEach; ++j) x[j] = first + 32 * j < width ? value(first + 32 * j) : 0.0f;
    hadamard(x, block);
#pragma unroll
    for (int j = 0; j < kPieceEach; ++j)
      if (first + 32 * j < width) use(first + 32 * j, x[j]);
  }
}

// Magnitudes as bits, which are ordered as the floats are.
__device__ __forceinline__ uint32_t magnitude(float x) { return arith::bits_of(x) & 0x7FFFFFFFu; }
__device__ __forceinline__ float largest_of(uint32_t most) {
  const float largest = arith::float_of(most);
  return largest < arith::kLeastMagnitude ? 0.0f : largest;
}
// Of all threads of the block, which may then read what any of them has stored before.
__device__ __forceinline__ uint32_t most_of_block(uint32_t most) {
  __shared__ uint32_t of_warp[kWarps];
  most = __reduce_max_sync(0xFFFFFFFFu, most);
  if (lane() == 0) of_warp[thread() / 32] = most;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kWarps; ++w) most = max(most, of_warp[w]);
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

// Row `row`, of the values value(i), to bytes. `x` [width] is scratch memory.
template <class Value>
__device__ __forceinline__ void quantise_row(float* x, int32_t width, const Quantiser& to, int32_t row, Value&& value,
                                             const SharedMost& shared = {}) {
  uint32_t most = 0;
  transform_row(width, to.hadamard, value, [&](int32_t i, float y) {
    if (to.bf16) y = arith::from_bf16(arith::to_bf16(y));
    x[i] = y;
    most = max(most, magnitude(y));
  });
  most = most_of_block(most);
  if (shared.count > 1) most = most_of_gpus(shared, row, most);
  const float largest = largest_of(most), steps = to.wide ? arith::kWideSteps : 127.0f;
  const bool constant = to.inverse != 0.0f;
  const float inverse = constant ? to.inverse : largest > 0.0f ? arith::divide(steps, largest) : 0.0f;
  if (thread() == 0) to.scale[row] = constant ? 1.0f : arith::divide(largest, steps);
  if (to.wide) {
    int8_t* high = to.bytes + 2 * int64_t{row} * width;
    for (int32_t i = thread(); i < width; i += kThreads) {
      const int32_t whole = arith::round_saturate(arith::mul(x[i], inverse), -steps, steps), upper = (whole + 128) >> 8;
      high[i] = static_cast<int8_t>(upper);
      high[width + i] = static_cast<int8_t>(whole - 256 * upper);
    }
    return;
  }
  const float least = constant ? -128.0f : -127.0f;
  int8_t* bytes = to.bytes + int64_t{row} * width;
  for (int32_t i = thread(); i < width; i += kThreads)
    bytes[i] = static_cast<int8_t>(arith::round_saturate(arith::mul(x[i], inverse), least, 127.0f));
}

// 1/rms of the values value(i), each asked for once, by the thread that has i = thread() modulo kThreads.
template <class Value>
__device__ __forceinline__ float inverse_rms(int32_t width, float eps, Value&& value) {
  __shared__ float partials[kThreads];
  float sum = 0.0f;
  for (int32_t i = thread(); i < width; i += kThreads) {
    const float x = value(i);
    sum = arith::fma(x, x, sum);
  }
  partials[thread()] = sum;
  __syncthreads();
  return arith::norm_multiplier(fold_partials(partials), static_cast<float>(width), eps, 1.0f);
}
__device__ __forceinline__ float normed(float x, float r, const float* gain, int32_t i) {
  return gain ? arith::mul(arith::mul(x, r), gain[i]) : arith::mul(x, r);
}

__device__ __forceinline__ int32_t row_of_block() { return static_cast<int32_t>(blockIdx.x); }

__global__ void __launch_bounds__(kThreads) embed_rows_kernel(const __grid_constant__ EmbedRows args) {
  let_next_start();
  wait_for_inputs();
  const int32_t row = row_of_block();
  const int64_t from = int64_t{args.tokens[row]} * args.each;
  const int8_t* bytes = args.weight + from * args.width;
  const float factor = args.factor[from];
  float* x = args.x + int64_t{row} * args.width;
  transform_row(
      args.width, args.hadamard, [&](int32_t i) { return arith::mul(static_cast<float>(bytes[i]), factor); },
      [&](int32_t i, float y) { x[i] = arith::residual(y, args.bf16); });
}

__global__ void __launch_bounds__(kThreads) norm_rows_kernel(const __grid_constant__ NormRows args) {
  let_next_start();
  wait_for_inputs();
  const int32_t row = row_of_block();
  const float* x = args.x + int64_t{row} * args.width;
  const float r = inverse_rms(args.width, args.eps, [&](int32_t i) { return x[i]; });
  quantise_row(args.scratch + int64_t{row} * args.width, args.width, args.to, row,
               [&](int32_t i) { return normed(x[i], r, args.gain, i); });
}

__global__ void __launch_bounds__(kThreads)
    quantise_rows_kernel(const __grid_constant__ QuantiseRows args, const __grid_constant__ SharedMost most) {
  let_next_start();
  wait_for_inputs();
  const int64_t at = int64_t{row_of_block()} * args.width;
  const float* x = args.values + at;
  quantise_row((args.scratch ? args.scratch : args.values) + at, args.width, args.to, row_of_block(),
               [&](int32_t i) { return x[i]; }, most);
  leave(most);
}

__global__ void __launch_bounds__(kThreads)
    gate_rows_kernel(const __grid_constant__ GateRows args, const __grid_constant__ SharedMost most) {
  let_next_start();
  wait_for_inputs();
  const int32_t row = row_of_block(), width = args.ups.width;
  quantise_row(
      args.ups.sums + int64_t{row} * width, width, args.to, row, [&](int32_t i) { return arith::gated(args, row, i); },
      most);
  leave(most);
}

__global__ void __launch_bounds__(kThreads) add_rows_kernel(const __grid_constant__ AddRows args) {
  let_next_start();
  wait_for_inputs();
  const int32_t row = row_of_block(), width = args.y.width;
  float *x = args.x + int64_t{row} * width, *y = args.y.sums + int64_t{row} * width;
  const auto add = [&](int32_t i, float value) {
    x[i] = arith::residual(arith::mul(arith::add(x[i], value), args.factor), args.bf16);
  };
  if (!args.norms) {
    for (int32_t i = thread(); i < width; i += kThreads) add(i, arith::output(args.y, row, i));
    return;
  }
  const float r = inverse_rms(width, args.eps, [&](int32_t i) { return y[i] = arith::output(args.y, row, i); });
  for (int32_t i = thread(); i < width; i += kThreads) add(i, normed(y[i], r, args.gain, i));
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

// ---- heads ----

// A head of 32 * kEach channels in a warp: lane l has channels l, l + 32, l + 64, ...
template <int kEach>
class Head {
 public:
  // The head's outputs, normed if asked for.
  __device__ __forceinline__ void load(const Outputs& y, int32_t row, int32_t head, bool norms, const float* gain,
                                       float eps) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) x_[j] = arith::output(y, row, head * kDim + channel(j));
    if (!norms) return;
    const float r = inverse_rms(eps);
#pragma unroll
    for (int j = 0; j < kEach; ++j) x_[j] = normed(x_[j], r, gain, channel(j));
  }
  __device__ __forceinline__ void rotate(const arith::CosSin* angles) {
#pragma unroll
    for (int j = 0; j < kEach / 2; ++j) arith::rotate(x_[j], x_[j + kEach / 2], angles[channel(j)]);
  }
  __device__ __forceinline__ void multiply(const float* factor) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) x_[j] = arith::mul(x_[j], factor[channel(j)]);
  }
  __device__ __forceinline__ void transform(int32_t block) { hadamard(x_, block); }
  __device__ __forceinline__ float largest() const {
    uint32_t most = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) most = max(most, magnitude(x_[j]));
    return largest_of(__reduce_max_sync(0xFFFFFFFFu, most));
  }
  // Calls store(channel, byte).
  template <class Store>
  __device__ __forceinline__ void quantise(float inverse, Store&& store) const {
#pragma unroll
    for (int j = 0; j < kEach; ++j) store(channel(j), arith::quantise(x_[j], inverse));
  }

 private:
  static constexpr int32_t kDim = 32 * kEach;
  __device__ static int32_t channel(int j) { return 32 * j + lane(); }

  __device__ __forceinline__ float inverse_rms(float eps) const {
    constexpr int kSums = static_cast<int>(arith::kRmsPartials) / 32;
    float sum[kSums] = {};  // partial sums l, l + 32, l + 64, ...
#pragma unroll
    for (int j = 0; j < kEach; ++j) sum[j % kSums] = arith::fma(x_[j], x_[j], sum[j % kSums]);
#pragma unroll
    for (int width = kSums / 2; width > 0; width /= 2)
#pragma unroll
      for (int j = 0; j < width; ++j) sum[j] = arith::add(sum[j], sum[j + width]);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      sum[0] = arith::add(sum[0], __shfl_xor_sync(0xFFFFFFFFu, sum[0], distance));
    return arith::norm_multiplier(sum[0], static_cast<float>(kDim), eps, 1.0f);
  }

  float x_[kEach];
};

__device__ __forceinline__ int64_t item_of_warp() { return int64_t{blockIdx.x} * kWarps + thread() / 32; }

template <int kEach>
__global__ void __launch_bounds__(kThreads) query_rows_kernel(const __grid_constant__ QueryRows args) {
  let_next_start();
  wait_for_inputs();
  const int64_t item = item_of_warp();
  if (item >= int64_t{args.rows} * args.heads) return;
  const auto row = static_cast<int32_t>(item / args.heads), h = static_cast<int32_t>(item % args.heads);
  constexpr int32_t kDim = 32 * kEach;
  Head<kEach> head;
  head.load(args.q, row, h, args.norms, args.gain, args.eps);
  head.rotate(args.angles + int64_t{row} * (kDim / 2));
  head.multiply(args.key_step + int64_t{h * args.kv_heads / args.heads} * kDim);
  head.transform(args.hadamard);
  const float largest = head.largest();
  int8_t* to = args.bytes + item * kDim;
  head.quantise(largest > 0.0f ? arith::divide(127.0f, largest) : 0.0f, [&](int32_t i, int8_t byte) { to[i] = byte; });
  if (lane() == 0) args.z[item] = arith::mul(largest, args.factor);
}

// An item: (row, KV head, key or value).
template <int kEach>
__global__ void __launch_bounds__(kThreads)
    append_rows_kernel(const __grid_constant__ KeyValueRows args, const BatchSegment* segments,
                       const int32_t* row_segment, const int32_t* positions, int64_t items, KvSlot kv) {
  let_next_start();
  wait_for_inputs();
  const int64_t item = item_of_warp();
  if (item >= items) return;
  const bool is_value = item % 2 != 0;
  const auto row = static_cast<int32_t>(item / 2 / args.kv_heads), g = static_cast<int32_t>(item / 2 % args.kv_heads);
  const BatchSegment& segment = segments[row_segment[row]];
  const int32_t position = positions[row], token = position % kBlockTokens;
  if (kv.kind == BlockKind::kGlobal && position < segment.write_from) return;
  const BlockId block = segment.table[static_cast<int32_t>(kv.kind)][position / kBlockTokens];

  constexpr int32_t kDim = 32 * kEach;
  Head<kEach> head;
  if (is_value) {
    head.load(args.v, row, g, args.value_norms, nullptr, args.eps);
    head.multiply(args.value_inverse + int64_t{g} * kDim);
  } else {
    head.load(args.k, row, g, args.key_norms, args.key_gain, args.eps);
    head.rotate(args.angles + int64_t{row} * (kDim / 2));
    head.multiply(args.key_inverse + int64_t{g} * kDim);
    head.transform(args.hadamard);
  }
  const float largest = head.largest();
  const arith::bf16 scale = arith::to_bf16(args.constant_scales ? 1.0f : arith::divide(largest, 127.0f));
  const float inverse = scale != 0 ? arith::divide(1.0f, arith::from_bf16(scale)) : 0.0f;
  if (lane() == 0) (is_value ? kv.value_scales(block, g) : kv.key_scales(block, g))[token] = scale;
  auto* to = reinterpret_cast<int8_t*>(is_value ? kv.values(block, g) : kv.keys(block, g));
  head.quantise(inverse,
                [&](int32_t i, int8_t byte) { to[is_value ? value_byte(kDim, token, i) : key_byte(token, i)] = byte; });
}

int64_t blocks_of(int64_t items, int32_t each) { return (items + each - 1) / each; }

// Calls launch_head.operator()<kEach>() for heads of 32 * kEach channels.
template <class Launch>
cudaError_t for_head_dim(int32_t head_dim, Launch&& launch_head) {
  switch (head_dim) {
    case 64:
      return launch_head.template operator()<2>();
    case 128:
      return launch_head.template operator()<4>();
    case 256:
      return launch_head.template operator()<8>();
    case 512:
      return launch_head.template operator()<16>();
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t embed_rows(cudaStream_t stream, const Chip& chip, const EmbedRows& args) {
  if (args.hadamard > kMostHadamard) return cudaErrorInvalidValue;
  return launch(stream, chip, embed_rows_kernel, {args.rows, kThreads}, args);
}

cudaError_t norm_rows(cudaStream_t stream, const Chip& chip, const NormRows& args) {
  if (args.to.hadamard > kMostHadamard) return cudaErrorInvalidValue;
  return launch(stream, chip, norm_rows_kernel, {args.rows, kThreads}, args);
}

cudaError_t quantise_rows(cudaStream_t stream, const Chip& chip, const QuantiseRows& args, const SharedMost& most) {
  if (args.to.hadamard > kMostHadamard) return cudaErrorInvalidValue;
  return launch(stream, chip, quantise_rows_kernel, {args.rows, kThreads}, args, most);
}

cudaError_t gate_rows(cudaStream_t stream, const Chip& chip, const GateRows& args, const SharedMost& most) {
  if (args.to.hadamard > kMostHadamard) return cudaErrorInvalidValue;
  return launch(stream, chip, gate_rows_kernel, {args.rows, kThreads}, args, most);
}

cudaError_t add_rows(cudaStream_t stream, const Chip& chip, const AddRows& args) {
  return launch(stream, chip, add_rows_kernel, {args.rows, kThreads}, args);
}

cudaError_t logit_rows(cudaStream_t stream, const Chip& chip, const LogitRows& args) {
  const auto blocks_of_row = static_cast<int32_t>(blocks_of(args.y.width, kThreads));
  return launch(stream, chip, logit_rows_kernel, {int64_t{args.rows} * blocks_of_row, kThreads}, args, blocks_of_row);
}

cudaError_t query_rows(cudaStream_t stream, const Chip& chip, const QueryRows& args) {
  return for_head_dim(args.head_dim, [&]<int kEach>() {
    return launch(stream, chip, query_rows_kernel<kEach>,
                  {blocks_of(int64_t{args.rows} * args.heads, kWarps), kThreads}, args);
  });
}

cudaError_t append_rows(cudaStream_t stream, const Chip& chip, const KeyValueRows& args, const Batch& batch,
                        const KvSlot& kv) {
  const int64_t items = int64_t{2} * batch.row_count * args.kv_heads;
  return for_head_dim(args.head_dim, [&]<int kEach>() {
    return launch(stream, chip, append_rows_kernel<kEach>, {blocks_of(items, kWarps), kThreads}, args,
                  batch.segments.data(), batch.row_segment.data(), batch.positions.data(), items, kv);
  });
}

}  // namespace kaiju::cuda
