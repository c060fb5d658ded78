// A step of one row through all layers and to its logits, as one kernel: memory never waits for a layer's turn.
//
// One block a multiprocessor. Of every matrix a block has an equal share of the outputs, whose weights are one run of memory, and each of
// its warps an equal share of that run. A warp has the copy engine bring its weights into a ring of its own in shared memory, and asks for
// the next as soon as it has read some: over all borders between matrices, since weights depend on nothing. So while the blocks meet, the
// next weights arrive. Products are dot products of bytes, added up in shared memory; a norm is found by every block for itself.
//
// The blocks meet once a layer (a counter in global memory), behind up. Everything else goes from block to block as words with a tag, the
// number of the layer, counted over all launches (tiles/meet.cuh): queries, keys and values, the sums of attention, its results, the
// residual stream. Nobody writes such a word again before all have read it, because what he must have in order to come there needs
// something of every block that reads. What others wrote is read past the L1 cache.
//
// Attention: a unit of work is a chunk of 512 keys with some heads of a KV head. A thread has one key and some keys of one channel's
// values. The sums of each chunk are kept apart; of all results each block folds its share. Bound: memory, reading the weights once.
#pragma once

#include "../../kernels.hpp"
#include "../../launch/tiles.hpp"
#include "../../tiles/layout.cuh"
#include "../../tiles/meet.cuh"
#include "../../tiles/mma.cuh"
#include "../../tiles/rms.cuh"
#include "../../tiles/wgmma.cuh"
#include "kaiju/arith/softmax.hpp"

namespace kaiju::cuda {
namespace row_step_detail {

constexpr int32_t kThreads = 512, kWarps = kThreads / 32;
constexpr int32_t kSlotPieces = 2, kSlotBytes = kSlotPieces * kStreamBytes;  // of a warp's ring
constexpr int32_t kMostRowSlots = 16;
constexpr int32_t kChunk = arith::kChunkKeys, kChunkBlocks = kChunk / kBlockTokens;
static_assert(kThreads == kChunk);

// The block's share of a matrix.
struct Run {
  const int8_t* from;
  int64_t pieces;  // of kStreamBytes
};

// In shared memory, beside the rings, the activations and the runs of all matrices.
struct Shared {
  RowLayer layer[2];  // this one and the next
  int32_t sums[kThreads];
  int32_t warp_maximum[kWarps];
  uint32_t warp_weight[kWarps];
  uint32_t newest_weight;
  alignas(16) uint8_t high[kChunk], low[kChunk];  // bytes of the weights of a chunk's keys, as values lie in the cache
  uint64_t full[kWarps][kMostRowSlots];
};
static_assert(sizeof(RowLayer) % 16 == 0);

// The outputs of a matrix that are this block's.
struct Share {
  int32_t first, count;
};
__device__ __forceinline__ Share share_of(int32_t out) {
  auto block = static_cast<int32_t>(blockIdx.x);
  asm volatile("" : "+r"(block));  // else all shares are found before the loop over layers, and kept in registers that are not there
  const auto blocks = static_cast<int32_t>(gridDim.x), first = out * block / blocks;
  return {first, out * (block + 1) / blocks - first};
}

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
        ring_(memory + warp_ * step.slots * kSlotBytes),
        a_(memory + kWarps * step.slots * kSlotBytes),
        runs_(reinterpret_cast<Run*>(a_ + step.activation_bytes)),
        matrices_(4 * step.layer_count + 1),
        query_width_(step.heads * kHeadDim),
        kv_width_(step.kv_heads * kHeadDim) {}

  __device__ void run() {
    for (int32_t m = tid_; m < matrices_; m += kThreads) runs_[m] = run_of(m);
    if (lane_ == 0) {
      for (int32_t s = 0; s < step_.slots; ++s) barrier_init(full(s), 1);
      barrier_init_done();
    }
    sync();
    for (int32_t s = 0; s < step_.slots; ++s) bring(s);
    compute();
  }

 private:
  // ---- weights ----

