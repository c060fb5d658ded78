// Attention of many rows on Hopper: a warpgroup holds 64 rows (query heads of a token side by side), a bulk copy brings half a block,
// products are wgmma. Of few rows: attention_decode.cuh.
//
// A chunk of 512 keys is gone over twice, as the contract asks (docs/arithmetic.md, section 5): scores for the maximum, scores again for
// the weights, whose two bytes go from the registers of the first product straight into the second. The sums of a chunk are exact integers
// in registers; the float totals of the tile wait in shared memory. Warpgroup 0 copies (one warp for keys, one for values, a ring each:
// keys by 64, a whole chunk of which stays for the second time; values by 32), warpgroups 1 and 2 compute, each half of a tile of 128 rows.
// Bound: the matrix units, of which it uses 8 products a key, row and channel where 4 are counted.
#pragma once

#include <algorithm>

#include "../tiles/overlap.cuh"
#include "../tiles/wgmma.cuh"
#include "attention_work.cuh"
#include "kaiju/arith/quantise.hpp"

namespace kaiju::cuda {

constexpr int32_t kAttentionThreads = 384;
constexpr int32_t kRingBarrierBytes = 512;  // 16 slots of keys, 16 of values, full and empty
constexpr int32_t kBiasBits = 0x4B400000;   // of 1.5 * 2^23: an integer added to these bits is added to the float

template <int kHeadDim>
constexpr int32_t kTileBytes = kBlockTokens* kHeadDim;  // half a block, and 64 rows of queries

// Where things are in shared memory.
template <int kHeadDim>
struct SharedMap {
  static constexpr int32_t kQueries = kRingBarrierBytes;
  static constexpr int32_t kTotals = kQueries + 2 * kTileBytes<kHeadDim>;
  static constexpr int32_t kTotalBytes = kTileRows * kHeadDim * static_cast<int32_t>(sizeof(float));  // of a warpgroup
  static constexpr int32_t kRings = kTotals + 2 * kTotalBytes;
};

// A ring of slots: full and empty barriers, and where the reader or the writer stands.
struct Ring {
  uint32_t full, empty, data;
  int32_t bytes, count, slot = 0;  // bytes of a slot
  uint32_t phase = 0;
  __device__ void advance() {
    if (++slot == count) slot = 0, phase ^= 1;
  }
};
// The ring of keys or of values.
template <int kHeadDim>
__device__ inline Ring make_ring(const AttentionWork& work, uint32_t base, bool values) {
  constexpr int32_t kKeyBytes = kTileBytes<kHeadDim>, kValueBytes = kKeyBytes / 2;
  const int32_t barriers = values ? kRingBarrierBytes / 2 : 0,
                data = SharedMap<kHeadDim>::kRings + (values ? work.key_slots * kKeyBytes : 0);
  return {base + static_cast<uint32_t>(barriers), base + static_cast<uint32_t>(barriers + kRingBarrierBytes / 4),
          base + static_cast<uint32_t>(data), values ? kValueBytes : kKeyBytes, values ? work.value_slots : work.key_slots};
}

// 65535 * 2^(d z), rounded, as bits of 1.5 * 2^23 more. `shift` is kBiasBits minus the maximum.
struct ContractWeight {
  static constexpr bool kMaximaFirst = true;
  float z;
  int32_t floor;  // kBiasBits + least_difference
  __device__ explicit ContractWeight(const AttentionWork& work) : z(work.args.z), floor(kBiasBits + work.least_difference) {}
  // Of kCount scores; step by step for all of them, since each step waits for the one before.
  template <int kCount>
  __device__ __forceinline__ void operator()(const int32_t (&score)[kCount], const int32_t (&shift)[kCount],
                                             uint32_t (&weight)[kCount]) const {
    using namespace arith;
    float d[kCount], rounded[kCount], f[kCount], y[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) d[i] = add(__int_as_float(__viaddmax_s32(score[i], shift[i], floor)), -kRoundBias);
#pragma unroll
    for (int i = 0; i < kCount; ++i) rounded[i] = fma(d[i], z, kRoundBias);
#pragma unroll
    for (int i = 0; i < kCount; ++i) f[i] = add(rounded[i], -kRoundBias);
#pragma unroll
    for (int i = 0; i < kCount; ++i) f[i] = fma(d[i], z, -f[i]);
#pragma unroll
    for (int i = 0; i < kCount; ++i) y[i] = fma(kPow2C4, f[i], kPow2C3);
#pragma unroll
    for (int i = 0; i < kCount; ++i) y[i] = fma(y[i], f[i], kPow2C2);
#pragma unroll
    for (int i = 0; i < kCount; ++i) y[i] = fma(y[i], f[i], kPow2C1);
#pragma unroll
    for (int i = 0; i < kCount; ++i) y[i] = fma(y[i], f[i], 1.0f);
      // y times 65535 * 2^n: the scaling by 2^n is exact, so this rounds what the contract rounds.
#pragma unroll
    for (int i = 0; i < kCount; ++i) weight[i] = bits_of(fma(y[i], float_of(0x477FFF00u + (bits_of(rounded[i]) << 23)), kRoundBias));
  }
};

__device__ __forceinline__ int32_t quad_max(int32_t x) {
  x = max(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
  return max(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}
__device__ __forceinline__ uint32_t quad_sum(uint32_t x) {
  x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

template <int kHeadDim, class Weight>
class AttentionConsumer {
 public:
  __device__ AttentionConsumer(const AttentionWork& work, uint32_t base, int32_t warpgroup)
      : work_(work), weight_(work), warpgroup_(warpgroup) {
    keys_ = make_ring<kHeadDim>(work, base, false);
    values_ = make_ring<kHeadDim>(work, base, true);
    queries_ = base + static_cast<uint32_t>(SharedMap<kHeadDim>::kQueries + warpgroup * kBytes);
    totals_ = base + static_cast<uint32_t>(SharedMap<kHeadDim>::kTotals + warpgroup * SharedMap<kHeadDim>::kTotalBytes +
                                           (warp() * (kHeadDim / 8) * 32 + lane()) * 16);
  }

  __device__ void run() {
    Walk walk(work_);
    wait_for_inputs();
    Tile tile;
    while (walk.next(tile)) {
      begin(tile);
      for (int32_t chunk = tile.chunk; chunk < tile.end_chunk; ++chunk) {
        const int32_t begin_block = max(chunk * kChunkBlocks, tile.first_key / kBlockTokens),
                      end_block = min((chunk + 1) * kChunkBlocks, tile.last_key / kBlockTokens + 1);
        int32_t high[kHeadDim / 2], low[kHeadDim / 2];
        find_maxima(begin_block, end_block);
        sum_values(begin_block, end_block, high, low);
        fold(high, low, chunk == tile.chunk);
      }
      finish(tile);
    }
  }

 private:
  static constexpr int kBytes = kTileBytes<kHeadDim>;
  static constexpr int kSteps = kHeadDim / 32;  // of a score

  __device__ static int32_t thread() { return static_cast<int32_t>(threadIdx.x) % 128; }
  __device__ static int32_t warp() { return thread() / 32; }
  __device__ static int32_t lane() { return thread() % 32; }
  __device__ static int32_t column() { return lane() % 4 * 2; }  // first of the two of each eight

  // Row within the segment of the upper (0) or lower (1) row of this thread.
  __device__ int32_t row(const Tile& tile, int r) const {
    return tile.first_row + warpgroup_ * kTileRows + warp() * 16 + lane() / 4 + 8 * r;
  }
  // Offset of a row in queries and results.
  __device__ int64_t row_offset(const Tile& tile, int32_t row) const {
    const int32_t token = row / work_.heads, head = row - token * work_.heads;
    return (int64_t{tile.batch_row + token} * work_.args.heads + tile.group * work_.heads + head) * kHeadDim;
  }
  __device__ int32_t first_visible(int32_t position) const {
    return work_.kv.window > 0 && position >= work_.kv.window ? position - work_.kv.window + 1 : 0;
  }

  __device__ void begin(const Tile& tile) {
    const int32_t first = tile.first_row + warpgroup_ * kTileRows;
    sync_warpgroup(1 + warpgroup_);  // the last tile's queries have been read
#pragma unroll 1
    for (int32_t piece = thread(); piece < kBytes / 16; piece += 128) {
      const int32_t r = first + piece % kTileRows;
      uint4 bytes = {0, 0, 0, 0};
      if (r < tile.rows) bytes = *reinterpret_cast<const uint4*>(work_.args.queries + row_offset(tile, r) + piece / kTileRows * 16);
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(queries_ + static_cast<uint32_t>(piece) * 16), "r"(bytes.x),
                   "r"(bytes.y), "r"(bytes.z), "r"(bytes.w)
                   : "memory");
    }
    publish_stores();
    sync_warpgroup(1 + warpgroup_);
    for (int r = 0; r < 2; ++r) {
      const int32_t mine = row(tile, r), position = tile.position + mine / work_.heads;
      see_from_[r] = mine < tile.rows ? first_visible(position) : 0;
      see_to_[r] = mine < tile.rows ? position : -1;
      total_maximum_[r] = INT32_MIN;
      total_weight_[r] = 0.0f;
    }
    // What every row of the warpgroup sees needs no mask.
    const int32_t last = min(first + kTileRows, tile.rows) - 1;
    all_from_ = last < first ? 0 : first_visible(tile.position + last / work_.heads);
    all_to_ = last < first ? INT32_MAX : tile.position + first / work_.heads;
  }

  __device__ bool is_masked(int32_t block) const {
    return block * kBlockTokens < all_from_ || block * kBlockTokens + kBlockTokens - 1 > all_to_;
  }
  __device__ bool sees(int r, int32_t key) const { return key >= see_from_[r] && key <= see_to_[r]; }

  __device__ __forceinline__ void score(int32_t (&s)[32], int32_t slot) {
    const uint64_t a = operand(queries_, kTileRows), b = operand(keys_.data + static_cast<uint32_t>(slot * kBytes), kBlockTokens);
    begin_products();
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      multiply_shared(s, advanced(a, k * 2 * kTileRows * kColumnBytes), advanced(b, k * 2 * kBlockTokens * kColumnBytes), k > 0);
    commit_products();
  }

  __device__ __forceinline__ void take_maximum(const int32_t (&s)[32], int32_t block) {
    if (is_masked(block)) {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int r = i / 2 % 2;
        if (sees(r, block * kBlockTokens + i / 4 * 8 + column() + i % 2)) maximum_[r] = max(maximum_[r], s[i]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 32; i += 2) maximum_[i / 2 % 2] = __vimax3_s32(maximum_[i / 2 % 2], s[i], s[i + 1]);
    }
  }

  // First time over the chunk's keys. Leaves the ring where it was: the keys stay.
  __device__ void find_maxima(int32_t block, int32_t end) {
    maximum_[0] = maximum_[1] = Weight::kMaximaFirst ? INT32_MIN : 0;
    if constexpr (!Weight::kMaximaFirst) {
      shift_[0] = shift_[1] = kBiasBits;
      return;
    }
    Ring at = keys_;
    int32_t even[32], odd[32];
    for (; block < end; block += 2) {
      const bool two = block + 1 < end;
      barrier_wait(at.full + 8 * at.slot, at.phase);
      score(even, at.slot);
      at.advance();
      if (two) {
        barrier_wait(at.full + 8 * at.slot, at.phase);
        score(odd, at.slot);
        at.advance();
        wait_products<1>();
        pin(even);
        take_maximum(even, block);
        wait_products<0>();
        pin(odd);
        take_maximum(odd, block + 1);
      } else {
        wait_products<0>();
        pin(even);
        take_maximum(even, block);
      }
    }
    for (int r = 0; r < 2; ++r) {
      maximum_[r] = quad_max(maximum_[r]);
      shift_[r] = kBiasBits - (maximum_[r] == INT32_MIN ? 0 : maximum_[r]);
    }
  }

  // The weights of half a tile's scores (32 keys), as the left operand of the second product: p[0 ... 3] high bytes, p[4 ... 7] low bytes.
  // Adds them to sums_, bias included.
  template <bool kMasked, int kHalf>
  __device__ __forceinline__ void weigh(const int32_t (&s)[32], uint32_t (&p)[8], int32_t block) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {  // four keys of one row
      const int r = q % 2, j = kHalf * 4 + q / 2 * 2;
      uint32_t w[4];
      weight_({s[4 * j + 2 * r], s[4 * j + 2 * r + 1], s[4 * j + 4 + 2 * r], s[4 * j + 5 + 2 * r]},
              {shift_[r], shift_[r], shift_[r], shift_[r]}, w);
      if constexpr (kMasked) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (!sees(r, block * kBlockTokens + (j + i / 2) * 8 + column() + i % 2)) w[i] = static_cast<uint32_t>(kBiasBits);
      }
      sums_[r] += w[0] + w[1];
      sums_[r] += w[2] + w[3];
      const uint32_t first = __byte_perm(w[0], w[1], 0x5140), second = __byte_perm(w[2], w[3], 0x5140);
      p[q] = __byte_perm(first, second, 0x7632);
      p[4 + q] = __byte_perm(first, second, 0x5410);
    }
  }
  template <int kHalf>
  __device__ __forceinline__ void weigh(const int32_t (&s)[32], uint32_t (&p)[8], int32_t block) {
    if (is_masked(block))
      weigh<true, kHalf>(s, p, block);
    else
      weigh<false, kHalf>(s, p, block);
    pin(p);
  }

  // The products of 32 keys' weights with their values, the next slot of the ring.
  __device__ __forceinline__ void add_values(int32_t (&high)[kHeadDim / 2], int32_t (&low)[kHeadDim / 2], const uint32_t (&p)[8],
                                             bool more) {
    barrier_wait(values_.full + 8 * values_.slot, values_.phase);
    const uint64_t b = operand(values_.data + static_cast<uint32_t>(values_.slot * (kBytes / 2)), kHeadDim);
    begin_products();
    multiply_registers(high, p, b, more);
    multiply_registers(low, p + 4, b, more);
    commit_products();
  }

  // The next tile's scores; its keys are there since the maxima were found.
  __device__ __forceinline__ void score_again(int32_t (&s)[32]) {
    if constexpr (!Weight::kMaximaFirst) barrier_wait(keys_.full + 8 * keys_.slot, keys_.phase);
    score(s, keys_.slot);
  }

  __device__ void release(uint32_t barrier) {
    if (lane() == 0) barrier_arrive(barrier);
  }
  // After add_values: gives back the slot of the call before, whose products are done, and remembers this one.
  __device__ void turn_values(uint32_t& previous, bool more) {
    if (more) release(previous);
    previous = values_.empty + 8 * values_.slot;
    values_.advance();
  }

  // Second time over the chunk's keys: sum p V of the high and the low bytes, both exact. Gives the slots back. The weights of half a tile
  // are found while the products of the half before run; a tile's scores run ahead of the last half of the tile before. Two slots of values
  // are in use at a time, so the ring has at least two.
  __device__ void sum_values(int32_t block, int32_t end, int32_t (&high)[kHeadDim / 2], int32_t (&low)[kHeadDim / 2]) {
    int32_t s[32];
    uint32_t p[8], q[8];
    sums_[0] = sums_[1] = 0u - static_cast<uint32_t>(end - block) * 16u * static_cast<uint32_t>(kBiasBits);
    uint32_t previous = 0;  // to give back
    score_again(s);
    wait_products<0>();
    pin(s);
    for (bool more = false; block < end; ++block, more = true) {
      release(keys_.empty + 8 * keys_.slot);
      keys_.advance();
      weigh<0>(s, p, block);
      add_values(high, low, p, more);
      wait_products<1>();  // the last half of the tile before
      turn_values(previous, more);
      weigh<1>(s, q, block);
      if (block + 1 < end) score_again(s);
      add_values(high, low, q, true);
      wait_products<1>();  // the first half, and the next tile's scores
      pin(s);
      turn_values(previous, true);
    }
    wait_products<0>();
    pin(high);
    pin(low);
    release(previous);
    for (int r = 0; r < 2; ++r) sums_[r] = quad_sum(sums_[r]);
  }

  __device__ static float whole(int32_t high, int32_t low) { return arith::fma(256.0f, static_cast<float>(high), static_cast<float>(low)); }

  // The chunk joins the totals.
  __device__ void fold(const int32_t (&high)[kHeadDim / 2], const int32_t (&low)[kHeadDim / 2], bool first) {
    bool later[2];
    float factor[2];
    for (int r = 0; r < 2; ++r) {
      const int32_t total = total_maximum_[r], chunk = maximum_[r];
      later[r] = total <= chunk;
      factor[r] =
          total == INT32_MIN || chunk == INT32_MIN ? 0.0f : arith::exp2_product(later[r] ? total - chunk : chunk - total, work_.args.z);
      const float weight = static_cast<float>(sums_[r]);
      total_weight_[r] = later[r] ? arith::fma(total_weight_[r], factor[r], weight) : arith::fma(weight, factor[r], total_weight_[r]);
      total_maximum_[r] = max(total, chunk);
    }
#pragma unroll
    for (int j = 0; j < kHeadDim / 8; ++j) {
      float t[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      if (!first) load_total(j, t);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = i / 2;
        const float o = whole(high[4 * j + i], low[4 * j + i]);
        t[i] = arith::fma(later[r] ? t[i] : o, factor[r], later[r] ? o : t[i]);
      }
      store_total(j, t);
    }
  }
  __device__ void load_total(int j, float (&t)[4]) const {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(t[0]), "=f"(t[1]), "=f"(t[2]), "=f"(t[3]) : "r"(totals_ + j * 512));
  }
  __device__ void store_total(int j, const float (&t)[4]) const {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(totals_ + j * 512), "f"(t[0]), "f"(t[1]), "f"(t[2]), "f"(t[3])
                 : "memory");
  }

  __device__ void finish(const Tile& tile) {
    const float inverse[2] = {arith::divide(1.0f, total_weight_[0]), arith::divide(1.0f, total_weight_[1])};
    int8_t* to[2];
    for (int r = 0; r < 2; ++r) to[r] = row(tile, r) < tile.rows ? work_.args.out + row_offset(tile, row(tile, r)) : nullptr;
    const float* scale = work_.args.out_inverse + int64_t{tile.group} * kHeadDim;
#pragma unroll 4
    for (int j = 0; j < kHeadDim / 8; ++j) {
      float t[4];
      load_total(j, t);
      const int32_t channel = 8 * j + column();
      const float2 c = *reinterpret_cast<const float2*>(scale + channel);
      for (int r = 0; r < 2; ++r)
        if (to[r])
          *reinterpret_cast<char2*>(to[r] + channel) = make_char2(arith::quantise(arith::mul(t[2 * r], inverse[r]), c.x),
                                                                  arith::quantise(arith::mul(t[2 * r + 1], inverse[r]), c.y));
    }
  }

  const AttentionWork& work_;
  Weight weight_;
  int32_t warpgroup_;  // 0 or 1 of those that compute
  Ring keys_, values_;
  uint32_t queries_, totals_;  // in shared memory; totals_ this thread's

  // Of this thread's two rows.
  int32_t see_from_[2], see_to_[2], all_from_, all_to_;
  int32_t maximum_[2], shift_[2], total_maximum_[2];
  uint32_t sums_[2];
  float total_weight_[2];
};

