// Attention with scales of many rows (prefill) on Hopper: head_dim 64 and 128. It divides the work, copies and goes over
// a chunk twice as sm90_attention_prefill.cuh does; this file has what scales change.
//
// Keys come with the scales of their block. A score is a float: the integer sum becomes the float 1.5 * 2^23 more by an
// addition to its bits, and one fma subtracts that and multiplies by the key's scale. The first pass over a chunk also
// finds the largest scale of a value that each row sees. The second pass computes the weights of keys, whose sums are
// kept, and from these the weights of values, whose bytes are the left operand of the second product.
//
// Bound: wgmma, with 8 operations for each key, row and channel where 4 are counted, plus about 24 thread instructions
// for each score.
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

// Where things are in shared memory.
template <int kHeadDim>
struct ScaledMap {
  static constexpr int32_t kScales = 4 * kBlockTokens;  // bytes of a block: of 64 keys, then of 64 values
  static constexpr int32_t kKeyBytes = kTileBytes<kHeadDim> + kScales, kValueBytes = kTileBytes<kHeadDim>;
  static constexpr int32_t kTotalBytes = kTileRows * kHeadDim * static_cast<int32_t>(sizeof(float));
  static constexpr int32_t kTiles = kRingBarrierBytes;
  static constexpr int32_t kSees = kTiles + static_cast<int32_t>(TileRing::kBytes);
  static constexpr int32_t kRowTotals = kSees + kWideRows * static_cast<int32_t>(sizeof(RowSees));
  static constexpr int32_t kQueries =
      (kRowTotals + kWideRows * static_cast<int32_t>(sizeof(RowTotal)) + 127) / 128 * 128;
  static constexpr int32_t kTotals = kQueries + kWideRows * kHeadDim;
  static constexpr int32_t kRings = kTotals + 2 * kTotalBytes;
  static constexpr int32_t kMostSlots = kRingBarrierBytes / 32, kMostBytes = 227 << 10;
  static constexpr int32_t kKeySlots = std::min(12, kMostSlots);
  static constexpr int32_t kValueSlots =
      std::min((kMostBytes - kRings - kKeySlots * kKeyBytes) / kValueBytes, kMostSlots);
  static constexpr int32_t kBytes = kRings + kKeySlots * kKeyBytes + kValueSlots * kValueBytes;
  static_assert(kKeySlots > kChunkBlocks && kValueSlots >= 2);

  __device__ static Ring ring(uint32_t base, bool values) {
    const int32_t barriers = values ? kRingBarrierBytes / 2 : 0,
                  data = kRings + (values ? kKeySlots * kKeyBytes : 0);
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
      return walk.next(static_cast<int32_t>(blockIdx.x), static_cast<int32_t>(gridDim.x), kWideRows, found) ? found
                                                                                                             : RowTile{};
    };
    const RowTile& tile = values ? tiles.front() : tiles.put(find());
    if (tile.rows == 0) return wait_for_inputs();
    const std::byte* keys =
        work.kv.pool + work.kv.slot_offset + int64_t{tile.group} * KvSlot::head_bytes(kHeadDim, true);
    for (int32_t chunk = tile.chunk; chunk < tile.end_chunk; ++chunk) {
      const int32_t begin = tile.begin_block(chunk), count = tile.end_block(chunk) - begin;
      const BlockId ids = lane < count ? tile.table[begin + lane] : 0;  // a lane has one
      for (int32_t i = 0; i < count; ++i) {
        if (begin + i >= tile.position / kBlockTokens) wait_for_inputs();  // kernels of this step write it
        const std::byte* from = keys + __shfl_sync(0xFFFFFFFFu, ids, i) * work.kv.block_bytes;
        if (lane == 0) {
          const uint32_t full = ring.full + 8 * ring.slot, to = ring.data + static_cast<uint32_t>(ring.slot * slot_bytes);
          barrier_wait(ring.empty + 8 * ring.slot, ring.phase ^ 1);
          barrier_expect(full, static_cast<uint32_t>(slot_bytes));
          copy_bulk(to, values ? from + kBytes : from, kBytes, full);
          if (!values) copy_bulk(to + kBytes, from + 2 * kBytes, Map::kScales, full);
        }
        __syncwarp();
        ring.advance();
      }
    }
    if (values) tiles.pop();
  }
}

