// A step of one row in version 2 of the arithmetic (docs/arithmetic-2.md), through all layers to its logits, as one
// kernel. Its plan is that of version 1 (sm90_row_step.cuh): one thread block for each multiprocessor, an equal share
// of every matrix for each, one warp that lets TMA copy all weights one after another into a ring in shared memory, and
// words with a tag for what blocks exchange. This page has what differs.
//
// Every matmul's input is quantised by its largest value, so each block needs the whole row. Blocks exchange rows of
// floats: queries, keys and values, the results of attention, the middle of the feed-forward, and the outputs that are
// added to the residual stream. Every block holds the whole residual stream in shared memory, and computes norms,
// transforms, magnitudes and bytes of whole rows itself, a thread eight neighbours at a time.
//
// A block has the same columns of gate and up, and gates them itself. Matrices need no widths that divide a warp's
// piece of 1 KiB: lanes beyond the end of an output join the next one.
//
// In attention a unit of work is a chunk of 512 keys with some query heads of a KV head; a block may have several. A
// warp makes each query, and the newest key and value. A thread has one key, and finds its scores of up to four heads
// before the block exchanges maxima. The sums of each chunk are stored separately, and each block folds its share of
// the channels.
//
// Bound: memory, reading the weights once. Between matmuls the length of the code matters most, because what runs once
// a layer is fetched anew each time: so loops over heads and over parts of rows are not unrolled, and what is the same
// in all layers of a kind is computed once.
#pragma once

#include "../tiles/grid_sync.cuh"
#include "../tiles/layout.cuh"
#include "../tiles/rms.cuh"
#include "../tiles/sm80_copy.cuh"
#include "../tiles/sm80_mma.cuh"
#include "../tiles/sm90_barrier.cuh"
#include "../tiles/sm90_copy.cuh"
#include "gate_steps.hpp"
#include "head.cuh"
#include "scaled_row_step.hpp"
#include "sm90_attention_scaled_weight.cuh"
#include "sm90_scaled_row_step_shape.cuh"

namespace kaiju::cuda {
namespace scaled_row_step_detail {

// By one warp: unit `index` of layers of a kind, and where it lies. It is computed once for all layers, so it may take
// long.
__device__ __noinline__ void place_unit(const ScaledRowStep& step, int32_t position, int32_t kind, int32_t index,
                                        UnitPlace& place) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32, blocks = static_cast<int32_t>(gridDim.x),
                window = kind == static_cast<int32_t>(BlockKind::kWindow) ? step.window : 0,
                first_visible = window > 0 && position >= window ? position - window + 1 : 0,
                first_chunk = first_visible / kChunk, chunks = position / kChunk - first_chunk + 1;
  const int32_t heads = step.heads / step.kv_heads, items = chunks * step.kv_heads;
  const int32_t divided = min(max(blocks / items, 1), heads), each = (heads + divided - 1) / divided,
                parts = (heads + each - 1) / each;
  const int32_t item = index / parts, part = index - item * parts, chunk = item / step.kv_heads,
                g = item - chunk * step.kv_heads;
  if (lane == 0) {
    place.unit = {
        item < items, part == 0, first_chunk + chunk, g, g * heads + part * each, min(each, heads - part * each)};
    place.unit_count = items * parts;
    place.chunk_count = chunks;
    place.first_visible = first_visible;
  }
  const BlockId* const table = step.segment->table[kind];
  const int32_t block = (first_chunk + chunk) * kChunkBlocks + lane;
  if (lane < kChunkBlocks && item < items && table != nullptr)
    place.block[lane] = table[min(max(block, first_visible / kBlockTokens), position / kBlockTokens)];
  __syncwarp();
}

template <int kHeadDim>
class ScaledRowStepper {
  static constexpr int32_t kPieces = kHeadDim / 16;        // of 16 bytes: of a thread's key, and of its values
  static constexpr int32_t kChannels = kHeadDim / kWarps;  // of a warp, in attention
  static constexpr int32_t kValueParts = 32 / kChannels;   // that the values of a channel are divided in, each a lane's
  static constexpr int32_t kPartKeys = kChunk / kValueParts, kPartBlocks = kPartKeys / kBlockTokens;
  static constexpr bool kKeepsBoth = kHeadDim <= 128;  // registers have room for a key and values
  static constexpr float kNoBias = -0.0f;              // that changes no sum
  static_assert(kPartKeys == 16 * kPieces && kPartBlocks > 0);

 public:
  __device__ ScaledRowStepper(const ScaledRowStep& step, Shared& shared, uint8_t* memory)
      : step_(step),
        shared_(shared),
        ring_(memory),
        a_(memory + step.stages * kStageBytes),
        stream_(reinterpret_cast<float*>(a_ + step.activation_bytes)),
        matrices_(kScaledRowMatrixCount * step.layer_count + step.logit_parts),
        query_width_(step.heads * kHeadDim),
        kv_width_(step.kv_heads * kHeadDim) {}

  __device__ void run() {
    divide();
    if (tid_ == 0) {
      for (int32_t s = 0; s < step_.stages; ++s)
        barrier_init(full(s), 1), barrier_init(read(s), kWarps * kWarpArrivals);
      barrier_init_done();
    }
    __syncthreads();
    if (warp_ < kWarps)
      compute();
    else if (lane_ == 0)
      bring();
  }

 private:
  // ---- shares of matrices ----

  __device__ Kind kind_of(int32_t matrix) const {
    return matrix >= kScaledRowMatrixCount * step_.layer_count ? Kind::kLogits
                                                               : static_cast<Kind>(matrix % kScaledRowMatrixCount);
  }
  __device__ int32_t logit_part(int32_t matrix) const { return matrix - kScaledRowMatrixCount * step_.layer_count; }
  __device__ static int32_t input_of(Kind kind) { return kind == Kind::kO ? 1 : kind == Kind::kDown ? 2 : 0; }
  __device__ int32_t width_of(int32_t input) const {
    return input == 0 ? step_.d_model : input == 1 ? query_width_ : step_.d_ff;
  }
  __device__ int32_t first_logit(int32_t part) const {
    return static_cast<int32_t>(int64_t{step_.vocab} * part / step_.logit_parts);
  }
  __device__ Share share_of_matrix(int32_t matrix) const {
    const Kind kind = kind_of(matrix);
    return kind == Kind::kLogits ? shared_.logits[logit_part(matrix)] : shared_.share[static_cast<int32_t>(kind)];
  }

