// See message_gate.hpp.
#include "kaiju/text/message_gate.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "format/path.hpp"
#include "format/source.hpp"
#include "gate_file.hpp"
#include "gate_words.hpp"
#include "kaiju/arith/logistic.hpp"
#include "kaiju/base/float_state.hpp"
#include "kaiju/format/config.hpp"

namespace kaiju {
namespace {

constexpr size_t kChunkWords = 24;                    // a window is two neighbouring chunks
constexpr size_t kLeastPiece = 3, kMostPiece = 5;     // bytes of a piece of a word
enum Seed : uint32_t { kOfPiece, kOfWord, kOfPair };  // of a feature's hash

// Scores one text: adds up the weights of its features, chunk by chunk.
class GateScore final : public GateWords {
 public:
  explicit GateScore(const GateParts& parts)
      : parts_(parts), label_count_(parts.labels.size()), bucket_mask_(static_cast<uint32_t>(parts.buckets() - 1)) {
    best_.fill(-std::numeric_limits<float>::infinity());
  }

  // [labels] log-odds: of each label those of the window where they are largest.
  std::span<const float> log_odds(std::string_view text) {
    read(text);
    if (words_ > 0) end_chunk();
    if (chunks_ <= 1) judge(before_);
    return std::span<const float>(best_).first(label_count_);
  }

 private:
  struct Sums {
    std::array<int32_t, kMostLabels> of_label{};
    int32_t features = 0;
  };

  void take(std::string_view word) override;
  void add(const char* bytes, size_t size, Seed seed);
  void end_chunk();
  void judge(const Sums& window);

  const GateParts& parts_;
  const size_t label_count_;
  const uint32_t bucket_mask_;
  std::array<char, kMostWordBytes + 2> marked_;    // "<word>"
  std::array<char, 2 * kMostWordBytes + 1> pair_;  // "before word"
  size_t before_size_ = 0;
  Sums now_, before_;  // of the chunk that is read, and of the one before it
  size_t words_ = 0;   // of the chunk that is read
  size_t chunks_ = 0;  // read
  std::array<float, kMostLabels> best_;
};

void GateScore::take(std::string_view word) {
  const size_t size = word.size();
  add(word.data(), size, kOfWord);
  marked_[0] = '<';
  std::memcpy(&marked_[1], word.data(), size);
  marked_[size + 1] = '>';
  for (size_t piece = kLeastPiece; piece <= kMostPiece && piece < size + 2; ++piece)
    for (size_t at = 0; at + piece <= size + 2; ++at) add(&marked_[at], piece, kOfPiece);
  if (before_size_ > 0) {
    pair_[before_size_] = ' ';
    std::memcpy(&pair_[before_size_ + 1], word.data(), size);
    add(pair_.data(), before_size_ + 1 + size, kOfPair);
  }
  std::memcpy(pair_.data(), word.data(), size);
  before_size_ = size;
  if (++words_ == kChunkWords) end_chunk();
}

void GateScore::add(const char* bytes, size_t size, Seed seed) {
  const size_t bucket = XXH32(bytes, size, seed) & bucket_mask_;
  const int8_t* const weights = parts_.weights.data() + bucket * label_count_;
  for (size_t i = 0; i < label_count_; ++i) now_.of_label[i] += weights[i];
  ++now_.features;
}

void GateScore::end_chunk() {
  if (chunks_ > 0) {
    for (size_t i = 0; i < label_count_; ++i) before_.of_label[i] += now_.of_label[i];
    before_.features += now_.features;
    judge(before_);
  }
  before_ = now_;
  now_ = {};
  words_ = 0;
  ++chunks_;
}

// The sum times the scale is exact in 53 bits; the root, the division and the sum are each rounded once.
void GateScore::judge(const Sums& window) {
  const double root = std::sqrt(static_cast<double>(std::max(window.features, 1)));
  for (size_t i = 0; i < label_count_; ++i) {
    const double sum = static_cast<double>(window.of_label[i]) * static_cast<double>(parts_.scales[i]);
    best_[i] = std::max(best_[i], static_cast<float>(sum / root + static_cast<double>(parts_.biases[i])));
  }
}

using Loaded = Result<std::shared_ptr<const MessageGate>>;

// No exception leaves the library, and what is refused is named.
template <class Body>
Loaded loaded(std::string_view source, const Body& body) {
  return guarded<Loaded>([&]() -> Loaded {
    GateParts parts;
    if (const Status status = body(parts); !status.ok())
      return Status(status.code(), fmt::format("{}: {}", source, status.message()));
    return std::make_shared<const MessageGate>(std::move(parts));
  });
}

}  // namespace

Loaded MessageGate::load(const std::string& path) {
  KAIJU_TRY(format::check_path(path));
  return loaded(path, [&](GateParts& parts) -> Status {
    auto file = format::Source::open(path);
    if (!file.ok()) return file.status();
    const Status status = read_gate(*file, parts);
    KAIJU_TRY(file->check_unchanged());  // explains any other complaint
    return status;
  });
}

Loaded MessageGate::from_memory(std::span<const std::byte> bytes) {
  return loaded("gate in memory", [&](GateParts& parts) { return read_gate(format::Source(bytes), parts); });
}

void MessageGate::score(std::string_view text, std::span<float> probabilities) const noexcept {
  const FloatState float_state;
  GateScore score(parts_);
  const std::span<const float> log_odds = score.log_odds(text);
  for (size_t i = 0; i < log_odds.size() && i < probabilities.size(); ++i)
    probabilities[i] = static_cast<float>(arith::probability_of(log_odds[i]));
}

std::vector<float> MessageGate::score(std::string_view text) const {
  std::vector<float> probabilities(labels().size());
  score(text, probabilities);
  return probabilities;
}

}  // namespace kaiju