// One warp: the keys or the values of all tiles into a ring.
template <int kHeadDim>
__device__ void produce(const AttentionWork& work, uint32_t base, bool values) {
  constexpr int32_t kBytes = kTileBytes<kHeadDim>;
  Ring ring = make_ring<kHeadDim>(work, base, values);
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  Walk walk(work);
  wait_for_inputs();
  Tile tile;
  while (walk.next(tile)) {
    const std::byte* half = work.kv.pool + work.kv.slot_offset + int64_t{tile.group} * 2 * kBytes + (values ? kBytes : 0);
    const int32_t first = tile.first_key / kBlockTokens, end = tile.last_key / kBlockTokens + 1;
    BlockId next = first + lane < end ? tile.table[first + lane] : 0;
    for (int32_t block = first; block < end; block += 32) {
      const BlockId mine = next;
      if (block + 32 + lane < end) next = tile.table[block + 32 + lane];
      for (int32_t i = 0; i < 32 && block + i < end; ++i) {
        const std::byte* from = half + __shfl_sync(0xFFFFFFFFu, mine, i) * work.kv.block_bytes;
        for (int32_t done = 0; done < kBytes; done += ring.bytes) {
          if (lane == 0) {
            const uint32_t full = ring.full + 8 * ring.slot;
            barrier_wait(ring.empty + 8 * ring.slot, ring.phase ^ 1);
            barrier_expect(full, static_cast<uint32_t>(ring.bytes));
            copy_bulk(ring.data + static_cast<uint32_t>(ring.slot * ring.bytes), from + done, static_cast<uint32_t>(ring.bytes), full);
          }
          __syncwarp();
          ring.advance();
        }
      }
    }
  }
}

