// A step of one row through all layers to its logits, as one kernel, so that weights are read without pauses between
// layers.
//
// Each multiprocessor runs one thread block. A block has an equal share of the outputs of every matrix, whose weights
// are contiguous in memory. One warp does nothing else than to let TMA copy the weights of all matrices, one after
// another, in stages into a ring in shared memory. Weights depend on no other result, so the next weights arrive while
// blocks wait for one another. Each of the other warps reads one piece of every stage. Matmuls are dot products of
// bytes, added up in shared memory. Every block computes each norm itself.
//
// Blocks exchange results as words with a tag (tiles/grid_sync.cuh): queries, keys and values, the sums and results of
// attention, the residual stream, and the bytes between up and down. The tag is the number of the layer, counted over
// all launches. No block overwrites such a word before all blocks have read it, because a block can only get that far
// with results from every block that reads the word. A counter orders keys and values in the cache for later layers;
// waiting for it is short. Words of other blocks are read past the L1 cache.
//
// In attention a unit of work is a chunk of 512 keys with some query heads of a KV head. A thread has one key, and some
// keys of one channel's values. The sums of each chunk are stored separately, and each block folds its share of the
// results.
//
// The kernel supports only layers of kRowStepShape (kernels.hpp), which row_step_serves() checks: four matrices for
// each layer, in the order of kRowMatrices, which is that of Kind.
//
// Bound: memory, reading the weights once. Between matmuls the number of instructions matters, not only their latency,
// because code that runs once for each layer is fetched anew each time.
#pragma once

#include "../kernels.hpp"
#include "../launch/tiles.hpp"
#include "../tiles/grid_sync.cuh"
#include "../tiles/layout.cuh"
#include "../tiles/rms.cuh"
#include "../tiles/sm80_copy.cuh"
#include "../tiles/sm80_mma.cuh"
#include "../tiles/sm90_barrier.cuh"
#include "../tiles/sm90_copy.cuh"
#include "attention_weight.cuh"
#include "sm90_row_step_shape.cuh"

namespace kaiju::cuda {
namespace row_step_detail {

template <int kHeadDim>
class RowStepper {
  static constexpr int32_t kPieces = kHeadDim / 16;        // of 16 bytes: of a thread's key, and of its values
  static constexpr int32_t kChannels = kHeadDim / kWarps;  // of a warp, in attention
  static constexpr int32_t kValueParts = 32 / kChannels;   // that the values of a channel are divided in, each a lane's
  static constexpr int32_t kPartKeys = kChunk / kValueParts, kPartBlocks = kPartKeys / kBlockTokens;
  static_assert(kPartKeys == 16 * kPieces && kPartBlocks > 0);

 public:
  __device__ RowStepper(const RowStep& step, Shared& shared, uint8_t* memory)
      : step_(step),
        shared_(shared),
        ring_(memory),
        a_(memory + step.stages * kStageBytes),
        runs_(reinterpret_cast<Run*>(a_ + step.activation_bytes)),
        matrices_(kRowMatrixCount * step.layer_count + 1),
        query_width_(step.heads * kHeadDim),
        kv_width_(step.kv_heads * kHeadDim) {}

  __device__ void run() {
    for (int32_t m = tid_; m < matrices_; m += kAllThreads) {
      const Share share = share_of(outs_of(m), kind_of(m) == Kind::kUp ? 4 : 1);
      runs_[m] = {weight_of(m) + int64_t{share.first} * in_of(m), share.first, share.count};
    }
    if (tid_ == 0) {
      for (int32_t s = 0; s < step_.stages; ++s) barrier_init(full(s), 1), barrier_init(read(s), kWarps);
      barrier_init_done();
      const Share results = share_of(query_width_ / 4);
      shared_.first_result = results.first, shared_.result_count = results.count;
      for (int32_t i = 0; i < 3; ++i) {
        const int32_t in_pieces = in_of(i + (i == 2 ? 1 : 0)) / kPieceBytes;
        shared_.width[i] = {in_pieces, (65535 + in_pieces) / in_pieces, kWarps / in_pieces, kWarps % in_pieces};
      }
    }
    __syncthreads();
    if (warp_ < kWarps)
      compute();
    else if (lane_ == 0)
      bring();
  }

 private:
  // ---- weights ----

