// CacheEvents: which named blocks came into the cache and left it, for a router that sends requests where their prefix
// is. A bounded queue, polled.
#pragma once

#include <cstdint>
#include <deque>

#include "kaiju/cache/name.hpp"

namespace kaiju {

enum class CacheEventKind : int32_t {
  kStored = 1,   // the KV of a block is here: `name` after `parent`, `token_count` tokens
  kRemoved = 2,  // it is gone from this tier
  kCleared = 3,  // forget every name: a new scale epoch, or more happened than the queue holds
};

// Where a block is. It is in one tier at a time, except while it moves.
enum class CacheTier : int32_t { kDevice = 0, kHost = 1, kFile = 2 };

struct CacheEvent {
  CacheEventKind kind = CacheEventKind::kCleared;
  BlockName name, parent;
  int32_t token_count = 0;
  CacheTier tier = CacheTier::kDevice;
};

// One thread at a time.
class CacheEvents {
 public:
  // Capacity 0: nothing is recorded.
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
  // Moves the oldest out; false when there is none.
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