  __device__ Run run_of(int32_t matrix) const {
    const auto part = [](const int8_t* weight, int32_t out, int32_t in) {
      const Share share = share_of(out);
      return Run{weight + int64_t{share.first} * in, share.count * (in / kStreamBytes)};
    };
    const int32_t d_model = step_.d_model;
    if (matrix == matrices_ - 1) return part(step_.embed, step_.vocab, d_model);
    const RowLayer& layer = step_.layers[matrix / 4];
    switch (matrix % 4) {
      case 0:
        return part(layer.q, projected(layer), d_model);
      case 1:
        return part(layer.o, d_model, query_width_);
      case 2:
        return part(layer.up, step_.d_ff, d_model);
      default:
        return part(layer.down, d_model, step_.d_ff);
    }
  }
  // Outputs of q, and of k and v where the layer makes them.
  __device__ int32_t projected(const RowLayer& layer) const { return query_width_ + (layer.keys ? 2 * kv_width_ : 0); }
  __device__ uint32_t full(int32_t slot) const { return shared_address(&shared_.full[warp_][slot]); }
  // The first of a warp's pieces of a run; of the warp behind the last their end.
  __device__ static int32_t first_piece(int32_t pieces, int32_t warp) { return pieces * warp / kWarps; }

  // Asks for the warp's next pieces, into a slot whose pieces it has read.
  __device__ void bring(int32_t slot) {
    while (left_ == 0) {
      if (matrix_ == matrices_) return;
      const Run run = runs_[matrix_++];
      const auto pieces = static_cast<int32_t>(run.pieces);
      const int32_t first = first_piece(pieces, warp_);
      left_ = first_piece(pieces, warp_ + 1) - first;
      from_ = run.from + int64_t{first} * kStreamBytes;
    }
    const int32_t bytes = min(left_, kSlotPieces) * kStreamBytes;
    if (lane_ == 0) {
      barrier_expect(full(slot), static_cast<uint32_t>(bytes));
      copy_bulk_once(shared_address(ring_ + slot * kSlotBytes), from_, static_cast<uint32_t>(bytes), full(slot));
    }
    from_ += bytes;
    left_ -= bytes / kStreamBytes;
  }

  // ---- layers ----

  __device__ void compute() {
    const int32_t d_model = step_.d_model;
    const Share mine = share_of(d_model);
    shared_.sums[tid_] = 0;
    if (tid_ < mine.count) x_ = step_.x[mine.first + tid_];
    take_layer(0);
    sync();
    Unit unit;
    Places places;
    Part part;
    const auto look_at = [&](const RowLayer& layer) {  // what needs nothing of the layer before
      unit = unit_of(layer);
      places = places_of(layer, unit);
      ask_for(places);
      ask_for_constants(layer);
      part = part_of(layer.q_scale, projected(layer));
    };
    look_at(shared_.layer[0]);
    for (int32_t l = 0; l < step_.layer_count; ++l) {
      const RowLayer& layer = shared_.layer[l % 2];
      ++tag_;
      if (l + 1 < step_.layer_count) take_layer(l + 1);
      if (l == 0)
        norm_row<kThreads>(a_, step_.x, d_model, step_.eps, layer.attn_in);
      else
        normalise(layer.attn_in);
      multiply<Product::kLinear, true>(part, d_model, step_.q);
      Kept kept;
      load(places, kept);
      attend(layer, unit, kept);
      fold(layer);
      part = part_of(layer.o_scale, d_model);
      take_results();
      ++row_tag_;
      multiply<Product::kAddLinear>(part, query_width_, nullptr);
      part = part_of(layer.up_alpha, step_.d_ff);
      normalise(layer.ffn_in);
      multiply<Product::kUp>(part, d_model, step_.h);
      arrive();
      part = part_of(layer.down_scale, d_model);
      wait();
      take_activations(step_.h, step_.d_ff);
      ++row_tag_;
      multiply<Product::kAddDown>(part, step_.d_ff, nullptr);
      if (l + 1 < step_.layer_count) {
        look_at(shared_.layer[(l + 1) % 2]);
      } else {
        if (tid_ < part.share.count) step_.x[part.share.first + tid_] = x_;  // nobody reads the embedded token any more
        part = part_of(step_.logit_scale, step_.vocab);
      }
    }
    normalise(step_.final_in);
    multiply<Product::kLinear>(part, d_model, step_.logits);
    // The last block to come here, when nobody looks at the counters any more, makes them ready for the next launch.
    if (tid_ == 0 && atomicAdd(step_.counters + 1, 1) == static_cast<int32_t>(gridDim.x) - 1) {
      step_.counters[0] = step_.counters[1] = 0;
      step_.counters[2] += step_.layer_count;
    }
  }