// Half of a tile of 128 rows, by a warpgroup; both go from tile to tile together.
template <int kHeadDim>
class ScaledTiles {
  using Map = ScaledMap<kHeadDim>;

 public:
  __device__ ScaledTiles(const ScaledPrefillWork& work, uint8_t* memory, int32_t warpgroup)
      : work_(work), memory_(memory), warpgroup_(warpgroup), tiles_(memory + Map::kTiles) {
    const uint32_t base = shared_address(memory);
    keys_ = Map::ring(base, false);
    values_ = Map::ring(base, true);
    queries_ = base + static_cast<uint32_t>(Map::kQueries + first_row() * kHeadDim);
    key_operand_ = operand(keys_.data, kBlockTokens);
    value_operand_ = operand(values_.data, kHeadDim);
    query_operand_ = operand(queries_, kTileRows);
  }

  __device__ void run() {
    wait_for_inputs();
    if (warpgroup_ == 1) give_turn();  // the other is the first
    while (tiles_.front().rows > 0) {
      const RowTile& tile = tiles_.front();
      begin(tile);
      for (int32_t chunk = tile.chunk; chunk < tile.end_chunk; ++chunk) {
        const int32_t begin_block = tile.begin_block(chunk), end_block = tile.end_block(chunk);
        int32_t high[kHeadDim / 2], low[kHeadDim / 2];
        masked_ = is_masked(begin_block) || is_masked(end_block - 1);
        take_turn();
        find_maxima(begin_block, end_block);
        give_turn();
        sum_values(begin_block, end_block, high, low);
        fold(high, low, chunk == tile.chunk);
      }
      finish(tile);
      tiles_.pop();
    }
    if (warpgroup_ == 0) take_turn();  // the last that was given
  }

 private:
  static constexpr int kSteps = kHeadDim / 32;  // of a score

  __device__ static int32_t thread() { return static_cast<int32_t>(threadIdx.x) % 128; }
  __device__ static int32_t warp() { return thread() / 32; }
  __device__ static int32_t lane() { return thread() % 32; }
  __device__ static int32_t column() { return lane() % 4 * 2; }  // first of the two of each eight
  __device__ int32_t first_row() const { return warpgroup_ * kTileRows; }
  // The upper (0) or lower (1) row of this thread, of the tile's.
  __device__ int32_t row(int r) const { return first_row() + warp() * 16 + lane() / 4 + 8 * r; }
  __device__ RowSees& sees(int r) const { return reinterpret_cast<RowSees*>(memory_ + Map::kSees)[row(r)]; }
  __device__ RowTotal& row_total(int r) const { return reinterpret_cast<RowTotal*>(memory_ + Map::kRowTotals)[row(r)]; }
  __device__ bool writes_rows() const { return lane() % 4 == 0; }
  // Two channels of both rows, of the j-th eight.
  __device__ float4& total(int j) const {
    return reinterpret_cast<float4*>(memory_ + Map::kTotals +
                                     warpgroup_ * Map::kTotalBytes)[(warp() * (kHeadDim / 8) + j) * 32 + lane()];
  }
  // Of a row among those of queries.
  __device__ int64_t head_row(const RowTile& tile, int32_t row) const {
    const int32_t token = row / work_.heads, head = row - token * work_.heads;
    return int64_t{tile.batch_row + token} * work_.args.heads + tile.group * work_.heads + head;
  }
  __device__ int32_t first_visible(int32_t position) const {
    return work_.kv.window > 0 && position >= work_.kv.window ? position - work_.kv.window + 1 : 0;
  }
  __device__ void take_turn() { await_warpgroup(3 + warpgroup_); }
  __device__ void give_turn() { tell_warpgroup(4 - warpgroup_); }

