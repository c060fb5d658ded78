// CacheEvents: reports the names of the blocks that were stored in the cache or removed from it. With these cache
// events, a router can send each request to the engine that has cached the request's prefix. The events wait in a
// bounded queue until the host program polls them.
#pragma once

#include <cstdint>
#include <deque>

#include "kaiju/cache/name.hpp"

namespace kaiju {

enum class CacheEventKind : int32_t {
  kStored = 1,   // the KV of block `name` is stored; it follows block `parent` and has `token_count` tokens
  kRemoved = 2,  // the block was removed from this tier
  kCleared = 3,  // forget all names: the scale epoch changed, or the queue overflowed
};

// The tier (device memory, host memory or file) that stores a block. A block is in one tier at a time, except while it
// is being copied to another tier.
enum class CacheTier : int32_t { kDevice = 0, kHost = 1, kFile = 2 };

struct CacheEvent {
  CacheEventKind kind = CacheEventKind::kCleared;
  BlockName name, parent;
  int32_t token_count = 0;
  CacheTier tier = CacheTier::kDevice;
};

// One thread at a time may use a CacheEvents object.
class CacheEvents {
 public:
  // `capacity` is the largest number of waiting events. If `capacity` is 0, no events are recorded.
  explicit CacheEvents(size_t capacity) : capacity_(capacity) {}

  void push(const CacheEvent& event) {
    if (capacity_ == 0) return;
    if (event.kind == CacheEventKind::kCleared || queue_.size() >= capacity_) {
      queue_.clear();
      queue_.push_back({});
      if (event.kind == CacheEventKind::kCleared) return;
    }
    queue_.push_back(event);
  }
  // Moves the oldest event from the queue to `event`. Returns false if the queue is empty.
  bool poll(CacheEvent& event) {
    if (queue_.empty()) return false;
    event = queue_.front();
    queue_.pop_front();
    return true;
  }

 private:
  size_t capacity_;
  std::deque<CacheEvent> queue_;
};

}  // namespace kaiju
