// Implements the tables and the limits.
#include "safety.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace chat {
namespace {

constexpr double kAdultLimit = 0.5, kMinorLimit = 0.3;

}  // namespace

std::vector<std::string> labels_of(kaiju_model* model) {
  std::vector<std::string> labels;
  const char* text = nullptr;
  size_t size = 0;
  while (kaiju_model_label(model, labels.size(), &text, &size) == KAIJU_OK) labels.emplace_back(text, size);
  return labels;
}

std::vector<LabelScore> scores_of(const kaiju_event& done, const std::vector<std::string>& labels) {
  constexpr size_t kNumbers = 3;  // of a label: largest, mean, longest run
  std::vector<LabelScore> scores;
  for (size_t i = 0; i < labels.size() && (i + 1) * kNumbers <= done.score_count; ++i)
    scores.push_back({labels[i], done.scores[i * kNumbers], done.scores[i * kNumbers + 1]});
  return scores;
}

std::string score_table(const std::vector<LabelScore>& scores) {
  size_t width = 0;
  for (const LabelScore& each : scores) width = std::max(width, each.label.size());
  std::string table = fmt::format("  {:<{}}  largest    mean\n", "", width);
  for (const LabelScore& each : scores)
    table += fmt::format("  {:<{}}  {:6.1f}%  {:5.1f}%\n", each.label, width, 100 * each.largest, 100 * each.mean);
  return table;
}

void set_limits(kaiju_engine* engine, kaiju_model* model, const std::string& tier) {
  const std::vector<std::string> labels = labels_of(model);
  if (labels.empty()) throw Problem("--safety-tier needs a model with a classifier, such as the bundled one");
  for (const std::string& label : labels)
    if (label != "distress")
      must([&](kaiju_error** error) {
        return kaiju_engine_set_limit(engine, tier.c_str(), label.c_str(), tier == "minor" ? kMinorLimit : kAdultLimit,
                                      error);
      });
}

}  // namespace chat
