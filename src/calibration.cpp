// Calibration: see calibration.hpp.
#include "kaiju/engine/calibration.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

namespace kaiju {
namespace {

constexpr int32_t kBins = KvCounts::kBins;
constexpr double kWiden = 1.25, kNarrowMost = 0.8, kUsedLeast = 0.75;
constexpr double kDistanceLeast = 1e-9;   // nats
constexpr double kDeviationLeast = 0.02;  // of logarithms: a history that hardly varies makes no window far away

// Kullback-Leibler divergence of counts from those of `from`, each of which counts as half a count more, so that none
// is impossible.
template <class A, class B>
double divergence(std::span<const A> of, std::span<const B> from) {
  const auto total = [](auto counts) {
    return static_cast<double>(std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
  };
  const double all = total(of), from_all = total(from) + 0.5 * static_cast<double>(from.size());
  double sum = 0;
  for (size_t i = 0; i < of.size(); ++i) {
    if (of[i] == 0) continue;
    const double p = static_cast<double>(of[i]) / all, q = (static_cast<double>(from[i]) + 0.5) / from_all;
    sum += p * std::log(p / q);
  }
  return sum;
}

void add(std::span<const uint32_t> from, std::vector<uint64_t>& to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

void saturation(const std::vector<uint32_t>& counts, uint64_t& all, uint64_t& saturated) {
  for (size_t i = 0; i < counts.size(); ++i) {
    all += counts[i];
    if (i % kBins == kBins - 1) saturated += counts[i];
  }
}

// The clip of a channel for magnitudes of which `counts` were seen.
float clip_for(float clip, std::span<const uint64_t> counts, double most_clipped) {
  const double all = static_cast<double>(std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
  if (all * most_clipped < 1) return clip;  // too few to tell
  double beyond = static_cast<double>(counts[kBins - 1]);
  if (beyond > all * most_clipped) return clip * static_cast<float>(kWiden);
  int32_t bin = kBins - 1;  // the lowest such that no more than most_clipped is in it and above
  while (bin > 1 && beyond + static_cast<double>(counts[static_cast<size_t>(bin) - 1]) <= all * most_clipped)
    beyond += static_cast<double>(counts[static_cast<size_t>(--bin)]);
  const double used = std::min(1.0, 4.0 * bin / 127);
  return used < kUsedLeast ? clip * static_cast<float>(std::max(kNarrowMost, used / kUsedLeast)) : clip;
}

// The counts of a channel whose clip has become `ratio` times what it was when they were made: each magnitude in the
// middle of its bin, what was saturated at the old clip.
void rescale(std::span<uint64_t> counts, double ratio) {
  std::array<uint64_t, kBins> moved{};
  for (int32_t bin = 0; bin < kBins; ++bin) {
    const double magnitude = bin == kBins - 1 ? 127 : std::min(4.0 * bin + 1.5, 126.0);
    moved[static_cast<size_t>(KvCounts::bin_of(static_cast<int32_t>(std::lround(magnitude / ratio))))] +=
        counts[static_cast<size_t>(bin)];
  }
  std::copy(moved.begin(), moved.end(), counts.begin());
}

void forget_counts(KvScales& scales) {
  for (KvScales::Slot& slot : scales.slots) {
    std::fill(slot.keys.begin(), slot.keys.end(), 0);
    std::fill(slot.values.begin(), slot.values.end(), 0);
  }
  std::fill(scales.tokens.begin(), scales.tokens.end(), 0);
}

CalibrationDistance distance(double newest, const std::vector<double>& accepted) {
  CalibrationDistance distance{newest};
  if (accepted.empty()) return distance;
  const auto count = static_cast<double>(accepted.size());
  distance.mean = std::accumulate(accepted.begin(), accepted.end(), 0.0) / count;
  double squares = 0;
  for (const double each : accepted) squares += (each - distance.mean) * (each - distance.mean);
  distance.deviation = std::sqrt(squares / count);
  return distance;
}

}  // namespace

Result<Calibration> Calibration::create(const Checkpoint& checkpoint, const CalibrationOptions& options) {
  using Answer = Result<Calibration>;
  return guarded<Answer>([&]() -> Answer {
    if (options.window_blocks < 1 || options.windows_known < 2 || !(options.sigmas > 0) ||
        !(options.character_ratio > 1) || options.least_daily_blocks < 1 || !(options.most_clipped > 0) ||
        !(options.most_clipped < 1))
      return invalid_argument(
          "calibration: a window has at least one block, windows_known is at least 2, sigmas is positive, "
          "character_ratio is above 1, least_daily_blocks is at least 1, and most_clipped is between 0 and 1");
    Result<KvScales> scales = scales_of(checkpoint);
    if (!scales.ok()) return scales.status();
    const auto vocab = static_cast<size_t>(checkpoint.config().vocab_size);
    Calibration made(options, std::move(scales).value());
    made.model_ = checkpoint.digest(), made.epoch_ = checkpoint.scale_epoch();
    for (size_t s = 0; s < made.scales_.slots.size(); ++s) {
      KvScales::Slot& slot = made.scales_.slots[s];
      const int32_t owner = checkpoint.config().owner_of(static_cast<int32_t>(s));
      const bool is_global = checkpoint.config().layers[static_cast<size_t>(owner)].kind == LayerKind::kGlobal;
      made.counts_.add_slot(is_global ? BlockKind::kGlobal : BlockKind::kWindow,
                            static_cast<int32_t>(slot.k_clip.size()));
      made.figures_.known |= std::any_of(slot.keys.begin(), slot.keys.end(), [](uint64_t n) { return n > 0; });
      slot.keys.resize(slot.k_clip.size() * kBins);
      slot.values.resize(slot.v_clip.size() * kBins);
    }
    made.scales_.tokens.resize(vocab);
    made.window_ = made.counts_;
    made.window_tokens_.resize(vocab);
    made.of_file_ = made.figures_.known;
    made.collected_ = made.scales_;
    forget_counts(made.collected_);
    made.figures_.slots.resize(made.scales_.slots.size());
    return made;
  });
}

void Calibration::add(std::span<const int32_t> tokens, const std::string& character, TimePoint now) {
  for (size_t s = 0; s < counts_.slots.size(); ++s) {
    CalibrationFigures::Slot& slot = figures_.slots[s];
    saturation(counts_.slots[s].keys, slot.keys, slot.saturated_keys);
    saturation(counts_.slots[s].values, slot.values, slot.saturated_values);
  }
  ++figures_.blocks;
  if (left_out(character, now)) {
    ++figures_.left_out;
  } else {
    window_.add(counts_);
    for (const int32_t token : tokens) ++window_tokens_[static_cast<size_t>(token)];
    if (++window_count_ == options_.window_blocks) end_window();
  }
  counts_.clear();
}

bool Calibration::left_out(const std::string& character, TimePoint now) {
  if (character.empty()) return false;
  constexpr int64_t kDay = int64_t{86'400} * 1'000'000'000;
  const int64_t day = now.nanoseconds / kDay;
  if (first_day_ < 0) first_day_ = day;
  auto found = characters_.find(character);
  if (found == characters_.end()) {
    if (characters_.size() >= kMostCharacters)
      std::erase_if(characters_, [&](const auto& each) { return day - each.second.day >= 8; });
    if (characters_.size() >= kMostCharacters) return false;
    found = characters_.emplace(character, DailyBlocks{day, {}}).first;
  }
  DailyBlocks& own = found->second;
  for (; own.day < day; ++own.day) {
    std::move_backward(own.blocks.begin(), own.blocks.end() - 1, own.blocks.end());
    own.blocks[0] = 0;
    if (day - own.day > 8) own.day = day - 9;  // all of it is too old
  }
  ++own.blocks[0];
  const int64_t days = std::min<int64_t>(7, day - first_day_);
  if (days == 0) return false;
  const double before = std::accumulate(own.blocks.begin() + 1, own.blocks.end(), 0.0) / static_cast<double>(days);
  return own.blocks[0] > options_.character_ratio * std::max<double>(before, options_.least_daily_blocks);
}

bool Calibration::Distances::is_far(double distance, const CalibrationOptions& options) const {
  if (static_cast<int32_t>(accepted.size()) < options.windows_known) return false;
  std::vector<double> logarithms;
  for (const double each : accepted) logarithms.push_back(std::log(std::max(each, kDistanceLeast)));
  const CalibrationDistance known = kaiju::distance(0, logarithms);
  return std::log(std::max(distance, kDistanceLeast)) >
         known.mean + options.sigmas * std::max(known.deviation, kDeviationLeast);
}

double Calibration::token_distance() const { return divergence(std::span(window_tokens_), std::span(scales_.tokens)); }

double Calibration::scale_distance() const {
  double sum = 0;
  size_t channels = 0;
  const auto add_channels = [&](const std::vector<uint32_t>& seen, const std::vector<uint64_t>& known) {
    for (size_t at = 0; at < seen.size(); at += kBins, ++channels)
      sum += divergence(std::span(seen).subspan(at, kBins), std::span(known).subspan(at, kBins));
  };
  for (size_t s = 0; s < window_.slots.size(); ++s) {
    add_channels(window_.slots[s].keys, scales_.slots[s].keys);
    add_channels(window_.slots[s].values, scales_.slots[s].values);
  }
  return sum / static_cast<double>(channels);
}

void Calibration::end_window() {
  ++figures_.windows;
  if (!figures_.known) {
    for (size_t s = 0; s < scales_.slots.size(); ++s) {
      kaiju::add(window_.slots[s].keys, scales_.slots[s].keys);
      kaiju::add(window_.slots[s].values, scales_.slots[s].values);
    }
    kaiju::add(window_tokens_, scales_.tokens);
    figures_.known = ++reference_windows_ >= static_cast<uint64_t>(options_.windows_known);
    accept_window();
  } else {
    const double tokens = token_distance(), scales = scale_distance();
    const bool far = token_history_.is_far(tokens, options_) || scale_history_.is_far(scales, options_);
    figures_.far_windows += far ? 1 : 0;
    far_in_a_row_ = far ? far_in_a_row_ + 1 : 0;
    figures_.frozen |= far_in_a_row_ >= 2;
    if (!far && !figures_.frozen) {
      for (const auto& [history, value] : {std::pair(&token_history_, tokens), std::pair(&scale_history_, scales)}) {
        if (history->accepted.size() == kMostWindows) history->accepted.erase(history->accepted.begin());
        history->accepted.push_back(value);
      }
      accept_window();
    }
    figures_.tokens = distance(tokens, token_history_.accepted);
    figures_.scales = distance(scales, scale_history_.accepted);
  }
  window_.clear();
  std::fill(window_tokens_.begin(), window_tokens_.end(), 0);
  window_count_ = 0;
}

void Calibration::accept_window() {
  for (size_t s = 0; s < collected_.slots.size(); ++s) {
    kaiju::add(window_.slots[s].keys, collected_.slots[s].keys);
    kaiju::add(window_.slots[s].values, collected_.slots[s].values);
  }
  kaiju::add(window_tokens_, collected_.tokens);
}

Result<KvScales> Calibration::propose() const {
  return guarded<Result<KvScales>>([&]() -> Result<KvScales> {
    if (std::all_of(collected_.tokens.begin(), collected_.tokens.end(), [](uint64_t n) { return n == 0; }))
      return Status(StatusCode::kNotFound, "nothing was collected yet: not one window has been completed");
    KvScales made = collected_;
    const auto fit = [&](std::vector<float>& clips, std::vector<uint64_t>& counts) {
      for (size_t channel = 0; channel < clips.size(); ++channel) {
        const auto seen = std::span(counts).subspan(channel * kBins, kBins);
        const float before = std::exchange(clips[channel], clip_for(clips[channel], seen, options_.most_clipped));
        if (clips[channel] != before) rescale(seen, static_cast<double>(clips[channel]) / static_cast<double>(before));
      }
    };
    for (KvScales::Slot& slot : made.slots) {
      fit(slot.k_clip, slot.keys);
      fit(slot.v_clip, slot.values);
    }
    return made;
  });
}

void Calibration::thaw() {
  figures_.frozen = false;
  far_in_a_row_ = 0;
}

void Calibration::reset() {
  thaw();
  forget_counts(collected_);
  if (!of_file_) forget_counts(scales_);
  window_.clear();
  std::fill(window_tokens_.begin(), window_tokens_.end(), 0);
  window_count_ = 0;
  reference_windows_ = 0;
  token_history_.accepted.clear();
  scale_history_.accepted.clear();
  figures_.known = of_file_;
  figures_.tokens = figures_.scales = {};
}

}  // namespace kaiju
