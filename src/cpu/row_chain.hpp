// RowChain: draws a token by a chain of samplers, the same token as arith::Chain, which defines it (arithmetic.md,
// section 12). It does not sort the vocabulary: what a sampler cuts off is told by a threshold, and only tokens near
// the threshold are compared one by one.
//
// Two samplers need sums in double precision whose bits depend on the order of summation: the entropy and the deviation
// of the logits. RowChain adds up in any order, and bounds the difference from the contract's sum. The result decides
// if it is the same at both ends of the bounds, which it nearly always is; else the sum is done in the contract's
// order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "candidates.hpp"
#include "kaiju/arith/chain.hpp"

namespace kaiju::cpu {

class RowChain {
 public:
  explicit RowChain(const Kernels& kernels) : kernels_(kernels), row_(kernels) {}
  // Takes the memory for rows of so many tokens; throws std::bad_alloc. Samplers that read the history and typical_p
  // take more when they work.
  void reserve(int32_t vocab_size);

  struct Row {
    const float* logits = nullptr;  // [count]
    int32_t count = 0;
    float best = 0;      // the largest of them
    uint64_t total = 0;  // sum of their masses at temperature 1; 0: not known
  };
  int32_t draw(const arith::ChainInput& input, const Row& row);
  // What the last draw chose among; null if arith::Chain drew.
  const Candidates* left() const { return beyond_ ? nullptr : &row_; }
  // The tokens of the k largest logits, with these, in the order.
  std::span<const arith::Candidate> first(int32_t k, const Row& row);

 private:
  // A number that lies between these two.
  struct Bounds {
    double low, high;
  };

  void begin(const Row& row);
  int32_t draw_by_reference(const arith::ChainInput& input, const Row& row);
  void apply(const arith::ChainInput& input, const Sampler& sampler);
  float factor() const;
  uint64_t total();  // of the masses
  uint64_t weigh();  // likewise; also computes them
  void remember(uint64_t total);

  void change(int32_t place, float logit);
  template <class Change>
  void change_each(std::span<const int32_t> tokens, Change change);
  void penalise_echo(const arith::ChainInput& input, const Sampler& dry);
  void forbid_ngrams(const arith::ChainInput& input, size_t n);
  void heat(double temperature);
  void heat_by(float temperature);
  void heat_by_entropy(double low, double high, double exponent);

  double exact_entropy(uint64_t total) const;
  Bounds entropy(uint64_t total);
  double least_within(double deviations) const;
  Bounds bounds_of_least(double deviations) const;

  void keep_first(int64_t k);
  void keep_likely(float least_share);
  void keep_top(float share);
  void keep_typical(float share);
  void keep_near_best(double deviations);
  void cut_below(uint64_t share);
  void cut_eta(double eta);
  void exclude_top_choices(uint64_t share);

  const Kernels& kernels_;
  Candidates row_;
  double temperature_ = 1.0;
  bool beyond_ = false;  // of what the kernels compute: arith::Chain has to draw
  uint64_t total_ = 0;   // of the masses, at this version of the row and this factor; 0: not known
  uint64_t total_version_ = 0;
  float total_factor_ = 0;
  std::vector<float> logs_;    // [vocab_size]
  std::vector<int32_t> seen_;  // [vocab_size] how often a token was counted; 0 between two calls
  std::vector<int32_t> distinct_;
  std::vector<arith::Candidate> listed_;
};

}  // namespace kaiju::cpu
