// Candidates: selection without sorting the vocabulary. See candidates.hpp.
#include "candidates.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "kaiju/arith/sampling.hpp"

namespace kaiju::cpu {
namespace {

constexpr int32_t kFew = 512;  // so many are sorted without buckets
constexpr float kLowest = std::numeric_limits<float>::lowest(), kHighest = std::numeric_limits<float>::max();

float below(float x) { return std::nextafter(x, kLowest); }
float above(float x) { return std::nextafter(x, kHighest); }

}  // namespace

void Candidates::reserve(int32_t vocab_size) {
  const auto count = static_cast<size_t>(vocab_size);
  if (count <= own_.size()) return;
  tokens_.resize(count + kCollectRoom);  // as places_, with which it is swapped
  places_.resize(count + kCollectRoom);
  masses_.resize(count);
  values_.resize(count);
  buckets_.resize(count);
  weights_.resize(2 * kBuckets);
  band_.reserve(count);
  own_.resize(count);
}

void Candidates::begin(const float* logits, int32_t count, float best) {
  reserve(count);
  logits_ = logits;
  count_ = count;
  whole_ = true;
  best_ = best;
  ++version_;
}

int32_t Candidates::place_of(int32_t token) const {
  if (whole_) return token < count_ ? token : -1;
  const auto end = tokens_.begin() + count_, at = std::lower_bound(tokens_.begin(), end, token);
  return at != end && *at == token ? static_cast<int32_t>(at - tokens_.begin()) : -1;
}

void Candidates::set(int32_t place, float logit) {
  if (logits_ != own_.data()) {
    std::copy_n(logits_, count_, own_.begin());
    logits_ = own_.data();
  }
  own_[static_cast<size_t>(place)] = logit;
}

void Candidates::keep(std::span<const int32_t> places) {
  // A place is at least i: nothing is overwritten that is still needed.
  for (size_t i = 0; i < places.size(); ++i) own_[i] = logits_[places[i]];
  if (whole_ && places.data() == places_.data())
    std::swap(tokens_, places_);
  else
    for (size_t i = 0; i < places.size(); ++i) tokens_[i] = token(places[i]);
  logits_ = own_.data();
  count_ = static_cast<int32_t>(places.size());
  whole_ = false;
  look_again();
}

std::span<int32_t> Candidates::between(const float* x, float low, float high) {
  const int32_t found = kernels_.collect(x, count_, low, high, places_.data());
  return {places_.data(), static_cast<size_t>(found)};
}

std::span<int32_t> Candidates::at_least(float floor) { return between(logits_, floor, kHighest); }

// A logit below every token that has this mass. The margin of 2^-9 octaves is far above the error of exp2 and of the
// roundings before it.
float Candidates::floor_of(uint32_t mass, float factor) const {
  const double octaves = std::log2((static_cast<double>(mass) - 0.5) * 0x1p-30) - 0x1p-9;
  const double floor = static_cast<double>(best_) + octaves / static_cast<double>(factor);
  return floor > static_cast<double>(kLowest) ? below(static_cast<float>(floor)) : kLowest;
}

std::span<int32_t> Candidates::at_least_mass(uint32_t least, float factor) {
  const std::span<int32_t> places = at_least(floor_of(least, factor));
  for (size_t i = 0; i < places.size(); ++i) values_[i] = logits_[places[i]];
  kernels_.masses(values_.data(), static_cast<int32_t>(places.size()), best_, factor, masses_.data());
  size_t kept = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    places[kept] = places[i];
    kept += masses_[i] >= least ? 1 : 0;
  }
  return places.first(kept);
}

void Candidates::keep_until(Last last) {
  const std::span<int32_t> places = at_least(last.logit);
  size_t kept = 0;
  for (const int32_t place : places)
    if (logits_[place] != last.logit || place <= last.place) places[kept++] = place;
  keep(places.first(kept));
}

void Candidates::keep_best() { keep(at_least(best_).first(1)); }

