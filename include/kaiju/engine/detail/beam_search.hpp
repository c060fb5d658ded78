// BeamSearch: which continuations a beam search keeps. It knows log-probabilities and scores, no engine: docs/beams.md
// states the rules, and the bits are the same on every device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kaiju/arith/logistic.hpp"
#include "kaiju/base/random.hpp"
#include "kaiju/engine/beam_options.hpp"
#include "kaiju/step/result.hpp"

namespace kaiju {

// What a step found out about one live beam.
struct BeamRow {
  std::span<const TokenLogprob> top;  // its likeliest next tokens, best first
  std::span<const float> scores;      // [labels] of its text so far; empty without a classifier
};

// A beam that goes on: a live beam of before and one more token.
struct BeamStep {
  int32_t parent = 0;  // index among the live beams of before
  int32_t token = -1;
  float logprob = 0.0f;  // of the token
};

// A reply that has ended: a live beam of before and its last token.
struct BeamEnd {
  BeamStep last;
  double value = 0.0;
  int32_t group = 0;
  int32_t length = 0;    // generated tokens
  bool stopped = false;  // by `ends`; false: by its length
  uint64_t id = 0;       // counts the ends
};

class BeamSearch {
 public:
  // `label_weights` of each label takes the place of that in options.guidance.
  BeamSearch(const BeamOptions& options, std::vector<double> label_weights, int32_t max_tokens, uint64_t seed,
             uint32_t stream)
      : options_(options),
        label_weights_(std::move(label_weights)),
        max_tokens_(max_tokens),
        seed_(seed),
        stream_(stream),
        pools_(groups()) {
    if (options_.candidates == 0) options_.candidates = 2 * options_.width;
    live_.emplace_back();
  }

  int32_t candidates() const { return options_.candidates; }
  size_t live() const { return live_.size(); }
  // The live beams go on by one token. limits: of each label's probability, empty: none. rows: one for each of them.
  // ends(i, token): whether the token ends live beam i. Afterwards steps() says how the new live beams came about, and
  // ended() which replies ended and are kept for now.
  template <class Ends>
  void advance(std::span<const BeamRow> rows, std::span<const double> limits, const Ends& ends);
  const std::vector<BeamStep>& steps() const { return steps_; }
  const std::vector<BeamEnd>& ended() const { return ended_; }
  // Whether an ended reply may still be a result.
  bool keeps(uint64_t end_id) const {
    for (const std::vector<BeamEnd>& pool : pools_)
      for (const BeamEnd& end : pool)
        if (end.id == end_id) return true;
    return false;
  }
  // No beam is live any more. The results, best first; none: limits ended all.
  bool done() const { return live_.empty(); }
  std::vector<BeamEnd> results() const;
  // The label whose limit ended a beam last, and its probability; -1: none has.
  int32_t refused_label() const { return refused_label_; }
  double refused_probability() const { return refused_probability_; }

 private:
  struct Beam {
    double logprob = 0.0;  // of its tokens
    double value = 0.0;    // by which it is compared
    double arrival = 0.0;  // stochastic: exp(logprob) times its arrival, an exponential clock of rate exp(logprob)
    int32_t group = 0;
    std::vector<float> worst;  // [labels] largest scores
    std::vector<double> sum;   // [labels] sums of probabilities
    int32_t scored = 0;        // tokens in the sums
    bool refused = false;
  };
  struct Candidate {
    double value;
    int32_t beam, rank;  // rank: among the beam's tokens
    double logprob, arrival;
  };

  size_t groups() const { return static_cast<size_t>(options_.groups); }
  size_t group_width() const { return static_cast<size_t>(options_.width / options_.groups); }

  void see(Beam& beam, std::span<const float> scores, std::span<const double> limits);
  double risk_of(const Beam& beam) const;
  double least_risk(const Beam& beam) const;
  double penalty_of(double risk) const { return KAIJU_ROUNDED(options_.guidance.weight * risk); }
  double ended_value(double logprob, double compared, int32_t length, double risk) const;
  double reachable(const Beam& beam) const;
  void gather(int32_t group, std::span<const BeamRow> rows);
  void gather_arrivals(const Beam& beam, int32_t index, std::span<const TokenLogprob> top);
  void end(const Candidate& candidate, const BeamStep& step, int32_t group, bool stopped);
  void count_chosen(int32_t token);
  bool is_over(int32_t group, const std::vector<Beam>& next, size_t first) const;

