// The steps of prefill attention with scales on Hopper: the map of shared memory, the copies into it, and what a
// warpgroup computes for 64 rows. Two kernels use them (sm90_attention_scaled_prefill.cuh,
// sm90_attention_scaled_wide.cuh).
//
// Keys come with the scales of their block. A score is a float: the integer sum becomes the float 1.5 * 2^23 more by an
// addition to its bits, and one fma subtracts that and multiplies by the key's scale. The first pass over a chunk also
// finds the largest scale of a value that each row sees. The second pass computes the weights of keys, whose sums are
// kept, and from these the weights of values, whose bytes are the left operand of the second product.
#pragma once

#include <algorithm>

#include "sm90_attention_prefill_steps.cuh"
#include "sm90_attention_scaled_weight.cuh"

namespace kaiju::cuda {

struct ScaledPrefillWork : AttentionWork {  // of `args` only `queries` and `heads` are set
  const float* z;                           // [rows, heads]
  const float* value_step;                  // [kv_heads, head_dim]
  float* out;                               // [rows, heads, head_dim]
};

// Where things are in shared memory. With 256 channels two warpgroups share 64 rows, and each has half of the channels
// of their sums; else each has 64 rows of its own.
template <int kHeadDim>
struct ScaledMap {
  static constexpr bool kShared = kHeadDim == 256;
  static constexpr int32_t kRows = kShared ? kTileRows : kWideRows;        // of a tile
  static constexpr int32_t kChannels = kShared ? kHeadDim / 2 : kHeadDim;  // of a warpgroup's sums
  static constexpr int32_t kScales = 4 * kBlockTokens;  // bytes of a block: of 64 keys, then of 64 values
  static constexpr int32_t kKeyBytes = kTileBytes<kHeadDim> + kScales, kValueBytes = kTileBytes<kHeadDim>;
  static constexpr int32_t kTotalBytes = kTileRows * kChannels * static_cast<int32_t>(sizeof(float));
  static constexpr int32_t kWeightBytes = kTileRows * kBlockTokens;  // one byte of the weights of 64 keys
  static constexpr int32_t kTiles = kRingBarrierBytes;
  static constexpr int32_t kSees = kTiles + static_cast<int32_t>(TileRing::kBytes);
  static constexpr int32_t kRowTotals = kSees + kWideRows * static_cast<int32_t>(sizeof(RowSees));
  // What warpgroups that share rows tell one another of a chunk.
  static constexpr int32_t kMaxima = kRowTotals + kWideRows * static_cast<int32_t>(sizeof(RowTotal));
  static constexpr int32_t kSums = kMaxima + (kShared ? kWideRows * static_cast<int32_t>(sizeof(float2)) : 0);
  static constexpr int32_t kQueries = (kSums + (kShared ? kWideRows * 4 : 0) + 127) / 128 * 128;
  static constexpr int32_t kWeights = kQueries + kRows * kHeadDim;
  static constexpr int32_t kTotals = kWeights + (kShared ? 4 * kWeightBytes : 0);
  static constexpr int32_t kRings = kTotals + 2 * kTotalBytes;
  static constexpr int32_t kMostSlots = kRingBarrierBytes / 32, kMostBytes = 227 << 10;
  static constexpr int32_t kKeySlots = kShared ? 4 : 12;
  static constexpr int32_t kValueSlots =
      std::min((kMostBytes - kRings - kKeySlots * kKeyBytes) / kValueBytes, kMostSlots);
  static constexpr int32_t kBytes = kRings + kKeySlots * kKeyBytes + kValueSlots * kValueBytes;
  static_assert((kShared || kKeySlots > kChunkBlocks) && kValueSlots >= 2);