// A logit that at least k tokens reach, if it can be told cheaply: the k-th largest of the maxima of groups.
float Candidates::floor_of_rank(int64_t k) {
  int32_t groups = kernels_.maxima(logits_, count_, values_.data());
  if (2 * k > groups) return kLowest;
  // Fewer and larger groups while there are enough: few tokens reach more than their own group's maximum. What is left
  // over of 256 is one group.
  while (groups >= 512 && 2 * k <= groups / 32) groups = kernels_.maxima(values_.data(), groups, values_.data());
  std::nth_element(values_.begin(), values_.begin() + (k - 1), values_.begin() + groups, std::greater<>());
  return std::max(values_[static_cast<size_t>(k - 1)], kLowest);
}

// Adds up the weights of all places by their buckets. All weights together reach `needed`.
template <class Weight>
Candidates::Edge Candidates::edge(uint64_t needed, Weight weight) {
  // Two sums of each bucket: neighbours are often of one bucket, and an addition would wait for the one before.
  std::fill(weights_.begin(), weights_.end(), 0);
  uint64_t* const even = weights_.data();
  uint64_t* const odd = even + kBuckets;
  const uint16_t* const bucket = buckets_.data();
  int32_t place = 0;
  for (; place + 1 < count_; place += 2) {
    even[bucket[place]] += weight(place);
    odd[bucket[place + 1]] += weight(place + 1);
  }
  if (place < count_) even[bucket[place]] += weight(place);
  Edge found{0, 0};
  for (; found.bucket + 1 < kBuckets; ++found.bucket) {
    const uint64_t here = weight_of_bucket(found.bucket);
    if (here > 0 && found.before + here >= needed) break;
    found.before += here;
  }
  return found;
}

// Fills band_ with the places of the bucket in which the weights reach `needed` when they are added up in the order,
// and returns the sum of those before it.
template <class Weight>
uint64_t Candidates::find_band(uint64_t needed, Weight weight, float factor) {
  // A bucket after another has the smaller logits: differences and products are rounded monotonously.
  const float scale = std::min(factor * kBucketsPerOctave, std::numeric_limits<float>::max());
  kernels_.buckets(logits_, count_, best_, scale, buckets_.data());
  const Edge found = edge(needed, weight);
  const auto logit_at = [&](double bucket) {
    constexpr auto kMost = static_cast<double>(std::numeric_limits<float>::max());
    const double logit = static_cast<double>(best_) - bucket / static_cast<double>(scale);
    return static_cast<float>(std::clamp(logit, -kMost, kMost));
  };
  constexpr double kReach = 0.75;  // of a bucket about its middle; the roundings are far smaller than a bucket
  const float low = found.bucket == kLastBucket ? kLowest : logit_at(found.bucket + kReach),
              high = logit_at(found.bucket - kReach);
  band_.clear();
  for (const int32_t place : between(logits_, below(low), above(high)))
    if (buckets_[static_cast<size_t>(place)] == found.bucket) band_.push_back({logits_[place], place});
  return found.before;
}

void Candidates::keep_first(int64_t k, float factor) {
  if (k >= count_) return;
  const std::span<int32_t> places = at_least(floor_of_rank(k));
  if (static_cast<int64_t>(places.size()) <= k) return keep(places);
  uint64_t before = 0;
  if (places.size() > kFew) {
    keep(places);
    before = find_band(static_cast<uint64_t>(k), [](int32_t) { return uint64_t{1}; }, factor);
  } else {
    band_.clear();
    for (const int32_t place : places) band_.push_back({logits_[place], place});
  }
  const auto last = band_.begin() + (k - 1 - static_cast<int64_t>(before));
  std::nth_element(band_.begin(), last, band_.end());
  keep_until(*last);
}

void Candidates::keep_mass(uint64_t needed, uint64_t total, float factor) {
  // Tokens whose masses together cannot be more than what may be missing are left out first, where they are many.
  if (const uint64_t least = (total - needed) / static_cast<uint64_t>(count_); least > 0) {
    const std::span<int32_t> places =
        at_least(floor_of(static_cast<uint32_t>(std::min<uint64_t>(least, 1u << 30)), factor));
    if (places.size() <= static_cast<size_t>(count_) / 2) keep(places);
  }
  weigh(factor);
  const auto weight = [this](int32_t place) { return uint64_t{masses_[static_cast<size_t>(place)]}; };
  uint64_t sum = find_band(needed, weight, factor);
  std::sort(band_.begin(), band_.end());
  size_t last = 0;
  for (; last + 1 < band_.size(); ++last) {
    sum += weight(band_[last].place);
    if (sum >= needed) break;
  }
  keep_until(band_[last]);
}