  enum class Kind { kProject, kO, kUp, kDown, kLogits };  // the first four by kRowMatrices
  static_assert(static_cast<int32_t>(Kind::kLogits) == kRowMatrixCount);
  __device__ Kind kind_of(int32_t matrix) const {
    return matrix == matrices_ - 1 ? Kind::kLogits : static_cast<Kind>(matrix % kRowMatrixCount);
  }
  __device__ int32_t in_of(int32_t matrix) const {
    const Kind kind = kind_of(matrix);
    return kind == Kind::kO ? query_width_ : kind == Kind::kDown ? step_.d_ff : step_.d_model;
  }
  __device__ int32_t outs_of(int32_t matrix) const {
    const Kind kind = kind_of(matrix);
    return kind == Kind::kProject  ? projected(step_.layers[matrix / kRowMatrixCount])
           : kind == Kind::kUp     ? step_.d_ff
           : kind == Kind::kLogits ? step_.vocab
                                   : step_.d_model;
  }
  __device__ const int8_t* weight_of(int32_t matrix) const {
    const Kind kind = kind_of(matrix);
    if (kind == Kind::kLogits) return step_.embed;
    const RowLayer& layer = step_.layers[matrix / kRowMatrixCount];
    return layer.weights[matrix % kRowMatrixCount];
  }
  // Outputs of q, and of k and v where the layer makes them.
  __device__ int32_t projected(const RowLayer& layer) const { return query_width_ + (layer.keys ? 2 * kv_width_ : 0); }
  __device__ uint32_t full(int32_t stage) const { return shared_address(&shared_.full[stage]); }
  __device__ uint32_t read(int32_t stage) const { return shared_address(&shared_.read[stage]); }