  __device__ static Ring ring(uint32_t base, bool values) {
    const int32_t barriers = values ? kRingBarrierBytes / 2 : 0, data = kRings + (values ? kKeySlots * kKeyBytes : 0);
    return {base + static_cast<uint32_t>(barriers), base + static_cast<uint32_t>(barriers + kRingBarrierBytes / 4),
            base + static_cast<uint32_t>(data), values ? kValueSlots : kKeySlots};
  }
};

// One warp: the keys, with the scales of their blocks, or the values of all tiles into a ring. The warp of the keys
// finds the tiles.
template <int kHeadDim>
__device__ void produce_scaled(const AttentionWork& work, uint8_t* memory, bool values) {
  using Map = ScaledMap<kHeadDim>;
  constexpr int32_t kBytes = kTileBytes<kHeadDim>;
  Ring ring = Map::ring(shared_address(memory), values);
  TileRing tiles(memory + Map::kTiles);
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32, slot_bytes = values ? Map::kValueBytes : Map::kKeyBytes;
  Walk walk(work);
  for (;;) {
    const auto find = [&] {
      RowTile found;
      return walk.next(static_cast<int32_t>(blockIdx.x), static_cast<int32_t>(gridDim.x), Map::kRows, found)
                 ? found
                 : RowTile{};
    };
    const RowTile& tile = values ? tiles.front() : tiles.put(find());
    if (tile.rows == 0) return wait_for_inputs();
    const std::byte* keys =
        work.kv.pool + work.kv.slot_offset + int64_t{tile.group} * KvSlot::head_bytes(kHeadDim, true);
    for (int32_t chunk = tile.chunk; chunk < tile.end_chunk; ++chunk) {
      const int32_t begin = tile.begin_block(chunk), count = tile.end_block(chunk) - begin;
      const BlockId ids = lane < count ? tile.table[begin + lane] : 0;  // a lane has one
      // Where warpgroups share rows, keys come for each pass, an even number of slots: each is always the same one's.
      const int32_t each = Map::kShared && !values ? (count + 1) / 2 * 2 : count;
      for (int32_t n = 0; n < (Map::kShared && !values ? 2 * each : each); ++n) {
        const int32_t i = n < each ? n : n - each;
        if (begin + i >= tile.position / kBlockTokens) wait_for_inputs();  // kernels of this step write it
        const std::byte* from = keys + __shfl_sync(0xFFFFFFFFu, ids, i) * work.kv.block_bytes;
        if (lane == 0) {
          const uint32_t full = ring.full + 8 * ring.slot,
                         to = ring.data + static_cast<uint32_t>(ring.slot * slot_bytes);
          barrier_wait(ring.empty + 8 * ring.slot, ring.phase ^ 1);
          if (Map::kShared && i == count) {  // a slot without keys
            barrier_arrive(full);
          } else {
            barrier_expect(full, static_cast<uint32_t>(slot_bytes));
            copy_bulk(to, values ? from + kBytes : from, kBytes, full);
            if (!values) copy_bulk(to + kBytes, from + 2 * kBytes, Map::kScales, full);
          }
        }
        __syncwarp();
        ring.advance();
      }
    }
    if (values) tiles.pop();
  }
}

// What a warpgroup does with a tile of rows.
template <int kHeadDim>
class ScaledSteps {
 protected:
  using Map = ScaledMap<kHeadDim>;
  __device__ ScaledSteps(const ScaledPrefillWork& work, uint8_t* memory, int32_t warpgroup)
      : work_(work), memory_(memory), warpgroup_(warpgroup), tiles_(memory + Map::kTiles) {
    const uint32_t base = shared_address(memory);
    keys_ = Map::ring(base, false);
    values_ = Map::ring(base, true);
    queries_ = base + static_cast<uint32_t>(Map::kQueries + first_row() * kHeadDim);
    key_operand_ = operand(keys_.data, kBlockTokens);
    value_operand_ = operand(values_.data, kHeadDim);
    query_operand_ = operand(queries_, kTileRows);
  }

  static constexpr int kSteps = kHeadDim / 32;  // of a score
  static constexpr int kChannels = Map::kChannels;