  __device__ void divide() {
    if (tid_ == 0) {
      shared_.share[0] = share_of(query_width_ + 2 * kv_width_);
      shared_.share[1] = shared_.share[4] = share_of(step_.d_model);
      shared_.share[2] = shared_.share[3] = share_of(step_.d_ff, kOutsTogether);
      shared_.result = share_of(query_width_);
      for (int32_t i = 0; i < 3; ++i)
        shared_.width[i] = {width_of(i), kStageBytes / width_of(i), kStageBytes % width_of(i)};
    }
    if (tid_ < step_.logit_parts) {
      const int32_t first = first_logit(tid_);
      Share share = share_of(first_logit(tid_ + 1) - first);
      share.first += first;
      shared_.logits[tid_] = share;
    }
    if (warp_ < kBlockKinds)
      place_unit(step_, position_, warp_, static_cast<int32_t>(blockIdx.x), shared_.places[warp_]);
    if (tid_ < 3 * kWarps) {
      const int32_t input = tid_ / kWarps, at = tid_ % kWarps * kPieceBytes;
      shared_.place[input][tid_ % kWarps] = {at / width_of(input), at % width_of(input)};
    }
  }

  // ---- weights ----

  __device__ uint32_t full(int32_t stage) const { return shared_address(&shared_.full[stage]); }
  __device__ uint32_t read(int32_t stage) const { return shared_address(&shared_.read[stage]); }
  __device__ const int8_t* weight_of(int32_t matrix) const {
    return kind_of(matrix) == Kind::kLogits
               ? step_.output
               : step_.layers[matrix / kScaledRowMatrixCount].weights[matrix % kScaledRowMatrixCount];
  }

  // Asks for all weights in turn, each stage as soon as what lay in its place has been read.
  __device__ void bring() {
    using row_step_detail::kBack, row_step_detail::kFewInFlight, row_step_detail::kFront,
        row_step_detail::kMostInFlight;
    int32_t stage = 0, first = 0, in_flight = 0;  // `first` of those in flight
    uint32_t parity = 1, first_parity = 0;
    const int8_t* weight = weight_of(0);
#pragma unroll 1
    for (int32_t m = 0; m < matrices_; ++m) {
      const Share share = share_of_matrix(m);
      const Kind kind = kind_of(m);
      const int32_t width = width_of(input_of(kind)), bytes_of_run = share.count * width;
      // Stages at first and last of which few are asked for at once: where blocks exchange words before and after.
      const bool continues = kind == Kind::kUp || (kind == Kind::kLogits && logit_part(m) > 0);
      const int32_t front = continues ? 0 : kFront * kStageBytes,
                    back = kind == Kind::kGate || kind == Kind::kLogits ? 0 : kBack * kStageBytes;
      const int8_t* const from = weight + int64_t{share.first} * width;
      weight = weight_of(min(m + 1, matrices_ - 1));
#pragma unroll 1
      for (int32_t at = 0; at < bytes_of_run; at += kStageBytes) {
        const int32_t left = bytes_of_run - at;
        const int32_t most = at >= front && left > back ? kMostInFlight : kFewInFlight;
        barrier_wait(read(stage), parity);  // passes at once in the first round
        for (; in_flight >= most; --in_flight) {
          barrier_wait(full(first), first_parity);
          if (++first == step_.stages) first = 0, first_parity ^= 1;
        }
        ++in_flight;
        const auto bytes = static_cast<uint32_t>(min(left, kStageBytes));
        barrier_expect(full(stage), bytes);
        copy_bulk_once(shared_address(ring_ + stage * kStageBytes), from + at, bytes, full(stage));
        if (++stage == step_.stages) stage = 0, parity ^= 1;
      }
    }
  }

  // ---- layers ----

  __device__ void compute() {
    for (int32_t i = tid_; i < 2 * kMostOuts; i += kThreads) {
      shared_.sums[i / kMostOuts][i % kMostOuts] = 0;
      shared_.bias[i / kMostOuts][i % kMostOuts] = kNoBias;
    }
    if (tid_ < step_.d_model / kEach) {
      float x[kEach];
      load_neighbours(step_.x + kEach * tid_, x);
      put(stream_, tid_, x);
    }
    take_layer(0);
    sync();
    look_at(shared_.layer[0]);
    ask_for_scale(0);
#pragma unroll 1
    for (int32_t m = 0; m < matrices_; ++m) {
      // Else what depends on it is found before the loop, and kept in registers that are not there.
      asm volatile("" : "+r"(tid_));
      warp_ = warp_of(tid_), lane_ = tid_ % 32;
      const int32_t l = m / kScaledRowMatrixCount;
      const Kind kind = kind_of(m);
      if (kind == Kind::kO) {
        const ScaledRowLayer& layer = shared_.layer[l % 2];
        if (l + 1 < step_.layer_count) take_layer(l + 1);
        attend(layer);
        fold(layer);
      }
      if (kind == Kind::kO || kind == Kind::kDown) {
        quantise_row(kind == Kind::kO ? step_.a : step_.h, kind == Kind::kO ? query_width_ : step_.d_ff);
      } else if (kind != Kind::kUp && (kind != Kind::kLogits || logit_part(m) == 0)) {
        if (kind == Kind::kProject) ++tag_;
        normalise(kind, l);
      }
      if (kind == Kind::kGate && l + 1 < step_.layer_count) look_at(shared_.layer[(l + 1) % 2]);
      multiply(kind, share_of_matrix(m));
      if (m + 1 < matrices_) ask_for_scale(m + 1);
    }
    if (blockIdx.x == 0)
      for (int32_t i = tid_; i < step_.d_model; i += kThreads) step_.x[i] = stream_[float_place(i)];
    // The last block to come here, when all have read the tag that they began with, sets that of the next launch.
    if (tid_ == 0 && add_acquired_released(step_.counters, 1) == static_cast<int32_t>(gridDim.x) - 1) {
      step_.counters[0] = 0;
      step_.counters[1] += step_.layer_count + 1;
    }
  }

