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
    labels_.resize(scores.size());
    ++seen_;
    for (size_t i = 0; i < scores.size(); ++i) {
      Label& label = labels_[i];
      label.newest = arith::probability_of(scores[i]);
      label.maximum = std::max(label.maximum, label.newest);
      label.sum += label.newest;
      label.run = i < limits.size() && label.newest >= limits[i] ? label.run + 1 : 0;
      label.longest_run = std::max(label.longest_run, label.run);
    }
  }
  // The first label whose run has just become so long; -1: none has.
  int32_t verdict(int32_t run) const {
    const auto found =
        std::find_if(labels_.begin(), labels_.end(), [run](const Label& each) { return each.run == run; });
    return found == labels_.end() ? -1 : static_cast<int32_t>(found - labels_.begin());
  }
  float newest(int32_t label) const {
    const FloatState float_state;
    return static_cast<float>(labels_[static_cast<size_t>(label)].newest);
  }

  std::vector<LabelStatistics> statistics() const {
    const FloatState float_state;
    std::vector<LabelStatistics> found;
    for (const Label& label : labels_)
      found.push_back({static_cast<float>(label.maximum), static_cast<float>(label.sum / seen_),
                       static_cast<float>(label.longest_run)});
    return found;
  }

 private:
  struct Label {
    double newest = 0.0, maximum = 0.0, sum = 0.0;
    int32_t run = 0, longest_run = 0;
  };
  std::vector<Label> labels_;
  int32_t seen_ = 0;
};

}  // namespace kaiju