  // Asks for all weights in turn, each stage as soon as what lay in its place has been read.
  __device__ void bring() {
    int32_t stage = 0, first = 0, in_flight = 0;  // `first` of those in flight
    uint32_t parity = 1, first_parity = 0;
#pragma unroll 1
    for (int32_t m = 0; m < matrices_; ++m) {
      const int8_t* const from = runs_[m].from;
      const int32_t bytes_of_run = runs_[m].count * in_of(m);
#pragma unroll 1
      for (int32_t at = 0; at < bytes_of_run; at += kStageBytes) {
        const int32_t left = bytes_of_run - at;
        const int32_t most = at >= kFront * kStageBytes && left > kBack * kStageBytes ? kMostInFlight : kFewInFlight;
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
    const Share mine = share_of(step_.d_model);
    shared_.sums[tid_] = 0;
    if (tid_ < mine.count) {
      const arith::bf16 x = step_.x[mine.first + tid_];
      shared_.residual[tid_] = x;
      store_half_tagged(step_.row + mine.first + tid_, x, row_tag_);
    }
    take_layer(0);
    sync();
    look_at(shared_.layer[0]);
    ask_for_scale(0);
#pragma unroll 1
    for (int32_t m = 0; m < matrices_; ++m) {
      // Else what depends on it is found before the loop, and kept in registers that are not there.
      asm volatile("" : "+r"(tid_));
      warp_ = tid_ / 32, lane_ = tid_ % 32;
      const int32_t l = m / kRowMatrixCount;
      const Kind kind = kind_of(m);
      const RowLayer& layer = shared_.layer[l % 2];
      if (kind == Kind::kO) {
        if (l + 1 < step_.layer_count) take_layer(l + 1);
        attend(layer);
        fold(layer);
      }
      if (kind == Kind::kO || kind == Kind::kDown) {
        take_words(kind == Kind::kO ? step_.a : step_.h, (kind == Kind::kO ? query_width_ : step_.d_ff) / 4);
        if (kind == Kind::kO && tid_ == 0) add_released(step_.counters);
      } else {
        if (kind == Kind::kProject) ++tag_;
        normalise(kind == Kind::kProject ? layer.attn_in : kind == Kind::kUp ? layer.ffn_in : step_.final_in);
      }
      if (kind == Kind::kUp && l + 1 < step_.layer_count) look_at(shared_.layer[(l + 1) % 2]);
      // Keys and values that the layer before made can be read behind the product: they are long there, nobody waits.
      if (kind == Kind::kProject && tid_ == kThreads - 32)
        wait_for_count(step_.counters, l * static_cast<int32_t>(gridDim.x));
      __syncwarp();
      const Run& run = runs_[m];
      multiply(kind, run.first, run.count);
      if (m + 1 < matrices_) ask_for_scale(m + 1);
    }
    const Share own =
        share_of(step_.d_model);  // the residual stream, which nobody reads as the embedded token any more
    if (tid_ < own.count) step_.x[own.first + tid_] = shared_.residual[tid_];
    // The last block to come here, when nobody looks at the counters any more, makes them ready for the next launch.
    if (tid_ == 0 && add_acquired_released(step_.counters + 1, 1) == static_cast<int32_t>(gridDim.x) - 1) {
      step_.counters[0] = step_.counters[1] = 0;
      step_.counters[2] += step_.layer_count + 1;
    }
  }

  // The bytes of four neighbouring threads.
  __device__ uint32_t four_bytes(uint8_t byte) const {
    const uint32_t mask = 0xFu << (lane_ & ~3);
    uint32_t word = static_cast<uint32_t>(byte) << 8 * (tid_ % 4);
    word |= __shfl_xor_sync(mask, word, 1);
    return word | __shfl_xor_sync(mask, word, 2);
  }
  __device__ static void sync() { sync_first<kThreads>(); }
  // Layer l's description, into shared memory, where it can be read after the next sync().
  __device__ void take_layer(int32_t l) {
    if (tid_ < static_cast<int32_t>(sizeof(RowLayer) / 16))
      reinterpret_cast<uint4*>(&shared_.layer[l % 2])[tid_] = reinterpret_cast<const uint4*>(step_.layers + l)[tid_];
  }

  // Of a layer to come: what the block attends to, asked for into the L2 cache, and where it lies.
  __device__ void look_at(const RowLayer& layer) {
    if (warp_ != kWarps - 1) return;
    const Unit unit = unit_of(layer);
    if (lane_ == 0) shared_.unit = unit;
    if (unit.valid && lane_ < kChunkBlocks) {
      const uint4* const keys = keys_of(layer, unit.g, unit.chunk * kChunkBlocks + lane_);
      shared_.block[lane_] = keys;
      prefetch_bulk(keys, 2 * kBlockTokens * kHeadDim);
    }
#pragma unroll 1
    for (int32_t i = 32 * lane_; i < kv_width_; i += 32 * 32) {
      prefetch_line(layer.q_inverse + i), prefetch_line(layer.out_inverse + i);
      if (layer.keys) prefetch_line(layer.k_inverse + i), prefetch_line(layer.v_inverse + i);
    }
    __syncwarp();
  }
  // The scale of the output of a product to come that the thread ends: there when the thread has waited for its copies.
  __device__ void ask_for_scale(int32_t matrix) {
    const Run& run = runs_[matrix];
    if (tid_ >= run.count) return;
    const float* const scales = matrix == matrices_ - 1
                                    ? step_.logit_scale
                                    : shared_.layer[matrix / kRowMatrixCount % 2].scales[matrix % kRowMatrixCount];
    copy_async_word(shared_address(&shared_.scale[tid_]), scales + run.first + tid_);
  }
  // The norm of the residual stream, as soon as all of it is there.
  __device__ void normalise(float inverse_scale) {
    constexpr int32_t kAtOnce = 3;
    auto* row = reinterpret_cast<uint2*>(a_ + step_.d_model);
    const int32_t count = step_.d_model / 4;
    for (int32_t first = tid_; first < count; first += kAtOnce * kThreads) {  // beyond the last the last again
      uint2 values[kAtOnce];
      const auto at = [&](int i) { return min(first + i * kThreads, count - 1); };
      take_half_tagged([&](int i) { return reinterpret_cast<const uint4*>(step_.row) + at(i); }, row_tag_, values);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) row[at(i)] = values[i];
    }
    norm_loaded_row<kThreads>(a_, step_.d_model, step_.eps, inverse_scale);
  }
  // Activations that other blocks made, four bytes a word, two words at once: `count` of them, which is even.
  __device__ void take_words(const uint64_t* from, int32_t count) {
    constexpr int32_t kAtOnce = 5;
    const int32_t pairs = count / 2;
    for (int32_t first = tid_; first < pairs; first += kAtOnce * kThreads) {  // beyond the last the last again
      uint2 words[kAtOnce];
      const auto at = [&](int i) { return min(first + i * kThreads, pairs - 1); };
      take_tagged_pairs([&](int i) { return from + 2 * at(i); }, tag_, words);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) reinterpret_cast<uint2*>(a_)[at(i)] = words[i];
    }
    sync();
  }

