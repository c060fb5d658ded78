// CacheEvents: reports the names of the blocks that were stored in the cache or removed from it. With these cache
// events, a router can send each request to the engine that has cached the request's prefix. The events wait in a
// bounded queue until the host program polls them (Engine::poll_cache).
#pragma once

#include <cstdint>
#include <deque>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "kaiju/cache/block_name.hpp"

namespace kaiju {

enum class CacheEventKind : int32_t {
  kStored = 1,   // the KV of block `name` is stored; it follows block `parent` and has `token_count` tokens
  kRemoved = 2,  // the block was removed from this tier
  kCleared = 3,  // forget all names: the scale epoch changed, or events were lost because nobody polled them
};

// The tier (device memory, host memory or file) that stores a block. A block is in one tier at a time, except while it
// is being copied to another tier.
enum class CacheTier : int32_t { kDevice = 0, kHost = 1, kFile = 2 };

struct CacheEvent {
  CacheEventKind kind = CacheEventKind::kCleared;
  CacheTier tier = CacheTier::kDevice;
  BlockName name;
  BlockName parent;             // zero: the block is the first of its prompt
  int32_t token_count = 0;      // 64; fewer if the block is a tail, the last block of a sequence
  bool is_private = false;      // the block is outside shared regions (CacheOptions::publish_private)
  std::vector<int32_t> tokens;  // kStored, with CacheOptions::event_tokens: those of the block
};

// One thread at a time may use a CacheEvents object.
class CacheEvents {
 public:
  struct Limits {
    size_t capacity = 0;      // the largest number of waiting events; 0: no events are recorded
    bool of_private = false;  // record events of blocks outside shared regions, too
    bool tokens = false;      // stored events have the tokens of their block
  };
  explicit CacheEvents(const Limits& limits) : limits_(limits) {}

  bool records(bool is_private) const { return limits_.capacity > 0 && (!is_private || limits_.of_private); }
  // Makes the event of a stored block. Throws std::bad_alloc.
  CacheEvent stored(const BlockName& name, const BlockName& parent, std::span<const int32_t> tokens, CacheTier tier,
                    bool is_private) const {
    CacheEvent event{CacheEventKind::kStored, tier, name, parent, static_cast<int32_t>(tokens.size()), is_private, {}};
    if (limits_.tokens) event.tokens.assign(tokens.begin(), tokens.end());
    return event;
  }

  void push_stored(const BlockName& name, const BlockName& parent, std::span<const int32_t> tokens, CacheTier tier,
                   bool is_private) noexcept {
    if (records(is_private)) push([&] { return stored(name, parent, tokens, tier, is_private); });
  }
  void push_removed(const BlockName& name, const BlockName& parent, int32_t token_count, CacheTier tier,
                    bool is_private) noexcept {
    if (records(is_private))
      push([&] { return CacheEvent{CacheEventKind::kRemoved, tier, name, parent, token_count, is_private, {}}; });
  }
  void push_cleared() noexcept {
    queue_.clear();
    cleared_ = limits_.capacity > 0;
  }
  size_t count() const { return queue_.size() + (cleared_ ? 1 : 0); }
  // Moves the oldest event from the queue to `event`. Returns false if the queue is empty.
  bool poll(CacheEvent& event) {
    if (std::exchange(cleared_, false)) {
      event = {};
      return true;
    }
    if (queue_.empty()) return false;
    event = std::move(queue_.front());
    queue_.pop_front();
    return true;
  }

 private:
  // A router that lacks an event must forget all names, so a shortage of memory is told as kCleared.
  template <class Make>
  void push(const Make& make) noexcept {
    if (queue_.size() >= limits_.capacity) push_cleared();
    try {
      queue_.push_back(make());
    } catch (const std::bad_alloc&) {
      push_cleared();
    }
  }

  Limits limits_;
  std::deque<CacheEvent> queue_;
  bool cleared_ = false;  // before the events of the queue
};

}  // namespace kaiju
