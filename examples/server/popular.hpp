// Popular: which characters' shared regions the requests of this server begin with, and whose share of them suddenly
// grows. A region is named as in Scope::character; it is a version of a card, or of a system message with a key.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kaiju::server {

// The beginning of a prompt that all may share.
struct Region {
  std::string character;  // Scope::character
  std::vector<int32_t> tokens;
};

class Popular {
 public:
  using Clock = std::chrono::steady_clock;
  // Regions; those that are asked for least are forgotten. With cards of 6,000 tokens they take 100 MB.
  static constexpr size_t kMost = 4096;

  // `hot_share`: of the requests of the last 15 to 30 s, beyond which a region is hot.
  explicit Popular(double hot_share) : hot_share_(hot_share) {}

  bool knows(const std::string& character) const { return known_.contains(character); }
  // Counts a request. Whether its region has become hot, which is said once in ten minutes.
  bool note(const Region& region, Clock::time_point now = Clock::now());
  // Those that were asked for most lately, at most `most`.
  std::vector<Region> most_asked(size_t most, Clock::time_point now = Clock::now()) const;
  size_t hot_count(Clock::time_point now = Clock::now()) const;

 private:
  struct Known {
    std::vector<int32_t> tokens;
    double score = 0;  // requests, each worth half after five minutes
    Clock::time_point scored{}, told{};
    int64_t newest = 0, before = 0;  // requests in this window and in the one before
    int64_t window = -2;             // the number of the one that `newest` counts
  };
  static double score_at(const Known& known, Clock::time_point now);
  bool is_hot(const Known& known, int64_t window) const;
  void forget_least(Clock::time_point now);  // half of them

  const double hot_share_;
  std::map<std::string, Known> known_;
  Known all_;  // requests of all regions
};

}  // namespace kaiju::server