  // The block's outputs, of the activations at a_.
  __device__ __forceinline__ void multiply(Kind kind, int32_t first_out, int32_t count) {
    const Width width = shared_.width[kind == Kind::kO ? 1 : kind == Kind::kDown ? 2 : 0];
    const int32_t pieces = count * width.pieces;
    int32_t n = warp_ * width.reciprocal >> 16, k = warp_ - n * width.pieces;
#pragma unroll 1
    for (int32_t piece = warp_; piece < pieces + warp_; piece += kWarps) {
      barrier_wait(full(stage_), parity_);
      if (piece < pieces) {
        const auto* weights =
            reinterpret_cast<const uint4*>(ring_ + stage_ * kStageBytes + warp_ * kPieceBytes) + lane_;
        const auto* activations = reinterpret_cast<const uint4*>(a_ + k * kPieceBytes) + lane_;
        const uint4 w0 = weights[0], w1 = weights[32], a0 = activations[0], a1 = activations[32];
        int32_t first = 0, second = 0;
        if (kind == Kind::kDown)
          first = dot<Sign::kUnsigned>(w0, a0), second = dot<Sign::kUnsigned>(w1, a1);
        else
          first = dot<Sign::kSigned>(w0, a0), second = dot<Sign::kSigned>(w1, a1);
        const int32_t sum = __reduce_add_sync(0xFFFFFFFFu, first + second);
        if (lane_ == 0) atomicAdd(&shared_.sums[n], sum);
      }
      if (lane_ == 0) barrier_arrive(read(stage_));
      if (++stage_ == step_.stages) stage_ = 0, parity_ ^= 1;
      n += width.more_outs, k += width.more_pieces;
      if (k >= width.pieces) k -= width.pieces, ++n;
    }
    sync();
    if (kind == Kind::kO || kind == Kind::kDown) ++row_tag_;
    if (tid_ >= count) return;
    copies_done();
    const int32_t sum = shared_.sums[tid_], at = first_out + tid_;
    const float scale = shared_.scale[tid_];
    shared_.sums[tid_] = 0;
    if (kind == Kind::kProject) {
      store_tagged(step_.q + at, arith::bits_of(arith::mul(static_cast<float>(sum), scale)), tag_);
    } else if (kind == Kind::kLogits) {
      step_.logits[at] = arith::mul(static_cast<float>(sum), scale);
    } else if (kind == Kind::kUp) {
      const uint32_t word = four_bytes(arith::square_byte(arith::up_byte(sum, scale)));
      if (tid_ % 4 == 0) store_tagged(step_.h + at / 4, word, tag_);
    } else {
      const arith::bf16 x = arith::residual_add(shared_.residual[tid_], sum, scale);
      shared_.residual[tid_] = x;
      store_half_tagged(step_.row + at, x, row_tag_);
    }
  }
  template <Sign kSign>
  __device__ static int32_t dot(const uint4& w, const uint4& a) {
    return dot4<kSign>(w.x, a.x, dot4<kSign>(w.y, a.y, dot4<kSign>(w.z, a.z, dot4<kSign>(w.w, a.w, 0))));
  }

  // ---- attention ----

  struct Kept {
    uint4 key[kPieces], value[kPieces];  // of key tid_; of the lane's part of the keys, its channel
  };

  __device__ int32_t first_visible(const RowLayer& layer) const {
    return layer.kv.window > 0 && position_ >= layer.kv.window ? position_ - layer.kv.window + 1 : 0;
  }
  __device__ int32_t first_chunk(const RowLayer& layer) const { return first_visible(layer) / kChunk; }
  __device__ int32_t chunk_count(const RowLayer& layer) const { return position_ / kChunk - first_chunk(layer) + 1; }

