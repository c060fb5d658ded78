// Judge: what the classifier has said of one sequence, and when that makes a verdict. It knows probabilities and
// limits, no engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kaiju/arith/logistic.hpp"
#include "kaiju/base/float_state.hpp"
#include "kaiju/engine/safety.hpp"

namespace kaiju {

// [labels] limits of probabilities; kNoLimit: none.
using LabelLimits = std::vector<double>;
inline constexpr double kNoLimit = 2.0;
using TierLimits = std::map<std::string, LabelLimits>;

class Judge {
 public:
  // Takes the scores of one more text: of the prompt, or of one token more.
  void see(std::span<const float> scores, std::span<const double> limits) {
    const FloatState float_state;
    label_count_ = scores.size();
    texts_.reserve(texts_.size() + label_count_);
    const bool first = texts_.empty();
    for (size_t i = 0; i < label_count_; ++i) {
      Label label = first ? Label() : texts_[texts_.size() - label_count_];
      label.newest = arith::probability_of(scores[i]);
      label.maximum = std::max(label.maximum, label.newest);
      label.sum += label.newest;
      label.run = i < limits.size() && label.newest >= limits[i] ? label.run + 1 : 0;
      label.longest_run = std::max(label.longest_run, label.run);
      texts_.push_back(label);
    }
  }
  // Forgets all texts but the first `count`: the sequence was cut back, and judges the others again.
  void cut(int32_t count) { texts_.resize(std::min(texts_.size(), static_cast<size_t>(count) * label_count_)); }
  // The first label whose run has just become so long; -1: none has.
  int32_t verdict(int32_t run) const {
    const std::span<const Label> labels = last();
    const auto found = std::find_if(labels.begin(), labels.end(), [run](const Label& each) { return each.run == run; });
    return found == labels.end() ? -1 : static_cast<int32_t>(found - labels.begin());
  }
  float newest(int32_t label) const {
    const FloatState float_state;
    return static_cast<float>(last()[static_cast<size_t>(label)].newest);
  }

  std::vector<LabelStatistics> statistics() const {
    const FloatState float_state;
    std::vector<LabelStatistics> found;
    const auto count = static_cast<double>(label_count_ == 0 ? 0 : texts_.size() / label_count_);
    for (const Label& label : last())
      found.push_back({static_cast<float>(label.maximum), static_cast<float>(label.sum / count),
                       static_cast<float>(label.longest_run)});
    return found;
  }

 private:
  // Of one label, after a text and those before it.
  struct Label {
    double newest = 0.0, maximum = 0.0, sum = 0.0;
    int32_t run = 0, longest_run = 0;
  };
  std::span<const Label> last() const { return std::span<const Label>(texts_).last(texts_.empty() ? 0 : label_count_); }

  size_t label_count_ = 0;
  std::vector<Label> texts_;  // [texts, labels]
};

}  // namespace kaiju
