// Policy: in which order requests are served, and which have run out of time. Knows no cache: what a tenant has
// computed before never changes whose turn it is.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "kaiju/engine/detail/sequence.hpp"

namespace kaiju {

// Higher priority first, then in order of arrival; a request that was suspended comes back to its old place.
inline bool goes_before(const Sequence& a, const Sequence& b) {
  return a.priority != b.priority ? a.priority > b.priority : a.request < b.request;
}

// Where a sequence belongs in a list kept in that order.
template <class List>
auto place_for(List& list, const Sequence& sequence) {
  return std::upper_bound(list.begin(), list.end(), sequence,
                          [](const Sequence& a, const auto& b) { return goes_before(a, *b); });
}

inline bool set_aside_before(const Sequence& a, const Sequence& b) { return a.set_aside < b.set_aside; }

template <bool (*before)(const Sequence&, const Sequence&)>
struct InOrder {
  using is_transparent = void;
  static const Sequence& of(const Sequence& sequence) { return sequence; }
  static const Sequence& of(const std::unique_ptr<Sequence>& sequence) { return *sequence; }
  bool operator()(const auto& a, const auto& b) const { return before(of(a), of(b)); }
};
// To find one, to put one in and to take one out cost O(log n).
using WaitingSequences = std::set<std::unique_ptr<Sequence>, InOrder<goes_before>>;
using SuspendedSequences = std::set<std::unique_ptr<Sequence>, InOrder<set_aside_before>>;

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
  RequestId take_over(TimePoint now) {
    if (due_.empty() || due_.begin()->first > now) return 0;
    return due_.extract(due_.begin()).value().second;
  }
  std::optional<TimePoint> earliest() const { return due_.empty() ? std::nullopt : std::optional(due_.begin()->first); }
  void clear() { due_.clear(); }

 private:
  std::set<std::pair<TimePoint, RequestId>> due_;
};

}  // namespace kaiju
