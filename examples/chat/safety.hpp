// Safety: the labels of the model's classifier, what it says of a reply with each, and the limits of the two tiers that
// the chat knows (docs/safety.md).
#pragma once

#include <string>
#include <vector>

#include "owned.hpp"

namespace chat {

// What the classifier says of a reply with one label: probabilities.
struct LabelScore {
  std::string label;
  double largest = 0, mean = 0;
};

// Empty where the model has no classifier.
std::vector<std::string> labels_of(kaiju_model* model);
// Of the last event of a reply; empty where it has none.
std::vector<LabelScore> scores_of(const kaiju_event& done, const std::vector<std::string>& labels);
// A line for each label.
std::string score_table(const std::vector<LabelScore>& scores);

// Gives every label of the engine's model, but for distress, the limit of the tier, "adult" or "minor": distress asks
// for help, and blocks nothing. Throws Problem where the model has no classifier.
void set_limits(kaiju_engine* engine, kaiju_model* model, const std::string& tier);

}  // namespace chat