  __device__ Unit unit_of(const RowLayer& layer) const {
    const int32_t heads = step_.heads / step_.kv_heads, items = chunk_count(layer) * step_.kv_heads;
    const int32_t divided = min(max(static_cast<int32_t>(gridDim.x) / items, 1), heads),
                  each = (heads + divided - 1) / divided, parts = (heads + each - 1) / each;
    const int32_t index = static_cast<int32_t>(blockIdx.x), item = index / parts, part = index - item * parts,
                  chunk = item / step_.kv_heads, g = item - chunk * step_.kv_heads;
    return {item < items,
            part == 0,
            first_chunk(layer) + chunk,
            g,
            g * heads + part * each,
            min(each, heads - part * each)};
  }

  // Keys of a KV head in block `block` of the row, or in the nearest that it sees.
  __device__ const uint4* keys_of(const RowLayer& layer, int32_t g, int32_t block) const {
    const KvSlot& kv = layer.kv;
    block = min(max(block, first_visible(layer) / kBlockTokens), position_ / kBlockTokens);
    return reinterpret_cast<const uint4*>(kv.pool +
                                          step_.segment->table[static_cast<int32_t>(kv.kind)][block] * kv.block_bytes +
                                          kv.slot_offset + int64_t{g} * 2 * kBlockTokens * kHeadDim);
  }
  __device__ int32_t channel() const { return warp_ * kChannels + lane_ % kChannels; }
  __device__ int32_t part() const { return lane_ / kChannels; }

  // What is not seen is masked, or its weights are zero.
  __device__ __forceinline__ void load(Kept& kept) const {
    const uint4* const key = shared_.block[tid_ / kBlockTokens] + tid_ % kBlockTokens;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) kept.key[i] = __ldcg(key + i * kBlockTokens);
#pragma unroll
    for (int b = 0; b < kPartBlocks; ++b) {
      const uint4* const value = shared_.block[part() * kPartBlocks + b] + kBlockTokens * kPieces + channel();
#pragma unroll
      for (int i = 0; i < 4; ++i) kept.value[4 * b + i] = __ldcg(value + i * kHeadDim);
    }
  }

  // The sums of the block's unit, at step_.sums [chunk][query width], and maxima and weights, at step_.parts
  // [chunk][heads][2]; chunks counted from the first that is seen.
  __device__ __forceinline__ void attend(const RowLayer& layer) {
    const Unit& unit = shared_.unit;
    if (!unit.valid) return;
    Kept kept;
    load(kept);
    const bool is_newest = layer.keys && unit.chunk == position_ / kChunk;  // chunk: its last key is made here
    prepare(layer, unit, is_newest);
    sync();
    const int32_t key = unit.chunk * kChunk + tid_;
    const bool visible = key >= first_visible(layer) && key <= position_, newest = is_newest && key == position_;
    if (newest)
#pragma unroll
      for (int i = 0; i < kPieces; ++i) kept.key[i] = reinterpret_cast<const uint4*>(newest_key())[i];
    for (int32_t h = 0; h < unit.heads; ++h) attend_head(layer, unit, kept, h, visible, newest, is_newest);
  }

  __device__ int8_t* queries() const { return reinterpret_cast<int8_t*>(a_); }
  __device__ int8_t* newest_key() const {
    return queries() + query_width_;
  }  // where a warp that is ahead does not put results
  __device__ int8_t* newest_value() const { return newest_key() + kHeadDim; }

