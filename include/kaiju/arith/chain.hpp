// This file runs a chain of samplers over a row of logits (arithmetic.md, section 12). Every sum is of integers, or in
// a fixed order in double precision, so that every machine keeps and draws the same tokens.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "kaiju/arith/chain_history.hpp"
#include "kaiju/arith/logistic.hpp"
#include "kaiju/arith/sampling.hpp"

namespace kaiju::arith {

// Computes the pieces of a chain. The candidates are ordered by ascending token id between any two samplers.
class Chain {
 public:
  // `candidates` has every token with its logit, in ascending order of ids. Tokens at -infinity are dropped; if no
  // logit is finite, the lowest id is drawn.
  Chain(const ChainInput& input, std::vector<Candidate>& candidates) : input_(input), kept_(candidates) {
    const int32_t lowest = kept_.front().token;
    drop([](const Candidate& c) { return !(c.logit > -HUGE_VALF); });
    if (kept_.empty()) kept_.push_back({0.0f, lowest, 0});
  }

  int32_t token() {
    for (const Sampler& sampler : input_.samplers) apply(sampler);
    weigh();
    return draw(kept_, random_bits(input_.seed, input_.stream, input_.position));
  }

 private:
  void apply(const Sampler& sampler) {
    const auto& v = sampler.values;
    switch (sampler.kind) {
      case SamplerKind::kRepetitionPenalty:
        return penalise_repetition(static_cast<float>(v[0]), input_.window(v[1]));
      case SamplerKind::kTemperature:
        return heat_by(static_cast<float>(v[0]));
      case SamplerKind::kTopK:
        return keep_first(static_cast<int64_t>(v[0]));
      case SamplerKind::kMinP:
        return keep_likely(static_cast<float>(v[0]));
      case SamplerKind::kTopP:
        return keep_top(static_cast<float>(v[0]));
      case SamplerKind::kFrequencyPenalty:
        return penalise_count(static_cast<float>(v[0]), input_.window(v[1]), false);
      case SamplerKind::kPresencePenalty:
        return penalise_count(static_cast<float>(v[0]), input_.window(v[1]), true);
      case SamplerKind::kTypicalP:
        return keep_typical(static_cast<float>(v[0]));
      case SamplerKind::kTopNSigma:
        return keep_near_best(v[0]);
      case SamplerKind::kEpsilonCutoff:
        return cut_below(v[0]);
      case SamplerKind::kEtaCutoff:
        return cut_eta(v[0]);
      case SamplerKind::kXtc:
        return exclude_top_choices(v[0], v[1]);
      case SamplerKind::kDry:
        return penalise_echo(sampler);
      case SamplerKind::kNoRepeatNgram:
        return forbid_ngrams(static_cast<size_t>(v[0]));
      case SamplerKind::kDynamicTemperature:
        return heat_by_entropy(v[0], v[1], v[2]);
    }
  }

  // -- what samplers share --
  // Null if the token was dropped.
  Candidate* find(int32_t token) {
    const auto at = std::lower_bound(kept_.begin(), kept_.end(), token,
                                     [](const Candidate& c, int32_t id) { return c.token < id; });
    return at != kept_.end() && at->token == token ? &*at : nullptr;
  }

  const Candidate& best() const { return *std::min_element(kept_.begin(), kept_.end()); }

  // Computes the masses at the current temperature, and returns their sum.
  uint64_t weigh() {
    const float maximum = best().logit;
    const float factor =
        std::min(static_cast<float>(1.4426950408889634 / temperature_), std::numeric_limits<float>::max());
    uint64_t total = 0;
    for (Candidate& c : kept_) total += c.mass = mass(c.logit, maximum, factor);
    return total;
  }

  template <class Condition>
  void drop(Condition condition) {
    std::erase_if(kept_, condition);
  }

