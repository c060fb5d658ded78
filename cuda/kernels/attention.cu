// Attention, plain form: one block of threads per query row and head, chunk after chunk. Correct on every device; bound by the latency of its steps.
//
// Scores and p * v are dot products of bytes; the two-byte weights enter as a high and a low byte, so that both sums stay exact integers below 2^24.
#include "../kernels.hpp"
#include "../tiles/layout.cuh"
#include "../tiles/mma.cuh"
#include "kaiju/arith/quantise.hpp"
#include "kaiju/arith/softmax.hpp"

namespace kaiju::cuda {
namespace {

constexpr int32_t kThreads = 128;
constexpr int32_t kWarps = kThreads / 32;
constexpr int32_t kChunk = arith::kChunkKeys;

struct Reduction {
  int32_t warp[kWarps];
};

template <class Combine>
__device__ int32_t reduce(Reduction& shared, int32_t value, Combine combine) {
  for (int distance = 16; distance > 0; distance /= 2) value = combine(value, __shfl_xor_sync(0xFFFFFFFFu, value, distance));
  __syncthreads();  // earlier readers are done
  if (threadIdx.x % 32 == 0) shared.warp[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared.warp[0];
  for (int w = 1; w < kWarps; ++w) value = combine(value, shared.warp[w]);
  return value;
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads) attend_kernel(AttentionArgs args, const BatchSegment* segments, const int32_t* row_segment, const int32_t* positions, KvSlot kv) {
  __shared__ Reduction reduction;
  __shared__ __align__(16) int8_t query[kHeadDim];
  __shared__ int32_t score[kChunk];
  __shared__ __align__(16) uint8_t high[kChunk], low[kChunk];  // bytes of the weights, keys as in the cache
  constexpr int kChannels = (kHeadDim + kThreads - 1) / kThreads;  // of a thread

  const int32_t row = static_cast<int32_t>(blockIdx.x), head = static_cast<int32_t>(blockIdx.y), tid = static_cast<int32_t>(threadIdx.x);
  const int32_t g = head * kv.kv_heads / args.heads, position = positions[row];
  const BlockId* table = segments[row_segment[row]].table[static_cast<int32_t>(kv.kind)];
  const int64_t at = (int64_t{row} * args.heads + head) * kHeadDim;
  const int32_t first = kv.window > 0 && position >= kv.window ? position - kv.window + 1 : 0;
  const std::byte* slot = kv.pool + kv.slot_offset + int64_t{g} * 2 * kBlockTokens * kHeadDim;

  for (int32_t i = tid; i < kHeadDim; i += kThreads) query[i] = args.queries[at + i];

  bool started = false;
  int32_t total_maximum = 0;
  float total = 0.0f, sum[kChannels] = {};
  for (int32_t chunk = first / kChunk * kChunk; chunk <= position; chunk += kChunk) {
    const int32_t from = first > chunk ? first - chunk : 0, to = position - chunk < kChunk - 1 ? position - chunk : kChunk - 1;  // visible, both included
    __syncthreads();  // the query is there; the last chunk's weights have been read
    int32_t maximum = INT32_MIN;
    for (int32_t j = tid; j < kChunk; j += kThreads) {
      int32_t dot = INT32_MIN;
      if (j >= from && j <= to) {
        const auto* key = reinterpret_cast<const int4*>(slot + table[(chunk + j) / kBlockTokens] * kv.block_bytes) + j % kBlockTokens;  // a column every kBlockTokens
        dot = 0;
#pragma unroll
        for (int i = 0; i < kHeadDim / 16; ++i) {
          const int4 k = key[i * kBlockTokens], q = reinterpret_cast<const int4*>(query)[i];
          dot = __dp4a(k.x, q.x, __dp4a(k.y, q.y, __dp4a(k.z, q.z, __dp4a(k.w, q.w, dot))));
        }
        maximum = max(maximum, dot);
      }
      score[j] = dot;
    }
    maximum = reduce(reduction, maximum, [](int32_t a, int32_t b) { return max(a, b); });
    int32_t weights = 0;
    for (int32_t j = tid; j < kChunk; j += kThreads) {  // each thread its own scores
      const int32_t weight = j >= from && j <= to ? static_cast<int32_t>(arith::key_weight(score[j] - maximum, args.z)) : 0;
      weights += weight;
      high[place_of_key(j)] = static_cast<uint8_t>(weight >> 8);
      low[place_of_key(j)] = static_cast<uint8_t>(weight);
    }
    weights = reduce(reduction, weights, [](int32_t a, int32_t b) { return a + b; });  // and all weights are written

    // The later of two chunks with the same maximum keeps its scale.
    const bool later_keeps = !started || total_maximum <= maximum;
    const float factor = started ? arith::exp2_product(later_keeps ? total_maximum - maximum : maximum - total_maximum, args.z) : 0.0f;
    const float l = static_cast<float>(weights);
    total = !started ? l : later_keeps ? arith::fma(total, factor, l) : arith::fma(l, factor, total);
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      const int32_t channel = tid + c * kThreads;
      if (channel >= kHeadDim) break;
      int32_t sum_high = 0, sum_low = 0;
      for (int32_t b = from / kBlockTokens; b <= to / kBlockTokens; ++b) {
        const auto* value = reinterpret_cast<const uint4*>(slot + table[chunk / kBlockTokens + b] * kv.block_bytes + int64_t{kBlockTokens} * kHeadDim) + channel;
        for (int i = 0; i < kBlockTokens / 16; ++i) {
          const uint4 v = value[i * kHeadDim];
          const uint4 h = reinterpret_cast<const uint4*>(high + b * kBlockTokens)[i], w = reinterpret_cast<const uint4*>(low + b * kBlockTokens)[i];
          sum_high = dot_unsigned_signed(h.x, v.x, dot_unsigned_signed(h.y, v.y, dot_unsigned_signed(h.z, v.z, dot_unsigned_signed(h.w, v.w, sum_high))));
          sum_low = dot_unsigned_signed(w.x, v.x, dot_unsigned_signed(w.y, v.y, dot_unsigned_signed(w.z, v.z, dot_unsigned_signed(w.w, v.w, sum_low))));
        }
      }
      const float o = arith::fma(256.0f, static_cast<float>(sum_high), static_cast<float>(sum_low));
      sum[c] = !started ? o : later_keeps ? arith::fma(sum[c], factor, o) : arith::fma(o, factor, sum[c]);
    }
    if (later_keeps) total_maximum = maximum;
    started = true;
  }
  const float inverse = arith::divide(1.0f, total);
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    const int32_t channel = tid + c * kThreads;
    if (channel < kHeadDim) args.out[at + channel] = arith::quantise(arith::mul(sum[c], inverse), args.out_inverse[int64_t{g} * kHeadDim + channel]);
  }
}

}  // namespace

cudaError_t attend(cudaStream_t stream, const AttentionArgs& args, const Batch& batch, const KvSlot& kv, const AttentionScratch& scratch) {
  return attends_sm90(args, kv, scratch) ? attend_sm90(stream, args, batch, kv, scratch) : attend_plain(stream, args, batch, kv);
}

cudaError_t attend_plain(cudaStream_t stream, const AttentionArgs& args, const Batch& batch, const KvSlot& kv) {
  const dim3 grid(static_cast<unsigned>(batch.row_count), static_cast<unsigned>(args.heads));
  const auto launch = [&](auto kernel) { kernel<<<grid, kThreads, 0, stream>>>(args, batch.segments.data(), batch.row_segment.data(), batch.positions.data(), kv); };
  switch (kv.head_dim) {
    case 64: launch(attend_kernel<64>); break;
    case 128: launch(attend_kernel<128>); break;
    case 256: launch(attend_kernel<256>); break;
    default: return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace kaiju::cuda
