// Attention of a step of one row in version 2 (sm90_scaled_row_step.cuh): the block's units, each a chunk of keys with
// some query heads of a KV head, and its share of the results.
#pragma once

#include "sm90_scaled_row_step.cuh"

namespace kaiju::cuda::scaled_row_step_detail {

// Block `block` of the unit's chunk, from the KV head's keys on; for one that the row does not see the nearest.
template <int kHeadDim>
__device__ inline const uint4* ScaledRowStepper<kHeadDim>::keys_of(const ScaledRowLayer& layer, const UnitPlace& place,
                                                                   int32_t block) {
  const KvSlot& kv = layer.kv;
  return reinterpret_cast<const uint4*>(kv.pool + place.block[block] * kv.block_bytes + kv.slot_offset +
                                        place.unit.g * static_cast<int32_t>(KvSlot::head_bytes(kHeadDim, true)));
}

template <int kHeadDim>
__device__ inline const uint16_t* ScaledRowStepper<kHeadDim>::scales_of(const uint4* keys) {
  return reinterpret_cast<const uint16_t*>(keys + 2 * kBlockTokens * kPieces);
}

// Key tid_ of the unit. What is not seen is masked, or its weights are zero.
template <int kHeadDim>
__device__ __forceinline__ void ScaledRowStepper<kHeadDim>::load_key(const uint4* keys, Pieces& key) const {
  const uint4* const from = keys + tid_ % kBlockTokens;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) key[i] = __ldcg(from + i * kBlockTokens);
}

// The lane's part of the keys' values, of its channel.
template <int kHeadDim>
__device__ __forceinline__ void ScaledRowStepper<kHeadDim>::load_values(const ScaledRowLayer& layer,
                                                                        const UnitPlace& place, Pieces& value) const {
#pragma unroll
  for (int b = 0; b < kPartBlocks; ++b) {
    const uint4* const from = keys_of(layer, place, part() * kPartBlocks + b) + kBlockTokens * kPieces + channel();
#pragma unroll
    for (int i = 0; i < 4; ++i) value[4 * b + i] = __ldcg(from + i * kHeadDim);
  }
}

// The sums of the block's units, at step_.sums [chunk][query width], and their maxima, weights and z at step_.parts
// [chunk][heads][4]; chunks counted from the first that is seen.
template <int kHeadDim>
__device__ __forceinline__ void ScaledRowStepper<kHeadDim>::attend(const ScaledRowLayer& layer) {
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

template <int kHeadDim>
__device__ inline float* ScaledRowStepper<kHeadDim>::scores() const {
  return reinterpret_cast<float*>(a_ + kScoreOffset) + tid_;
}  // a row for each head

template <int kHeadDim>
__device__ __forceinline__ void ScaledRowStepper<kHeadDim>::attend_unit(const ScaledRowLayer& layer,
                                                                        const UnitPlace& place) {
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
template <int kHeadDim>
__device__ inline int32_t ScaledRowStepper<kHeadDim>::ordered(uint32_t bits) {
  const auto x = static_cast<int32_t>(bits);
  return x ^ (x >> 31 & 0x7FFFFFFF);
}

template <int kHeadDim>
__device__ inline float ScaledRowStepper<kHeadDim>::maximum_of(int32_t h) const {
  const int32_t most = __reduce_max_sync(0xFFFFFFFFu, shared_.warp_maximum[h][lane_ % kWarps]);
  return arith::float_of(static_cast<uint32_t>(ordered(static_cast<uint32_t>(most))));
}

// The unit's queries, and the newest key and value, as bytes in shared memory; where nobody else does it, those also
// go to the cache. A warp has one.
template <int kHeadDim>
__device__ __forceinline__ void ScaledRowStepper<kHeadDim>::prepare(const ScaledRowLayer& layer, const UnitPlace& place,
                                                                    bool is_newest) {
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
    const bool writes = unit.writes && (layer.kv.kind != BlockKind::kGlobal || position_ >= step_.segment->write_from);
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

template <int kHeadDim>
__device__ inline int32_t ScaledRowStepper<kHeadDim>::weighted(const uint4& weights, const uint4& v) {
  return dot_unsigned_signed(
      weights.x, v.x,
      dot_unsigned_signed(weights.y, v.y, dot_unsigned_signed(weights.z, v.z, dot_unsigned_signed(weights.w, v.w, 0))));
}

// The sums of a head's channels, to `to` [head_dim].
template <int kHeadDim>
__device__ __forceinline__ void ScaledRowStepper<kHeadDim>::add_values(const Pieces& value, int32_t h, bool is_newest,
                                                                       float largest, uint64_t* to) const {
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
    const auto w = static_cast<int32_t>(shared_.newest_weight[h]), v = static_cast<int32_t>(newest_value()[channel()]);
    sum_high += (w >> 8) * v, sum_low += (w & 255) * v;
  }
  const float sum = arith::fma(256.0f, static_cast<float>(sum_high), static_cast<float>(sum_low));
  store_tagged(to + channel(), arith::bits_of(arith::mul(sum, largest)), tag_);
}

// The block's share of the results: chunks in ascending order. First all threads fetch what was stored of each chunk,
// a warp a chunk; then a thread has a channel.
template <int kHeadDim>
__device__ inline void ScaledRowStepper<kHeadDim>::fold(const ScaledRowLayer& layer) {
  const int32_t chunks = shared_.places[kind_of_blocks(layer)].chunk_count, first = shared_.result.first,
                count = shared_.result.count, first_head = first / kHeadDim, last_head = (first + count - 1) / kHeadDim;
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

}  // namespace kaiju::cuda::scaled_row_step_detail
