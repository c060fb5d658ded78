// Prefill attention with scales for 256 channels on Hopper (sm90_attention_scaled_prefill.cuh): two warpgroups share a
// tile of 64 rows. Each computes the scores and weights of every second 64 keys, and the sums of half of the channels
// over all keys. So weights go through shared memory, 128 keys at a time. Keys are copied once for each pass: a whole
// chunk of them has no room.
#pragma once

#include "sm90_attention_scaled_steps.cuh"

namespace kaiju::cuda {

// d [64, 128] += a [64, 32] b [128, 32]^T, a unsigned, both in shared memory (sm90_wgmma_attention.cuh).
__device__ __forceinline__ void multiply_weights(int32_t (&d)[64], uint64_t a, uint64_t b, int32_t accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k32.s32.u8.s8 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, p;\n}"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), "+r"(d[8]),
        "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]), "+r"(d[16]),
        "+r"(d[17]), "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]), "+r"(d[24]),
        "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]), "+r"(d[29]), "+r"(d[30]), "+r"(d[31]), "+r"(d[32]),
        "+r"(d[33]), "+r"(d[34]), "+r"(d[35]), "+r"(d[36]), "+r"(d[37]), "+r"(d[38]), "+r"(d[39]), "+r"(d[40]),
        "+r"(d[41]), "+r"(d[42]), "+r"(d[43]), "+r"(d[44]), "+r"(d[45]), "+r"(d[46]), "+r"(d[47]), "+r"(d[48]),
        "+r"(d[49]), "+r"(d[50]), "+r"(d[51]), "+r"(d[52]), "+r"(d[53]), "+r"(d[54]), "+r"(d[55]), "+r"(d[56]),
        "+r"(d[57]), "+r"(d[58]), "+r"(d[59]), "+r"(d[60]), "+r"(d[61]), "+r"(d[62]), "+r"(d[63])
      : "l"(a), "l"(b), "r"(accumulate));
}

class ScaledSharedTiles : ScaledSteps<256> {
  using Steps = ScaledSteps<256>;
  using Map = ScaledMap<256>;

 public:
  __device__ ScaledSharedTiles(const ScaledPrefillWork& work, uint8_t* memory, int32_t warpgroup)
      : Steps(work, memory, warpgroup),
        weights_(shared_address(memory) + static_cast<uint32_t>(Map::kWeights)),
        weight_operand_(operand(weights_, kTileRows)) {
    if (warpgroup == 1) keys_.advance();
  }

  __device__ void run() {
    wait_for_inputs();
    while (tiles_.front().rows > 0) {
      const RowTile& tile = tiles_.front();
      begin(tile);
      for (int32_t chunk = tile.chunk; chunk < tile.end_chunk; ++chunk) {
        const int32_t begin_block = tile.begin_block(chunk), end_block = tile.end_block(chunk);
        int32_t high[kChannels / 2], low[kChannels / 2];
        masked_ = is_masked(begin_block) || is_masked(end_block - 1);
        find_maxima(begin_block, end_block);
        exchange_maxima();
        sum_values(begin_block, end_block, high, low);
        uint32_t weights[2];
        exchange_sums(weights);
        fold(high, low, weights, chunk == tile.chunk);
      }
      finish(tile);
      tiles_.pop();
    }
  }

 private:
  static constexpr int32_t kSlotBlocks = 2;  // of keys, of which a warpgroup takes one

  __device__ void await_keys() { barrier_wait(keys_.full + 8 * keys_.slot, keys_.phase); }
  __device__ void release_keys() {
    release(keys_.empty + 8 * keys_.slot);
    keys_.advance();
    keys_.advance();
  }

  // The first pass, over this warpgroup's keys.
  __device__ void find_maxima(int32_t block, int32_t end) {
    maximum_[0] = maximum_[1] = kLeastScore;
    largest_[0] = largest_[1] = 0.0f;
    uint32_t most = 0;
    for (block += warpgroup_; block - warpgroup_ < end; block += kSlotBlocks) {
      await_keys();
      if (block < end) {
        int32_t s[32];
        score(s, keys_.slot);
        if (!masked_) most = larger_scales(most, keys_.slot);
        wgmma_wait<0>();
        wgmma_settle(s);
        masked_ ? take_seen(s, keys_.slot, block) : take_maximum(s, keys_.slot);
      }
      release_keys();
    }
    for (int r = 0; r < 2; ++r) {
      maximum_[r] = quad_most(maximum_[r]);
      largest_[r] = masked_ ? quad_most(largest_[r]) : largest_of(most);
    }
  }
  __device__ void exchange_maxima() {
    auto* all = reinterpret_cast<float2*>(memory_ + Map::kMaxima);
    for (int r = 0; r < 2; ++r)
      if (writes_rows()) all[place(r)] = {maximum_[r], largest_[r]};
    sync_rows();
    for (int r = 0; r < 2; ++r) {
      const float2 other = all[place(r) ^ kTileRows];
      maximum_[r] = fmaxf(maximum_[r], other.x), largest_[r] = fmaxf(largest_[r], other.y);
      find_inverse(r);
    }
  }
  __device__ void exchange_sums(uint32_t (&weights)[2]) {
    auto* all = reinterpret_cast<uint32_t*>(memory_ + Map::kSums);
    for (int r = 0; r < 2; ++r) {
      weights[r] = quad_sum(sum_[r]);
      if (writes_rows()) all[place(r)] = weights[r];
    }
    sync_rows();  // and both have read the last weights
    for (int r = 0; r < 2; ++r) weights[r] += all[place(r) ^ kTileRows];
  }

