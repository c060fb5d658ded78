// Calibration: watches, while an engine serves, which magnitudes its keys and values have and which tokens come, and
// makes new scales for them.
//
// A set of scales is a clip for each channel of keys and values: what is larger is saturated. Text that a set was not
// made for may saturate more, or use less of the range. Engine::calibrate counts a block of KV now and then; after each
// window of blocks the distances to the set in use are computed. If one is far outside its own history, the collection
// freezes: a set that follows a flood of odd text would be worse for all others. What Character.AI or others do here
// was never published; the rules and their limits are ours.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/base/time.hpp"
#include "kaiju/format/scales.hpp"
#include "kaiju/step/kv_counts.hpp"

namespace kaiju {

struct CalibrationOptions {
  int32_t window_blocks = 128;  // blocks of 64 tokens after which distances are computed
  // A window is far away if its distance is more than so many standard deviations above the mean of the accepted
  // windows before it, of which there must be `windows_known`; both are taken of logarithms, because distances are
  // skewed. Two windows in a row that are far away freeze the collection.
  double sigmas = 3;
  int32_t windows_known = 16;
  // A character is left out whose blocks of today are more than so many times its mean of the seven days before. The
  // mean counts as at least `least_daily_blocks`. Not before one whole day has been seen.
  double character_ratio = 10;
  int32_t least_daily_blocks = 16;
  double most_clipped = 1e-4;  // of a channel's values: what a new set may saturate
};

// A distance between what is seen now and the set in use.
struct CalibrationDistance {
  double newest = 0;               // of the window completed last, in nats
  double mean = 0, deviation = 0;  // of the accepted windows
};

struct CalibrationFigures {
  struct Slot {
    uint64_t keys = 0, values = 0;                      // counted
    uint64_t saturated_keys = 0, saturated_values = 0;  // of these
  };
  std::vector<Slot> slots;  // by KV slot; all blocks, left out or not
  uint64_t blocks = 0;      // counted
  uint64_t left_out = 0;    // of these, of characters that are suddenly everybody's
  uint64_t windows = 0, far_windows = 0;
  // Kullback-Leibler divergence of a window from the set in use: of the tokens, and of the magnitudes of keys and
  // values as the mean over channels.
  CalibrationDistance tokens, scales;
  bool known = false;   // what the set in use was made from: by its file, or learned from the first windows
  bool frozen = false;  // until thaw or reset
};

// One thread at a time.
class Calibration {
 public:
  // For the model of this checkpoint, with the scales that it has. kUnsupported if each of its keys and values has a
  // scale of its own. About 600 bytes a channel and 16 bytes a token of the vocabulary.
  static Result<Calibration> create(const Checkpoint& checkpoint, const CalibrationOptions& options = {});

  // What it is made for: the checkpoint's digest, and its scale_epoch.
  const std::string& model() const { return model_; }
  uint64_t epoch() const { return epoch_; }

  // Where Engine::calibrate counts a block, and what it adds then.
  KvCounts& counts() { return counts_; }
  void add(std::span<const int32_t> tokens, const std::string& character, TimePoint now);

  CalibrationFigures figures() const { return figures_; }
  // Scales for all that was collected. A channel that saturates more than most_clipped gets a clip larger by a quarter,
  // because how far its values reach is not known; one that uses less than three quarters of its range gets a smaller
  // one, by a fifth at most; all others keep theirs. kNotFound while nothing was collected.
  Result<KvScales> propose() const;
  // Collects again after a freeze, with the same history.
  void thaw();
  // Forgets all that was collected, and the history. What the set in use was made from stays where its file says it,
  // and is learned again from the next windows otherwise.
  void reset();

 private:
  struct Distances {
    std::vector<double> accepted;  // newest last
    bool is_far(double distance, const CalibrationOptions& options) const;
  };
  struct DailyBlocks {
    int64_t day = 0;
    std::array<uint32_t, 8> blocks{};  // of today, then of the days before
  };
  static constexpr size_t kMostCharacters = 4096, kMostWindows = 1024;

  Calibration(const CalibrationOptions& options, KvScales scales) : options_(options), scales_(std::move(scales)) {}
  bool left_out(const std::string& character, TimePoint now);
  void end_window();
  double token_distance() const;
  double scale_distance() const;
  void accept_window();

  CalibrationOptions options_;
  std::string model_;
  uint64_t epoch_ = 0;
  KvScales scales_;       // in use; its counts are what it was made from
  bool of_file_ = false;  // and its file said so
  KvCounts counts_;       // of one block
  KvCounts window_;
  std::vector<uint32_t> window_tokens_;  // [vocab_size]
  int32_t window_count_ = 0;
  KvScales collected_;  // clips: those in use
  uint64_t reference_windows_ = 0;
  int32_t far_in_a_row_ = 0;
  Distances token_history_, scale_history_;
  std::unordered_map<std::string, DailyBlocks> characters_;
  int64_t first_day_ = -1;
  CalibrationFigures figures_;
};

}  // namespace kaiju
