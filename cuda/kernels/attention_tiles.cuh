// Tiles of many rows on their way from the warp that finds them to the warps that work on them (attention_sm90.cuh).
#pragma once

#include "../tiles/wgmma.cuh"
#include "attention_work.cuh"

namespace kaiju::cuda {

// A few tiles in shared memory: found by the warp that copies keys, ahead of all who read them. One without rows is the last.
class TileRing {
 public:
  static constexpr uint32_t kCount = 4, kBytes = kCount * (16 + sizeof(Tile));
  __device__ explicit TileRing(uint8_t* memory) : tiles_(reinterpret_cast<Tile*>(memory)), barriers_(shared_address(tiles_ + kCount)) {}
  __device__ void init() const {
    for (uint32_t i = 0; i < kCount; ++i) barrier_init(full(i), 1), barrier_init(empty(i), kReaders);
  }
  // These by whole warps.
  __device__ void put(const Tile& tile) {
    barrier_wait(empty(slot_), phase_ ^ 1);
    if (threadIdx.x % 32 == 0) {
      tiles_[slot_] = tile;
      barrier_arrive(full(slot_));
    }
    advance();
  }
  // There until it is popped.
  __device__ const Tile& front() const {
    barrier_wait(full(slot_), phase_);
    return tiles_[slot_];
  }
  __device__ const Tile& second() const {
    TileRing next = *this;
    next.advance();
    return next.front();
  }
  __device__ void pop() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty(slot_));
    advance();
  }

 private:
  static constexpr uint32_t kReaders = 9;  // warps: eight that compute, one that copies values
  __device__ uint32_t full(uint32_t slot) const { return barriers_ + 8 * slot; }
  __device__ uint32_t empty(uint32_t slot) const { return barriers_ + 8 * (kCount + slot); }
  __device__ void advance() {
    slot_ = (slot_ + 1) % kCount;
    if (slot_ == 0) phase_ ^= 1;
  }
  Tile* tiles_;
  uint32_t barriers_, slot_ = 0, phase_ = 0;
};

}  // namespace kaiju::cuda