  __device__ static void sync() { sync_first<kThreads>(); }
  // What this block wrote can be read by those who waited for it.
  __device__ void arrive() {
    sync();
    if (tid_ == 0) add_released(step_.counters);
    met_ += static_cast<int32_t>(gridDim.x);
  }
  __device__ void wait() {
    if (tid_ == 0) wait_for_count(step_.counters, met_);
    sync();
  }

  // Layer l's description, into shared memory, where it can be read after the next sync().
  __device__ void take_layer(int32_t l) {
    if (tid_ < static_cast<int32_t>(sizeof(RowLayer) / 16))
      reinterpret_cast<uint4*>(&shared_.layer[l % 2])[tid_] = reinterpret_cast<const uint4*>(step_.layers + l)[tid_];
  }

  // What attention reads besides queries, keys and values, into the L2 cache.
  __device__ void ask_for_constants(const RowLayer& layer) const {
    for (int32_t i = 32 * tid_; i < kv_width_; i += 32 * kThreads) {
      prefetch_line(layer.q_inverse + i), prefetch_line(layer.out_inverse + i);
      if (layer.keys) prefetch_line(layer.k_inverse + i), prefetch_line(layer.v_inverse + i);
    }
  }
  // The block's outputs of a product, and the scale of the one that this thread ends.
  struct Part {
    Share share;
    float scale;
  };
  __device__ Part part_of(const float* scales, int32_t out) const {
    const Share share = share_of(out);
    return {share, tid_ < share.count ? __ldg(scales + share.first + tid_) : 0.0f};
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
  __device__ void take_activations(const void* from, int32_t width) {
#pragma unroll 4
    for (int32_t i = tid_; i < width / 16; i += kThreads)
      reinterpret_cast<uint4*>(a_)[i] = __ldcg(reinterpret_cast<const uint4*>(from) + i);
    sync();
  }
  // What fold() made of attention, four bytes a word.
  __device__ void take_results() {
    constexpr int32_t kAtOnce = 3;
    const int32_t count = query_width_ / 4;
    for (int32_t first = tid_; first < count; first += kAtOnce * kThreads) {  // beyond the last the last again
      uint32_t words[kAtOnce];
      const auto at = [&](int i) { return min(first + i * kThreads, count - 1); };
      take_tagged([&](int i) { return step_.a + at(i); }, tag_, words);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) reinterpret_cast<uint32_t*>(a_)[at(i)] = words[i];
    }
    sync();
  }