  __device__ static void sync() { sync_first<kThreads>(); }
  // So that the compiler knows that all lanes have the same.
  __device__ static int32_t warp_of(int32_t tid) { return __shfl_sync(0xFFFFFFFFu, tid / 32, 0); }
  // Layer l's description, into shared memory, where it can be read after the next sync().
  __device__ void take_layer(int32_t l) {
    if (tid_ < static_cast<int32_t>(sizeof(ScaledRowLayer) / 16))
      reinterpret_cast<uint4*>(&shared_.layer[l % 2])[tid_] = reinterpret_cast<const uint4*>(step_.layers + l)[tid_];
  }

  // Of a layer to come: the keys and values that the block attends to first, and the layer's vectors, asked for into
  // the L2 cache. All blocks read the vectors, so each asks for some lines.
  __device__ void look_at(const ScaledRowLayer& layer) {
    if (warp_ != kWarps - 1) return;
    const UnitPlace& place = shared_.places[kind_of_blocks(layer)];
    if (place.unit.valid && lane_ < kChunkBlocks)
      prefetch_bulk(keys_of(layer, place, lane_), static_cast<uint32_t>(KvSlot::head_bytes(kHeadDim, true)));
    if (lane_ < ScaledRowLayer::kVectors && layer.vectors[lane_] != nullptr) {
      const int32_t count = lane_ < ScaledRowLayer::kGains ? step_.d_model : kv_width_;
#pragma unroll 1
      for (auto i = 32 * static_cast<int32_t>(blockIdx.x); i < count; i += 32 * static_cast<int32_t>(gridDim.x))
        prefetch_line(layer.vectors[lane_] + i);
    }
    __syncwarp();
  }
  // The factor and bias of the output of a product to come that the thread ends: there when the thread has waited for
  // its copies.
  __device__ void ask_for_scale(int32_t matrix) {
    const Share share = share_of_matrix(matrix);
    if (tid_ >= share.count) return;
    const Kind kind = kind_of(matrix);
    const int32_t at = share.first + tid_, to = kind == Kind::kUp ? 1 : 0;
    const ScaledRowLayer& layer = shared_.layer[matrix / kScaledRowMatrixCount % 2];
    const float* const scales = kind == Kind::kLogits ? step_.output_scale : layer.scales[static_cast<int32_t>(kind)];
    copy_async_word(shared_address(&shared_.scale[to][tid_]), scales + at);
    if (!step_.has_biases) return;
    const float* const bias = bias_of(kind, layer, at);
    if (bias != nullptr)
      copy_async_word(shared_address(&shared_.bias[to][tid_]), bias);
    else
      shared_.bias[to][tid_] = kNoBias;
  }
  __device__ const float* bias_of(Kind kind, const ScaledRowLayer& layer, int32_t at) const {
    const auto of = [&](Matmul matmul, int32_t n) {
      const float* const bias = layer.bias[static_cast<int32_t>(matmul)];
      return bias == nullptr ? nullptr : bias + n;
    };
    switch (kind) {
      case Kind::kProject:
        if (at < query_width_) return of(Matmul::kQ, at);
        at -= query_width_;
        return at < kv_width_ ? of(Matmul::kK, at) : of(Matmul::kV, at - kv_width_);
      case Kind::kO:
        return of(Matmul::kO, at);
      case Kind::kGate:
        return of(Matmul::kGate, at);
      case Kind::kUp:
        return of(Matmul::kUp, at);
      case Kind::kDown:
        return of(Matmul::kDown, at);
      default:
        return step_.output_bias == nullptr ? nullptr : step_.output_bias + at;
    }
  }

  // ---- rows ----

  // kEach neighbours of a row of floats, in global memory; in shared memory (float_place).
  __device__ static void load_neighbours(const float* from, float (&x)[kEach]) {
#pragma unroll
    for (int i = 0; i < kEach; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      x[i] = four.x, x[i + 1] = four.y, x[i + 2] = four.z, x[i + 3] = four.w;
    }
  }
  __device__ static int32_t place_of_item(int32_t item) { return item / 32 * kGroupPitch + item % 32 * 4; }
  __device__ static void put(float* row, int32_t item, const float (&x)[kEach]) {
#pragma unroll
    for (int i = 0; i < kEach; i += 4)
      *reinterpret_cast<float4*>(row + place_of_item(item) + i / 4 * kQuarterPitch) = {x[i], x[i + 1], x[i + 2],
                                                                                       x[i + 3]};
  }
  __device__ static void get(const float* row, int32_t item, float (&x)[kEach]) {
#pragma unroll
    for (int i = 0; i < kEach; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(row + place_of_item(item) + i / 4 * kQuarterPitch);
      x[i] = four.x, x[i + 1] = four.y, x[i + 2] = four.z, x[i + 3] = four.w;
    }
  }
  // The same of tagged words, as soon as they are there.
  __device__ static void take(const uint64_t* row, int32_t item, uint32_t tag, float (&x)[kEach]) {
    const uint64_t* const from = row + item / 32 * kGroup + item % 32 * 2;
    uint2 words[kEach / 2];
    take_tagged_pairs([&](int i) { return from + 64 * i; }, tag, words);
#pragma unroll
    for (int i = 0; i < kEach / 2; ++i)
      x[2 * i] = arith::float_of(words[i].x), x[2 * i + 1] = arith::float_of(words[i].y);
  }

  // The Hadamard transform of 64 neighbours of eight lanes: strides 1 to 4 lie within a lane's, the others between
  // lanes.
  __device__ void transform(float (&x)[kEach]) const {
    if (step_.hadamard == 1) return;
#pragma unroll
    for (int stride = 1; stride < kEach; stride *= 2)
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if ((i & stride) != 0) continue;
        const float u = x[i], v = x[i + stride];
        x[i] = arith::add(u, v), x[i + stride] = arith::add(u, -v);
      }
#pragma unroll 1
    for (int32_t distance = 1; kEach * distance < step_.hadamard; distance *= 2) {
      const float sign = (lane_ & distance) != 0 ? -1.0f : 1.0f;
#pragma unroll
      for (int i = 0; i < kEach; ++i) x[i] = transform_pair(x[i], __shfl_xor_sync(0xFFFFFFFFu, x[i], distance), sign);
    }
  }

