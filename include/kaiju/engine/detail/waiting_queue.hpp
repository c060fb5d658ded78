// WaitingQueue: the sequences that wait for a place and for memory, in the order of service, by share. A share that may
// start none is passed over without a look at its sequences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kaiju/engine/detail/policy.hpp"

namespace kaiju {

// To put one in and to take one out cost O(log n); to find the first costs O(shares that were set).
class WaitingQueue {
 public:
  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }

  Sequence* insert(std::unique_ptr<Sequence>&& sequence) {
    const auto share = place_of(*sequence);
    if (by_share_.size() <= share) by_share_.resize(share + 1);
    Sequence* const here = by_share_[share].insert(std::move(sequence)).first->get();
    ++count_;
    return here;
  }
  std::unique_ptr<Sequence> extract(Sequence& sequence) {
    WaitingSequences& of = by_share_[place_of(sequence)];
    --count_;
    return std::move(of.extract(of.find(sequence)).value());
  }
  // The first in the order of service; null: none waits.
  Sequence* first() const {
    return first([](ShareId) { return true; });
  }
  // The same among the shares that may(share) allows, behind `after` if that is given.
  template <class May>
  Sequence* first(May may, const Sequence* after = nullptr) const {
    Sequence* best = nullptr;
    for (size_t share = 0; share < by_share_.size(); ++share) {
      const WaitingSequences& of = by_share_[share];
      if (of.empty() || !may(static_cast<ShareId>(share) + kUnlimited)) continue;
      const auto place = after ? of.upper_bound(*after) : of.begin();
      if (place != of.end() && (!best || goes_before(**place, *best))) best = place->get();
    }
    return best;
  }
  template <class Visit>
  void for_each(Visit visit) const {
    for (const WaitingSequences& of : by_share_)
      for (const std::unique_ptr<Sequence>& sequence : of) visit(*sequence);
  }
  void clear() {
    by_share_.clear();
    count_ = 0;
  }

 private:
  static size_t place_of(const Sequence& sequence) {
    return static_cast<size_t>(sequence.request->step_share - kUnlimited);
  }
  std::vector<WaitingSequences> by_share_;
  size_t count_ = 0;
};

}  // namespace kaiju
