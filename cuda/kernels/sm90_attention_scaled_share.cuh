// Attention with scales on Hopper, one row in a sequence (sm90_attention_scaled_decode.cuh): how thread blocks share
// the work. A unit is a chunk of 512 keys of one sequence and one KV head. Units are counted sequence by sequence, head
// by head, chunk by chunk, and every block takes as many as every other, side by side. It is computed on the GPU from
// the batch itself, so a recorded launch fits any lengths.
#pragma once

#include "attention_work.cuh"

namespace kaiju::cuda {

struct ScaledDecodeWork {
  ScaledAttentionArgs args;
  KvSlot kv;
  const BatchSegment* segments;  // with one row each
  int32_t segment_count;
  int32_t heads;         // query heads that share a KV head
  int32_t kept_units;    // that there is memory for
  float* kept;           // [kept_units, heads, head_dim] sums of chunks whose tile several blocks share
  AttentionPart* parts;  // [kept_units, heads]
  int32_t* counters;     // [blocks] 0 between launches
};

// A tile, one sequence and KV head, and the part of it that a block takes.
struct ScaledPart {
  int32_t segment = 0, group = 0;
  int32_t position = 0, first_key = 0;  // last and first key that the row sees
  int32_t chunk = 0, end_chunk = 0;     // of the part
  int32_t first_chunk = 0, chunks = 0;  // of the tile
  int32_t first_unit = 0;               // of the tile
};

// The parts of one thread block, one after another. All of it by whole warps.
class ScaledShare {
 public:
  __device__ explicit ScaledShare(const ScaledDecodeWork& work) : work_(work) {
    const auto lane = static_cast<int32_t>(threadIdx.x) % 32, block = static_cast<int32_t>(blockIdx.x);
    int32_t mine = 0, most = 0;
    for (int32_t s = lane; s < work.segment_count; s += 32) mine += units_of(s), most = max(most, units_of(s));
    total_ = static_cast<int32_t>(__reduce_add_sync(0xFFFFFFFFu, static_cast<uint32_t>(mine)));
    most = __reduce_max_sync(0xFFFFFFFFu, most);
    blocks_ = min(static_cast<int32_t>(gridDim.x), total_);
    whole_ = total_ > work.kept_units || (total_ == most * work.segment_count && whole_is_fair(most));
    if (block >= blocks_) return;
    at_ = border(block), end_ = border(block + 1);
    for (int32_t base = 0, before = 0; base < work.segment_count; base += 32) {
      const int32_t here = base + lane < work.segment_count ? units_of(base + lane) : 0;
      int32_t through = here;
      for (int distance = 1; distance < 32; distance *= 2) {
        const int32_t other = __shfl_up_sync(0xFFFFFFFFu, through, distance);
        if (lane >= distance) through += other;
      }
      const uint32_t later = __ballot_sync(0xFFFFFFFFu, at_ < before + through);
      if (later != 0) {
        const int found = __ffs(static_cast<int>(later)) - 1;
        start_ = before + __shfl_sync(0xFFFFFFFFu, through - here, found);
        enter(base + found);
        return;
      }
      before += __shfl_sync(0xFFFFFFFFu, through, 31);
    }
  }

  __device__ bool next(ScaledPart& part) {
    while (at_ < end_) {
      if (at_ >= start_ + chunks_ * work_.kv.kv_heads) {
        start_ += chunks_ * work_.kv.kv_heads;
        enter(segment_ + 1);
      }
      const int32_t group = (at_ - start_) / chunks_, within = at_ - start_ - group * chunks_;
      const int32_t taken = whole_ ? chunks_ - within : min(chunks_ - within, end_ - at_);
      part = {segment_,     group,   position_,   first_key_, first_chunk_ + within, first_chunk_ + within + taken,
              first_chunk_, chunks_, at_ - within};
      at_ += taken;
      if (!whole_ || within == 0) return true;
    }
    return false;
  }

  // Which blocks share a tile: the first of them, and how many.
  __device__ int32_t first_block(const ScaledPart& part) const { return block_of(part.first_unit); }
  __device__ int32_t sharers(const ScaledPart& part) const {
    return whole_ ? 1 : block_of(part.first_unit + part.chunks - 1) - first_block(part) + 1;
  }

 private:
  // Whether no block takes more if tiles are not shared, where all sequences have as many units.
  __device__ bool whole_is_fair(int32_t units) const {
    const int32_t chunks = units / work_.kv.kv_heads, fair = (total_ + blocks_ - 1) / blocks_;
    return (fair + chunks - 1) / chunks * chunks <= fair + fair / 16;
  }
  __device__ int32_t first_visible(int32_t position) const {
    return work_.kv.window > 0 && position >= work_.kv.window ? position - work_.kv.window + 1 : 0;
  }
  __device__ int32_t units_of(int32_t segment) const {
    const int32_t position = work_.segments[segment].position;
    return work_.kv.kv_heads * (position / arith::kChunkKeys - first_visible(position) / arith::kChunkKeys + 1);
  }
  __device__ void enter(int32_t segment) {
    segment_ = segment;
    position_ = work_.segments[segment].position;
    first_key_ = first_visible(position_);
    first_chunk_ = first_key_ / arith::kChunkKeys;
    chunks_ = position_ / arith::kChunkKeys - first_chunk_ + 1;
  }
  __device__ int32_t border(int32_t block) const { return static_cast<int32_t>(int64_t{total_} * block / blocks_); }
  __device__ int32_t block_of(int32_t unit) const {
    return static_cast<int32_t>(((int64_t{unit} + 1) * blocks_ - 1) / total_);
  }

  const ScaledDecodeWork& work_;
  int32_t total_, blocks_;
  bool whole_;  // tiles are not shared: there is no memory for so many units, or nothing is won
  int32_t at_ = 0, end_ = 0;
  int32_t segment_ = 0, start_ = 0, position_ = 0, first_key_ = 0, first_chunk_ = 0, chunks_ = 1;
};

}  // namespace kaiju::cuda
