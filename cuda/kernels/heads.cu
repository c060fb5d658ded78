// Rotation and quantisation of heads: queries for attention, keys and values into the paged cache. Bound by memory.
//
// How keys and values lie within a block: tiles/layout.cuh.
#include "../kernels.hpp"
#include "../tiles/layout.cuh"
#include "kaiju/arith/quantise.hpp"

namespace kaiju::cuda {
namespace {

constexpr int32_t kThreads = 256;

int32_t blocks_for(int64_t items) { return static_cast<int32_t>((items + kThreads - 1) / kThreads); }

__global__ void queries_kernel(const float* q, int64_t items, const arith::CosSin* angles, int32_t heads, int32_t kv_heads, int32_t head_dim, const float* inverse, int8_t* out) {
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;  // (row, head, i)
  if (item >= items) return;
  const int32_t half = head_dim / 2, i = static_cast<int32_t>(item % half);
  const int64_t row_head = item / half, row = row_head / heads;
  const int32_t group = static_cast<int32_t>(row_head % heads) * kv_heads / heads;
  const int64_t at = row_head * head_dim + i;
  float low = q[at], high = q[at + half];
  arith::rotate(low, high, angles[row * half + i]);
  const float* c = inverse + int64_t{group} * head_dim + i;
  out[at] = arith::quantise(low, c[0]);
  out[at + half] = arith::quantise(high, c[half]);
}

__global__ void append_kernel(const float* k, const float* v, const BatchSegment* segments, const int32_t* row_segment, const int32_t* positions, int64_t items,
                              const arith::CosSin* angles, const float* k_inverse, const float* v_inverse, KvSlot kv) {
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;  // (row, KV head, i)
  if (item >= items) return;
  const int32_t head_dim = kv.head_dim, half = head_dim / 2, i = static_cast<int32_t>(item % half);
  const int64_t row_head = item / half, row = row_head / kv.kv_heads;
  const int32_t g = static_cast<int32_t>(row_head % kv.kv_heads);
  const BatchSegment segment = segments[row_segment[row]];
  const int32_t position = positions[row], token = position % kBlockTokens;
  if (kv.kind == BlockKind::kGlobal && position < segment.write_from) return;
  const BlockId block = segment.table[static_cast<int32_t>(kv.kind)][position / kBlockTokens];
  const int64_t at = row_head * head_dim + i;
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

}  // namespace

cudaError_t queries(cudaStream_t stream, const float* q, int32_t rows, const arith::CosSin* angles, int32_t heads, int32_t kv_heads, int32_t head_dim, const float* inverse, int8_t* out) {
  const int64_t items = int64_t{rows} * heads * (head_dim / 2);
  queries_kernel<<<blocks_for(items), kThreads, 0, stream>>>(q, items, angles, heads, kv_heads, head_dim, inverse, out);
  return cudaGetLastError();
}

cudaError_t append(cudaStream_t stream, const float* k, const float* v, const Batch& batch, const arith::CosSin* angles, const float* k_inverse, const float* v_inverse, const KvSlot& kv) {
  const int64_t items = int64_t{batch.row_count} * kv.kv_heads * (kv.head_dim / 2);
  append_kernel<<<blocks_for(items), kThreads, 0, stream>>>(k, v, batch.segments.data(), batch.row_segment.data(), batch.positions.data(), items, angles, k_inverse, v_inverse, kv);
  return cudaGetLastError();
}

}  // namespace kaiju::cuda