  __device__ static int32_t thread() { return static_cast<int32_t>(threadIdx.x) % 128; }
  __device__ static int32_t warp() { return thread() / 32; }
  __device__ static int32_t lane() { return thread() % 32; }
  __device__ static int32_t column() { return lane() % 4 * 2; }  // first of the two of each eight
  __device__ int32_t first_row() const { return Map::kShared ? 0 : warpgroup_ * kTileRows; }
  // The upper (0) or lower (1) row of this thread, of the tile's and of all that warpgroups have.
  __device__ int32_t row(int r) const { return first_row() + row_of_warpgroup(r); }
  __device__ static int32_t row_of_warpgroup(int r) { return warp() * 16 + lane() / 4 + 8 * r; }
  __device__ int32_t place(int r) const { return warpgroup_ * kTileRows + row_of_warpgroup(r); }
  __device__ RowSees& sees(int r) const { return reinterpret_cast<RowSees*>(memory_ + Map::kSees)[place(r)]; }
  __device__ RowTotal& row_total(int r) const {
    return reinterpret_cast<RowTotal*>(memory_ + Map::kRowTotals)[place(r)];
  }
  __device__ bool writes_rows() const { return lane() % 4 == 0; }
  // Two channels of both rows, of the j-th eight.
  __device__ float4& total(int j) const {
    return reinterpret_cast<float4*>(memory_ + Map::kTotals +
                                     warpgroup_ * Map::kTotalBytes)[(warp() * (kChannels / 8) + j) * 32 + lane()];
  }
  __device__ int32_t first_channel() const { return Map::kShared ? warpgroup_ * kChannels : 0; }
  // Of a row among those of queries.
  __device__ int64_t head_row(const RowTile& tile, int32_t row) const {
    const int32_t token = row / work_.heads, head = row - token * work_.heads;
    return int64_t{tile.batch_row + token} * work_.args.heads + tile.group * work_.heads + head;
  }
  __device__ int32_t first_visible(int32_t position) const {
    return work_.kv.window > 0 && position >= work_.kv.window ? position - work_.kv.window + 1 : 0;
  }
  // Of all that have the same rows.
  __device__ void sync_rows() const {
    if constexpr (Map::kShared)
      await_warpgroup(5);
    else
      sync_warpgroup(1 + warpgroup_);
  }
  // Loads the tile's queries, and what belongs to this thread's rows.
  __device__ void begin(const RowTile& tile) {
    sync_rows();  // the last tile's queries have been read
    constexpr int kColumns = Map::kShared ? 4 : 2, kPieces = kHeadDim / 16 / kColumns;
    const int32_t of_rows = thread() + (Map::kShared ? 128 * warpgroup_ : 0),
                  mine = tile.first_row + first_row() + of_rows % kTileRows;
    const int8_t* from = work_.args.queries + head_row(tile, min(mine, tile.rows - 1)) * kHeadDim;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int32_t piece = kColumns * i + of_rows / kTileRows;
      uint4 bytes = reinterpret_cast<const uint4*>(from)[piece];
      if (mine >= tile.rows) bytes = uint4{0, 0, 0, 0};
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(
                       queries_ + static_cast<uint32_t>((piece * kTileRows + of_rows % kTileRows) * kColumnBytes)),
                   "r"(bytes.x), "r"(bytes.y), "r"(bytes.z), "r"(bytes.w)
                   : "memory");
    }
    publish_stores();
    for (int r = 0; r < 2; ++r) {
      const int32_t at = tile.first_row + row(r), position = tile.position + at / work_.heads;
      const bool there = at < tile.rows;
      if (writes_rows()) sees(r) = {there ? first_visible(position) : 0, there ? position : -1};
      z_[r] = there ? work_.z[head_row(tile, at)] : 0.0f;
      floor_[r] = ScaledRow::floor_of(z_[r]);
    }
    sync_rows();
    // What every row of the warpgroup sees needs no mask.
    const int32_t first = tile.first_row + first_row(), last = min(first + kTileRows, tile.rows) - 1;
    all_from_ = last < first ? 0 : first_visible(tile.position + last / work_.heads);
    all_to_ = last < first ? INT32_MAX : tile.position + first / work_.heads;
  }

  __device__ bool is_masked(int32_t block) const {
    return block * kBlockTokens < all_from_ || block * kBlockTokens + kBlockTokens - 1 > all_to_;
  }
  // Which of 32 keys, from `key` on, the upper or lower row sees: bit 0 is the first that this thread has scores of.
  __device__ uint32_t seen(int r, int32_t key) const {
    const auto below = [](int32_t count) {
      uint32_t bits;
      asm("bmsk.clamp.b32 %0, 0, %1;" : "=r"(bits) : "r"(max(count, 0)));
      return bits;
    };
    return (below(sees(r).to + 1 - key) & ~below(sees(r).from - key)) >> column();
  }

  // ---- scores ----

  // The scales of this thread's two keys of the n-th eight of a slot: of the keys, or of the values.
  __device__ __forceinline__ float2 two_scales(int32_t slot, int n, bool of_values) const {
    const int32_t at = slot * Map::kKeyBytes + kTileBytes<kHeadDim> + 16 * n + (of_values ? Map::kScales / 2 : 0);
    uint32_t both;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(both) : "r"(keys_.data + static_cast<uint32_t>(at + 2 * column())));
    return {arith::float_of(both << 16), arith::float_of(both & 0xFFFF0000u)};
  }
  // The scores of two keys, for both rows, of their integer sums. No sum is beyond 2^22.
  __device__ __forceinline__ static void scale_scores(const int32_t* sums, float2 scale, float (&s)[4]) {
    using namespace arith;
    const float back[2] = {mul(scale.x, -kRoundBias), mul(scale.y, -kRoundBias)};  // exact, as scales have eight bits
#pragma unroll
    for (int i = 0; i < 4; ++i)
      s[i] = fma(__int_as_float(sums[i] + kBiasBits), i % 2 == 0 ? scale.x : scale.y, back[i % 2]);
  }

  // Integer sums of 2 kCount keys of a slot, from key `first` on.
  template <int kCount>
  __device__ __forceinline__ void score(int32_t (&s)[kCount], int32_t slot, int32_t first = 0) {
    const uint64_t b = advanced(key_operand_, slot * Map::kKeyBytes + first * kColumnBytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      multiply_shared(s, advanced(query_operand_, k * 2 * kTileRows * kColumnBytes),
                      advanced(b, k * 2 * kBlockTokens * kColumnBytes), k > 0);
    wgmma_commit();
  }

  // ---- the first pass ----

  // Of 2 kCount keys of a slot, from the `first` eight on.
  template <int kCount>
  __device__ __forceinline__ void take_maximum(const int32_t (&sums)[kCount], int32_t slot, int first = 0) {
#pragma unroll
    for (int n = 0; n < kCount / 4; ++n) {
      float s[4];
      scale_scores(sums + 4 * n, two_scales(slot, first + n, false), s);
#pragma unroll
      for (int r = 0; r < 2; ++r) maximum_[r] = fmaxf(maximum_[r], fmaxf(s[2 * r], s[2 * r + 1]));
    }
  }
  // Of what each row sees; and the largest scales of values.
  template <int kCount>
  __device__ __forceinline__ void take_seen(const int32_t (&sums)[kCount], int32_t slot, int32_t block, int first = 0) {
#pragma unroll
    for (int n = 0; n < kCount / 4; ++n) {
      float s[4];
      scale_scores(sums + 4 * n, two_scales(slot, first + n, false), s);
      const float2 of_values = two_scales(slot, first + n, true);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint32_t bits = seen(r, block * kBlockTokens + (first + n) / 4 * 32) >> (first + n) % 4 * 8;
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (bits >> i & 1) {
            maximum_[r] = fmaxf(maximum_[r], s[2 * r + i]);
            largest_[r] = fmaxf(largest_[r], i == 0 ? of_values.x : of_values.y);
          }
      }
    }
  }
  // The largest scale of a value of a slot, as bits of two scales, each the larger of it and `most`; by a lane of each
  // warp its part.
  __device__ uint32_t larger_scales(uint32_t most, int32_t slot) const {
    const int32_t at = slot * Map::kKeyBytes + kTileBytes<kHeadDim> + Map::kScales / 2 + 4 * lane();
    uint32_t both;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(both) : "r"(keys_.data + static_cast<uint32_t>(at)));
    return __vmaxu2(most, both);
  }
  __device__ static float largest_of(uint32_t most) {
    return arith::float_of(__reduce_max_sync(0xFFFFFFFFu, max(most & 0xFFFFu, most >> 16)) << 16);
  }
  __device__ void find_inverse(int r) { inverse_[r] = largest_[r] > 0.0f ? arith::divide(1.0f, largest_[r]) : 0.0f; }
  __device__ static float quad_most(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
  }

  // ---- the second pass ----

  // The weights of half a slot's values (32 keys), as the left operand of the second product: p[0 ... 3] high bytes,
  // p[4 ... 7] low bytes. Adds the weights of keys to the sums.
  template <bool kMasked>
  __device__ __forceinline__ void weigh_half(const int32_t* sums, uint32_t* p, int half, int32_t slot, int32_t block) {
#pragma unroll
    for (int j = 0; j < 4; j += 2) {  // of 16 keys this thread's four, and both rows
      float s[2][4];
      float2 value_scale[2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        scale_scores(sums + 4 * (j + n), two_scales(slot, 4 * half + j + n, false), s[n]);
        value_scale[n] = two_scales(slot, 4 * half + j + n, true);
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float score[4] = {s[0][2 * r], s[0][2 * r + 1], s[1][2 * r], s[1][2 * r + 1]};
        float scale[4] = {value_scale[0].x, value_scale[0].y, value_scale[1].x, value_scale[1].y};
        uint32_t key[4], w[4];
        weigh_keys(score, [&](int) { return ScaledRow{maximum_[r], z_[r], floor_[r]}; }, key);
        if constexpr (kMasked) {
          const uint32_t bits = seen(r, block * kBlockTokens + half * 32) >> 8 * j;
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (!(bits >> (i / 2 * 8 + i % 2) & 1)) key[i] = kBiasBits, scale[i] = 0.0f;  // else it may be no number
        }
        sum_[r] += (key[0] + key[1]) + (key[2] + key[3]);  // and of four biases
#pragma unroll
        for (int i = 0; i < 4; ++i) w[i] = weigh_value(key[i], arith::mul(scale[i], inverse_[r]));
        const uint32_t first = __byte_perm(w[0], w[1], 0x5140), second = __byte_perm(w[2], w[3], 0x5140);
        p[j + r] = __byte_perm(first, second, 0x7632);
        p[4 + j + r] = __byte_perm(first, second, 0x5410);
      }
    }
  }
  __device__ __forceinline__ void weigh(const int32_t* sums, uint32_t* p, int half, int32_t slot, int32_t block) {
    // Where warpgroups share rows a chunk at the edge is masked as a whole.
    if (__builtin_expect(masked_ && (Map::kShared || is_masked(block)), false))
      weigh_half<true>(sums, p, half, slot, block);
    else
      weigh_half<false>(sums, p, half, slot, block);
  }

  __device__ void release(uint32_t barrier) { barrier_arrive_warp(barrier, lane()); }
  __device__ void await_values() { barrier_wait(values_.full + 8 * values_.slot, values_.phase); }
  __device__ void release_values() {
    release(values_.empty + 8 * values_.slot);
    values_.advance();
  }
  // The compiler does not move code from below to above.
  __device__ __forceinline__ void fence() const {
    if (work_.segment_count < 0) __trap();
  }

  // ---- totals ----

  // A chunk's sums, by integers where these hold them: as TileSteps::whole.
  __device__ __forceinline__ void whole(const int32_t (&high)[kChannels / 2], const int32_t (&low)[kChannels / 2],
                                        uint32_t most, float (&sums)[kChannels / 2]) const {
    using namespace arith;
    const bool small = __all_sync(0xFFFFFFFFu, most <= INT32_MAX / 128);
#pragma unroll
    for (int i = 0; i < kChannels / 2; ++i)
      sums[i] = mul(small ? static_cast<float>(256 * high[i] + low[i])
                          : fma(256.0f, static_cast<float>(high[i]), static_cast<float>(low[i])),
                    largest_[i / 2 % 2]);
  }
  // The chunk joins the totals. A row that sees nothing of it passes it over: a total may be -0, which + 0 would
  // change.
  __device__ void fold(const int32_t (&high)[kChannels / 2], const int32_t (&low)[kChannels / 2],
                       const uint32_t (&weights)[2], bool first) {
    float before[2];
    for (int r = 0; r < 2; ++r) before[r] = first ? kLeastScore : __int_as_float(row_total(r).maximum);
    const ScaledJoin by[2] = {{before[0], maximum_[0], z_[0]}, {before[1], maximum_[1], z_[1]}};
    const bool sees[2] = {maximum_[0] != kLeastScore, maximum_[1] != kLeastScore};
    const auto join = [&](int r, float total, float chunk) { return sees[r] ? by[r](total, chunk) : total; };
    for (int r = 0; r < 2; ++r) {
      const float weight = first ? 0.0f : row_total(r).weight;
      __syncwarp();  // all have read it
      if (writes_rows())
        row_total(r) = {__float_as_int(fmaxf(before[r], maximum_[r])), join(r, weight, static_cast<float>(weights[r]))};
    }
    __syncwarp();
    float sums[kChannels / 2];
    whole(high, low, max(weights[0], weights[1]), sums);
    const auto each = [&](auto join_one) {
#pragma unroll
      for (int j = 0; j < kChannels / 8; ++j) {
        const float4 t = first ? float4{0.0f, 0.0f, 0.0f, 0.0f} : total(j);
        total(j) = {join_one(0, t.x, sums[4 * j]), join_one(0, t.y, sums[4 * j + 1]), join_one(1, t.z, sums[4 * j + 2]),
                    join_one(1, t.w, sums[4 * j + 3])};
      }
    };
    if (__any_sync(0xFFFFFFFFu, by[0].later || by[1].later || !sees[0] || !sees[1]))
      each(join);
    else
      each([&](int r, float t, float o) { return arith::fma(o, by[r].factor, t); });
  }
  __device__ void finish(const RowTile& tile) {
    __syncwarp();
    const float* step = work_.value_step + int64_t{tile.group} * kHeadDim + first_channel();
    float inverse[2];
    float* to[2];
    for (int r = 0; r < 2; ++r) {
      const int32_t at = tile.first_row + row(r);
      inverse[r] = arith::divide(1.0f, row_total(r).weight);
      to[r] = at < tile.rows ? work_.out + head_row(tile, at) * kHeadDim + first_channel() : nullptr;
    }
#pragma unroll
    for (int j = 0; j < kChannels / 8; ++j) {
      const float4 t = total(j);
      const int32_t channel = 8 * j + column();
      const float2 c = *reinterpret_cast<const float2*>(step + channel);
      using arith::mul;
      if (to[0])
        *reinterpret_cast<float2*>(to[0] + channel) = {mul(mul(t.x, inverse[0]), c.x), mul(mul(t.y, inverse[0]), c.y)};
      if (to[1])
        *reinterpret_cast<float2*>(to[1] + channel) = {mul(mul(t.z, inverse[1]), c.x), mul(mul(t.w, inverse[1]), c.y)};
    }
  }

  const ScaledPrefillWork& work_;
  uint8_t* memory_;
  int32_t warpgroup_;  // 0 or 1 of those that compute
  TileRing tiles_;
  Ring keys_, values_;
  uint64_t key_operand_, value_operand_, query_operand_;
  uint32_t queries_;  // in shared memory

  int32_t all_from_, all_to_;
  bool masked_;  // whether a row does not see some key of the chunk
  // Of this thread's two rows: of the row, then of the chunk.
  float z_[2], floor_[2];
  float maximum_[2], largest_[2], inverse_[2];  // of scores; of scales of values
  uint32_t sum_[2];                             // of keys' weights
};

}  // namespace kaiju::cuda