  // The weights of this warpgroup's 64 keys: p[0 ... 7] of the first half, as weigh() leaves them, and of the second.
  __device__ __forceinline__ void weigh_keys_of(const int32_t (&s)[32], uint32_t (&p)[16], int32_t block, int32_t end) {
    if (block < end) {
      weigh(s, p, 0, keys_.slot, block);
      weigh(s + 16, p + 8, 1, keys_.slot, block);
    } else {
#pragma unroll
      for (uint32_t& x : p) x = 0;
    }
  }
  // High bytes, then low bytes, in the columns of layout.cuh.
  __device__ __forceinline__ void store_weights(const uint32_t (&p)[16]) const {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int32_t row = row_of_warpgroup(i % 2), piece = i / 8 * 2 + i / 2 % 2, low = i / 4 % 2;
      const int32_t at = (2 * warpgroup_ + low) * Map::kWeightBytes + (piece * kTileRows + row) * kColumnBytes;
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(weights_ + static_cast<uint32_t>(at + 2 * column())), "r"(p[i])
                   : "memory");
    }
    publish_stores();
  }
  // The products of 64 keys' weights, the first or the second of 128, with this warpgroup's channels of their values.
  __device__ __forceinline__ void add_values(int32_t (&high)[kChannels / 2], int32_t (&low)[kChannels / 2], int which,
                                             int32_t slot, int32_t more) {
    const uint64_t a = advanced(weight_operand_, 2 * which * Map::kWeightBytes),
                   b = advanced(value_operand_, slot * Map::kValueBytes + first_channel() * kColumnBytes);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const uint64_t of_keys = advanced(b, k * 2 * 256 * kColumnBytes);
      multiply_weights(high, advanced(a, k * 2 * kTileRows * kColumnBytes), of_keys, more || k > 0);
      multiply_weights(low, advanced(a, Map::kWeightBytes + k * 2 * kTileRows * kColumnBytes), of_keys, more || k > 0);
    }
  }

  // The second pass. While the products of 128 keys run, the weights of the next 128 are computed. Where their number
  // is odd the last weights are 0 and their values those before.
  __device__ void sum_values(int32_t block, int32_t end, int32_t (&high)[kChannels / 2],
                             int32_t (&low)[kChannels / 2]) {
    int32_t s[32];
    uint32_t p[16];
    const int32_t mine = (end - block - warpgroup_ + 1) / 2;  // blocks of keys
    sum_[0] = sum_[1] = 0u - static_cast<uint32_t>(mine) * 16u * static_cast<uint32_t>(kBiasBits);
    await_keys();
    score(s, keys_.slot);
    wgmma_wait<0>();
    wgmma_settle(s);
    weigh_keys_of(s, p, block + warpgroup_, end);
    release_keys();
    for (int32_t more = 0;; more = 1) {
      store_weights(p);
      sync_rows();
      const bool last = block + kSlotBlocks >= end;
      if (!last) await_keys();
      score(s, keys_.slot);  // after the last keys: of whatever lies there, not used
      Ring at = values_;
      barrier_wait(at.full + 8 * at.slot, at.phase);
      const int32_t slot = at.slot;
      if (block + 1 < end) {
        at.advance();
        barrier_wait(at.full + 8 * at.slot, at.phase);
      }
      wgmma_fence();
      add_values(high, low, 0, slot, more);
      add_values(high, low, 1, at.slot, 1);
      wgmma_commit();
      wgmma_wait<1>();
      wgmma_settle(s);
      if (last) break;
      block += kSlotBlocks;
      weigh_keys_of(s, p, block + warpgroup_, end);
      release_keys();
      wgmma_wait<0>();
      release_values();
      release_values();
      sync_rows();  // the weights have been read
    }
    wgmma_wait<0>();
    wgmma_settle(high);
    wgmma_settle(low);
    release_values();
    if (block + 1 < end) release_values();
  }

  uint32_t weights_;
  uint64_t weight_operand_;
};

}  // namespace kaiju::cuda