  BeamOptions options_;
  std::vector<double> label_weights_;  // [labels]
  int32_t max_tokens_ = 0;
  uint64_t seed_ = 0;
  uint32_t stream_ = 0;
  int32_t length_ = 0;  // generated tokens of every live beam
  uint64_t last_end_ = 0;
  int32_t refused_label_ = -1;
  double refused_probability_ = 0.0;
  std::vector<Beam> live_;
  std::vector<std::vector<BeamEnd>> pools_;  // of each group, best first
  std::vector<BeamStep> steps_;
  std::vector<BeamEnd> ended_;
  std::vector<Candidate> candidates_;
  std::vector<std::pair<int32_t, int32_t>> chosen_;  // in this place by earlier groups: tokens and how often
};

inline void BeamSearch::see(Beam& beam, std::span<const float> scores, std::span<const double> limits) {
  if (scores.empty()) return;
  beam.worst.resize(scores.size(), -HUGE_VALF);
  beam.sum.resize(scores.size(), 0.0);
  ++beam.scored;
  for (size_t i = 0; i < scores.size(); ++i) {
    beam.worst[i] = std::max(beam.worst[i], scores[i]);
    const double probability = arith::probability_of(scores[i]);
    beam.sum[i] += probability;
    if (limits.empty() || probability < limits[i]) continue;
    beam.refused = true;
    refused_label_ = static_cast<int32_t>(i);
    refused_probability_ = probability;
  }
}

inline double BeamSearch::risk_of(const Beam& beam) const {
  const Guidance& guidance = options_.guidance;
  if (guidance.weight == 0.0) return 0.0;
  double risk = guidance.risk == Guidance::Risk::kLogOdds ? -HUGE_VAL : 0.0;
  for (size_t i = 0; i < beam.worst.size(); ++i) {
    const double factor = label_weights_[i];
    if (factor == 0.0) continue;
    double of_label = static_cast<double>(beam.worst[i]);
    if (guidance.risk == Guidance::Risk::kMaximum) of_label = arith::probability_of(beam.worst[i]);
    if (guidance.risk == Guidance::Risk::kMean) of_label = beam.sum[i] / beam.scored;
    risk = std::max(risk, KAIJU_ROUNDED(factor * of_label));
  }
  return risk == -HUGE_VAL ? 0.0 : risk;
}

// A bound of what its risk can still be: the maximum never falls, the mean may fall to where no later token has any.
inline double BeamSearch::least_risk(const Beam& beam) const {
  if (options_.guidance.risk != Guidance::Risk::kMean) return risk_of(beam);
  Beam last = beam;
  last.scored = std::max(beam.scored, max_tokens_);
  return risk_of(last);
}

// Of a reply of so many tokens: a stochastic one is compared by its arrival alone.
inline double BeamSearch::ended_value(double logprob, double compared, int32_t length, double risk) const {
  if (options_.stochastic) return compared;
  const double factor = arith::exp_of(-options_.length_penalty * arith::natural_log(static_cast<uint64_t>(length)));
  return KAIJU_ROUNDED(logprob * factor) - penalty_of(risk);
}

// The best value with which it can end.
inline double BeamSearch::reachable(const Beam& beam) const {
  return ended_value(beam.logprob, beam.value, max_tokens_, least_risk(beam));
}

// The candidates of a group, best first.
inline void BeamSearch::gather(int32_t group, std::span<const BeamRow> rows) {
  candidates_.clear();
  for (size_t i = 0; i < live_.size(); ++i) {
    const Beam& beam = live_[i];
    if ((length_ > 1 && beam.group != group) || beam.refused) continue;
    const std::span<const TokenLogprob> top =
        rows[i].top.first(std::min(rows[i].top.size(), static_cast<size_t>(options_.candidates)));
    if (options_.stochastic) {
      gather_arrivals(beam, static_cast<int32_t>(i), top);
      continue;
    }
    const double penalty = penalty_of(risk_of(beam));
    for (size_t rank = 0; rank < top.size(); ++rank) {
      const double logprob = beam.logprob + static_cast<double>(top[rank].logprob);
      double value = logprob - penalty;
      for (const auto& [token, times] : chosen_)
        if (token == top[rank].token) value -= KAIJU_ROUNDED(options_.diversity * times);
      candidates_.push_back({value, static_cast<int32_t>(i), static_cast<int32_t>(rank), logprob, 0.0});
    }
  }
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    if (a.value != b.value) return a.value > b.value;
    return std::pair(a.beam, a.rank) < std::pair(b.beam, b.rank);
  });
}