  // Loads the tile's queries, and what belongs to this thread's rows.
  __device__ void begin(const RowTile& tile) {
    sync_warpgroup(1 + warpgroup_);  // the last tile's queries have been read
    constexpr int kPieces = kHeadDim / 32;
    const int32_t mine = tile.first_row + first_row() + thread() % kTileRows;
    const int8_t* from = work_.args.queries + head_row(tile, min(mine, tile.rows - 1)) * kHeadDim;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int32_t piece = 2 * i + thread() / kTileRows;
      uint4 bytes = reinterpret_cast<const uint4*>(from)[piece];
      if (mine >= tile.rows) bytes = uint4{0, 0, 0, 0};
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(
                       queries_ + static_cast<uint32_t>((piece * kTileRows + thread() % kTileRows) * kColumnBytes)),
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
    sync_warpgroup(1 + warpgroup_);
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

  __device__ __forceinline__ void take_maximum(const int32_t (&sums)[32], int32_t slot) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      float s[4];
      scale_scores(sums + 4 * n, two_scales(slot, n, false), s);
#pragma unroll
      for (int r = 0; r < 2; ++r) maximum_[r] = fmaxf(maximum_[r], fmaxf(s[2 * r], s[2 * r + 1]));
    }
  }
  // Of what each row sees; and the largest scales of values.
  __device__ __forceinline__ void take_seen(const int32_t (&sums)[32], int32_t slot, int32_t block) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      float s[4];
      scale_scores(sums + 4 * n, two_scales(slot, n, false), s);
      const float2 of_values = two_scales(slot, n, true);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint32_t bits = seen(r, block * kBlockTokens + n / 4 * 32) >> n % 4 * 8;
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (bits >> i & 1) {
            maximum_[r] = fmaxf(maximum_[r], s[2 * r + i]);
            largest_[r] = fmaxf(largest_[r], i == 0 ? of_values.x : of_values.y);
          }
      }
    }
  }
  // The largest scale of a value of `count` slots, from the ring's present one on; by a warp.
  __device__ float largest_scale(int32_t count) const {
    uint32_t most = 0;
    for (int32_t i = 0, slot = keys_.slot; i < count; ++i) {
      const int32_t at = slot * Map::kKeyBytes + kTileBytes<kHeadDim> + Map::kScales / 2 + 4 * lane();
      uint32_t both;
      asm volatile("ld.shared.b32 %0, [%1];" : "=r"(both) : "r"(keys_.data + static_cast<uint32_t>(at)));
      most = __vmaxu2(most, both);
      if (++slot == keys_.count) slot = 0;
    }
    return arith::float_of(__reduce_max_sync(0xFFFFFFFFu, max(most & 0xFFFFu, most >> 16)) << 16);
  }

  // First time over the chunk's keys. Leaves the ring where it was: the keys stay.
  __device__ void find_maxima(int32_t block, int32_t end) {
    maximum_[0] = maximum_[1] = kLeastScore;
    largest_[0] = largest_[1] = 0.0f;
    const int32_t count = end - block;
    Ring at = keys_;
    int32_t taken = keys_.slot;
    const auto score_next = [&](int32_t (&s)[32]) {
      barrier_wait(at.full + 8 * at.slot, at.phase);
      score(s, at.slot);
      at.advance();
    };
    const auto next_taken = [&] {
      const int32_t slot = taken;
      if (++taken == keys_.count) taken = 0;
      return slot;
    };
    if (count == kChunkBlocks && !masked_) {  // most chunks: two slots' scores under way
      int32_t s[2][32];
      score_next(s[0]);
#pragma unroll
      for (int i = 0; i < kChunkBlocks; ++i) {
        if (i + 1 < kChunkBlocks) score_next(s[(i + 1) % 2]);
        i + 1 < kChunkBlocks ? wgmma_wait<1>() : wgmma_wait<0>();
        wgmma_settle(s[i % 2]);
        take_maximum(s[i % 2], next_taken());
      }
    } else {
      for (; block < end; ++block) {
        int32_t s[32];
        score_next(s);
        wgmma_wait<0>();
        wgmma_settle(s);
        masked_ ? take_seen(s, next_taken(), block) : take_maximum(s, next_taken());
      }
    }
    if (!masked_) largest_[0] = largest_[1] = largest_scale(count);
    for (int r = 0; r < 2; ++r) {
      maximum_[r] = quad_most(maximum_[r]);
      largest_[r] = quad_most(largest_[r]);
      inverse_[r] = largest_[r] > 0.0f ? arith::divide(1.0f, largest_[r]) : 0.0f;
    }
  }
  __device__ static float quad_most(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
  }

  // ---- the second pass ----

  // The weights of half a slot's values (32 keys), as the left operand of the second product: p[0 ... 3] high bytes,
  // p[4 ... 7] low bytes. Adds the weights of keys to the sums.
  template <int kHalf, bool kMasked>
  __device__ __forceinline__ void weigh_half(const int32_t (&sums)[16], uint32_t (&p)[8], int32_t slot, int32_t block) {
#pragma unroll
    for (int j = 0; j < 4; j += 2) {  // of 16 keys this thread's four, and both rows
      float s[2][4];
      float2 value_scale[2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        scale_scores(sums + 4 * (j + n), two_scales(slot, 4 * kHalf + j + n, false), s[n]);
        value_scale[n] = two_scales(slot, 4 * kHalf + j + n, true);
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float score[4] = {s[0][2 * r], s[0][2 * r + 1], s[1][2 * r], s[1][2 * r + 1]};
        float scale[4] = {value_scale[0].x, value_scale[0].y, value_scale[1].x, value_scale[1].y};
        uint32_t key[4], w[4];
        weigh_keys(score, [&](int) { return ScaledRow{maximum_[r], z_[r], floor_[r]}; }, key);
        if constexpr (kMasked) {
          const uint32_t bits = seen(r, block * kBlockTokens + kHalf * 32) >> 8 * j;
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
  template <int kHalf>
  __device__ __forceinline__ void weigh(const int32_t (&sums)[16], uint32_t (&p)[8], int32_t slot, int32_t block) {
    if (__builtin_expect(masked_, false))
      weigh_half<kHalf, true>(sums, p, slot, block);
    else
      weigh_half<kHalf, false>(sums, p, slot, block);
  }

  // The products of half a slot's weights with their values.
  template <int kHalf>
  __device__ __forceinline__ void add_values(int32_t (&high)[kHeadDim / 2], int32_t (&low)[kHeadDim / 2],
                                             const uint32_t (&p)[8], int32_t more) {
    const uint64_t b = advanced(value_operand_, values_.slot * Map::kValueBytes + kHalf * 2 * kHeadDim * kColumnBytes);
    wgmma_fence();
    multiply_registers(high, p, b, more);
    multiply_registers(low, p + 4, b, more);
    wgmma_commit();
  }
  __device__ void release(uint32_t barrier) {
    __syncwarp();
    if (lane() == 0) barrier_arrive(barrier);
  }
  __device__ void await_values() { barrier_wait(values_.full + 8 * values_.slot, values_.phase); }
  __device__ void release_values() {
    release(values_.empty + 8 * values_.slot);
    values_.advance();
  }
  // The compiler does not move code from below to above.
  __device__ __forceinline__ void fence() const {
    if (work_.segment_count < 0) __trap();
  }

  // Second time over the chunk's keys, in the order of TileSteps::sum_values. Gives the slots back.
  __device__ void sum_values(int32_t block, int32_t end, int32_t (&high)[kHeadDim / 2], int32_t (&low)[kHeadDim / 2]) {
    int32_t s[16], t[16];  // integer scores of the first and of the second half
    uint32_t p[8], q[8];
    sum_[0] = sum_[1] = 0u - static_cast<uint32_t>(end - block) * 16u * static_cast<uint32_t>(kBiasBits);
    int32_t slot = keys_.slot;
    score(s, slot, 0);
    score(t, slot, 32);
    wgmma_wait<1>();
    wgmma_settle(s);
    weigh<0>(s, p, slot, block);
    wgmma_wait<0>();
    wgmma_settle(t);
    await_values();
    add_values<0>(high, low, p, 0);
    for (;;) {
      const uint32_t empty = keys_.empty + 8 * slot;
      keys_.advance();
      score(s, block + 1 < end ? keys_.slot : slot, 0);  // after the last keys: not used
      fence();
      weigh<1>(t, q, slot, block);
      add_values<1>(high, low, q, 1);
      score(t, block + 1 < end ? keys_.slot : slot, 32);
      wgmma_wait<2>();
      wgmma_settle(s);
      if (++block >= end) {
        wgmma_wait<0>();
        wgmma_settle(t);
        release(empty);
        break;
      }
      release(empty);
      slot = keys_.slot;
      weigh<0>(s, p, slot, block);
      wgmma_wait<0>();
      wgmma_settle(t);
      release_values();
      await_values();
      add_values<0>(high, low, p, 1);
    }
    wgmma_settle(high);
    wgmma_settle(low);
    release_values();
  }

  // ---- totals ----

  // A chunk's sums, by integers where these hold them: as TileSteps::whole.
  __device__ __forceinline__ void whole(const int32_t (&high)[kHeadDim / 2], const int32_t (&low)[kHeadDim / 2],
                                        uint32_t most, float (&sums)[kHeadDim / 2]) const {
    using namespace arith;
    const bool small = __all_sync(0xFFFFFFFFu, most <= INT32_MAX / 128);
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i)
      sums[i] = mul(small ? static_cast<float>(256 * high[i] + low[i])
                          : fma(256.0f, static_cast<float>(high[i]), static_cast<float>(low[i])),
                    largest_[i / 2 % 2]);
  }
  // The chunk joins the totals. A row that sees nothing of it passes it over: a total may be -0, which + 0 would change.
  __device__ void fold(const int32_t (&high)[kHeadDim / 2], const int32_t (&low)[kHeadDim / 2], bool first) {
    float before[2];
    uint32_t weights[2];
    for (int r = 0; r < 2; ++r) {
      before[r] = first ? kLeastScore : __int_as_float(row_total(r).maximum);
      weights[r] = quad_sum(sum_[r]);
    }
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
    float sums[kHeadDim / 2];
    whole(high, low, max(weights[0], weights[1]), sums);
    const auto each = [&](auto join_one) {
#pragma unroll
      for (int j = 0; j < kHeadDim / 8; ++j) {
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
    const float* step = work_.value_step + int64_t{tile.group} * kHeadDim;
    float inverse[2];
    float* to[2];
    for (int r = 0; r < 2; ++r) {
      const int32_t at = tile.first_row + row(r);
      inverse[r] = arith::divide(1.0f, row_total(r).weight);
      to[r] = at < tile.rows ? work_.out + head_row(tile, at) * kHeadDim : nullptr;
    }
#pragma unroll
    for (int j = 0; j < kHeadDim / 8; ++j) {
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

template <int kHeadDim>
__global__ void __launch_bounds__(384, 1) sm90_scaled_prefill_kernel(const __grid_constant__ ScaledPrefillWork work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Map = ScaledMap<kHeadDim>;
  uint8_t* memory = shared_memory();
  let_next_start();
  if (threadIdx.x < 32) {
    const auto lane = static_cast<int32_t>(threadIdx.x);
    if (lane == 0) TileRing(memory + Map::kTiles).init();
    for (int values = 0; values < 2; ++values) {
      const Ring at = Map::ring(shared_address(memory), values != 0);
      for (int32_t i = lane; i < at.count; i += 32) barrier_init(at.full + 8 * i, 1), barrier_init(at.empty + 8 * i, 8);
    }
    publish_stores();
  }
  __syncthreads();
  const int32_t warpgroup = __shfl_sync(0xFFFFFFFFu, static_cast<int32_t>(threadIdx.x) / 128, 0),
                warp = __shfl_sync(0xFFFFFFFFu, static_cast<int32_t>(threadIdx.x) / 32, 0);
  if (warpgroup == 0) {  // 40 * 128 + 232 * 256 registers are all that the block was given
    shrink_registers<40>();
    if (warp < 2)
      produce_scaled<kHeadDim>(work, memory, warp != 0);
    else
      wait_for_inputs();
  } else {
    grow_registers<232>();
    ScaledTiles<kHeadDim>(work, memory, warpgroup - 1).run();
  }
#else
  __trap();  // never launched elsewhere
#endif
}

// For at most `tiles` tiles of 128 rows.
template <int kHeadDim>
cudaError_t launch_scaled_prefill(cudaStream_t stream, const Chip& chip, ScaledPrefillWork work, int32_t tiles) {
  constexpr int32_t kBytes = ScaledMap<kHeadDim>::kBytes;
  const auto kernel = sm90_scaled_prefill_kernel<kHeadDim>;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
      error != cudaSuccess)
    return error;
  work.wide_tiles = tiles;
  return launch(stream, chip, kernel, {std::min(tiles, chip.multiprocessors), 384, kBytes}, work);
}

}  // namespace kaiju::cuda