  // The unit's queries, and the newest key and value, as bytes in shared memory; where nobody else does it, those also
  // go to the cache.
  __device__ void prepare(const RowLayer& layer, const Unit& unit, bool is_newest) {
    constexpr int32_t kHalf = kHeadDim / 2;
    for (int32_t item = tid_; item < (unit.heads + (is_newest ? 1 : 0)) * kHalf; item += kThreads) {
      const int32_t head = item / kHalf, i = item % kHalf;
      const int64_t c = unit.g * kHeadDim + i;
      const bool is_query = head < unit.heads;
      const uint64_t* from = step_.q + (is_query ? unit.head + head : step_.heads + unit.g) * kHeadDim + i;
      const float* inverse = (is_query ? layer.q_inverse : layer.k_inverse) + c;
      const float2 angle = __ldg(reinterpret_cast<const float2*>(layer.angles) + i);
      const float first_inverse = __ldg(inverse), second_inverse = __ldg(inverse + kHalf);
      uint32_t pair[2];
      take_tagged([&](int e) { return from + e * kHalf; }, tag_, pair);
      float low = arith::float_of(pair[0]), high = arith::float_of(pair[1]);
      arith::rotate(low, high, {angle.x, angle.y});
      int8_t* to = (is_query ? queries() + head * kHeadDim : newest_key()) + i;
      to[0] = arith::quantise(low, first_inverse);
      to[kHalf] = arith::quantise(high, second_inverse);
      if (is_query) continue;
      take_tagged([&](int e) { return from + kv_width_ + e * kHalf; }, tag_, pair);
      newest_value()[i] = arith::quantise(arith::float_of(pair[0]), layer.v_inverse[c]);
      newest_value()[i + kHalf] = arith::quantise(arith::float_of(pair[1]), layer.v_inverse[c + kHalf]);
      if (!unit.writes || (layer.kv.kind == BlockKind::kGlobal && position_ < step_.segment->write_from)) continue;
      const int32_t token = position_ % kBlockTokens;
      auto* keys = reinterpret_cast<int8_t*>(const_cast<uint4*>(keys_of(layer, unit.g, position_ / kBlockTokens)));
      int8_t* values = keys + kBlockTokens * kHeadDim;
      keys[key_byte(token, i)] = to[0], keys[key_byte(token, i + kHalf)] = to[kHalf];
      values[value_byte(kHeadDim, token, i)] = newest_value()[i],
                                         values[value_byte(kHeadDim, token, i + kHalf)] = newest_value()[i + kHalf];
    }
  }

  __device__ static int32_t weighted(const uint4& weights, const uint4& v) {
    return dot_unsigned_signed(
        weights.x, v.x,
        dot_unsigned_signed(weights.y, v.y,
                            dot_unsigned_signed(weights.z, v.z, dot_unsigned_signed(weights.w, v.w, 0))));
  }
  __device__ __forceinline__ void attend_head(const RowLayer& layer, const Unit& unit, const Kept& kept, int32_t h,
                                              bool visible, bool newest, bool is_newest) {
    int32_t score = 0;
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      score += dot<Sign::kSigned>(kept.key[i], reinterpret_cast<const uint4*>(queries() + h * kHeadDim)[i]);
    const int32_t warp_maximum = __reduce_max_sync(0xFFFFFFFFu, visible ? score : INT32_MIN);
    if (lane_ == 0) shared_.warp_maximum[warp_] = warp_maximum;
    sync();
    const int32_t maximum = __reduce_max_sync(0xFFFFFFFFu, shared_.warp_maximum[lane_ % kWarps]);
    const uint32_t weight = visible ? key_weight(score - maximum, layer.z) : 0;
    const uint32_t warp_weight = __reduce_add_sync(0xFFFFFFFFu, weight);
    if (lane_ == 0) shared_.warp_weight[warp_] = warp_weight;
    // The newest key's value is not in the cache yet: it is added apart.
    if (newest) shared_.newest_weight = weight;
    shared_.high[place_of_key(tid_)] = static_cast<uint8_t>(newest ? 0 : weight >> 8);
    shared_.low[place_of_key(tid_)] = static_cast<uint8_t>(newest ? 0 : weight);
    sync();

    int32_t sum_high = 0, sum_low = 0;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const uint4 v = kept.value[i], high = reinterpret_cast<const uint4*>(shared_.high + part() * kPartKeys)[i],
                  low = reinterpret_cast<const uint4*>(shared_.low + part() * kPartKeys)[i];
      sum_high += weighted(high, v), sum_low += weighted(low, v);
    }
#pragma unroll
    for (int distance = kChannels; distance < 32; distance *= 2) {
      sum_high += __shfl_xor_sync(0xFFFFFFFFu, sum_high, distance);
      sum_low += __shfl_xor_sync(0xFFFFFFFFu, sum_low, distance);
    }
    const int32_t row = unit.chunk - first_chunk(layer), head = unit.head + h;
    if (part() == 0) {
      if (is_newest) {
        const auto w = static_cast<int32_t>(shared_.newest_weight), v = static_cast<int32_t>(newest_value()[channel()]);
        sum_high += (w >> 8) * v, sum_low += (w & 255) * v;
      }
      store_tagged(step_.sums + int64_t{row} * query_width_ + head * kHeadDim + channel(),
                   arith::bits_of(arith::fma(256.0f, static_cast<float>(sum_high), static_cast<float>(sum_low))), tag_);
    }
    if (warp_ == 0) {
      const uint32_t weights = __reduce_add_sync(0xFFFFFFFFu, lane_ < kWarps ? shared_.warp_weight[lane_] : 0);
      uint64_t* const part = step_.parts + 2 * (int64_t{row} * step_.heads + head);
      if (lane_ == 0)
        store_tagged(part, static_cast<uint32_t>(maximum), tag_),
            store_tagged(part + 1, arith::bits_of(static_cast<float>(weights)), tag_);
    }
  }