template <int kHeadDim, class Weight>
__global__ void __launch_bounds__(kAttentionThreads, 1) attend_sm90_kernel(const __grid_constant__ AttentionWork work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) uint8_t memory[];
  const uint32_t base = shared_address(memory);
  const int32_t warpgroup = __shfl_sync(0xFFFFFFFFu, static_cast<int32_t>(threadIdx.x) / 128, 0),
                warp = __shfl_sync(0xFFFFFFFFu, static_cast<int32_t>(threadIdx.x) / 32, 0);
  let_next_start();
  if (threadIdx.x == 0) {
    for (int values = 0; values < 2; ++values) {
      const Ring at = make_ring<kHeadDim>(work, base, values != 0);
      for (int32_t i = 0; i < at.count; ++i) {
        barrier_init(at.full + 8 * i, 1);
        barrier_init(at.empty + 8 * i, 8);  // warps
      }
    }
    publish_stores();
  }
  __syncthreads();
  if (warpgroup == 0) {  // 40 * 128 + 232 * 256 registers are all that the block was given
    shrink_registers<40>();
    if (warp < 2)
      produce<kHeadDim>(work, base, warp != 0);
    else
      wait_for_inputs();
  } else {
    grow_registers<232>();
    AttentionConsumer<kHeadDim, Weight>(work, base, warpgroup - 1).run();
  }