  // Two finite floats rounded to bf16, the first one in the low bits.
  __device__ static uint32_t two_bf16(float low, float high) {
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
  }
  __device__ float largest_of_block(uint32_t most) {
    most = __reduce_max_sync(0xFFFFFFFFu, most);
    if (lane_ == 0) shared_.warp_most[warp_] = most;
    sync();
    return largest_of(__reduce_max_sync(0xFFFFFFFFu, shared_.warp_most[lane_ % kWarps]));
  }
  // The factor from float to byte; keeps the row's scale.
  __device__ float inverse_of(float largest, float steps) {
    row_scale_ = arith::divide(largest, steps);
    return largest > 0.0f ? arith::divide(steps, largest) : 0.0f;
  }
  // 1/rms of a row of d_model floats in shared memory.
  __device__ float inverse_rms(const float* row) {
    sync();
    if (tid_ < static_cast<int32_t>(arith::kRmsPartials)) {
      const float* from = row + float_place(tid_);
      float sum = 0.0f;
#pragma unroll 4
      for (int32_t i = tid_; i < step_.d_model; i += kGroup, from += kGroupPitch) sum = arith::fma(*from, *from, sum);
      shared_.partials[tid_] = sum;
    }
    sync();
    return arith::norm_multiplier(fold_partials(shared_.partials), static_cast<float>(step_.d_model), step_.eps, 1.0f);
  }

  // Adds the last matmul's outputs to the residual stream, and makes the bytes of its norm.
  __device__ void normalise(Kind kind, int32_t l) {
    const bool is_first = kind == Kind::kProject && l == 0;
    const ScaledRowLayer &layer = shared_.layer[l % 2],
                         &before = shared_.layer[(kind == Kind::kGate ? l : l + 1) % 2];  // whose outputs they are
    const float* const gain = kind == Kind::kProject ? layer.vectors[ScaledRowLayer::kAttentionGain]
                              : kind == Kind::kGate  ? layer.vectors[ScaledRowLayer::kFfnGain]
                                                     : step_.final_gain;
    const int32_t items = step_.d_model / kEach, item = min(tid_, items - 1);  // beyond the last the last again
    const bool mine = tid_ < items, busy = 32 * warp_ < items;
    float x[kEach], g[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[i] = 0.0f, g[i] = 1.0f;
    if (busy && gain != nullptr) load_neighbours(gain + kEach * item, g);
    if (!is_first) {
      if (busy) take(step_.y, item, row_tag_, x);
      if (step_.norms_after) {
        const float* const post = kind == Kind::kGate ? before.vectors[ScaledRowLayer::kAttentionPostGain]
                                                      : before.vectors[ScaledRowLayer::kFfnPostGain];
        auto* const row = reinterpret_cast<float*>(a_);
        if (mine) put(row, item, x);
        const float r = inverse_rms(row);
        float post_gain[kEach];
#pragma unroll
        for (int i = 0; i < kEach; ++i) post_gain[i] = 1.0f;
        if (post != nullptr) load_neighbours(post + kEach * item, post_gain);
#pragma unroll
        for (int i = 0; i < kEach; ++i) x[i] = arith::mul(arith::mul(x[i], r), post_gain[i]);
      }
      const float factor = kind == Kind::kGate ? 1.0f : before.factor;
      float old[kEach];
      if (busy) {
        get(stream_, item, old);
#pragma unroll
        for (int i = 0; i < kEach; ++i) x[i] = arith::mul(arith::add(old[i], x[i]), factor);
        if (step_.bf16_residual) {
#pragma unroll
          for (int i = 0; i < kEach; i += 2) {
            const uint32_t both = two_bf16(x[i], x[i + 1]);
            x[i] = arith::float_of(both << 16), x[i + 1] = arith::float_of(both & 0xFFFF0000u);
          }
        }
        __syncwarp();  // lanes beyond the end have read what another lane replaces
        if (mine) put(stream_, item, x);
      }
    } else if (busy) {
      get(stream_, item, x);
    }
    const float r = inverse_rms(stream_);
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[i] = arith::mul(arith::mul(x[i], r), g[i]);
    transform(x);
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) most = max(most, magnitude(x[i]));
    const bool wide = kind == Kind::kLogits && step_.wide_logits;
    const float inverse = inverse_of(largest_of_block(mine ? most : 0), wide ? arith::kWideSteps : 127.0f);
    if (mine && wide)
      store_wide(x, item, inverse);
    else if (mine)
      store_bytes(x, item, inverse);
    sync();
  }

  // x times m as an integer, in the low bits. No product of a row needs a clamp: the largest is within a rounding of
  // the number of steps.
  __device__ static uint32_t whole(float x, float m) {
    return arith::bits_of(arith::add(arith::mul(x, m), arith::kRoundBias));
  }
  __device__ static uint32_t four_bytes(float a, float b, float c, float d, float m) {
    return __byte_perm(__byte_perm(whole(a, m), whole(b, m), 0x0040), __byte_perm(whole(c, m), whole(d, m), 0x0040),
                       0x5410);
  }
  __device__ void store_bytes(const float (&x)[kEach], int32_t item, float inverse) {
    reinterpret_cast<uint2*>(a_)[item] = {four_bytes(x[0], x[1], x[2], x[3], inverse),
                                          four_bytes(x[4], x[5], x[6], x[7], inverse)};
  }
  // Two bytes for each value: a row of the high ones, and one of the low ones.
  __device__ void store_wide(const float (&x)[kEach], int32_t item, float inverse) {
    auto *const high = reinterpret_cast<uint32_t*>(a_ + kEach * item), *const low = reinterpret_cast<uint32_t*>(
                                                                           a_ + step_.d_model + kEach * item);
#pragma unroll
    for (int i = 0; i < kEach / 4; ++i) {
      uint32_t lower[4], upper[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        lower[e] = whole(x[4 * i + e], inverse) - arith::bits_of(arith::kRoundBias);
        upper[e] = (lower[e] + 128) >> 8;  // its low byte
      }
      high[i] = packed(upper), low[i] = packed(lower);
    }
  }
  // The low bytes.
  __device__ static uint32_t packed(const uint32_t (&x)[4]) {
    return __byte_perm(__byte_perm(x[0], x[1], 0x0040), __byte_perm(x[2], x[3], 0x0040), 0x5410);
  }

