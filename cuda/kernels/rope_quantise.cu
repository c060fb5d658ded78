// RoPE and quantisation of q, k and v. Writes rotated int8 queries for attention, and rotated keys and values to the
// paged KV cache (layout of a block: tiles/layout.cuh). head_dim is a multiple of 8. Bound: memory; with few rows
// latency.
//
// queries() and append() are the operations of a Backend. rope_quantise() does both in one launch, for q, k and v that
// one matmul has stored side by side.
#include "../tiles/dependent_launch.cuh"
#include "../tiles/layout.cuh"
#include "../tiles/quantise.cuh"
#include "kaiju/arith/quantise.hpp"

namespace kaiju::cuda {
namespace {

constexpr int32_t kThreads = 256;

int32_t blocks_for(int64_t items) { return static_cast<int32_t>((items + kThreads - 1) / kThreads); }

// item: (row, head, i). Rows of q are `stride` apart.
__device__ __forceinline__ void rotate_query(int64_t item, const float* q, int64_t stride, const arith::CosSin* angles,
                                             int32_t heads, int32_t kv_heads, int32_t head_dim, const float* inverse,
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

// Where the keys of a row's block lie, followed by its values; null where they must not be written. Found from a step's
// inputs alone, which no kernel writes.
struct KeyPlace {
  int8_t* keys;
  int32_t token;  // within the block
};
__device__ __forceinline__ KeyPlace place_of_key_row(int64_t row, int32_t g, const BatchSegment* segments,
                                                     const int32_t* row_segment, const int32_t* positions,
                                                     const KvSlot& kv) {
  const BatchSegment& segment = segments[row_segment[row]];
  const int32_t position = positions[row];
  if (kv.kind == BlockKind::kGlobal && position < segment.write_from) return {nullptr, 0};
  const BlockId block = segment.table[static_cast<int32_t>(kv.kind)][position / kBlockTokens];
  return {reinterpret_cast<int8_t*>(kv.pool + block * kv.block_bytes + kv.slot_offset +
                                    int64_t{g} * 2 * kBlockTokens * kv.head_dim),
          position % kBlockTokens};
}
// Channels i and i + head_dim / 2 of KV head g, whose row of k and of v begin there.
__device__ __forceinline__ void store_key(const KeyPlace& place, const float* k, const float* v, int32_t i, int32_t g,
                                          const arith::CosSin& angle, const float* k_inverse, const float* v_inverse,
                                          int32_t head_dim) {
  const int32_t half = head_dim / 2;
  float low = k[i], high = k[i + half];
  arith::rotate(low, high, angle);
  const int64_t c = int64_t{g} * head_dim + i;
  int8_t* values = place.keys + int64_t{kBlockTokens} * head_dim;
  place.keys[key_byte(place.token, i)] = arith::quantise(low, k_inverse[c]);
  place.keys[key_byte(place.token, i + half)] = arith::quantise(high, k_inverse[c + half]);
  values[value_byte(head_dim, place.token, i)] = arith::quantise(v[i], v_inverse[c]);
  values[value_byte(head_dim, place.token, i + half)] = arith::quantise(v[i + half], v_inverse[c + half]);
}

__global__ void queries_kernel(const float* q, int64_t items, const arith::CosSin* angles, int32_t heads,
                               int32_t kv_heads, int32_t head_dim, const float* inverse, int8_t* out) {
  let_next_start();
  wait_for_inputs();
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item < items) rotate_query(item, q, int64_t{heads} * head_dim, angles, heads, kv_heads, head_dim, inverse, out);
}

__global__ void append_kernel(const float* k, const float* v, const BatchSegment* segments, const int32_t* row_segment,
                              const int32_t* positions, int64_t items, const arith::CosSin* angles,
                              const float* k_inverse, const float* v_inverse, KvSlot kv) {
  let_next_start();
  wait_for_inputs();
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= items) return;
  const int32_t half = kv.head_dim / 2, i = static_cast<int32_t>(item % half),
                g = static_cast<int32_t>(item / half % kv.kv_heads);
  const int64_t row = item / half / kv.kv_heads, at = (row * kv.kv_heads + g) * kv.head_dim;
  const KeyPlace place = place_of_key_row(row, g, segments, row_segment, positions, kv);
  if (place.keys) store_key(place, k + at, v + at, i, g, angles[row * half + i], k_inverse, v_inverse, kv.head_dim);
}

// Four neighbouring channels of a head's lower half, and the four they turn with.
struct FourPairs {
  float4 low, high;
};
__device__ __forceinline__ FourPairs four_pairs(const float* channels, int32_t half) {
  return {*reinterpret_cast<const float4*>(channels), *reinterpret_cast<const float4*>(channels + half)};
}
// A block for each row and kThreads items. An item is four pairs of channels of a head; heads of queries come first,
// then those of keys, then of values. All loads of an item are issued before any of them is used.
__global__ void rope_quantise_kernel(RopeArgs args, int32_t row_blocks, const BatchSegment* segments,
                                     const int32_t* row_segment, const int32_t* positions, KvSlot kv) {
  let_next_start();
  const auto row = static_cast<int32_t>(blockIdx.x) / row_blocks, half = args.head_dim / 2, fours = half / 4;
  const int32_t item = (static_cast<int32_t>(blockIdx.x) - row * row_blocks) * kThreads +
                       static_cast<int32_t>(threadIdx.x),
                head = item / fours, i = (item - head * fours) * 4;
  if (head >= args.heads + (args.keys ? 2 * args.kv_heads : 0)) return wait_for_inputs();
  const bool is_query = head < args.heads, is_value = head >= args.heads + args.kv_heads;
  const int32_t g = is_query ? head * args.kv_heads / args.heads : (head - args.heads) % args.kv_heads;
  KeyPlace place{nullptr, 0};
  if (!is_query) place = place_of_key_row(row, g, segments, row_segment, positions, kv);
  const FourPairs inverse = four_pairs((is_query   ? args.inverse
                                        : is_value ? args.v_inverse
                                                   : args.k_inverse) +
                                           g * args.head_dim + i,
                                       half);
  wait_for_inputs();
  FourPairs x = four_pairs(args.q + int64_t{row} * args.stride + head * args.head_dim + i, half);
  if (!is_value) {
    const auto* angles = reinterpret_cast<const float4*>(args.angles + int64_t{row} * half + i);
    const float4 first = angles[0], second = angles[1];
    arith::rotate(x.low.x, x.high.x, {first.x, first.y});
    arith::rotate(x.low.y, x.high.y, {first.z, first.w});
    arith::rotate(x.low.z, x.high.z, {second.x, second.y});
    arith::rotate(x.low.w, x.high.w, {second.z, second.w});
  }
  const uint32_t low = four_quantised(x.low, inverse.low), high = four_quantised(x.high, inverse.high);
  if (is_query) {
    int8_t* const out = args.out + (int64_t{row} * args.heads + head) * args.head_dim + i;
    *reinterpret_cast<uint32_t*>(out) = low;
    *reinterpret_cast<uint32_t*>(out + half) = high;
  } else if (place.keys && !is_value) {
    *reinterpret_cast<uint32_t*>(place.keys + key_byte(place.token, i)) = low;
    *reinterpret_cast<uint32_t*>(place.keys + key_byte(place.token, i + half)) = high;
  } else if (place.keys) {
    int8_t* const values =
        place.keys + int64_t{kBlockTokens} * args.head_dim + value_byte(args.head_dim, place.token, i);
#pragma unroll
    for (int32_t e = 0; e < 4; ++e) {  // values of neighbouring channels are kColumnBytes apart
      values[e * kColumnBytes] = static_cast<int8_t>(low >> 8 * e);
      values[(e + half) * kColumnBytes] = static_cast<int8_t>(high >> 8 * e);
    }
  }
}

}  // namespace