// Exponential clocks: a beam's is the first of its children's. Given its arrival T, a child that is not the first
// arrives at T + (t - first) for fresh arrivals t of all children, because waiting has no memory. Arrivals are kept
// times exp(logprob of the beam), so that they do not overflow; a beam is compared by -ln(arrival), a Gumbel variable
// with location logprob. The children that are not among `top` are left out.
inline void BeamSearch::gather_arrivals(const Beam& beam, int32_t index, std::span<const TokenLogprob> top) {
  const double penalty = penalty_of(risk_of(beam));
  std::vector<double> waits(top.size());  // exponential of rate 1, each
  size_t first = 0;
  const auto rate = [&](size_t rank) {
    return std::max(arith::exp_of(static_cast<double>(top[rank].logprob)), 0x1p-126);
  };
  for (size_t rank = 0; rank < top.size(); ++rank) {
    const uint64_t place = (static_cast<uint64_t>(length_) << 32) | (static_cast<uint64_t>(index) << 20) | rank;
    const double uniform = (static_cast<double>(random_bits(seed_, stream_, place) >> 12) + 0.5) * 0x1p-52;
    waits[rank] = -arith::log_of(uniform);
    if (waits[rank] / rate(rank) < waits[first] / rate(first)) first = rank;
  }
  for (size_t rank = 0; rank < top.size(); ++rank) {
    const double logprob = beam.logprob + static_cast<double>(top[rank].logprob);
    const double late = waits[rank] - KAIJU_ROUNDED(waits[first] * (rate(rank) / rate(first)));
    const double own =
        length_ > 1 ? KAIJU_ROUNDED(beam.arrival * rate(rank)) : waits[first] * (rate(rank) / rate(first));
    const double arrival = std::max(own + std::max(0.0, rank == first ? 0.0 : late), 0x1p-1000);
    candidates_.push_back(
        {(logprob - arith::log_of(arrival)) - penalty, index, static_cast<int32_t>(rank), logprob, arrival});
  }
}

inline void BeamSearch::end(const Candidate& candidate, const BeamStep& step, int32_t group, bool stopped) {
  const Beam& beam = live_[static_cast<size_t>(candidate.beam)];
  std::vector<BeamEnd>& pool = pools_[static_cast<size_t>(group)];
  const double value = ended_value(candidate.logprob, candidate.value, length_, risk_of(beam));
  const auto place = std::upper_bound(pool.begin(), pool.end(), value,
                                      [](double better, const BeamEnd& than) { return better > than.value; });
  if (static_cast<size_t>(place - pool.begin()) >= group_width()) return;
  const BeamEnd ended{step, value, group, length_, stopped, ++last_end_};
  pool.insert(place, ended);
  if (pool.size() > group_width()) pool.pop_back();
  ended_.push_back(ended);
}

// Whether none of the group's beams, those of `next` from `first` on, can change its results.
inline bool BeamSearch::is_over(int32_t group, const std::vector<Beam>& next, size_t first) const {
  const std::vector<BeamEnd>& pool = pools_[static_cast<size_t>(group)];
  if (pool.size() < group_width()) return false;
  if (options_.early_stopping) return true;
  for (size_t i = first; i < next.size(); ++i)
    if (reachable(next[i]) > pool.back().value) return false;
  return true;
}

template <class Ends>
void BeamSearch::advance(std::span<const BeamRow> rows, std::span<const double> limits, const Ends& ends) {
  ++length_;
  steps_.clear();
  ended_.clear();
  chosen_.clear();
  for (size_t i = 0; i < live_.size(); ++i) see(live_[i], rows[i].scores, limits);
  std::vector<Beam> next;
  for (int32_t group = 0; group < options_.groups; ++group) {
    gather(group, rows);
    const size_t first = next.size();
    size_t rank = 0;
    for (const Candidate& candidate : candidates_) {
      if (next.size() - first == group_width()) break;
      ++rank;
      const TokenLogprob& token = rows[static_cast<size_t>(candidate.beam)].top[static_cast<size_t>(candidate.rank)];
      const BeamStep step{candidate.beam, token.token, token.logprob};
      if (ends(candidate.beam, token.token)) {
        if (rank <= group_width()) end(candidate, step, group, true);
        continue;
      }
      if (length_ == max_tokens_) {
        end(candidate, step, group, false);
        if (rank == group_width()) break;
        continue;
      }
      Beam& beam = next.emplace_back(live_[static_cast<size_t>(candidate.beam)]);
      beam.logprob = candidate.logprob;
      beam.value = candidate.value;
      beam.arrival = candidate.arrival;
      beam.group = group;
      steps_.push_back(step);
    }
    if (is_over(group, next, first)) {
      next.resize(first);
      steps_.resize(first);
      continue;
    }
    for (size_t i = first; i < steps_.size(); ++i) count_chosen(steps_[i].token);
  }
  live_ = std::move(next);
}

inline void BeamSearch::count_chosen(int32_t token) {
  for (auto& [chosen, times] : chosen_)
    if (chosen == token) {
      ++times;
      return;
    }
  chosen_.emplace_back(token, 1);
}

inline std::vector<BeamEnd> BeamSearch::results() const {
  std::vector<BeamEnd> all;
  for (const std::vector<BeamEnd>& pool : pools_) all.insert(all.end(), pool.begin(), pool.end());
  std::stable_sort(all.begin(), all.end(), [](const BeamEnd& a, const BeamEnd& b) { return a.value > b.value; });
  return all;
}

}  // namespace kaiju
