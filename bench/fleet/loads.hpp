// Loads: requests in flight at each machine, which machines are up, and the least loaded of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kaiju::fleet {

class Loads {
 public:
  static constexpr int32_t kNone = -1;

  explicit Loads(int32_t machine_count) : machines_(static_cast<size_t>(machine_count)) {
    for (int32_t m = 0; m < machine_count; ++m) start(m);
  }

  int32_t machine_count() const { return static_cast<int32_t>(machines_.size()); }
  int32_t up_count() const { return up_count_; }
  bool up(int32_t machine) const { return at(machine).up; }
  int32_t load(int32_t machine) const { return at(machine).load; }
  int64_t in_flight() const { return in_flight_; }  // at machines that are up
  double mean() const { return static_cast<double>(in_flight_) / std::max(1, up_count_); }
  int32_t most() const {
    int32_t level = static_cast<int32_t>(levels_.size()) - 1;
    while (level > 0 && levels_[static_cast<size_t>(level)].first == kNone) --level;
    return level;
  }
  // The one that has been at the lowest load for the longest, as HAProxy's leastconn takes it. At least one must be up.
  int32_t least_loaded() const {
    size_t level = 0;
    while (levels_[level].first == kNone) ++level;
    return levels_[level].first;
  }

  void begin(int32_t machine) { move(machine, load(machine) + 1); }
  void end(int32_t machine) { move(machine, load(machine) - 1); }
  void start(int32_t machine) {
    at(machine) = {};
    at(machine).up = true;
    ++up_count_;
    link(machine);
  }
  // Its requests are no longer in flight.
  void stop(int32_t machine) {
    unlink(machine);
    in_flight_ -= at(machine).load;
    --up_count_;
    at(machine) = {};
  }

 private:
  struct Machine {
    bool up = false;
    int32_t load = 0;
    int32_t before = kNone, after = kNone;  // of its level
  };
  struct Level {
    int32_t first = kNone, last = kNone;
  };
  Machine& at(int32_t machine) { return machines_[static_cast<size_t>(machine)]; }
  const Machine& at(int32_t machine) const { return machines_[static_cast<size_t>(machine)]; }

  void move(int32_t machine, int32_t load) {
    unlink(machine);
    in_flight_ += load - at(machine).load;
    at(machine).load = load;
    link(machine);
  }
  void link(int32_t machine) {
    Machine& moved = at(machine);
    if (levels_.size() <= static_cast<size_t>(moved.load)) levels_.resize(static_cast<size_t>(moved.load) + 1);
    Level& level = levels_[static_cast<size_t>(moved.load)];
    moved.before = level.last;
    moved.after = kNone;
    (level.last == kNone ? level.first : at(level.last).after) = machine;
    level.last = machine;
  }
  void unlink(int32_t machine) {
    const Machine& moved = at(machine);
    Level& level = levels_[static_cast<size_t>(moved.load)];
    (moved.before == kNone ? level.first : at(moved.before).after) = moved.after;
    (moved.after == kNone ? level.last : at(moved.after).before) = moved.before;
  }

  std::vector<Machine> machines_;
  std::vector<Level> levels_;  // by load
  int32_t up_count_ = 0;
  int64_t in_flight_ = 0;
};

}  // namespace kaiju::fleet
