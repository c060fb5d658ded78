// ReuseCurves: learns how soon resume points are used again, and says what it is worth to go on keeping one. This is
// the whole policy of eviction; resume_points.hpp applies it.
//
// Time is counted in requests. Points of one class (PointClass) are taken to be alike. For each class and age the
// curves count how many points were seen to become that old, and how many of them were used at that age, evicted ones
// included. So q(b), the chance that a point that has reached age b is used before the next age, is known without
// foresight. A point that is kept from age a on, at most until age e, earns at best
//
//   rate(a) = max over e of  sum S(b) q(b)  /  sum S(b) (1 - q(b) / 2) width(b),   a <= b <= e,  S(a) = 1,
//                                                                                S(b + 1) = S(b) (1 - q(b))
//
// uses in each request's time (Gittins, "Bandit processes and dynamic allocation indices", 1979). A point is worth
//
//   rate(age) * tokens that only this point saves / bytes that only this point takes.
//
// The point worth least goes first. If memory has one price for each byte and request, no rule that knows only classes
// and ages earns more. A scan is seen to be one, because points used once have a class of their own. Points that are
// used in turn have a rate that grows with age, so most of them stay and the newest go.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "kaiju/base/float_state.hpp"

namespace kaiju {

// What is known of a resume point before its age: how far it lies behind the end of its path, or that sequences branch
// there; and how often the path was used before.
struct PointClass {
  static constexpr int kDistances = 10, kBranch = kDistances, kUses = 6;
  static constexpr int kCount = (kDistances + 1) * kUses;
  uint8_t place = 0, uses = 0;

  // Distances and counts are classed by powers of two.
  static PointClass behind(int32_t blocks, uint32_t uses) {
    return {power_of(static_cast<uint32_t>(blocks), kDistances), power_of(uses, kUses)};
  }
  static PointClass branch(uint32_t uses) { return {kBranch, power_of(uses, kUses)}; }
  size_t index() const { return size_t{place} * kUses + uses; }

 private:
  static uint8_t power_of(uint32_t count, int powers) {
    return static_cast<uint8_t>(std::min(static_cast<int>(std::bit_width(count)), powers - 1));
  }
};

// One thread at a time. Every call is O(1), except that the rates of a class are computed anew after an eighth of what
// was observed, or kRefresh observations.
class ReuseCurves {
 public:
  // `memory`: after so many observations of a class, old ones count half.
  explicit ReuseCurves(float memory = 0) : memory_(std::max(memory, kLeastMemory)), classes_(PointClass::kCount) {
    Curve likely, unlikely;  // before anything is seen
    refresh(likely, kGuess), refresh(unlikely, kGuessBehind);
    for (size_t i = 0; i < classes_.size(); ++i) classes_[i] = guess(i) == kGuess ? likely : unlikely;
  }

  // A point of this class is watched from its age 0 on.
  void watch(PointClass of) { classes_[of.index()].open += 1; }
  // A point that was watched is used at this age; or it is watched no more.
  void observe(PointClass of, uint32_t age, bool used) {
    Curve& curve = classes_[of.index()];
    const auto bin = static_cast<size_t>(bin_of(age));
    curve.open -= 1;
    curve.seen[bin] += 1;
    curve.used[bin] += used ? 1 : 0;
    curve.total += 1;
    if (static_cast<float>(++curve.fresh) < std::clamp(curve.total / 8, kFirst, kRefresh)) return;
    if (curve.total > memory_) curve.fade();
    refresh(curve, guess(of.index()));
  }
  // Expected uses of a point of this age in each request's time, as long as it pays to keep the point.
  float rate(PointClass of, uint32_t age) const { return classes_[of.index()].rate[static_cast<size_t>(bin_of(age))]; }

 private:
  static constexpr int kBins = 96;                     // of age: four for each power of two
  static constexpr float kFirst = 16, kRefresh = 128;  // observations before the rates are computed, and again
  static constexpr float kLeastMemory = 8192;
  // Where nothing is known, a point is used before its age has grown by a quarter with this chance, as if two had been
  // seen. So what was used last is kept longest.
  static constexpr float kGuess = 0.05F, kGuessBehind = 0.002F, kGuessWeight = 2;

  struct Curve {
    float seen[kBins] = {};  // points last seen at this age, used or not
    float used[kBins] = {};
    float rate[kBins] = {};
    float total = 0;
    float open = 0;  // points that are watched; taken to be older than any age
    int fresh = 0;   // observations since the rates were computed

    void fade() {
      for (int b = 0; b < kBins; ++b) seen[b] /= 2, used[b] /= 2;
      total /= 2;
    }
  };

  static int bin_of(uint32_t age) {
    const uint64_t x = uint64_t{age} + 1;
    const int octave = static_cast<int>(std::bit_width(x)) - 1;
    const auto quarter = static_cast<int>((x << 2 >> octave) & 3);
    return std::min(4 * octave + quarter, kBins - 1);
  }
  static float width_of(int bin) { return 0.25F * static_cast<float>(1 << bin / 4); }

  static float guess(size_t index) {
    const size_t place = index / PointClass::kUses;
    return place == 0 || place == PointClass::kBranch ? kGuess : kGuessBehind;
  }
  static void refresh(Curve& curve, float guess) {
    const FloatState float_state;
    float chance[kBins], reached = curve.open;
    for (int b = kBins - 1; b >= 0; --b) {
      const float unused = curve.seen[b] - curve.used[b];  // these were there for half of this age
      chance[b] = (curve.used[b] + guess * kGuessWeight) / (reached + curve.used[b] + unused / 2 + kGuessWeight);
      reached += curve.seen[b];
    }
    for (int a = 0; a < kBins; ++a) {
      float best = 0, uses = 0, time = 0, survives = 1;
      for (int b = a; b < kBins && survives > 1e-3F; ++b) {
        uses += survives * chance[b];
        time += survives * (1 - chance[b] / 2) * width_of(b);
        survives *= 1 - chance[b];
        best = std::max(best, uses / time);
      }
      curve.rate[a] = best;
    }
    curve.fresh = 0;
  }

  float memory_;
  std::vector<Curve> classes_;
};

}  // namespace kaiju
