// StopMatcher: finds stop strings in streamed text. Text that could still become a stop string is held back. The stop
// string and the text after it are never output. The result does not depend on how the text was cut into pieces.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kaiju {

// One thread at a time. Text and stop strings are whole UTF-8, so every cut falls between code points.
class StopMatcher {
 public:
  StopMatcher() = default;
  bool any() const { return !stops_.empty(); }
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  bool stopped() const { return stopped_; }
  // Index of the stop string that was complete, in the order given; of equal ones the first. -1: none yet.
  int32_t index() const { return index_; }
  // As before the first text.
  void begin_again() {
    held_.clear();
    stopped_ = false;
    index_ = -1;
  }

  // Appends to `out` what is certainly not part of a stop string. True once a stop string is complete: of those that
  // end first, the longest; further text is swallowed.
  bool push(std::string_view text, std::string& out) {
    if (stopped_) return true;
    if (stops_.empty()) {
      out += text;
      return false;
    }
    const size_t old_size = held_.size();
    held_ += text;
    for (size_t end = old_size + 1; end <= held_.size(); ++end) {
      const int32_t found = longest_ending_at(end);
      if (found < 0) continue;
      out.append(held_, 0, end - stops_[static_cast<size_t>(found)].size());
      index_ = found;
      held_.clear();
      stopped_ = true;
      return true;
    }
    const size_t keep = longest_beginning();
    out.append(held_, 0, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
    return false;
  }

  // The end of the text: what was held back comes out after all.
  void finish(std::string& out) {
    out += held_;
    held_.clear();
  }

 private:
  // Index of the longest stop string that ends at `end`, or -1 when none does.
  int32_t longest_ending_at(size_t end) const {
    int32_t longest = -1;
    for (size_t i = 0; i < stops_.size(); ++i) {
      const std::string& stop = stops_[i];
      if (stop.size() > end || held_.compare(end - stop.size(), stop.size(), stop) != 0) continue;
      if (longest < 0 || stop.size() > stops_[static_cast<size_t>(longest)].size()) longest = static_cast<int32_t>(i);
    }
    return longest;
  }
  // Size of the longest end of the held text that begins some stop string.
  size_t longest_beginning() const {
    size_t longest = 0;
    for (const std::string& stop : stops_)
      for (size_t size = std::min(stop.size() - 1, held_.size()); size > longest; --size)
        if (held_.compare(held_.size() - size, size, stop, 0, size) == 0) longest = size;
    return longest;
  }

  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
  int32_t index_ = -1;
};

}  // namespace kaiju