  void by_token() {
    std::sort(kept_.begin(), kept_.end(), [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  }

  // Keeps the shortest prefix, in the order that kept_ is in, whose masses reach the share.
  void keep_prefix(uint64_t share, uint64_t total) {
    size_t count = 0;
    for (uint64_t sum = 0; count < kept_.size();) {
      sum += kept_[count++].mass;
      if (reaches(sum, share, total)) break;
    }
    kept_.resize(count);
    by_token();
  }

  // Entropy in nats of the masses, added up in ascending order of ids.
  double entropy(uint64_t total) const {
    const double log_of_total = natural_log(total);
    double sum = 0.0;
    for (const Candidate& c : kept_) {
      if (c.mass == 0) continue;
      const double product = KAIJU_ROUNDED((static_cast<double>(c.mass) / static_cast<double>(total)) *
                                           (log_of_total - natural_log(c.mass)));
      sum += product;
    }
    return sum;
  }

  // -- samplers that change logits --
  void penalise_repetition(float penalty, std::span<const int32_t> tokens) {
    for (const auto& [token, count] : counted(tokens)) {
      (void)count;
      if (Candidate* c = find(token)) c->logit = penalise(c->logit, penalty);
    }
  }

  void penalise_count(float penalty, std::span<const int32_t> tokens, bool once) {
    for (const auto& [token, count] : counted(tokens))
      if (Candidate* c = find(token)) c->logit = add(c->logit, -mul(penalty, once ? 1.0f : static_cast<float>(count)));
  }

  // Each token of the list once, with how often it occurs.
  static std::vector<std::pair<int32_t, int64_t>> counted(std::span<const int32_t> tokens) {
    std::vector<int32_t> sorted(tokens.begin(), tokens.end());
    std::sort(sorted.begin(), sorted.end());
    std::vector<std::pair<int32_t, int64_t>> found;
    for (const int32_t token : sorted) {
      if (found.empty() || found.back().first != token) found.emplace_back(token, 0);
      ++found.back().second;
    }
    return found;
  }

  void penalise_echo(const Sampler& dry) {
    for (const auto& [token, penalty] : echo_penalties(input_, dry))
      if (Candidate* c = find(token)) c->logit = add(c->logit, -penalty);
  }

  void heat(double temperature) { temperature_ *= temperature; }

  void heat_by(float temperature) {
    if (temperature == 0.0f) return keep_best();
    heat(static_cast<double>(temperature));
  }

  // The temperature rises from `low` to `high` with the entropy's share of the largest possible, to a power.
  void heat_by_entropy(double low, double high, double exponent) {
    const double most = natural_log(kept_.size());
    double share = most > 0.0 ? std::min(1.0, entropy(weigh()) / most) : 0.0;
    if (share > 0.0) {
      const auto whole = std::max<uint64_t>(1, static_cast<uint64_t>(__builtin_rint(share * 4503599627370496.0)));
      share = exp_of(std::min(0.0, exponent * (natural_log(whole) - 36.04365338911715)));  // 52 ln 2
    }
    const double rise = KAIJU_ROUNDED((high - low) * share);
    heat(low + rise);
  }

  // -- samplers that drop tokens; each leaves at least one --
  void keep_best() {
    const Candidate only = best();
    kept_.assign(1, only);
  }

  void keep_first(int64_t count) {
    if (count <= 0 || static_cast<size_t>(count) >= kept_.size()) return;
    std::nth_element(kept_.begin(), kept_.begin() + count, kept_.end());
    kept_.resize(static_cast<size_t>(count));
    by_token();
  }

  void keep_likely(float least_share) {
    if (least_share <= 0.0f) return;
    weigh();
    const auto least = static_cast<uint32_t>(__builtin_rint(static_cast<double>(least_share) * 1073741824.0));
    drop([least](const Candidate& c) { return c.mass < least; });
  }

  void keep_top(float share) {
    if (share >= 1.0f) return;
    const uint64_t total = weigh();
    std::sort(kept_.begin(), kept_.end());
    keep_prefix(share_of(share), total);
  }

  // Tokens whose surprise is nearest to the entropy come first.
  void keep_typical(float share) {
    if (share >= 1.0f) return;
    const uint64_t total = weigh();
    const double expected = entropy(total), log_of_total = natural_log(total);
    drop([](const Candidate& c) { return c.mass == 0; });
    const auto distance = [&](const Candidate& c) { return std::abs((log_of_total - natural_log(c.mass)) - expected); };
    std::vector<std::pair<double, Candidate>> ordered;
    ordered.reserve(kept_.size());
    for (const Candidate& c : kept_) ordered.emplace_back(distance(c), c);
    std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t i = 0; i < kept_.size(); ++i) kept_[i] = ordered[i].second;
    keep_prefix(share_of(share), total);
  }

  void keep_near_best(double deviations) {
    if (deviations <= 0.0) return;
    const auto count = static_cast<double>(kept_.size());
    double sum = 0.0, squares = 0.0;
    for (const Candidate& c : kept_) sum += static_cast<double>(c.logit);
    const double mean = sum / count;
    for (const Candidate& c : kept_) {
      const double from = static_cast<double>(c.logit) - mean;
      const double square = KAIJU_ROUNDED(from * from);
      squares += square;
    }
    const double span = KAIJU_ROUNDED(deviations * __builtin_sqrt(squares / count));
    const double least = static_cast<double>(best().logit) - span;
    drop([least](const Candidate& c) { return static_cast<double>(c.logit) < least; });
  }

  void cut_below(double probability) {
    if (probability <= 0.0) return;
    const uint64_t total = weigh(), share = share_of(probability);
    const Candidate first = best();
    drop([&](const Candidate& c) { return c.token != first.token && !reaches(c.mass, share, total); });
  }

  // The cutoff is min(eta, sqrt(eta) * exp(-entropy)).
  void cut_eta(double eta) {
    if (eta <= 0.0) return;
    const double entropic = KAIJU_ROUNDED(__builtin_sqrt(eta) * exp_of(-entropy(weigh())));
    cut_below(std::min(eta, entropic));
  }

  // With this probability, drops all tokens above the threshold but the least likely of them.
  void exclude_top_choices(double probability, double threshold) {
    if (!xtc_works(input_, probability)) return;
    const uint64_t total = weigh(), share = share_of(threshold);
    const auto is_choice = [&](const Candidate& c) { return reaches(c.mass, share, total); };
    const Candidate* last = nullptr;
    for (const Candidate& c : kept_)
      if (is_choice(c) && (!last || *last < c)) last = &c;
    if (!last) return;
    const int32_t stays = last->token;
    drop([&](const Candidate& c) { return c.token != stays && is_choice(c); });
  }

  // Drops each token that would complete a repetition, unless none would be left.
  void forbid_ngrams(size_t n) {
    const std::vector<int32_t> forbidden = completing_tokens(input_.history, n);
    const auto is_forbidden = [&](const Candidate& c) {
      return std::binary_search(forbidden.begin(), forbidden.end(), c.token);
    };
    if (!std::all_of(kept_.begin(), kept_.end(), is_forbidden)) drop(is_forbidden);
  }

  const ChainInput& input_;
  std::vector<Candidate>& kept_;
  double temperature_ = 1.0;
};

}  // namespace kaiju::arith
