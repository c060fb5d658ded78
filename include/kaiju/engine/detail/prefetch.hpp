// Prefetch: a history that is brought up from lower tiers before a request asks for it. TurnClock: when a session's
// user usually comes back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kaiju/cache/scope.hpp"
#include "kaiju/engine/request.hpp"

namespace kaiju {

struct Prefetch {
  RequestId id = 0;
  SessionId session = 0;
  std::shared_ptr<const std::vector<int32_t>> tokens;  // the history is their first `length`; they never change
  size_t length = 0;
  std::optional<Scope> scope;  // nullopt: that of the session's last request
  std::optional<TimePoint> at;
  void* user_data = nullptr;
  int32_t resident_tokens = 0;  // once it has ended: the next request can resume there

  std::span<const int32_t> history() const {
    return tokens ? std::span<const int32_t>(*tokens).first(length) : std::span<const int32_t>();
  }
};

// Prefetches whose time has not come. One thread at a time; O(log n) each.
class TimedPrefetches {
 public:
  void add(Prefetch prefetch) { due_.emplace(*prefetch.at, std::move(prefetch)); }
  // Takes out one whose time has come by `now`; nullopt: none.
  std::optional<Prefetch> take_due(TimePoint now) {
    if (due_.empty() || due_.begin()->first > now) return std::nullopt;
    return std::move(due_.extract(due_.begin()).mapped());
  }
  std::optional<TimePoint> earliest() const { return due_.empty() ? std::nullopt : std::optional(due_.begin()->first); }
  void clear() { due_.clear(); }

 private:
  std::multimap<TimePoint, Prefetch> due_;
};

// The time from a reply's end to the session's next request: its mean, and how far it usually is from that, both with
// exponentially decreasing weights, as TCP learns round-trip times (Jacobson, "Congestion avoidance and control",
// 1988).
class TurnClock {
 public:
  void reply_ended(TimePoint now) { ended_ = now; }
  void request_came(TimePoint now) {
    if (!ended_) return;
    const int64_t gap = (now - *ended_).count;
    ended_.reset();
    if (gap < 0) return;
    if (++gaps_ == 1) {
      mean_ = gap, deviation_ = gap / 2;
      return;
    }
    const int64_t error = gap - mean_;
    mean_ += error / 8;
    deviation_ += (std::abs(error) - deviation_) / 4;
  }
  // When the user will come at the earliest, but for rare cases; nullopt: too little is known.
  std::optional<TimePoint> expected() const {
    if (gaps_ < kLeastGaps || !ended_) return std::nullopt;
    return TimePoint(ended_->nanoseconds + std::max<int64_t>(0, mean_ - 2 * deviation_));
  }

 private:
  static constexpr int kLeastGaps = 3;
  std::optional<TimePoint> ended_;
  int64_t mean_ = 0, deviation_ = 0;  // nanoseconds
  int gaps_ = 0;
};

}  // namespace kaiju
