// Prefill attention with scales for 256 channels on Hopper (sm90_attention_scaled_prefill.cuh): two warpgroups share a
// tile of 64 rows. Each computes the scores and weights of one half of every 64 keys, and the sums of half of the
// channels over all keys. So weights go through shared memory. Keys are copied once for each pass: a whole chunk of
// them has no room.
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
        weight_operand_(operand(weights_, kTileRows)) {}

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
  __device__ void await_keys() { barrier_wait(keys_.full + 8 * keys_.slot, keys_.phase); }
  __device__ void release_keys() {
    release(keys_.empty + 8 * keys_.slot);
    keys_.advance();
  }
  // Integer sums of this warpgroup's half of the ring's present slot.
  __device__ __forceinline__ void score_half(int32_t (&s)[16]) { score(s, keys_.slot, 32 * warpgroup_); }

  // The first pass.
  __device__ void find_maxima(int32_t block, int32_t end) {
    maximum_[0] = maximum_[1] = kLeastScore;
    largest_[0] = largest_[1] = 0.0f;
    uint32_t most = 0;  // scales of values, of blocks that every row sees
    for (; block < end; ++block) {
      await_keys();
      int32_t s[16];
      score_half(s);
      const bool all = !(masked_ && is_masked(block));
      if (all) most = larger_scales(most, keys_.slot);
      wgmma_wait<0>();
      wgmma_settle(s);
      all ? take_maximum(s, keys_.slot, 4 * warpgroup_) : take_seen(s, keys_.slot, block, 4 * warpgroup_);
      release_keys();
    }
    const float of_all = largest_of(most);
    for (int r = 0; r < 2; ++r) {
      maximum_[r] = quad_most(maximum_[r]);
      largest_[r] = fmaxf(quad_most(largest_[r]), of_all);
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

  // The weights of this warpgroup's 32 keys: high bytes, then low bytes, in the columns of layout.cuh.
  __device__ __forceinline__ void store_weights(const uint32_t (&p)[8], int32_t buffer) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int32_t row = row_of_warpgroup(i % 2), piece = 2 * warpgroup_ + i / 2 % 2, low = i / 4;
      const int32_t at = (2 * buffer + low) * Map::kWeightBytes + (piece * kTileRows + row) * kColumnBytes;
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(weights_ + static_cast<uint32_t>(at + 2 * column())), "r"(p[i])
                   : "memory");
    }
    publish_stores();
  }
  // The products of 64 keys' weights with this warpgroup's channels of their values.
  __device__ __forceinline__ void add_values(int32_t (&high)[kChannels / 2], int32_t (&low)[kChannels / 2],
                                             int32_t buffer, int32_t more) {
    const uint64_t a = advanced(weight_operand_, 2 * buffer * Map::kWeightBytes),
                   b = advanced(value_operand_, values_.slot * Map::kValueBytes + first_channel() * kColumnBytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const uint64_t of_keys = advanced(b, k * 2 * 256 * kColumnBytes);
      multiply_weights(high, advanced(a, k * 2 * kTileRows * kColumnBytes), of_keys, more | k);
      multiply_weights(low, advanced(a, Map::kWeightBytes + k * 2 * kTileRows * kColumnBytes), of_keys, more | k);
    }
    wgmma_commit();
  }

  // The second pass. While the products of 64 keys run, the weights of the next 64 are computed. After the last keys
  // scores are of whatever lies there, and not used. Two buffers of weights: when both warpgroups have met, both have
  // read the weights before the last.
  __device__ void sum_values(int32_t block, int32_t end, int32_t (&high)[kChannels / 2],
                             int32_t (&low)[kChannels / 2]) {
    int32_t s[16];
    uint32_t p[8];
    sum_[0] = sum_[1] = 0u - static_cast<uint32_t>(end - block) * 8u * static_cast<uint32_t>(kBiasBits);
    const auto take_block = [&](int32_t buffer) {
      weigh(s, p, warpgroup_, keys_.slot, block);
      release_keys();
      if (++block < end) await_keys();
      score_half(s);

      store_weights(p, buffer);
    };
    await_keys();
    score_half(s);
    wgmma_wait<0>();
    wgmma_settle(s);
    take_block(0);
    sync_rows();
    await_values();
    add_values(high, low, 0, 0);
    wgmma_wait<1>();  // for the scores, not for the products
    wgmma_settle(s);
    for (int32_t buffer = 1; block < end; buffer ^= 1) {
      take_block(buffer);
      wgmma_wait<1>();  // for the products
      release_values();
      sync_rows();
      await_values();
      add_values(high, low, buffer, 1);
      wgmma_wait<1>();
      wgmma_settle(s);
    }
    wgmma_wait<0>();
    wgmma_settle(s);
    wgmma_settle(high);
    wgmma_settle(low);
    release_values();
  }

  uint32_t weights_;
  uint64_t weight_operand_;
};

}  // namespace kaiju::cuda
