// ForgottenPoints: a bounded memory of resume points that were given up. When one would have been used, it says of
// which class and how old it was, so that the policy learns what eviction would hide from it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "kaiju/base/buffer.hpp"
#include "kaiju/cache/detail/reuse_curves.hpp"
#include "kaiju/cache/name.hpp"

namespace kaiju {

struct ForgottenPoint {
  uint64_t name;  // half of the node's name; 0: no point
  uint32_t used;  // when its path was last used, in requests
  PointClass of;
  uint16_t uses;
};

// A point lies in one set of four (a cache line), newest first; a fifth replaces the set's oldest. One thread at a
// time.
class ForgottenPoints {
 public:
  static constexpr size_t kSet = 4;
  // How many places a memory of at least `points` takes.
  static size_t places_for(size_t points) { return std::bit_ceil(std::max(points, kSet)); }

  ForgottenPoints() = default;
  // `places` are zero, places_for(...) of them.
  explicit ForgottenPoints(Buffer<ForgottenPoint> places) : places_(std::move(places)) {}
  size_t count() const { return places_.size(); }
  size_t bytes() const { return places_.bytes(); }

  // Adds a point. Returns the one that was forgotten for it; its name is 0 if there is none.
  ForgottenPoint add(const BlockName& name, uint32_t used, PointClass of, uint32_t uses) {
    ForgottenPoint* const set = set_of(name);
    ForgottenPoint* const old = std::find_if(set, set + kSet - 1, [&](const auto& p) { return p.name == half(name); });
    const ForgottenPoint gone = *old;
    std::move_backward(set, old, old + 1);
    *set = {half(name), used, of, static_cast<uint16_t>(std::min<uint32_t>(uses, UINT16_MAX))};
    return gone;
  }
  // Takes a point out; its name is 0 if it is not there.
  ForgottenPoint take(const BlockName& name) {
    ForgottenPoint* const set = set_of(name);
    ForgottenPoint* const place = std::find_if(set, set + kSet, [&](const auto& p) { return p.name == half(name); });
    if (place == set + kSet) return {};
    const ForgottenPoint taken = *place;
    std::move(place + 1, set + kSet, place);
    set[kSet - 1] = {};
    return taken;
  }

 private:
  static uint64_t half(const BlockName& name) { return name.low | 1; }  // never the zero of an empty place
  ForgottenPoint* set_of(const BlockName& name) {
    return places_.data() + (name.high & (places_.size() / kSet - 1)) * kSet;
  }

  Buffer<ForgottenPoint> places_;
};

}  // namespace kaiju
