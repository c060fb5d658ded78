// StepTurns: engines that compute on the same cores take turns, a step each, in the order in which they asked. Beside
// each other their threads would wait for cores, and steps of both would take many times as long.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace kaiju::server {

// While replies are computed, KV is warmed a part at a time, and waits this many times as long as the part took before
// the next one.
inline constexpr int kBesideFactor = 9;

// For std::lock_guard. A std::mutex may be given to the same thread again and again.
class StepTurns {
 public:
  void lock() {
    std::unique_lock lock(mutex_);
    const uint64_t mine = asked_++;
    changed_.wait(lock, [&] { return mine == turn_; });
  }
  void unlock() {
    {
      const std::lock_guard lock(mutex_);
      ++turn_;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t asked_ = 0, turn_ = 0;
};

}  // namespace kaiju::server