  // The block's outputs, of the activations at a_; kTagged: as tagged words.
  template <Product kProduct, bool kTagged = false>
  __device__ __forceinline__ void multiply(const Part& part, int32_t in, void* result) {
    constexpr Sign kSign = kProduct == Product::kAddDown ? Sign::kUnsigned : Sign::kSigned;
    const int32_t pieces_of_out = in / kStreamBytes, pieces = part.share.count * pieces_of_out, end = first_piece(pieces, warp_ + 1);
    int32_t piece = first_piece(pieces, warp_), n = piece / pieces_of_out, k = piece - n * pieces_of_out, c = 0;
    const auto add_up = [&] {
      const int32_t sum = __reduce_add_sync(0xFFFFFFFFu, c);
      if (lane_ == 0) atomicAdd(&shared_.sums[n], sum);
      c = 0;
    };
    while (piece < end) {
      barrier_wait(full(slot_), parity_);
      uint4 w[kSlotPieces], a[kSlotPieces];
      int32_t next = k;
#pragma unroll
      for (int i = 0; i < kSlotPieces; ++i) {  // beyond the last piece whatever lies there
        w[i] = *reinterpret_cast<const uint4*>(ring_ + slot_ * kSlotBytes + i * kStreamBytes + 16 * lane_);
        a[i] = *reinterpret_cast<const uint4*>(a_ + next * kStreamBytes + 16 * lane_);
        next = next + 1 == pieces_of_out ? 0 : next + 1;
      }
#pragma unroll
      for (int i = 0; i < kSlotPieces; ++i) {
        if (piece + i >= end) break;
        c = dot4<kSign>(w[i].x, a[i].x, dot4<kSign>(w[i].y, a[i].y, dot4<kSign>(w[i].z, a[i].z, dot4<kSign>(w[i].w, a[i].w, c))));
        if (++k == pieces_of_out) add_up(), k = 0, ++n;
      }
      piece += kSlotPieces;
      __syncwarp();  // all lanes have read the slot
      bring(slot_);
      if (++slot_ == step_.slots) slot_ = 0, parity_ ^= 1;
    }
    if (k > 0) add_up();  // nothing where the warp had nothing; n is still within the block
    sync();
    if (tid_ >= part.share.count) return;
    const int32_t sum = shared_.sums[tid_], at = part.share.first + tid_;
    shared_.sums[tid_] = 0;
    if constexpr (kTagged) {
      store_tagged(static_cast<uint64_t*>(result) + at, arith::bits_of(arith::mul(static_cast<float>(sum), part.scale)), tag_);
    } else if constexpr (kProduct == Product::kLinear) {
      static_cast<float*>(result)[at] = arith::mul(static_cast<float>(sum), part.scale);
    } else if constexpr (kProduct == Product::kUp) {
      static_cast<uint8_t*>(result)[at] = arith::square_byte(arith::up_byte(sum, part.scale));
    } else {
      x_ = arith::residual_add(x_, sum, part.scale);
      store_half_tagged(step_.row + at, x_, row_tag_);
    }
  }

  // ---- attention ----

  // A chunk of keys with some heads of a KV head.
  struct Unit {
    bool valid;
    int32_t chunk, g, head, heads;  // the first head counts from the first of all
  };
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
    const int32_t divided = min(max(static_cast<int32_t>(gridDim.x) / items, 1), heads), each = (heads + divided - 1) / divided,
                  parts = (heads + each - 1) / each;
    const int32_t index = static_cast<int32_t>(blockIdx.x), item = index / parts, part = index - item * parts,
                  chunk = item / step_.kv_heads, g = item - chunk * step_.kv_heads;
    return {item < items, first_chunk(layer) + chunk, g, g * heads + part * each, min(each, heads - part * each)};
  }

  // Keys of a KV head in block `block` of the row; null where it sees none of them.
  __device__ const uint4* keys_of(const RowLayer& layer, const Unit& unit, int32_t block) const {
    if (block < first_visible(layer) / kBlockTokens || block > position_ / kBlockTokens) return nullptr;
    const KvSlot& kv = layer.kv;
    return reinterpret_cast<const uint4*>(kv.pool + step_.segment->table[static_cast<int32_t>(kv.kind)][block] * kv.block_bytes +
                                          kv.slot_offset + int64_t{unit.g} * 2 * kBlockTokens * kHeadDim);
  }
  __device__ int32_t channel() const { return warp_ * kChannels + lane_ % kChannels; }
  __device__ int32_t part() const { return lane_ / kChannels; }

  // Where the thread's key begins, and its values of a block; null where none of the block's keys is seen.
  struct Places {
    const uint4* key;
    const uint4* values[kPartBlocks];
  };
  __device__ __forceinline__ Places places_of(const RowLayer& layer, const Unit& unit) const {
    const auto within = [](const uint4* keys, int32_t at) { return keys ? keys + at : nullptr; };
    const int32_t first = unit.chunk * kChunkBlocks;
    Places places;
    places.key = within(keys_of(layer, unit, first + tid_ / kBlockTokens), tid_ % kBlockTokens);
#pragma unroll
    for (int b = 0; b < kPartBlocks; ++b)
      places.values[b] = within(keys_of(layer, unit, first + part() * kPartBlocks + b), kBlockTokens * kPieces + channel());
    return places;
  }
  __device__ __forceinline__ static void ask_for(const Places& places) {
    if (places.key)
#pragma unroll
      for (int i = 0; i < kPieces; ++i) prefetch_line(places.key + i * kBlockTokens);
#pragma unroll
    for (int b = 0; b < kPartBlocks; ++b)
      if (places.values[b])
#pragma unroll
        for (int i = 0; i < 4; ++i) prefetch_line(places.values[b] + i * kHeadDim);
  }
  // What is not seen stays as it is: it is masked, or its weights are zero.
  __device__ __forceinline__ static void load(const Places& places, Kept& kept) {
    if (places.key)
#pragma unroll
      for (int i = 0; i < kPieces; ++i) kept.key[i] = __ldcg(places.key + i * kBlockTokens);
#pragma unroll
    for (int b = 0; b < kPartBlocks; ++b)
      if (places.values[b])
#pragma unroll
        for (int i = 0; i < 4; ++i) kept.value[4 * b + i] = __ldcg(places.values[b] + i * kHeadDim);
  }

