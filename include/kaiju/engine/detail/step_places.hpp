// StepPlaces: how many of an engine's running sequences, and of a step's tokens, each share may have
// (share_limits.hpp). Arithmetic alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kaiju/base/float_state.hpp"
#include "kaiju/cache/domain.hpp"
#include "kaiju/cache/share_limits.hpp"

namespace kaiju {

// What a limit that is a part of `whole` comes to.
inline int32_t floor_of(double part, int32_t whole) {
  const FloatState float_state;
  return static_cast<int32_t>(part * whole);
}
inline int32_t ceiling_of(double part, int32_t whole) { return part > 0 ? std::max(1, floor_of(part, whole)) : whole; }

// A beam search needs all its places at once, so shares do not limit it.
inline constexpr ShareId kUnlimited = -1;

// One thread at a time. What no share was set for is kCommonShare.
class StepPlaces {
 public:
  explicit StepPlaces(int32_t places) : places_(places), shares_(1) { shares_[0].ceiling = places; }

  void set(ShareId id, const ShareLimits& limits) {
    if (static_cast<size_t>(id) >= shares_.size()) shares_.resize(static_cast<size_t>(id) + 1);
    Share& share = shares_[static_cast<size_t>(id)];
    reserved_ -= share.unused();
    share.floor = floor_of(limits.step_floor, places_);
    share.ceiling = ceiling_of(limits.step_ceiling, places_);
    reserved_ += share.unused();
  }
  // Whether one more sequence of the share may run: the share is below its ceiling, and the place is not one of those
  // that are kept free for others' floors.
  bool may_start(ShareId id) const {
    if (id == kUnlimited) return running_ < places_;
    const Share& share = shares_[static_cast<size_t>(id)];
    if (running_ >= places_ || share.running >= share.ceiling) return false;
    return share.running < share.floor || places_ - running_ > reserved_;
  }
  void start(ShareId id) { change(id, 1); }
  void stop(ShareId id) { change(id, -1); }
  int32_t running(ShareId id) const { return shares_[static_cast<size_t>(id)].running; }

 private:
  struct Share {
    int32_t floor = 0, ceiling = 0, running = 0;
    int32_t unused() const { return std::max(0, floor - running); }
  };
  void change(ShareId id, int32_t by) {
    running_ += by;
    if (id == kUnlimited) return;
    Share& share = shares_[static_cast<size_t>(id)];
    reserved_ -= share.unused();
    share.running += by;
    reserved_ += share.unused();
  }

  int32_t places_;
  std::vector<Share> shares_;
  int32_t running_ = 0;
  int32_t reserved_ = 0;  // places that floors keep free
};

}  // namespace kaiju
