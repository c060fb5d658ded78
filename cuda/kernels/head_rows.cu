// The heads of version 2 of the arithmetic (kaiju/arith/rows.hpp): queries, and keys and values to the KV cache. A head
// is one warp's work, with its channels in registers from the matmul's sums to the bytes. Bound: memory; with few rows
// latency.
#include "../tiles/dependent_launch.cuh"
#include "head.cuh"

namespace kaiju::cuda {
namespace {

constexpr int32_t kThreads = 256, kWarps = kThreads / 32;

// Where keys and values of the rows of a batch go.
struct Places {
  const BatchSegment* segments;
  const int32_t *row_segment, *positions;
  KvSlot kv;
};

// The place of a token's key or value in the cache.
struct Place {
  BlockId block;
  int32_t token;
  bool writes;  // false: it is there already
};
__device__ __forceinline__ Place place_of(const Places& places, int32_t row) {
  const KvSlot& kv = places.kv;
  const BatchSegment& segment = places.segments[places.row_segment[row]];
  const int32_t position = places.positions[row];
  return {segment.table[static_cast<int32_t>(kv.kind)][position / kBlockTokens], position % kBlockTokens,
          kv.kind != BlockKind::kGlobal || position >= segment.write_from};
}

// A warp has one head. The first `queries` items are (row, head), and the `kept` after them (row, KV head, key or
// value). All kinds share one code, because with few rows its length counts: it is fetched as it is needed.
template <int kEach>
__global__ void __launch_bounds__(kThreads)
    head_rows_kernel(const __grid_constant__ QueryRows query, const __grid_constant__ KeyValueRows kept,
                     const __grid_constant__ Places places, int32_t query_items, int32_t kept_items) {
  let_next_start();
  wait_for_inputs();
  constexpr int32_t kDim = 32 * kEach;
  const int32_t item = static_cast<int32_t>(blockIdx.x) * kWarps + thread() / 32;
  if (item >= query_items + kept_items) return;
  const bool is_query = item < query_items;
  const int32_t own = is_query ? item : item - query_items, each = is_query ? query.heads : 2 * kept.kv_heads,
                row = own / each;
  const bool is_value = !is_query && own % 2 != 0;
  const int32_t h = is_query ? own % each : own % each / 2;

  // Where it goes is found while the values are loaded.
  const Place place = is_query ? Place{} : place_of(places, row);
  const Outputs y = is_query ? query.q : is_value ? kept.v : kept.k;
  const RowOutputs outputs(y, row);
  const float* const gain = is_query ? query.gain : is_value ? nullptr : kept.key_gain;
  const arith::CosSin* const angles = (is_query ? query.angles : kept.angles) + int64_t{row} * (kDim / 2);
  const float* const factor = is_query   ? query.key_step + h * query.kv_heads / query.heads * kDim
                              : is_value ? kept.value_inverse + h * kDim
                                         : kept.key_inverse + h * kDim;
  Head<kEach> head;
  head.load([&](int32_t i) { return outputs.load(h * kDim + i); });
  head.change([&](float sum, int32_t i) { return outputs(sum, h * kDim + i); });
  if (is_query ? query.norms : is_value ? kept.value_norms : kept.key_norms)
    head.norm(is_query ? query.eps : kept.eps, [&](int32_t i) { return gain ? gain[i] : 1.0f; });
  if (!is_value) head.rotate([&](int32_t i) { return angles[i]; });
  head.multiply([&](int32_t i) { return factor[i]; });
  head.transform(is_query ? query.hadamard : is_value ? 1 : kept.hadamard);

  const float largest = head.largest();
  if (is_query) {
    int8_t* to = query.bytes + int64_t{item} * kDim;
    if (lane() == 0) query.z[item] = arith::mul(largest, query.factor);
    head.quantise(largest > 0.0f ? arith::divide(127.0f, largest) : 0.0f,
                  [&](int32_t i, int8_t byte) { to[i] = byte; });
    return;
  }
  if (!place.writes) return;
  const KvSlot& kv = places.kv;
  const arith::bf16 scale = arith::to_bf16(kept.constant_scales ? 1.0f : arith::divide(largest, 127.0f));
  if (lane() == 0) (is_value ? kv.value_scales(place.block, h) : kv.key_scales(place.block, h))[place.token] = scale;
  auto* to = reinterpret_cast<int8_t*>(is_value ? kv.values(place.block, h) : kv.keys(place.block, h));
  head.quantise(scale != 0 ? arith::divide(1.0f, arith::from_bf16(scale)) : 0.0f, [&](int32_t i, int8_t byte) {
    to[is_value ? value_byte(kDim, place.token, i) : key_byte(place.token, i)] = byte;
  });
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