  // The sums of the block's unit, at step_.sums [chunk][query width], and maxima and weights, at step_.parts [chunk][heads][2]; chunks
  // counted from the first that is seen.
  __device__ __forceinline__ void attend(const RowLayer& layer, const Unit& unit, Kept& kept) {
    if (!unit.valid) return;
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
  __device__ int8_t* newest_key() const { return queries() + query_width_; }  // where a warp that is ahead does not put results
  __device__ int8_t* newest_value() const { return newest_key() + kHeadDim; }

  // The unit's queries, and the newest key and value, as bytes in shared memory; where nobody else does it, those also go to the cache.
  __device__ void prepare(const RowLayer& layer, const Unit& unit, bool is_newest) {
    constexpr int32_t kHalf = kHeadDim / 2;
    for (int32_t item = tid_; item < (unit.heads + (is_newest ? 1 : 0)) * kHalf; item += kThreads) {
      const int32_t head = item / kHalf, i = item % kHalf;
      const int64_t c = unit.g * kHeadDim + i;
      const bool is_query = head < unit.heads;
      const uint64_t* from = step_.q + (is_query ? unit.head + head : step_.heads + unit.g) * kHeadDim + i;
      const float* inverse = (is_query ? layer.q_inverse : layer.k_inverse) + c;
      const float2 angle = __ldg(reinterpret_cast<const float2*>(layer.angles) + i);
      uint32_t pair[2];
      take_tagged([&](int e) { return from + e * kHalf; }, tag_, pair);
      float low = arith::float_of(pair[0]), high = arith::float_of(pair[1]);
      arith::rotate(low, high, {angle.x, angle.y});
      int8_t* to = (is_query ? queries() + head * kHeadDim : newest_key()) + i;
      to[0] = arith::quantise(low, inverse[0]);
      to[kHalf] = arith::quantise(high, inverse[kHalf]);
      if (is_query) continue;
      take_tagged([&](int e) { return from + kv_width_ + e * kHalf; }, tag_, pair);
      newest_value()[i] = arith::quantise(arith::float_of(pair[0]), layer.v_inverse[c]);
      newest_value()[i + kHalf] = arith::quantise(arith::float_of(pair[1]), layer.v_inverse[c + kHalf]);
      if (unit.head != unit.g * (step_.heads / step_.kv_heads) ||
          (layer.kv.kind == BlockKind::kGlobal && position_ < step_.segment->write_from))
        continue;
      const int32_t token = position_ % kBlockTokens;
      auto* keys = reinterpret_cast<int8_t*>(const_cast<uint4*>(keys_of(layer, unit, position_ / kBlockTokens)));
      int8_t* values = keys + kBlockTokens * kHeadDim;
      keys[key_byte(token, i)] = to[0], keys[key_byte(token, i + kHalf)] = to[kHalf];
      values[value_byte(kHeadDim, token, i)] = newest_value()[i],
                                         values[value_byte(kHeadDim, token, i + kHalf)] = newest_value()[i + kHalf];
    }
  }

  __device__ __forceinline__ void attend_head(const RowLayer& layer, const Unit& unit, const Kept& kept, int32_t h, bool visible,
                                              bool newest, bool is_newest) {
    int32_t score = 0;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const uint4 q = reinterpret_cast<const uint4*>(queries() + h * kHeadDim)[i], k = kept.key[i];
      score =
          dot4<Sign::kSigned>(k.x, q.x, dot4<Sign::kSigned>(k.y, q.y, dot4<Sign::kSigned>(k.z, q.z, dot4<Sign::kSigned>(k.w, q.w, score))));
    }
    const int32_t warp_maximum = __reduce_max_sync(0xFFFFFFFFu, visible ? score : INT32_MIN);
    if (lane_ == 0) shared_.warp_maximum[warp_] = warp_maximum;
    sync();
    const int32_t maximum = __reduce_max_sync(0xFFFFFFFFu, shared_.warp_maximum[lane_ % kWarps]);
    const uint32_t weight = visible ? arith::key_weight(score - maximum, layer.z) : 0;
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
      sum_high = dot_unsigned_signed(
          high.x, v.x, dot_unsigned_signed(high.y, v.y, dot_unsigned_signed(high.z, v.z, dot_unsigned_signed(high.w, v.w, sum_high))));
      sum_low = dot_unsigned_signed(
          low.x, v.x, dot_unsigned_signed(low.y, v.y, dot_unsigned_signed(low.z, v.z, dot_unsigned_signed(low.w, v.w, sum_low))));
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
        store_tagged(part, static_cast<uint32_t>(maximum), tag_), store_tagged(part + 1, arith::bits_of(static_cast<float>(weights)), tag_);
    }
  }

  // The block's share of the results, as bytes: chunks in ascending order. A thread has a channel; four make a word.
  __device__ void fold(const RowLayer& layer) {
    constexpr int32_t kAhead = 4;
    const int32_t chunks = chunk_count(layer);
    const Share words = share_of(query_width_ / 4);
    for (int32_t at = tid_; at < (4 * words.count + 31) / 32 * 32; at += kThreads) {  // whole warps
      const int32_t channel = 4 * words.first + min(at, 4 * words.count - 1), head = channel / kHeadDim;
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
          const float factor = maximum == INT32_MIN ? 0.0f : arith::exp2_product(later ? maximum - most : most - maximum, layer.z);
          const auto folded = [&](float before, float chunk) { return arith::fma(later ? before : chunk, factor, later ? chunk : before); };
          weight = folded(weight, arith::float_of(words[2 * kAhead + i]));
          total = folded(total, arith::float_of(words[i]));
          maximum = max(maximum, most);
        }
      }
      const float scale = layer.out_inverse[head / (step_.heads / step_.kv_heads) * kHeadDim + channel % kHeadDim];
      const auto byte = static_cast<uint8_t>(arith::quantise(arith::mul(total, arith::divide(1.0f, weight)), scale));
      uint32_t word = static_cast<uint32_t>(byte) << 8 * (at % 4);
      word |= __shfl_xor_sync(0xFFFFFFFFu, word, 1);
      word |= __shfl_xor_sync(0xFFFFFFFFu, word, 2);
      if (at % 4 == 0 && at < 4 * words.count) store_tagged(step_.a + words.first + at / 4, word, tag_);
    }
  }

  const int32_t tid_ = static_cast<int32_t>(threadIdx.x), warp_ = tid_ / 32, lane_ = tid_ % 32;
  const RowStep& step_;
  Shared& shared_;
  uint8_t* const ring_;  // the warp's: slots of pieces
  uint8_t* const a_;     // a product's activations; in attention, queries and the newest key and value
  Run* const runs_;      // of all matrices
  const int32_t matrices_, query_width_, kv_width_;
  const int32_t position_ = step_.segment->position;
  // What the warp reads next, and what it asks for next.
  int32_t slot_ = 0;
  uint32_t parity_ = 0;
  int32_t matrix_ = 0, left_ = 0;  // after this one; pieces of this one
  const int8_t* from_ = nullptr;
  int32_t met_ = 0;                                                               // arrivals when all blocks will have met
  uint32_t tag_ = static_cast<uint32_t>(step_.counters[2]), row_tag_ = 2 * tag_;  // of the layer; of the residual stream
  arith::bf16 x_ = 0;  // of the residual stream, the element that this thread ends
};

}  // namespace row_step_detail

template <int kHeadDim>
__global__ void __launch_bounds__(row_step_detail::kThreads, 1) row_step_kernel(const __grid_constant__ RowStep step) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ row_step_detail::Shared shared;
  row_step_detail::RowStepper<kHeadDim>(step, shared, memory).run();
#else
  __trap();  // never launched elsewhere
#endif
}

}  // namespace kaiju::cuda