  // The KV head of a head.
  __device__ int32_t g_of(int32_t head) const {
    int32_t g = 0;  // not by dividing, which takes longer
    while ((g + 1) * step_.heads <= head * step_.kv_heads) ++g;
    return g;
  }
  // The block's share of the results, as bytes: chunks in ascending order. A thread has a channel; four make a word.
  __device__ void fold(const RowLayer& layer) {
    constexpr int32_t kAhead = 3;
    const int32_t chunks = chunk_count(layer);
    const Share words{shared_.first_result, shared_.result_count};
    for (int32_t at = tid_; at < (4 * words.count + 31) / 32 * 32; at += kThreads) {  // whole warps
      const int32_t channel = 4 * words.first + min(at, 4 * words.count - 1), head = channel / kHeadDim;
      const float scale = __ldg(layer.out_inverse + g_of(head) * kHeadDim + channel % kHeadDim);
      float total = 0.0f, weight = 0.0f;
      int32_t maximum = INT32_MIN;
      for (int32_t from = 0; from < chunks; from += kAhead) {
        // Beyond the last chunk that one again.
        uint32_t words[3 * kAhead];  // sums, maxima, weights
        const auto place = [&](int i) {
          const int64_t chunk = min(from + i % kAhead, chunks - 1);
          return i < kAhead ? step_.sums + chunk * query_width_ + channel
                            : step_.parts + 2 * (chunk * step_.heads + head) + (i / kAhead - 1);
        };
        take_tagged(place, tag_, words);
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          if (from + i >= chunks) break;
          const auto most = static_cast<int32_t>(words[kAhead + i]);
          const bool later = maximum <= most;
          const float factor =
              maximum == INT32_MIN ? 0.0f : fold_factor(later ? maximum - most : most - maximum, layer.z);
          const auto folded = [&](float before, float chunk) {
            return arith::fma(later ? before : chunk, factor, later ? chunk : before);
          };
          weight = folded(weight, arith::float_of(words[2 * kAhead + i]));
          total = folded(total, arith::float_of(words[i]));
          maximum = max(maximum, most);
        }
      }
      const auto byte = static_cast<uint8_t>(arith::quantise(arith::mul(total, arith::divide(1.0f, weight)), scale));
      const uint32_t word = four_bytes(byte);
      if (at % 4 == 0 && at < 4 * words.count) store_tagged(step_.a + words.first + at / 4, word, tag_);
    }
  }

  int32_t tid_ = static_cast<int32_t>(threadIdx.x), warp_ = tid_ / 32, lane_ = tid_ % 32;
  const RowStep& step_;
  Shared& shared_;
  uint8_t* const ring_;  // of stages
  uint8_t* const a_;     // a product's activations; in attention, queries and the newest key and value
  Run* const runs_;      // of all matrices
  const int32_t matrices_, query_width_, kv_width_;
  const int32_t position_ = step_.segment->position;
  // What the warp reads next.
  int32_t stage_ = 0;
  uint32_t parity_ = 0;
  // Of the layer; of the residual stream, before the first layer another than behind the last of the launch before.
  uint32_t tag_ = static_cast<uint32_t>(step_.counters[2]), row_tag_ = 2 * tag_ + 1;
};

}  // namespace row_step_detail

template <int kHeadDim>
__global__ void __launch_bounds__(row_step_detail::kAllThreads, 1)
    row_step_kernel(const __grid_constant__ RowStep step) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ row_step_detail::Shared shared;
  row_step_detail::RowStepper<kHeadDim>(step, shared, memory).run();
#else
  __trap();  // never launched elsewhere
#endif
}

}  // namespace kaiju::cuda
