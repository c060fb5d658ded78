// Rotation and quantisation of heads: queries for attention, keys and values into the paged cache. Bound by memory.
//
// How keys and values lie within a block: tiles/layout.cuh.
#include "../tiles/layout.cuh"
#include "../tiles/overlap.cuh"
#include "kaiju/arith/quantise.hpp"

namespace kaiju::cuda {
namespace {

constexpr int32_t kThreads = 256;

int32_t blocks_for(int64_t items) { return static_cast<int32_t>((items + kThreads - 1) / kThreads); }

// item: (row, head, i). Rows of q are `stride` apart.
__device__ __forceinline__ void rotate_query(int64_t item, const float* q, int64_t stride, const arith::CosSin* angles, int32_t heads, int32_t kv_heads, int32_t head_dim, const float* inverse,
                                             int8_t* out) {
  const int32_t half = head_dim / 2, i = static_cast<int32_t>(item % half);
  const int64_t row_head = item / half, row = row_head / heads;
  const int32_t group = static_cast<int32_t>(row_head % heads) * kv_heads / heads;
  const int64_t at = row_head * head_dim + i, from = row * stride + (row_head - row * heads) * head_dim + i;
  float low = q[from], high = q[from + half];
  arith::rotate(low, high, angles[row * half + i]);
  const float* c = inverse + int64_t{group} * head_dim + i;
  out[at] = arith::quantise(low, c[0]);
  out[at + half] = arith::quantise(high, c[half]);
}

// item: (row, KV head, i). Rows of k and v are `stride` apart.
__device__ __forceinline__ void append_key(int64_t item, const float* k, const float* v, int64_t stride, const BatchSegment* segments, const int32_t* row_segment, const int32_t* positions,
                                           const arith::CosSin* angles, const float* k_inverse, const float* v_inverse, const KvSlot& kv) {
  const int32_t head_dim = kv.head_dim, half = head_dim / 2, i = static_cast<int32_t>(item % half);
  const int64_t row_head = item / half, row = row_head / kv.kv_heads;
  const int32_t g = static_cast<int32_t>(row_head % kv.kv_heads);
  const BatchSegment segment = segments[row_segment[row]];
  const int32_t position = positions[row], token = position % kBlockTokens;
  if (kv.kind == BlockKind::kGlobal && position < segment.write_from) return;
  const BlockId block = segment.table[static_cast<int32_t>(kv.kind)][position / kBlockTokens];
  const int64_t at = row * stride + int64_t{g} * head_dim + i;
  float low = k[at], high = k[at + half];
  arith::rotate(low, high, angles[row * half + i]);
  const int64_t c = int64_t{g} * head_dim + i;
  int8_t* keys = reinterpret_cast<int8_t*>(kv.pool + block * kv.block_bytes + kv.slot_offset + int64_t{g} * 2 * kBlockTokens * head_dim);
  int8_t* values = keys + int64_t{kBlockTokens} * head_dim;
  keys[key_byte(token, i)] = arith::quantise(low, k_inverse[c]);
  keys[key_byte(token, i + half)] = arith::quantise(high, k_inverse[c + half]);
  values[value_byte(head_dim, token, i)] = arith::quantise(v[at], v_inverse[c]);
  values[value_byte(head_dim, token, i + half)] = arith::quantise(v[at + half], v_inverse[c + half]);
}

__global__ void queries_kernel(const float* q, int64_t items, const arith::CosSin* angles, int32_t heads, int32_t kv_heads, int32_t head_dim, const float* inverse, int8_t* out) {
  let_next_start();
  wait_for_inputs();
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item < items) rotate_query(item, q, int64_t{heads} * head_dim, angles, heads, kv_heads, head_dim, inverse, out);
}

__global__ void append_kernel(const float* k, const float* v, const BatchSegment* segments, const int32_t* row_segment, const int32_t* positions, int64_t items,
                              const arith::CosSin* angles, const float* k_inverse, const float* v_inverse, KvSlot kv) {
  let_next_start();
  wait_for_inputs();
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item < items) append_key(item, k, v, int64_t{kv.kv_heads} * kv.head_dim, segments, row_segment, positions, angles, k_inverse, v_inverse, kv);
}

__global__ void heads_kernel(HeadsArgs args, const BatchSegment* segments, const int32_t* row_segment, const int32_t* positions, KvSlot kv) {
  let_next_start();
  wait_for_inputs();
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x, half = args.head_dim / 2, queries = args.rows * args.heads * half,
                keys = args.keys ? args.rows * args.kv_heads * half : 0;
  if (item < queries) {
    rotate_query(item, args.q, args.stride, args.angles, args.heads, args.kv_heads, args.head_dim, args.inverse, args.out);
  } else if (item < queries + keys) {
    const float* k = args.q + args.heads * args.head_dim;
    append_key(item - queries, k, k + args.kv_heads * args.head_dim, args.stride, segments, row_segment, positions, args.angles, args.k_inverse, args.v_inverse, kv);
  }
}

}  // namespace

cudaError_t queries(cudaStream_t stream, const Chip& chip, const float* q, int32_t rows, const arith::CosSin* angles, int32_t heads, int32_t kv_heads, int32_t head_dim, const float* inverse, int8_t* out) {
  const int64_t items = int64_t{rows} * heads * (head_dim / 2);
  return launch(stream, chip, queries_kernel, {blocks_for(items), kThreads}, q, items, angles, heads, kv_heads, head_dim, inverse, out);
}

cudaError_t append(cudaStream_t stream, const Chip& chip, const float* k, const float* v, const Batch& batch, const arith::CosSin* angles, const float* k_inverse, const float* v_inverse, const KvSlot& kv) {
  const int64_t items = int64_t{batch.row_count} * kv.kv_heads * (kv.head_dim / 2);
  return launch(stream, chip, append_kernel, {blocks_for(items), kThreads}, k, v, batch.segments.data(), batch.row_segment.data(), batch.positions.data(), items, angles, k_inverse, v_inverse, kv);
}

cudaError_t heads(cudaStream_t stream, const Chip& chip, const HeadsArgs& args, const Batch& batch, const KvSlot& kv) {
  const int64_t items = int64_t{args.rows} * (args.heads + (args.keys ? args.kv_heads : 0)) * (args.head_dim / 2);
  return launch(stream, chip, heads_kernel, {blocks_for(items), kThreads}, args, batch.segments.data(), batch.row_segment.data(), batch.positions.data(), kv);
}

}  // namespace kaiju::cuda