#else
  __trap();  // never launched elsewhere
#endif
}

AttentionWork attention_work(const AttentionArgs& args, const Batch& batch, const KvSlot& kv, const AttentionScratch& scratch);

// Lays out shared memory and launches, for at most `tiles` wide tiles.
template <int kHeadDim, class Weight>
cudaError_t launch_sm90(cudaStream_t stream, AttentionWork work, int32_t tiles) {
  constexpr int32_t kMostBytes = 227 << 10, kMostSlots = kRingBarrierBytes / 32, kHalf = kTileBytes<kHeadDim> / 2;
  constexpr int32_t kHalves = (kMostBytes - SharedMap<kHeadDim>::kRings) / kHalf;
  constexpr int32_t kKeySlots = kHalves / 3 < kMostSlots ? kHalves / 3 : kMostSlots,
                    kValueSlots = kHalves - 2 * kKeySlots < kMostSlots ? kHalves - 2 * kKeySlots : kMostSlots;
  static_assert(kKeySlots >= kChunkBlocks && kValueSlots >= 2);
  constexpr int32_t kBytes = SharedMap<kHeadDim>::kRings + (2 * kKeySlots + kValueSlots) * kHalf;
  work.wide_tiles = tiles;
  work.key_slots = kKeySlots;
  work.value_slots = kValueSlots;
  const auto kernel = attend_sm90_kernel<kHeadDim, Weight>;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes); error != cudaSuccess)
    return error;
  return launch(stream, Chip{.capability = 90}, kernel, {std::min(tiles, work.scratch.multiprocessors), kAttentionThreads, kBytes}, work);
}

}  // namespace kaiju::cuda
