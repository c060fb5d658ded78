// The heads of version 2 of the arithmetic (kaiju/arith/rows.hpp): queries, and keys and values to the KV cache. A head
// is one warp's work, with its channels in registers from the matmul's sums to the bytes. Bound: memory; with few rows
// latency.
#include "../tiles/dependent_launch.cuh"
#include "row_steps.cuh"

namespace kaiju::cuda {
namespace {

constexpr int32_t kThreads = 256, kWarps = kThreads / 32;

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

__device__ __forceinline__ int32_t item_of_warp() { return static_cast<int32_t>(blockIdx.x) * kWarps + thread() / 32; }

template <int kEach>
__device__ __forceinline__ void query_head(const QueryRows& args, int32_t item) {
  const int32_t row = item / args.heads, h = item % args.heads;
  constexpr int32_t kDim = 32 * kEach;
  Head<kEach> head;
  head.load(args.q, row, h, args.norms, args.gain, args.eps);
  head.rotate(args.angles + int64_t{row} * (kDim / 2));
  head.multiply(args.key_step + int64_t{h * args.kv_heads / args.heads} * kDim);
  head.transform(args.hadamard);
  const float largest = head.largest();
  int8_t* to = args.bytes + int64_t{item} * kDim;
  head.quantise(largest > 0.0f ? arith::divide(127.0f, largest) : 0.0f, [&](int32_t i, int8_t byte) { to[i] = byte; });
  if (lane() == 0) args.z[item] = arith::mul(largest, args.factor);
}

// Where keys and values of the rows of a batch go.
struct Places {
  const BatchSegment* segments;
  const int32_t *row_segment, *positions;
  KvSlot kv;
};

// An item: (row, KV head, key or value).
template <int kEach>
__device__ __forceinline__ void append_head(const KeyValueRows& args, const Places& places, int32_t item) {
  const KvSlot& kv = places.kv;
  const bool is_value = item % 2 != 0;
  const int32_t row = item / 2 / args.kv_heads, g = item / 2 % args.kv_heads;
  const BatchSegment& segment = places.segments[places.row_segment[row]];
  const int32_t position = places.positions[row], token = position % kBlockTokens;
  const bool writes = kv.kind != BlockKind::kGlobal || position >= segment.write_from;
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
  if (!writes) return;  // not before: where they go is found while the values are loaded
  if (lane() == 0) (is_value ? kv.value_scales(block, g) : kv.key_scales(block, g))[token] = scale;
  auto* to = reinterpret_cast<int8_t*>(is_value ? kv.values(block, g) : kv.keys(block, g));
  head.quantise(inverse,
                [&](int32_t i, int8_t byte) { to[is_value ? value_byte(kDim, token, i) : key_byte(token, i)] = byte; });
}

// The first `queries` items are queries, and the `kept` after them keys and values.
template <int kEach>
__global__ void __launch_bounds__(kThreads)
    head_rows_kernel(const __grid_constant__ QueryRows args, const __grid_constant__ KeyValueRows kept_args,
                     const __grid_constant__ Places places, int32_t queries, int32_t kept) {
  let_next_start();
  wait_for_inputs();
  const int32_t item = item_of_warp();
  if (item < queries)
    query_head<kEach>(args, item);
  else if (item < queries + kept)
    append_head<kEach>(kept_args, places, item - queries);
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

cudaError_t launch_heads(cudaStream_t stream, const Chip& chip, const QueryRows& queries, const KeyValueRows& kept,
                         const Places& places, int64_t query_items, int64_t kept_items, int32_t head_dim) {
  if (query_items + kept_items > INT32_MAX - kWarps) return cudaErrorInvalidValue;
  return for_head_dim(head_dim, [&]<int kEach>() {
    return launch(stream, chip, head_rows_kernel<kEach>, {blocks_of(query_items + kept_items, kWarps), kThreads},
                  queries, kept, places, static_cast<int32_t>(query_items), static_cast<int32_t>(kept_items));
  });
}
Places places_of(const Batch& batch, const KvSlot& kv) {
  return {batch.segments.data(), batch.row_segment.data(), batch.positions.data(), kv};
}

}  // namespace

cudaError_t query_rows(cudaStream_t stream, const Chip& chip, const QueryRows& args) {
  return launch_heads(stream, chip, args, {}, {}, int64_t{args.rows} * args.heads, 0, args.head_dim);
}

cudaError_t append_rows(cudaStream_t stream, const Chip& chip, const KeyValueRows& args, const Batch& batch,
                        const KvSlot& kv) {
  return launch_heads(stream, chip, {}, args, places_of(batch, kv), 0, int64_t{2} * batch.row_count * args.kv_heads,
                      args.head_dim);
}

cudaError_t project_rows(cudaStream_t stream, const Chip& chip, const QueryRows& queries, const KeyValueRows& kept,
                         const Batch& batch, const KvSlot& kv) {
  return launch_heads(stream, chip, queries, kept, places_of(batch, kv), int64_t{queries.rows} * queries.heads,
                      int64_t{2} * batch.row_count * kept.kv_heads, kept.head_dim);
}

}  // namespace kaiju::cuda