  // The bytes of a row that other blocks made, which is rounded to bf16. Until the largest magnitude is known, the row
  // lies where its bytes will.
  __device__ void quantise_row(const uint64_t* row, int32_t width) {
    const int32_t items = width / kEach, rounds = (items + kThreads - 1) / kThreads;
    auto* const kept = reinterpret_cast<uint4*>(a_);
    uint32_t most = 0;
#pragma unroll 1
    for (int32_t item = tid_; item - lane_ < items; item += kThreads) {
      float x[kEach];
      take(row, min(item, items - 1), tag_, x);
      transform(x);
      const uint4 both = {two_bf16(x[0], x[1]), two_bf16(x[2], x[3]), two_bf16(x[4], x[5]), two_bf16(x[6], x[7])};
      if (item >= items) break;
      kept[item] = both;
      most = __vmaxu2(__vmaxu2(most, __vmaxu2(both.x & 0x7FFF7FFFu, both.y & 0x7FFF7FFFu)),
                      __vmaxu2(both.z & 0x7FFF7FFFu, both.w & 0x7FFF7FFFu));
    }
    const float inverse = inverse_of(largest_of_block(max(most << 16, most & 0xFFFF0000u)), 127.0f);
    // Bytes take the place of values that were read in this round or before.
#pragma unroll 1
    for (int32_t round = 0, item = tid_; round < rounds; ++round, item += kThreads) {
      const uint4 both = kept[min(item, items - 1)];
      sync();
      const auto four = [&](uint32_t u, uint32_t v) -> uint32_t {
        return four_bytes(arith::float_of(u << 16), arith::float_of(u & 0xFFFF0000u), arith::float_of(v << 16),
                          arith::float_of(v & 0xFFFF0000u), inverse);
      };
      if (item < items) reinterpret_cast<uint2*>(a_)[item] = {four(both.x, both.y), four(both.z, both.w)};
    }
    sync();
  }

  // ---- matmuls ----

  template <class Bytes>
  __device__ static int32_t dot(const uint4& w, const Bytes& a) {
    return dot4<Sign::kSigned>(
        w.x, a.x, dot4<Sign::kSigned>(w.y, a.y, dot4<Sign::kSigned>(w.z, a.z, dot4<Sign::kSigned>(w.w, a.w, 0))));
  }

  // The sums of the block's outputs, of the bytes at a_, and what becomes of them.
  __device__ __forceinline__ void multiply(Kind kind, const Share& share) {
    const int32_t input = input_of(kind);
    const Width width = shared_.width[input];
    const bool wide = kind == Kind::kLogits && step_.wide_logits;
    int32_t n = shared_.place[input][warp_].out, k = shared_.place[input][warp_].byte;
    const int32_t bytes = share.count * width.bytes;
#pragma unroll 1
    for (int32_t at = 0; at < bytes; at += kStageBytes) {
      barrier_wait(full(stage_), parity_);
      if (n < share.count) {
        const auto* weights =
            reinterpret_cast<const uint4*>(ring_ + stage_ * kStageBytes + warp_ * kPieceBytes) + lane_;
        const uint4 w0 = weights[0], w1 = weights[32];
        const int32_t k0 = k + 16 * lane_, k1 = k0 + kPieceBytes / 2;
        const bool next0 = k0 >= width.bytes, next1 = k1 >= width.bytes;  // of the next output
        const uint8_t* const a0 = a_ + (next0 ? k0 - width.bytes : k0);
        const uint8_t* const a1 = a_ + (next1 ? k1 - width.bytes : k1);
        const int32_t rows = wide ? 2 : 1;
#pragma unroll 1
        for (int32_t row = 0; row < rows; ++row) {
          const int32_t first = dot(w0, *reinterpret_cast<const uint4*>(a0 + row * width.bytes)),
                        second = dot(w1, *reinterpret_cast<const uint4*>(a1 + row * width.bytes));
          int32_t* const sums = &shared_.sums[kind == Kind::kUp ? 1 : row][n];
          if (k + kPieceBytes <= width.bytes) {
            const int32_t sum = __reduce_add_sync(0xFFFFFFFFu, first + second);
            if (lane_ == 0) atomicAdd(sums, sum);
          } else {
            const int32_t sum = __reduce_add_sync(0xFFFFFFFFu, (next0 ? 0 : first) + (next1 ? 0 : second)),
                          next = __reduce_add_sync(0xFFFFFFFFu, (next0 ? first : 0) + (next1 ? second : 0));
            if (lane_ == 0) {
              atomicAdd(sums, sum);
              if (n + 1 < share.count) atomicAdd(sums + 1, next);
            }
          }
        }
      }
      barrier_arrive_warp(read(stage_), lane_);
      if (++stage_ == step_.stages) stage_ = 0, parity_ ^= 1;
      n += width.more_outs, k += width.more_bytes;
      if (k >= width.bytes) k -= width.bytes, ++n;
    }
    if (kind == Kind::kGate) return;  // its outputs are wanted with those of up
    sync();
    if (kind == Kind::kO || kind == Kind::kDown) ++row_tag_;
    if (tid_ < share.count) finish(kind, share.first + tid_);
    if (kind == Kind::kLogits) sync();  // before other warps add to the sums of the next part
  }

  // Output `at` of a matrix, of the thread's sums.
  __device__ __forceinline__ void finish(Kind kind, int32_t at) {
    copies_done();
    const int32_t sums[2] = {shared_.sums[0][tid_], shared_.sums[1][tid_]};
    shared_.sums[0][tid_] = shared_.sums[1][tid_] = 0;
    const auto product = [&](int i, int of) {
      return arith::mul(static_cast<float>(sums[i]), shared_.scale[of][tid_]);
    };
    const auto value = [&](float product, int of) {
      return arith::add(arith::mul(product, row_scale_), shared_.bias[of][tid_]);
    };
    if (kind == Kind::kUp) {
      const float gates[1] = {value(product(0, 0), 0)}, ups[1] = {value(product(1, 1), 1)};
      float h[1];
      gate_values(step_.gate, gates, ups, h);
      store_tagged(step_.h + word_place(at), arith::bits_of(h[0]), tag_);
    } else if (kind == Kind::kLogits) {
      const float y = value(step_.wide_logits ? arith::fma(256.0f, product(0, 0), product(1, 0)) : product(0, 0), 0);
      step_.logits[at] = step_.logit_cap != 0.0f ? arith::soft_cap(y, step_.logit_cap) : y;
    } else {
      const uint32_t word = arith::bits_of(value(product(0, 0), 0));
      if (kind == Kind::kProject)
        store_tagged(step_.q + at, word, tag_);
      else
        store_tagged(step_.y + word_place(at), word, row_tag_);
    }
  }

