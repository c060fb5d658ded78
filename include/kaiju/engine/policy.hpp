// Policy: in which order requests are served, and which have run out of time. Knows no cache: what a tenant has computed before never
// changes whose turn it is.
#pragma once

#include <algorithm>
#include <set>
#include <utility>

#include "kaiju/engine/sequence.hpp"

namespace kaiju {

// Higher priority first, then in order of arrival; a request that was suspended comes back to its old place.
inline bool goes_before(const Sequence& a, const Sequence& b) {
  return a.priority != b.priority ? a.priority > b.priority : a.request < b.request;
}

// Where a sequence belongs in a list kept in that order.
template <class List>
auto place_for(List& list, const Sequence& sequence) {
  return std::upper_bound(list.begin(), list.end(), sequence, [](const Sequence& a, const auto& b) { return goes_before(a, *b); });
}

// The deadlines of unfinished requests. One thread at a time; O(log n) each.
class Deadlines {
 public:
  void add(const Sequence& sequence) {
    if (sequence.deadline) due_.emplace(*sequence.deadline, sequence.request);
  }
  void remove(const Sequence& sequence) {
    if (sequence.deadline) due_.erase({*sequence.deadline, sequence.request});
  }
  // Takes out one that is over by `now`; 0 when there is none.
  RequestId take_over(Clock::time_point now) {
    if (due_.empty() || due_.begin()->first > now) return 0;
    return due_.extract(due_.begin()).value().second;
  }
  void clear() { due_.clear(); }

 private:
  std::set<std::pair<Clock::time_point, RequestId>> due_;
};

}  // namespace kaiju
