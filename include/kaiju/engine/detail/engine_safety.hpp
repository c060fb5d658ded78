// Engine's verdicts: limits by label and tier, and what they do to a reply. Part of engine_impl.hpp.
#pragma once

#include "kaiju/engine/detail/engine_impl.hpp"

namespace kaiju {

// Values by label in the order of the model's labels.
inline Result<std::vector<double>> EngineImpl::by_label(const LabelValues& values, const char* what, double most,
                                                        double otherwise) const {
  const std::vector<std::string>& labels = info().labels;
  std::vector<double> found(static_cast<size_t>(info().label_count), otherwise);
  std::vector<uint8_t> given(found.size(), false);
  for (const auto& [name, value] : values) {
    const auto at = static_cast<size_t>(std::find(labels.begin(), labels.end(), name) - labels.begin());
    if (at == labels.size()) {
      std::string known;
      for (const std::string& label : labels) known += (known.empty() ? "" : ", ") + label;
      return invalid_argument("the model has no label \"" + name + "\"; it has " + (known.empty() ? "none" : known));
    }
    if (!(value >= 0.0 && value <= most))
      return invalid_argument(std::string("the ") + what + " of " + name + " is " + std::to_string(value) +
                              "; it must be from 0 to " + std::to_string(static_cast<int32_t>(most)));
    if (std::exchange(given[at], true)) return invalid_argument("the label " + name + " has two values");
    found[at] = value;
  }
  return found;
}

inline Status EngineImpl::set_limit(const std::string& tier, const std::string& label, std::optional<double> limit) {
  KAIJU_TRY(check_process());
  return guarded<Status>([&]() -> Status {
    if (tier.empty()) return invalid_argument("a tier needs a name");
    Result<LabelLimits> one = by_label({{label, limit.value_or(0.0)}}, "limit", 1.0, kNoLimit);
    if (!one.ok()) return one.status();
    return inbox_.locked([&](Inbox& inbox) -> Status {
      auto changed = std::make_shared<TierLimits>(inbox.tiers ? *inbox.tiers : TierLimits());
      LabelLimits& limits = changed->try_emplace(tier, one->size(), kNoLimit).first->second;
      for (size_t i = 0; i < one->size(); ++i)
        if ((*one)[i] != kNoLimit) limits[i] = limit.value_or(kNoLimit);
      inbox.tiers = std::move(changed);
      return {};
    });
  });
}

inline Status EngineImpl::check_safety(const RequestOptions& options) const {
  const SafetyOptions& safety = options.safety;
  if (!safety.active()) {
    if (safety.run != 1 || safety.reports || safety.hold_back != 0)
      return invalid_argument("verdicts need a tier or a label's limit");
    return {};
  }
  if (info().label_count == 0)
    return Status(StatusCode::kUnsupported, "the model has no classifier: ask for replies without limits");
  KAIJU_TRY(by_label(safety.limits, "limit", 1.0, kNoLimit).status());
  KAIJU_TRY(check_in_range("run", safety.run, 1, 1000));
  KAIJU_TRY(check_in_range("hold_back", safety.hold_back, 0, kMaxHoldBack));
  if (options.beams.width > 0 && (safety.run != 1 || safety.reports || safety.hold_back != 0))
    return Status(StatusCode::kUnsupported,
                  "a beam ends as soon as it reaches a limit: leave run, reports and hold_back at their defaults");
  if (safety.tier.empty()) return {};
  return inbox_.locked([&](const Inbox& inbox) -> Status {
    if (inbox.tiers && inbox.tiers->contains(safety.tier)) return {};
    return Status(StatusCode::kNotFound, "there is no tier \"" + safety.tier + "\": set a limit of it first");
  });
}

// The limits that a request has now: the lower ones of its own and its tier's. Empty: it has none.
inline std::span<const double> EngineImpl::limits_of(const Request& request) {
  limits_ = request.limits;
  if (request.safety.tier.empty() || !tiers_) return limits_;
  const auto found = tiers_->find(request.safety.tier);
  if (found == tiers_->end()) return limits_;
  limits_.resize(found->second.size(), kNoLimit);
  for (size_t i = 0; i < limits_.size(); ++i) limits_[i] = std::min(limits_[i], found->second[i]);
  return limits_;
}

// Judges the text that a row has scored. True: a verdict ends the reply before the row's token.
inline bool EngineImpl::judge(Sequence& sequence, std::span<const float> scores) {
  const Request& request = *sequence.request;
  sequence.judge.see(scores, limits_of(request));
  if (!request.safety.active()) return false;
  const int32_t label = sequence.judge.verdict(request.safety.run);
  if (label < 0) return false;
  Event event = event_of(sequence, EventKind::kVerdict);
  event.label = label;
  event.probability = sequence.judge.newest(label);
  events_.push_back(std::move(event));
  if (!request.safety.reports) sequence.refused_label = label;
  return !request.safety.reports;
}

// Tells a token, or keeps it until later ones have been judged and no banned phrase can begin in it.
inline void EngineImpl::tell_token(Sequence& sequence, Event event) {
  const auto hold_back = static_cast<size_t>(sequence.request->safety.hold_back);
  if (hold_back == 0 && !sequence.banned.any()) {
    events_.push_back(std::move(event));
    return;
  }
  sequence.held.push_back(std::move(event));
  const int32_t settled = sequence.banned.any() ? sequence.banned.settled() : sequence.counts.generated;
  const auto first = sequence.held.begin();
  auto told = first;
  while (sequence.held.end() - told > static_cast<std::ptrdiff_t>(hold_back) && told->counts.generated <= settled)
    events_.push_back(std::move(*told++));
  sequence.held.erase(first, told);
}

}  // namespace kaiju
