// ResumePoints: the places from which a later prompt can continue (positions whose window is kept), what each of them
// is worth, and those that were given up. reuse_curves.hpp says how worth is computed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "kaiju/cache/detail/forgotten_points.hpp"
#include "kaiju/cache/detail/reuse_curves.hpp"
#include "kaiju/cache/node.hpp"

namespace kaiju {

// A resume point at the end of a node. `above` and `below` are its neighbours on the path that last used it; a
// neighbour may have gone.
struct ResumePoint {
  NodeId node = kNoNode;
  NodeRef above, below;
  int32_t blocks_above = 0;  // from the point above, or from the beginning; 0: not measured yet
  int32_t blocks_below = 0;  // to the point below; 0: the path ends here
  uint32_t used = 0;         // when its path was last used, in requests
  uint32_t uses = 0;         // how often its path was used before; for a branch, how often the point was
  PointClass of;
  bool branch = false;  // sequences branch here, or the host wants it: its class does not follow its distance
  NodeId ring_next = kNoNode, ring_previous = kNoNode;  // neighbours in the ring of its share (cache_shares.hpp)
  bool seen = true;                                     // whether its age was told to the curves since it was last used
};

// The price of memory: what a point takes when nothing else needs it.
struct PointCosts {
  int32_t reach = 0;  // window blocks of a point that shares none
  PerKind<int64_t> block_bytes;

  // Bytes that are free once the point is gone. Its window blocks may be those of its neighbours, too. Its global
  // blocks are needed by what is below it.
  float bytes(const ResumePoint& point) const {
    const int32_t alone = std::min(point.blocks_above, point.blocks_below > 0 ? point.blocks_below : reach);
    const int64_t windows = block_bytes[BlockKind::kWindow] * std::min(reach, alone);
    const int64_t globals = point.blocks_below > 0 ? 0 : block_bytes[BlockKind::kGlobal] * point.blocks_above;
    return static_cast<float>(windows + globals);
  }
};

// Invariants: a node with points (Node::points) has one place here (Node::point), and every place has such a node. One
// thread at a time. Costs do not depend on the number of points, except those of worst's last resort.
class ResumePoints {
 public:
  ResumePoints() = default;
  ResumePoints(Buffer<ResumePoint> places, Buffer<ForgottenPoint> forgotten, const PointCosts& costs)
      : places_(std::move(places)),
        forgotten_(std::move(forgotten)),
        costs_(costs),
        curves_(kMemory * static_cast<float>(forgotten_.count())) {}

  int32_t count() const { return count_; }
  size_t bytes() const { return places_.bytes() + forgotten_.bytes() + sizeof(ReuseCurves); }
  ResumePoint& at(int32_t place) { return places_.data()[place]; }
  const ResumePoint& at(int32_t place) const { return const_cast<ResumePoints*>(this)->at(place); }

  // Time is the number of requests that have started.
  void request_starts() { ++now_; }
  uint32_t now() const { return now_; }

  int32_t add(NodeId node) {
    at(count_) = {};
    at(count_).node = node;
    at(count_).used = now_;
    return count_++;
  }
  // Removes a place. The last place moves there: returns its node, or kNoNode if none has moved.
  NodeId remove(int32_t place) {
    if (place == --count_) return kNoNode;
    at(place) = at(count_);
    return at(place).node;
  }

  // Tells the curves how old the point is and whether it is used now.
  void observe(ResumePoint& point, bool used) {
    if (!point.seen) curves_.observe(point.of, now_ - point.used, used);
    point.seen = true;
  }
  // The point's path was used.
  void touch(ResumePoint& point, PointClass of, uint32_t uses) {
    observe(point, false);
    point.of = of;
    point.uses = uses;
    point.used = now_;
    point.seen = false;
    curves_.watch(of);
  }
  // A point is given up, and this one is the next above: what would have used that one uses this one.
  void inherit(ResumePoint& above, const ResumePoint& gone) {
    if (above.branch || curves_.rate(above.of, now_ - above.used) >= curves_.rate(gone.of, now_ - gone.used)) return;
    observe(above, false);
    above.of = gone.of;
    above.uses = gone.uses;
    above.used = gone.used;
    above.seen = gone.seen;
    if (!above.seen) curves_.watch(above.of);
  }
  // The point is given up. It goes on being observed for as long as its name is remembered.
  void forget(const ResumePoint& point, const BlockName& name) {
    if (point.seen) return;
    const ForgottenPoint gone = forgotten_.add(name, point.used, point.of, point.uses);
    if (gone.name != 0) curves_.observe(gone.of, now_ - gone.used, false);
  }
  // A request comes by a node. If the node had a point that was given up: `used` says whether the request would have
  // resumed there. Returns how often the point's path had been used, or -1.
  int64_t recall(const BlockName& name, bool used) {
    const ForgottenPoint point = forgotten_.take(name);
    if (point.name == 0) return -1;
    curves_.observe(point.of, now_ - point.used, used);
    return point.uses;
  }

  // Whether a point so far behind the end of a path, and so far from the point above, would be worth more than what was
  // given up lately.
  bool worth_adding(int32_t behind, int32_t blocks_above, uint32_t uses) const {
    ResumePoint point;
    point.of = PointClass::behind(behind, uses);
    point.used = now_;
    point.blocks_above = blocks_above;
    point.blocks_below = behind;
    return worth(point) >= price_;
  }
  // A point that was not worth adding is watched as if it had been given up.
  void watch(const BlockName& name, int32_t behind, uint32_t uses) {
    ResumePoint point;
    touch(point, PointClass::behind(behind, uses), uses);
    forget(point, name);
  }
  // What memory costs: about what the points that were given up lately were worth.
  void pay(float worth) { price_ += (std::min(worth, 1.0F) - price_) / 16; }

  // Expected tokens saved in each request's time, for each byte.
  float worth(const ResumePoint& point) const {
    if (point.blocks_above == 0) return 0;  // to be measured
    const float bytes = costs_.bytes(point);
    if (bytes <= 0) return std::numeric_limits<float>::max();  // nothing would be won
    return curves_.rate(point.of, now_ - point.used) * static_cast<float>(point.blocks_above * kBlockTokens) / bytes;
  }
  // The place that is worth least among a few taken at random, or among all if there are few, of those that may(place)
  // allows; -1: none.
  template <class May>
  int32_t worst(May may) {
    int32_t found = worst_of(std::min(count_, kLooked), count_ <= kLooked, may);
    if (found < 0 && count_ > kLooked) found = worst_of(count_, true, may);
    return found;
  }

 private:
  static constexpr int32_t kLooked = 64;
  static constexpr float kMemory = 4;

  template <class May>
  int32_t worst_of(int32_t looks, bool in_turn, May may) {
    int32_t found = -1;
    float least = 0;
    for (int32_t i = 0; i < looks; ++i) {
      const int32_t place = in_turn ? i : draw();
      const float value = worth(at(place));
      if ((found < 0 || value < least) && may(place)) found = place, least = value;
    }
    return found;
  }
  // Weyl's sequence, mixed: the same in every run.
  int32_t draw() {
    uint64_t x = drawn_ += 0x9E3779B97F4A7C15U;
    x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93U;
    return static_cast<int32_t>((x >> 32) * static_cast<uint64_t>(count_) >> 32);
  }

  Buffer<ResumePoint> places_;
  ForgottenPoints forgotten_;
  PointCosts costs_;
  ReuseCurves curves_;
  float price_ = 0;
  int32_t count_ = 0;
  uint32_t now_ = 0;
  uint64_t drawn_ = 0;
};

}  // namespace kaiju