  // ---- attention ----

  __device__ static int32_t kind_of_blocks(const ScaledRowLayer& layer) { return static_cast<int32_t>(layer.kv.kind); }
  // Block `block` of the unit's chunk, from the KV head's keys on; for one that the row does not see the nearest.
  __device__ static const uint4* keys_of(const ScaledRowLayer& layer, const UnitPlace& place, int32_t block) {
    const KvSlot& kv = layer.kv;
    return reinterpret_cast<const uint4*>(kv.pool + place.block[block] * kv.block_bytes + kv.slot_offset +
                                          place.unit.g * static_cast<int32_t>(KvSlot::head_bytes(kHeadDim, true)));
  }
  __device__ static const uint16_t* scales_of(const uint4* keys) {
    return reinterpret_cast<const uint16_t*>(keys + 2 * kBlockTokens * kPieces);
  }
  __device__ int32_t channel() const { return warp_ * kChannels + lane_ % kChannels; }
  __device__ int32_t part() const { return lane_ / kChannels; }

  using Pieces = uint4[kPieces];
  // Key tid_ of the unit. What is not seen is masked, or its weights are zero.
  __device__ __forceinline__ void load_key(const uint4* keys, Pieces& key) const {
    const uint4* const from = keys + tid_ % kBlockTokens;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) key[i] = __ldcg(from + i * kBlockTokens);
  }
  // The lane's part of the keys' values, of its channel.
  __device__ __forceinline__ void load_values(const ScaledRowLayer& layer, const UnitPlace& place,
                                              Pieces& value) const {
#pragma unroll
    for (int b = 0; b < kPartBlocks; ++b) {
      const uint4* const from = keys_of(layer, place, part() * kPartBlocks + b) + kBlockTokens * kPieces + channel();
#pragma unroll
      for (int i = 0; i < 4; ++i) value[4 * b + i] = __ldcg(from + i * kHeadDim);
    }
  }

  // The sums of the block's units, at step_.sums [chunk][query width], and their maxima, weights and z at step_.parts
  // [chunk][heads][4]; chunks counted from the first that is seen.
  __device__ __forceinline__ void attend(const ScaledRowLayer& layer) {
    const int32_t kind = kind_of_blocks(layer), units = shared_.places[kind].unit_count;
    const UnitPlace* place = &shared_.places[kind];
#pragma unroll 1
    for (auto index = static_cast<int32_t>(blockIdx.x); index < units;) {
      attend_unit(layer, *place);
      index += static_cast<int32_t>(gridDim.x);
      if (index >= units) return;
      sync();
      place = &shared_.places[2];
      if (warp_ == kWarps - 1) place_unit(step_, position_, kind, index, shared_.places[2]);
      sync();
    }
  }

  __device__ float* scores() const {
    return reinterpret_cast<float*>(a_ + kScoreOffset) + tid_;
  }  // a row for each head

  __device__ __forceinline__ void attend_unit(const ScaledRowLayer& layer, const UnitPlace& place) {
    const Unit& unit = place.unit;
    Pieces key, value;
    const uint4* const keys = keys_of(layer, place, tid_ / kBlockTokens);
    if constexpr (kKeepsBoth) load_key(keys, key);
    const uint16_t* const scales = scales_of(keys) + tid_ % kBlockTokens;
    uint32_t key_scale = __ldcg(scales), value_scale = __ldcg(scales + kBlockTokens);
    const bool is_newest = unit.chunk == position_ / kChunk;  // chunk: its last key is made here
    prepare(layer, place, is_newest);
    if constexpr (kKeepsBoth)
      load_values(layer, place, value);
    else
      load_key(keys, key);
    sync();
    const int32_t at = unit.chunk * kChunk + tid_;
    const bool visible = at >= place.first_visible && at <= position_, newest = is_newest && at == position_;
    if (newest) key_scale = shared_.newest_scale[0], value_scale = shared_.newest_scale[1];
    if (!visible) value_scale = 0;
    const float scale = arith::float_of(key_scale << 16);
    const int32_t row = unit.chunk - place.first_visible / kChunk;
#pragma unroll 1
    for (int32_t first = 0;; first += kHeadsAtOnce) {
      const int32_t heads = min(unit.heads - first, kHeadsAtOnce);
      if (newest) {
#pragma unroll
        for (int i = 0; i < kPieces; ++i) key[i] = reinterpret_cast<const uint4*>(newest_key())[i];
      }
#pragma unroll 1
      for (int32_t h = 0; h < heads; ++h) {
        int32_t sum = 0;
#pragma unroll
        for (int i = 0; i < kPieces; ++i) sum += dot(key[i], reinterpret_cast<const uint4*>(query(first + h))[i]);
        const float score = visible ? arith::mul(static_cast<float>(sum), scale) : kLeastScore;
        scores()[h * kThreads] = score;
        const int32_t most = __reduce_max_sync(0xFFFFFFFFu, ordered(arith::bits_of(score)));
        if (lane_ == 0) shared_.warp_maximum[h][warp_] = most;
      }
      const uint32_t most = __reduce_max_sync(0xFFFFFFFFu, value_scale);
      if (lane_ == 0) shared_.warp_scale[warp_] = most;
      if constexpr (!kKeepsBoth) load_values(layer, place, value);
      sync();
      const float largest = arith::float_of(__reduce_max_sync(0xFFFFFFFFu, shared_.warp_scale[lane_ % kWarps]) << 16);
      const float inverse = largest > 0.0f ? arith::divide(1.0f, largest) : 0.0f,
                  ratio = arith::mul(arith::float_of(value_scale << 16), inverse);
      float own_maximum = 0.0f;  // of the head whose sums of weights the warp stores
#pragma unroll 1
      for (int32_t h = 0; h < heads; ++h) {
        const float maximum = maximum_of(h);
        if (h == warp_) own_maximum = maximum;
        const uint32_t weight =
            visible ? arith::key_weight(arith::add(scores()[h * kThreads], -maximum), shared_.z[first + h]) : 0;
        const uint32_t warp_weight = __reduce_add_sync(0xFFFFFFFFu, weight);
        if (lane_ == 0) shared_.warp_weight[h][warp_] = warp_weight;
        // The newest key's value is not in the cache yet: it is added apart.
        const uint32_t of_value = arith::value_weight(weight, ratio);
        if (newest) shared_.newest_weight[h] = of_value;
        shared_.high[h][place_of_key(tid_)] = static_cast<uint8_t>(newest ? 0 : of_value >> 8);
        shared_.low[h][place_of_key(tid_)] = static_cast<uint8_t>(newest ? 0 : of_value);
      }
      sync();
#pragma unroll 1
      for (int32_t h = 0; h < heads; ++h)
        add_values(value, h, is_newest, largest, step_.sums + row * query_width_ + (unit.head + first + h) * kHeadDim);
      if (warp_ < heads) {
        const uint32_t weights = __reduce_add_sync(0xFFFFFFFFu, lane_ < kWarps ? shared_.warp_weight[warp_][lane_] : 0);
        uint64_t* const to = step_.parts + 4 * (row * step_.heads + unit.head + first + warp_);
        if (lane_ < 3)
          store_tagged(to + lane_,
                       arith::bits_of(lane_ == 0   ? own_maximum
                                      : lane_ == 1 ? static_cast<float>(weights)
                                                   : shared_.z[first + warp_]),
                       tag_);
      }
      if (first + kHeadsAtOnce >= unit.heads) break;
      load_key(keys, key);  // again: there are no registers to keep it in
    }
  }

  // Floats as integers of the same order, and back.
  __device__ static int32_t ordered(uint32_t bits) {
    const auto x = static_cast<int32_t>(bits);
    return x ^ (x >> 31 & 0x7FFFFFFF);
  }
  __device__ float maximum_of(int32_t h) const {
    const int32_t most = __reduce_max_sync(0xFFFFFFFFu, shared_.warp_maximum[h][lane_ % kWarps]);
    return arith::float_of(static_cast<uint32_t>(ordered(static_cast<uint32_t>(most))));
  }

  __device__ int8_t* query(int32_t head) const { return reinterpret_cast<int8_t*>(a_) + head * kHeadDim; }
  __device__ int8_t* newest_key() const { return query(kScoreOffset / kHeadDim - 2); }
  __device__ int8_t* newest_value() const { return newest_key() + kHeadDim; }

  // The unit's queries, and the newest key and value, as bytes in shared memory; where nobody else does it, those also
  // go to the cache. A warp has one.
  __device__ __forceinline__ void prepare(const ScaledRowLayer& layer, const UnitPlace& place, bool is_newest) {
    const Unit& unit = place.unit;
    constexpr int kValues = kHeadDim / 32;
#pragma unroll 1
    for (int32_t item = warp_; item < unit.heads + (is_newest ? 2 : 0); item += kWarps) {
      const bool is_query = item<unit.heads, is_key = item == unit.heads, is_value = item> unit.heads;
      const uint64_t* const from = step_.q + (is_query ? (unit.head + item) * kHeadDim
                                                       : query_width_ + (is_value ? kv_width_ : 0) + unit.g * kHeadDim);
      const float* const factors = (is_query ? layer.vectors[ScaledRowLayer::kKeyStep]
                                    : is_key ? layer.vectors[ScaledRowLayer::kKeyInverse]
                                             : layer.vectors[ScaledRowLayer::kValueInverse]) +
                                   unit.g * kHeadDim;
      const float* const gains = is_query ? layer.query_gain : is_key ? layer.key_gain : nullptr;
      const bool norms = is_value ? step_.value_norms : step_.head_norms;
      float factor[kValues], gain[kValues];
      arith::CosSin angle[kValues / 2];
#pragma unroll
      for (int j = 0; j < kValues; ++j) {
        factor[j] = __ldg(factors + Head<kValues>::channel(j));
        gain[j] = norms && gains != nullptr ? __ldg(gains + Head<kValues>::channel(j)) : 1.0f;
      }
#pragma unroll
      for (int j = 0; j < kValues / 2; ++j) {
        const float2 of = __ldg(reinterpret_cast<const float2*>(layer.angles) + Head<kValues>::channel(j));
        angle[j] = {of.x, of.y};
      }
      uint32_t words[kValues];
      take_tagged([&](int j) { return from + Head<kValues>::channel(j); }, tag_, words);
      Head<kValues> head;
      head.load([&](int32_t i) { return arith::float_of(words[i / 32]); });
      if (norms) head.norm(step_.eps, [&](int32_t i) { return gain[i / 32]; });
      if (!is_value) head.rotate([&](int32_t i) { return angle[i / 32]; });
      head.multiply([&](int32_t i) { return factor[i / 32]; });
      if (!is_value) head.transform(step_.hadamard);
      const float largest = head.largest();
      if (is_query) {
        int8_t* const to = query(item);
        head.quantise(largest > 0.0f ? arith::divide(127.0f, largest) : 0.0f,
                      [&](int32_t i, int8_t byte) { to[i] = byte; });
        if (lane_ == 0) shared_.z[item] = arith::mul(largest, layer.z);
        continue;
      }
      const arith::bf16 scale = arith::to_bf16(step_.static_kv ? 1.0f : arith::divide(largest, 127.0f));
      int8_t* const to = is_key ? newest_key() : newest_value();
      const bool writes =
          unit.writes && (layer.kv.kind != BlockKind::kGlobal || position_ >= step_.segment->write_from);
      const int32_t token = position_ % kBlockTokens;
      const uint4* const keys = keys_of(layer, place, position_ / kBlockTokens % kChunkBlocks);
      auto* const kept = reinterpret_cast<int8_t*>(const_cast<uint4*>(keys)) + (is_key ? 0 : kBlockTokens * kHeadDim);
      head.quantise(scale != 0 ? arith::divide(1.0f, arith::from_bf16(scale)) : 0.0f, [&](int32_t i, int8_t byte) {
        to[i] = byte;
        if (writes) kept[is_key ? key_byte(token, i) : value_byte(kHeadDim, token, i)] = byte;
      });
      if (lane_ != 0) continue;
      shared_.newest_scale[is_key ? 0 : 1] = scale;
      if (writes) const_cast<uint16_t*>(scales_of(keys))[token + (is_key ? 0 : kBlockTokens)] = scale;
    }
  }

  __device__ static int32_t weighted(const uint4& weights, const uint4& v) {
    return dot_unsigned_signed(
        weights.x, v.x,
        dot_unsigned_signed(weights.y, v.y,
                            dot_unsigned_signed(weights.z, v.z, dot_unsigned_signed(weights.w, v.w, 0))));
  }
  // The sums of a head's channels, to `to` [head_dim].
  __device__ __forceinline__ void add_values(const Pieces& value, int32_t h, bool is_newest, float largest,
                                             uint64_t* to) const {
    int32_t sum_high = 0, sum_low = 0;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const uint4 high = reinterpret_cast<const uint4*>(shared_.high[h] + part() * kPartKeys)[i],
                  low = reinterpret_cast<const uint4*>(shared_.low[h] + part() * kPartKeys)[i];
      sum_high += weighted(high, value[i]), sum_low += weighted(low, value[i]);
    }
