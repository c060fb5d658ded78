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

  // ---- rows: sm90_scaled_row_step_rows.cuh ----

  __device__ static void load_neighbours(const float* from, float (&x)[kEach]);
  __device__ static int32_t place_of_item(int32_t item) { return item / 32 * kGroupPitch + item % 32 * 4; }
  __device__ static void put(float* row, int32_t item, const float (&x)[kEach]);
  __device__ static void get(const float* row, int32_t item, float (&x)[kEach]);
  __device__ static void take(const uint64_t* row, int32_t item, uint32_t tag, float (&x)[kEach]);

  __device__ void transform(float (&x)[kEach]) const;

  __device__ static uint32_t two_bf16(float low, float high);
  __device__ float largest_of_block(uint32_t most);
  __device__ float inverse_of(float largest, float steps);
  __device__ float inverse_rms(const float* row);

  __device__ void normalise(Kind kind, int32_t l);

  __device__ static uint32_t whole(float x, float m);
  __device__ static uint32_t four_bytes(float a, float b, float c, float d, float m);
  __device__ void store_bytes(const float (&x)[kEach], int32_t item, float inverse);
  __device__ void store_wide(const float (&x)[kEach], int32_t item, float inverse);
  __device__ static uint32_t packed(const uint32_t (&x)[4]);

  __device__ void quantise_row(const uint64_t* row, int32_t width);

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

  // ---- attention: sm90_scaled_row_step_attention.cuh ----

  __device__ static int32_t kind_of_blocks(const ScaledRowLayer& layer) { return static_cast<int32_t>(layer.kv.kind); }
  __device__ static const uint4* keys_of(const ScaledRowLayer& layer, const UnitPlace& place, int32_t block);
  __device__ static const uint16_t* scales_of(const uint4* keys);
  __device__ int32_t channel() const { return warp_ * kChannels + lane_ % kChannels; }
  __device__ int32_t part() const { return lane_ / kChannels; }

  using Pieces = uint4[kPieces];
  __device__ __forceinline__ void load_key(const uint4* keys, Pieces& key) const;
  __device__ __forceinline__ void load_values(const ScaledRowLayer& layer, const UnitPlace& place, Pieces& value) const;

  __device__ __forceinline__ void attend(const ScaledRowLayer& layer);

  __device__ float* scores() const;

  __device__ __forceinline__ void attend_unit(const ScaledRowLayer& layer, const UnitPlace& place);

  __device__ static int32_t ordered(uint32_t bits);
  __device__ float maximum_of(int32_t h) const;

  __device__ int8_t* query(int32_t head) const { return reinterpret_cast<int8_t*>(a_) + head * kHeadDim; }
  __device__ int8_t* newest_key() const { return query(kScoreOffset / kHeadDim - 2); }
  __device__ int8_t* newest_value() const { return newest_key() + kHeadDim; }

  __device__ __forceinline__ void prepare(const ScaledRowLayer& layer, const UnitPlace& place, bool is_newest);

  __device__ static int32_t weighted(const uint4& weights, const uint4& v);
  __device__ __forceinline__ void add_values(const Pieces& value, int32_t h, bool is_newest, float largest,
                                             uint64_t* to) const;

  // The KV head of a head.
  __device__ int32_t g_of(int32_t head) const { return head * step_.kv_heads / step_.heads; }
  __device__ void fold(const ScaledRowLayer& layer);

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