cudaError_t queries(cudaStream_t stream, const Chip& chip, const float* q, int32_t rows, const arith::CosSin* angles,
                    int32_t heads, int32_t kv_heads, int32_t head_dim, const float* inverse, int8_t* out) {
  const int64_t items = int64_t{rows} * heads * (head_dim / 2);
  return launch(stream, chip, queries_kernel, {blocks_for(items), kThreads}, q, items, angles, heads, kv_heads,
                head_dim, inverse, out);
}

cudaError_t append(cudaStream_t stream, const Chip& chip, const float* k, const float* v, const Batch& batch,
                   const arith::CosSin* angles, const float* k_inverse, const float* v_inverse, const KvSlot& kv) {
  const int64_t items = int64_t{batch.row_count} * kv.kv_heads * (kv.head_dim / 2);
  return launch(stream, chip, append_kernel, {blocks_for(items), kThreads}, k, v, batch.segments.data(),
                batch.row_segment.data(), batch.positions.data(), items, angles, k_inverse, v_inverse, kv);
}

cudaError_t rope_quantise(cudaStream_t stream, const Chip& chip, const RopeArgs& args, const Batch& batch,
                          const KvSlot& kv) {
  const int32_t row_blocks = blocks_for((args.heads + (args.keys ? 2 * args.kv_heads : 0)) * (args.head_dim / 8));
  return launch(stream, chip, rope_quantise_kernel, {int64_t{args.rows} * row_blocks, kThreads}, args, row_blocks,
                batch.segments.data(), batch.row_segment.data(), batch.positions.data(), kv);
}

}  // namespace kaiju::cuda