#pragma unroll
    for (int distance = kChannels; distance < 32; distance *= 2) {
      sum_high += __shfl_xor_sync(0xFFFFFFFFu, sum_high, distance);
      sum_low += __shfl_xor_sync(0xFFFFFFFFu, sum_low, distance);
    }
    if (part() != 0) return;
    if (is_newest) {
      const auto w = static_cast<int32_t>(shared_.newest_weight[h]),
                 v = static_cast<int32_t>(newest_value()[channel()]);
      sum_high += (w >> 8) * v, sum_low += (w & 255) * v;
    }
    const float sum = arith::fma(256.0f, static_cast<float>(sum_high), static_cast<float>(sum_low));
    store_tagged(to + channel(), arith::bits_of(arith::mul(sum, largest)), tag_);
  }

  // The KV head of a head.
  __device__ int32_t g_of(int32_t head) const { return head * step_.kv_heads / step_.heads; }
  // The block's share of the results: chunks in ascending order. First all threads fetch what was stored of each chunk,
  // a warp a chunk; then a thread has a channel.
  __device__ void fold(const ScaledRowLayer& layer) {
    const int32_t chunks = shared_.places[kind_of_blocks(layer)].chunk_count, first = shared_.result.first,
                  count = shared_.result.count, first_head = first / kHeadDim,
                  last_head = (first + count - 1) / kHeadDim;
    auto* const fetched = reinterpret_cast<float*>(a_ + fold_offset(query_width_));  // [chunks][pitch]
    const int32_t pitch = count + kFoldFloats, own = first + min(tid_, count - 1), own_head = own / kHeadDim;
    const float step = __ldg(layer.vectors[ScaledRowLayer::kValueStep] + g_of(own_head) * kHeadDim + own % kHeadDim);
#pragma unroll 1
    for (int32_t chunk = warp_; chunk < chunks; chunk += kWarps)
#pragma unroll 1
      for (int32_t at = 0; at < count; at += 32) {
        const int32_t i = min(at + lane_, count - 1), of_head = min(lane_, kFoldFloats - 1),
                      head = min(first_head + of_head / 3, last_head);
        uint32_t words[2];
        take_tagged(
            [&](int e) {
              return e == 0 ? step_.sums + chunk * query_width_ + first + i
                            : step_.parts + 4 * (chunk * step_.heads + head) + of_head % 3;
            },
            tag_, words);
        if (at + lane_ < count) fetched[chunk * pitch + i] = arith::float_of(words[0]);
        if (at == 0 && lane_ < kFoldFloats) fetched[chunk * pitch + count + lane_] = arith::float_of(words[1]);
      }
    sync();
    if (tid_ >= count) return;
    const int32_t of_head = count + 3 * (own_head - first_head);
    float total = 0.0f, weight = 0.0f, maximum = kLeastScore;
#pragma unroll 1
    for (int32_t chunk = 0; chunk < chunks; ++chunk) {
      const float* const from = fetched + chunk * pitch;
      const float most = from[of_head];
      const ScaledJoin join(maximum, most, from[of_head + 2]);
      maximum = fmaxf(maximum, most);
      weight = join(weight, from[of_head + 1]);
      total = join(total, from[tid_]);
    }
    const float result = arith::mul(arith::mul(total, arith::divide(1.0f, weight)), step);
    store_tagged(step_.a + word_place(own), arith::bits_of(result), tag_);
  }

  int32_t tid_ = static_cast<int32_t>(threadIdx.x), warp_ = warp_of(tid_), lane_ = tid_ % 32;
  const ScaledRowStep& step_;
  Shared& shared_;
  uint8_t* const ring_;  // of stages
  uint8_t* const a_;     // a product's activations; in attention what sm90_scaled_row_step_shape.cuh says
  float* const stream_;  // the residual stream (float_place)
  const int32_t matrices_, query_width_, kv_width_;
  const int32_t position_ = step_.segment->position;
  // What the warp reads next.
  int32_t stage_ = 0;
  uint32_t parity_ = 0;
  float row_scale_ = 0.0f;  // of the bytes at a_
  // Of the layer; of outputs that are added to the residual stream, twice a layer.
  uint32_t tag_ = static_cast<uint32_t>(step_.counters[1]), row_tag_ = 2 * tag_ + 2;
};

}  // namespace scaled_row_step_detail

template <int kHeadDim>
__global__ void __launch_bounds__(scaled_row_step_detail::kAllThreads, 1)
    scaled_row_step_kernel(const __grid_constant__ ScaledRowStep step) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ scaled_row_step_detail::Shared shared;
  scaled_row_step_detail::ScaledRowStepper<kHeadDim>(step, shared, memory).run();
#else
  __trap();  // never launched elsewhere
#endif
}

}  // namespace kaiju::cuda
