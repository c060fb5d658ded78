// Ring: consistent hashing as HAProxy does it (`hash-type consistent`), with or without bounded loads
// (`hash-balance-factor`): Mirrokni, Thorup, Zadimoghaddam, "Consistent hashing with bounded loads", SODA 2018. The
// rule is that of HAProxy's lb_chash.c for servers of equal weight.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/fleet/loads.hpp"
#include "bench/fleet/zipf.hpp"

namespace kaiju::fleet {

class Ring {
 public:
  // HAProxy puts 16 points on the ring for each unit of a server's weight.
  Ring(int32_t machine_count, int32_t points_of_each) {
    points_.reserve(static_cast<size_t>(machine_count) * static_cast<size_t>(points_of_each));
    for (int32_t m = 0; m < machine_count; ++m)
      for (int32_t p = 0; p < points_of_each; ++p) points_.push_back({point_hash(m, p), m});
    std::sort(points_.begin(), points_.end());
    restart(std::vector<bool>(static_cast<size_t>(machine_count), true));
  }

  // The machines that are up have changed.
  void restart(const std::vector<bool>& up) {
    rank_.assign(up.size(), -1);
    int32_t count = 0;
    for (size_t m = 0; m < up.size(); ++m)
      if (up[m]) rank_[m] = count++;
  }

  // The machine of the point nearest to the key; with a factor (125: a quarter above the mean) the first one from there
  // on that is below its bound. At least one must be up.
  int32_t choose(uint64_t key, const Loads& loads, int32_t factor_percent) const {
    size_t at = nearest(static_cast<uint32_t>(mixed(key)));
    while (rank(at) < 0 || (factor_percent > 0 && !eligible(points_[at].machine, loads, factor_percent))) at = next(at);
    return points_[at].machine;
  }

  // Requests that the machine may have in flight, the one that is to come included: its part of the mean's `factor`.
  int64_t bound(int32_t machine, const Loads& loads, int32_t factor_percent) const {
    const int64_t slots = ((loads.in_flight() + 1) * factor_percent + 99) / 100;
    const int64_t machines = loads.up_count(), rest = slots % machines;
    const int64_t before = rank_[static_cast<size_t>(machine)];
    return std::max<int64_t>(1, slots / machines + (before + 1) * rest / machines - before * rest / machines);
  }

 private:
  struct Point {
    uint32_t hash;
    int32_t machine;
    bool operator<(const Point& other) const {
      return hash != other.hash ? hash < other.hash : machine < other.machine;
    }
  };
  // Mixed twice: a key is mixed once, and small keys must not fall on the points of the first machine.
  static uint32_t point_hash(int32_t machine, int32_t point) {
    return static_cast<uint32_t>(mixed(mixed(static_cast<uint64_t>(machine) << 32 | static_cast<uint32_t>(point))));
  }
  size_t next(size_t at) const { return at + 1 == points_.size() ? 0 : at + 1; }
  int32_t rank(size_t at) const { return rank_[static_cast<size_t>(points_[at].machine)]; }
  bool eligible(int32_t machine, const Loads& loads, int32_t factor_percent) const {
    return loads.load(machine) < bound(machine, loads, factor_percent);
  }
  // Up or down along the ring, whichever point of a machine that is up is closer.
  size_t nearest(uint32_t hash) const {
    const auto found = std::lower_bound(points_.begin(), points_.end(), Point{hash, 0});
    size_t above = found == points_.end() ? 0 : static_cast<size_t>(found - points_.begin());
    const auto down = [&](size_t at) { return at == 0 ? points_.size() - 1 : at - 1; };
    size_t below = down(above);
    while (rank(above) < 0) above = next(above);
    while (rank(below) < 0) below = down(below);
    return static_cast<uint32_t>(hash - points_[below].hash) < static_cast<uint32_t>(points_[above].hash - hash)
               ? below
               : above;
  }

  std::vector<Point> points_;
  std::vector<int32_t> rank_;  // of a machine among those that are up; -1: down
};

}  // namespace kaiju::fleet