bool Candidates::keep_nearest(uint64_t needed, double log_of_total, double entropy, double error, float* logs) {
  // Buckets by distance, wider by far than the error of the logarithms as floats. So the last token that is kept lies
  // in the bucket of the edge or in one beside it, and all tokens well before are kept.
  const auto centre = static_cast<float>(log_of_total - entropy);
  kernels_.buckets(logs, count_, centre, kBucketsPerNat, buckets_.data());
  const auto weight = [this](int32_t place) { return uint64_t{masses_[static_cast<size_t>(place)]}; };
  const Edge found = edge(needed, weight);
  const float inner = (static_cast<float>(found.bucket) - 2.0f) / kBucketsPerNat,
              outer = (static_cast<float>(found.bucket) + 2.0f) / kBucketsPerNat;
  // The tokens from the inner to the outer distance one by one, and the sum of those before them.
  uint64_t sum = found.before - (found.bucket > 0 ? weight_of_bucket(found.bucket - 1) : 0);
  near_.clear();
  const auto take = [&](float low, float high) {
    for (const int32_t place : between(logs, low, high)) {
      const double ln = arith::natural_log(masses_[static_cast<size_t>(place)]);
      near_.push_back({std::abs((log_of_total - ln) - entropy), place});
      if (buckets_[static_cast<size_t>(place)] < found.bucket - 1) sum -= weight(place);
    }
  };
  const bool any_before = inner > 0;
  take(centre - outer, any_before ? below(centre - inner) : centre + outer);
  if (any_before) take(above(centre + inner), centre + outer);
  std::sort(near_.begin(), near_.end());
  size_t kept = 0;
  do sum += weight(near_[kept++].place);
  while (kept < near_.size() && sum < needed);
  if (error > 0 && !is_apart(near_[kept - 1], 4 * error)) return false;

  for (size_t i = 0; i < near_.size(); ++i) logs[near_[i].place] = i < kept ? centre : kLogOfNothing;
  keep(between(logs, any_before ? centre - inner : centre, any_before ? centre + inner : centre));
  return true;
}

// Whether no token of another mass is as near to the entropy but for this difference. Tokens of one mass are at one
// distance, whatever the entropy is.
bool Candidates::is_apart(const Near& last, double difference) const {
  const uint32_t mass = masses_[static_cast<size_t>(last.place)];
  return std::none_of(near_.begin(), near_.end(), [&](const Near& each) {
    return std::abs(each.distance - last.distance) <= difference && masses_[static_cast<size_t>(each.place)] != mass;
  });
}

int32_t Candidates::draw(float factor, uint64_t random) {
  // The sums of pieces first, so that the masses of one piece alone are added up one by one.
  constexpr int32_t kPiece = 1024;
  uint64_t total = 0;
  const auto pieces = static_cast<size_t>((count_ + kPiece - 1) / kPiece);
  if (weights_.size() < pieces) weights_.resize(pieces);
  for (size_t p = 0; p < pieces; ++p) {
    const int32_t first = static_cast<int32_t>(p) * kPiece;
    weights_[p] = kernels_.masses(logits_ + first, std::min(kPiece, count_ - first), best_, factor, nullptr);
    total += weights_[p];
  }
  auto target = static_cast<uint64_t>((static_cast<unsigned __int128>(random) * total) >> 64);
  size_t piece = 0;
  while (piece + 1 < pieces && target >= weights_[piece]) target -= weights_[piece++];
  const int32_t first = static_cast<int32_t>(piece) * kPiece, here = std::min(kPiece, count_ - first);
  kernels_.masses(logits_ + first, here, best_, factor, masses_.data());
  uint64_t sum = 0;
  for (int32_t i = 0; i < here - 1; ++i) {
    sum += masses_[static_cast<size_t>(i)];
    if (sum > target) return token(first + i);
  }
  return token(first + here - 1);
}

}  // namespace kaiju::cpu
