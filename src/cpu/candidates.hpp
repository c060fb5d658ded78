// Candidates: the tokens of a row that may still be drawn. It knows logits, masses and their order, and how to keep a
// part of them; what to keep is decided by RowChain. The arrays are sorted by token id. A token at -infinity counts as
// dropped, wherever it is.
//
// The first cut of a row is the only one that looks at the whole vocabulary: what it leaves is copied, and the row
// itself is not, unless a logit changes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels.hpp"

namespace kaiju::cpu {

class Candidates {
 public:
  explicit Candidates(const Kernels& kernels) : kernels_(kernels) {}
  // Takes the memory for so many tokens; throws std::bad_alloc.
  void reserve(int32_t vocab_size);

  // Begins with all tokens of a row, which must live and not change until the next begin(). `best`: its largest logit.
  void begin(const float* logits, int32_t count, float best);

  // A place is an index into the arrays.
  int32_t count() const { return count_; }
  const float* logits() const { return logits_; }
  int32_t token(int32_t place) const { return whole_ ? place : tokens_[static_cast<size_t>(place)]; }
  int32_t place_of(int32_t token) const;  // -1: not there
  float best() const { return best_; }    // the largest logit; -infinity if all tokens are dropped
  // A number that no other state of the row has.
  uint64_t version() const { return version_; }

  // Changes one logit. best() is wrong until look_again().
  void set(int32_t place, float logit);
  void look_again() { best_ = kernels_.maximum(logits_, count_), ++version_; }
  // Keeps the tokens of these places, which must be ascending. They may be what at_least() returned.
  void keep(std::span<const int32_t> places);

  // The places whose logit is at least `floor`, ascending; until the next call of any method.
  std::span<int32_t> at_least(float floor);
  // The masses under best(), and their sum.
  uint64_t weigh(float factor) { return kernels_.masses(logits_, count_, best_, factor, masses_.data()); }
  uint64_t total(float factor) const { return kernels_.masses(logits_, count_, best_, factor, nullptr); }
  const uint32_t* masses() const { return masses_.data(); }  // [count()] as weigh() computed them
  // The places whose mass is at least `least` > 0, ascending; until the next call of any method. Overwrites masses().
  std::span<int32_t> at_least_mass(uint32_t least, float factor);

  // The following keep a beginning of the order by descending logit, then ascending token id.
  void keep_best();
  void keep_first(int64_t k, float factor);
  // The shortest beginning, of one token at least, whose masses reach `needed`. `total`: the sum of all masses.
  void keep_mass(uint64_t needed, uint64_t total, float factor);

  // Keeps the shortest beginning, of one token at least, whose masses reach `needed`, in the order of how near a mass's
  // surprise, log_of_total - ln(mass), is to `entropy`, then of token ids. `error` bounds the entropy's. Returns false
  // and keeps everything if the order depends on the error. `logs` are those of masses() as Kernels::surprise writes
  // them, which change if it returns true.
  bool keep_nearest(uint64_t needed, double log_of_total, double entropy, double error, float* logs);

  // The token that a draw with these random bits gives (arithmetic.md, section 6, step 5).
  int32_t draw(float factor, uint64_t random);

 private:
  // The last token that a cut keeps, in the order.
  struct Last {
    float logit;
    int32_t place;
    bool operator<(const Last& other) const { return logit != other.logit ? logit > other.logit : place < other.place; }
  };
  struct Near {
    double distance;
    int32_t place;
    bool operator<(const Near& other) const {
      return distance != other.distance ? distance < other.distance : place < other.place;
    }
  };
  // Where the weights that are added up bucket by bucket reach what is needed.
  struct Edge {
    int32_t bucket;
    uint64_t before;  // sum of the weights in the buckets before
  };
  static constexpr int32_t kBuckets = kLastBucket + 1;
  // Of masses: more buckets than the 31 octaves need.
  static constexpr float kBucketsPerOctave = 128.0f, kBucketsPerNat = 128.0f;

  float floor_of(uint32_t mass, float factor) const;
  float floor_of_rank(int64_t k);
  void keep_until(Last last);
  std::span<int32_t> between(const float* x, float low, float high);  // places
  uint64_t weight_of_bucket(int32_t bucket) const {
    return weights_[static_cast<size_t>(bucket)] + weights_[static_cast<size_t>(bucket + kBuckets)];
  }
  template <class Weight>
  Edge edge(uint64_t needed, Weight weight);
  template <class Weight>
  uint64_t find_band(uint64_t needed, Weight weight, float factor);
  bool is_apart(const Near& last, double difference) const;

  const Kernels& kernels_;
  const float* logits_ = nullptr;  // [count_] the row, or own_
  int32_t count_ = 0;
  bool whole_ = true;  // a token's place is its id
  float best_ = 0;
  uint64_t version_ = 0;
  std::vector<float> own_;
  std::vector<int32_t> tokens_;  // unless whole_
  std::vector<int32_t> places_;  // scratch
  std::vector<uint32_t> masses_;
  std::vector<float> values_;      // scratch: logits of places, or maxima
  std::vector<uint16_t> buckets_;  // scratch
  std::vector<uint64_t> weights_;  // [2, kBuckets]
  std::vector<Last> band_;
  std::vector<Near> near_;
};

}  // namespace kaiju::cpu
