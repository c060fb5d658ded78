// RowChain: the samplers, each by thresholds. See row_chain.hpp; arith/chain.hpp has each of them in plain form.
#include "row_chain.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kaiju/arith/logistic.hpp"
#include "kaiju/base/random.hpp"

namespace kaiju::cpu {
namespace {

constexpr uint32_t kWhole = 1u << 30;  // the mass of the best token

// The smallest sum of masses that reaches a share of the total.
uint64_t least_sum(uint64_t share, uint64_t total) {
  const auto product = static_cast<unsigned __int128>(share) * total;
  return static_cast<uint64_t>((product + 0xFFFFFFFFu) >> 32);
}

}  // namespace

void RowChain::reserve(int32_t vocab_size) {
  const auto count = static_cast<size_t>(vocab_size);
  row_.reserve(vocab_size);
  if (count <= logs_.size()) return;
  logs_.resize(count);
  seen_.resize(count);
}

void RowChain::begin(const Row& row) {
  reserve(row.count);
  row_.begin(row.logits, row.count, row.best);
  temperature_ = 1.0;
  beyond_ = !std::isfinite(row.best);
  remember(row.total);
}

int32_t RowChain::draw(const arith::ChainInput& input, const Row& row) {
  begin(row);
  for (const Sampler& sampler : input.samplers) {
    if (beyond_) break;
    apply(input, sampler);
  }
  if (beyond_) return draw_by_reference(input, row);
  return row_.draw(factor(), random_bits(input.seed, input.stream, input.position));
}

int32_t RowChain::draw_by_reference(const arith::ChainInput& input, const Row& row) {
  listed_.clear();
  for (int32_t token = 0; token < row.count; ++token) listed_.push_back({row.logits[token], token, 0});
  return arith::Chain(input, listed_).token();
}

std::span<const arith::Candidate> RowChain::first(int32_t k, const Row& row) {
  begin(row);
  row_.keep_first(k, arith::kLog2E);
  listed_.clear();
  for (int32_t place = 0; place < row_.count(); ++place)
    listed_.push_back({row_.logits()[place], row_.token(place), 0});
  std::sort(listed_.begin(), listed_.end());
  return listed_;
}

void RowChain::apply(const arith::ChainInput& input, const Sampler& sampler) {
  const auto& v = sampler.values;
  const auto value = static_cast<float>(v[0]);
  switch (sampler.kind) {
    case SamplerKind::kRepetitionPenalty:
      return change_each(input.window(v[1]), [=](float l, int32_t) { return arith::penalise(l, value); });
    case SamplerKind::kTemperature:
      return heat_by(value);
    case SamplerKind::kTopK:
      return keep_first(static_cast<int64_t>(v[0]));
    case SamplerKind::kMinP:
      return keep_likely(value);
    case SamplerKind::kTopP:
      return keep_top(value);
    case SamplerKind::kFrequencyPenalty:
      return change_each(input.window(v[1]), [=](float l, int32_t count) {
        return arith::add(l, -arith::mul(value, static_cast<float>(count)));
      });
    case SamplerKind::kPresencePenalty:
      return change_each(input.window(v[1]), [=](float l, int32_t) { return arith::add(l, -arith::mul(value, 1.0f)); });
    case SamplerKind::kTypicalP:
      return keep_typical(value);
    case SamplerKind::kTopNSigma:
      return keep_near_best(v[0]);
    case SamplerKind::kEpsilonCutoff:
      if (v[0] > 0.0) cut_below(arith::share_of(v[0]));
      return;
    case SamplerKind::kEtaCutoff:
      return cut_eta(v[0]);
    case SamplerKind::kXtc:
      if (arith::xtc_works(input, v[0])) exclude_top_choices(arith::share_of(v[1]));
      return;
    case SamplerKind::kDry:
      return penalise_echo(input, sampler);
    case SamplerKind::kNoRepeatNgram:
      return forbid_ngrams(input, static_cast<size_t>(v[0]));
    case SamplerKind::kDynamicTemperature:
      return heat_by_entropy(v[0], v[1], v[2]);
  }
}

// -- what samplers share --
float RowChain::factor() const {
  return std::min(static_cast<float>(1.4426950408889634 / temperature_), std::numeric_limits<float>::max());
}

uint64_t RowChain::total() {
  if (total_ == 0 || total_version_ != row_.version() || total_factor_ != factor()) {
    remember(row_.total(factor()));
  }
  return total_;
}

uint64_t RowChain::weigh() {
  remember(row_.weigh(factor()));
  return total_;
}

void RowChain::remember(uint64_t total) {
  total_ = total;
  total_version_ = row_.version();
  total_factor_ = factor();
}

double RowChain::exact_entropy(uint64_t total) const {
  const double log_of_total = arith::natural_log(total);
  double sum = 0.0;
  for (int32_t place = 0; place < row_.count(); ++place) {
    const uint32_t mass = row_.masses()[place];
    if (mass == 0) continue;
    const double product = KAIJU_ROUNDED((static_cast<double>(mass) / static_cast<double>(total)) *
                                         (log_of_total - arith::natural_log(mass)));
    sum += product;
  }
  return sum;
}

// The contract's entropy of the masses that weigh() computed last; also writes logs_.
RowChain::Bounds RowChain::entropy(uint64_t total) {
  const auto weight = static_cast<double>(total);
  const double near = kernels_.surprise(row_.masses(), row_.count(), arith::natural_log(total), logs_.data()) / weight;
  // Both sums have count positive terms. A term has a few roundings and two logarithms; those of the kernel are less
  // exact, but for the best token's.
  const double others = 1.0 - static_cast<double>(kWhole) / weight;
  const double error = near * static_cast<double>(row_.count() + 8) * 0x1p-50 + others * 0x1p-31 + 0x1p-42;
  return {near - error, near + error};
}

// -- samplers that change logits --
// The kernels take -infinity for a dropped token, which in the contract it is only from the beginning.
void RowChain::change(int32_t place, float logit) {
  beyond_ |= !std::isfinite(logit);
  row_.set(place, logit);
}

// change(logit, count) is the new logit of each token that the list has so often.
template <class Change>
void RowChain::change_each(std::span<const int32_t> tokens, Change make) {
  distinct_.clear();
  for (const int32_t token : tokens)
    if (seen_[static_cast<size_t>(token)]++ == 0) distinct_.push_back(token);
  for (const int32_t token : distinct_) {
    const int32_t count = seen_[static_cast<size_t>(token)], place = row_.place_of(token);
    seen_[static_cast<size_t>(token)] = 0;
    if (place >= 0 && std::isfinite(row_.logits()[place])) change(place, make(row_.logits()[place], count));
  }
  row_.look_again();
}

void RowChain::penalise_echo(const arith::ChainInput& input, const Sampler& dry) {
  for (const auto& [token, penalty] : arith::echo_penalties(input, dry))
    if (const int32_t place = row_.place_of(token); place >= 0 && std::isfinite(row_.logits()[place]))
      change(place, arith::add(row_.logits()[place], -penalty));
  row_.look_again();
}

// Drops the tokens, and puts them back if none would be left.
void RowChain::forbid_ngrams(const arith::ChainInput& input, size_t n) {
  std::vector<std::pair<int32_t, float>> dropped;  // (place, logit)
  for (const int32_t token : arith::completing_tokens(input.history, n))
    if (const int32_t place = row_.place_of(token); place >= 0 && std::isfinite(row_.logits()[place])) {
      dropped.emplace_back(place, row_.logits()[place]);
      row_.set(place, -HUGE_VALF);
    }
  row_.look_again();
  if (std::isfinite(row_.best())) return;
  for (const auto& [place, logit] : dropped) row_.set(place, logit);
  row_.look_again();
}

void RowChain::heat(double temperature) {
  temperature_ *= temperature;
  beyond_ |= factor() == 0.0f;
}

void RowChain::heat_by(float temperature) {
  if (temperature == 0.0f) return row_.keep_best();
  heat(static_cast<double>(temperature));
}

void RowChain::heat_by_entropy(double low, double high, double exponent) {
  const uint64_t total = weigh();
  const double most = arith::natural_log(row_.at_least(std::numeric_limits<float>::lowest()).size());
  // The power of two that is the share of the rise; HUGE_VALF where nothing rises.
  const auto power = [&](double entropy) {
    const double share = most > 0.0 ? std::min(1.0, entropy / most) : 0.0;
    if (!(share > 0.0)) return HUGE_VALF;
    const auto whole = std::max<uint64_t>(1, static_cast<uint64_t>(__builtin_rint(share * 4503599627370496.0)));
    return arith::power_of(std::min(0.0, exponent * (arith::natural_log(whole) - 36.04365338911715)));  // 52 ln 2
  };
  const Bounds bounds = entropy(total);
  float rising = power(bounds.low);
  if (bounds.low <= 0.0 || rising != power(bounds.high)) rising = power(exact_entropy(total));
  const double share = rising == HUGE_VALF || rising < -126.0f ? 0.0 : static_cast<double>(arith::exp2(rising));
  const double rise = KAIJU_ROUNDED((high - low) * share);
  heat(low + rise);
}

// -- samplers that drop tokens; each leaves at least one --
void RowChain::keep_first(int64_t k) {
  if (k > 0) row_.keep_first(k, factor());
}

void RowChain::keep_likely(float least_share) {
  if (least_share <= 0.0f) return;
  const auto least = static_cast<uint32_t>(__builtin_rint(static_cast<double>(least_share) * 1073741824.0));
  if (least > 0) row_.keep(row_.at_least_mass(least, factor()));
}

void RowChain::keep_top(float share) {
  if (share >= 1.0f) return;
  const uint64_t all = total();
  row_.keep_mass(least_sum(arith::share_of(share), all), all, factor());
}

void RowChain::keep_typical(float share) {
  if (share >= 1.0f) return;
  const uint64_t total = weigh(), needed = least_sum(arith::share_of(share), total);
  const double log_of_total = arith::natural_log(total);
  const Bounds bounds = entropy(total);
  const double middle = (bounds.low + bounds.high) / 2, error = (bounds.high - bounds.low) / 2;
  if (row_.keep_nearest(needed, log_of_total, middle, error, logs_.data())) return;
  row_.keep_nearest(needed, log_of_total, exact_entropy(total), 0.0, logs_.data());
}

// The smallest logit that stays, by the contract's sums.
double RowChain::least_within(double deviations) const {
  double count = 0.0, sum = 0.0, squares = 0.0;
  const auto each = [this](auto work) {
    for (int32_t place = 0; place < row_.count(); ++place)
      if (const float logit = row_.logits()[place]; logit > -HUGE_VALF) work(static_cast<double>(logit));
  };
  each([&](double logit) { ++count, sum += logit; });
  const double mean = sum / count;
  each([&](double logit) {
    const double from = logit - mean;
    const double square = KAIJU_ROUNDED(from * from);
    squares += square;
  });
  const double span = KAIJU_ROUNDED(deviations * __builtin_sqrt(squares / count));
  return static_cast<double>(row_.best()) - span;
}

RowChain::Bounds RowChain::bounds_of_least(double deviations) const {
  const auto best = static_cast<double>(row_.best());
  const Moments moments = kernels_.moments(row_.logits(), row_.count());
  const auto count = static_cast<double>(moments.count);
  const double error = (count + 8) * 0x1p-51;  // of any of the sums, relative to that of the magnitudes
  const double mean = moments.sum / count, square = moments.squares / count, size = std::sqrt(square);
  const double variance = square - mean * mean;
  // Of the two squares here, of the contract's squares, and of those for its mean's own error.
  const double variance_error = 8 * error * square + (error * size) * (error * size);
  const double rounding = 0x1p-50 * (std::abs(best) + deviations * size);
  return {best - deviations * std::sqrt(variance + variance_error) - rounding,
          best - deviations * std::sqrt(std::max(0.0, variance - variance_error)) + rounding};
}

void RowChain::keep_near_best(double deviations) {
  if (deviations <= 0.0) return;
  const Bounds bounds = bounds_of_least(deviations);
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  const float floor =
      bounds.low > static_cast<double>(kLowest) ? std::nextafter(static_cast<float>(bounds.low), kLowest) : kLowest;
  const std::span<int32_t> places = row_.at_least(floor);
  const auto logit = [this](int32_t place) { return static_cast<double>(row_.logits()[place]); };
  const bool decided = std::none_of(places.begin(), places.end(), [&](int32_t place) {
    return logit(place) >= bounds.low && logit(place) < bounds.high;
  });
  const double least = decided ? bounds.high : least_within(deviations);
  row_.keep({places.data(), static_cast<size_t>(std::remove_if(places.begin(), places.end(),
                                                               [&](int32_t place) { return logit(place) < least; }) -
                                                places.begin())});
}

void RowChain::cut_below(uint64_t share) {
  const uint64_t least = least_sum(share, total());
  if (least > kWhole) return row_.keep_best();
  if (least > 0) row_.keep(row_.at_least_mass(static_cast<uint32_t>(least), factor()));
}

void RowChain::cut_eta(double eta) {
  if (eta <= 0.0) return;
  const uint64_t total = weigh();
  const Bounds bounds = entropy(total);
  double exact = bounds.low;
  if (arith::power_of(-bounds.low) != arith::power_of(-bounds.high)) exact = exact_entropy(total);
  const double entropic = KAIJU_ROUNDED(__builtin_sqrt(eta) * arith::exp_of(-exact));
  const double cutoff = std::min(eta, entropic);
  if (cutoff > 0.0) cut_below(arith::share_of(cutoff));
}

// Drops all tokens that reach the share but the last of them in the order.
void RowChain::exclude_top_choices(uint64_t share) {
  const uint64_t least = least_sum(share, total());
  if (least > kWhole) return;
  const std::span<const int32_t> choices = least == 0 ? row_.at_least(std::numeric_limits<float>::lowest())
                                                      : row_.at_least_mass(static_cast<uint32_t>(least), factor());
  if (choices.empty()) return;
  int32_t last = choices[0];
  for (const int32_t place : choices)
    if (row_.logits()[place] <= row_.logits()[last]) last = place;
  for (const int32_t place : choices)
    if (place != last) row_.set(place, -HUGE_VALF);
  row_.look_again();
}

}  // namespace kaiju::cpu
