// Policy: in which order sequences are served, and which requests have run out of time. Knows no cache: what a tenant
// has computed before never changes whose turn it is.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "kaiju/engine/detail/sequence.hpp"

namespace kaiju {

// Higher priority first, then in order of arrival, then by the index within the request. A sequence that was suspended
// comes back to its old place.
inline bool goes_before(const Sequence& a, const Sequence& b) {
  return std::tuple(-int64_t{a.request->priority}, a.request->id, a.index) <
         std::tuple(-int64_t{b.request->priority}, b.request->id, b.index);
}

// Where a sequence belongs in a list kept in that order.
template <class List>
auto place_for(List& list, const Sequence& sequence) {
  return std::upper_bound(list.begin(), list.end(), sequence,
                          [](const Sequence& a, const auto& b) { return goes_before(a, *b); });
}

inline bool arrived_before(const Sequence& a, const Sequence& b) {
  return std::pair(a.request->id, a.index) < std::pair(b.request->id, b.index);
}

template <bool (*before)(const Sequence&, const Sequence&)>
struct InOrder {
  using is_transparent = void;
  static const Sequence& of(const Sequence& sequence) { return sequence; }
  static const Sequence& of(const std::unique_ptr<Sequence>& sequence) { return *sequence; }
  bool operator()(const auto& a, const auto& b) const { return before(of(a), of(b)); }
};
// To find one, to put one in and to take one out cost O(log n). WaitingQueue (waiting_queue.hpp) has one for each
// share.
using WaitingSequences = std::set<std::unique_ptr<Sequence>, InOrder<goes_before>>;
using SuspendedSequences = std::set<std::unique_ptr<Sequence>, InOrder<arrived_before>>;

// The deadlines of unfinished requests. One thread at a time; O(log n) each.
class Deadlines {
 public:
  void add(const Request& request) {
    if (request.deadline) due_.emplace(*request.deadline, request.id);
  }
  void remove(const Request& request) {
    if (request.deadline) due_.erase({*request.deadline, request.id});
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
