// See popular.hpp.
#include "popular.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kaiju::server {

namespace {

constexpr double kHalfSeconds = 300;
constexpr int64_t kWindowSeconds = 15;
constexpr int64_t kLeastRequests = 30;  // in the windows: fewer say nothing
constexpr auto kUntilToldAgain = std::chrono::minutes(10);

int64_t window_at(Popular::Clock::time_point now) {
  return std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count() / kWindowSeconds;
}

// Requests in the window `window` and in the one before.
template <class Known>
int64_t recent(const Known& known, int64_t window) {
  if (known.window == window) return known.newest + known.before;
  return known.window == window - 1 ? known.newest : 0;
}

template <class Known>
void count(Known& known, int64_t window) {
  if (known.window != window) {
    known.before = known.window == window - 1 ? known.newest : 0;
    known.newest = 0;
    known.window = window;
  }
  ++known.newest;
}

}  // namespace

double Popular::score_at(const Known& known, Clock::time_point now) {
  return known.score * std::exp2(-std::chrono::duration<double>(now - known.scored).count() / kHalfSeconds);
}

bool Popular::is_hot(const Known& known, int64_t window) const {
  const int64_t all = recent(all_, window);
  return all >= kLeastRequests && static_cast<double>(recent(known, window)) > hot_share_ * static_cast<double>(all);
}

bool Popular::note(const Region& region, Clock::time_point now) {
  if (region.character.empty()) return false;
  if (!knows(region.character) && known_.size() >= kMost) forget_least(now);
  Known& known = known_[region.character];
  if (known.tokens.empty()) known.tokens = region.tokens;
  known.score = score_at(known, now) + 1;
  known.scored = now;
  const int64_t window = window_at(now);
  count(known, window);
  count(all_, window);
  if (!is_hot(known, window)) return false;
  if (known.told != Clock::time_point() && now - known.told < kUntilToldAgain) return false;
  known.told = now;
  return true;
}

void Popular::forget_least(Clock::time_point now) {
  std::vector<double> scores;
  for (const auto& [character, known] : known_) scores.push_back(score_at(known, now));
  const auto middle = scores.begin() + static_cast<std::ptrdiff_t>(scores.size() / 2);
  std::nth_element(scores.begin(), middle, scores.end());
  std::erase_if(known_, [&](const auto& one) { return score_at(one.second, now) <= *middle; });
}

std::vector<Region> Popular::most_asked(size_t most, Clock::time_point now) const {
  std::vector<std::pair<double, const std::string*>> order;
  for (const auto& [character, known] : known_) order.emplace_back(score_at(known, now), &character);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  order.resize(std::min(order.size(), most));
  std::vector<Region> regions;
  for (const auto& [score, character] : order) regions.push_back({*character, known_.at(*character).tokens});
  return regions;
}

size_t Popular::hot_count(Clock::time_point now) const {
  const int64_t window = window_at(now);
  return static_cast<size_t>(
      std::count_if(known_.begin(), known_.end(), [&](const auto& one) { return is_hot(one.second, window); }));
}

}  // namespace kaiju::server
