// BeamOptions: a request that searches several replies at once and keeps the best. docs/beams.md states the search.
#pragma once

#include <cstdint>

#include "kaiju/engine/safety.hpp"

namespace kaiju {

// What a beam's classifier scores are worth beside its log-probability. A score s says that its label holds with
// probability 1 / (1 + exp(-s)). Kaiju's authors have published that the classifier guides their beam search, and no
// more: this is our reconstruction.
struct Guidance {
  enum class Risk : int32_t {
    kMaximum = 0,  // the largest probability of any token so far
    kMean = 1,     // the mean probability over the tokens so far
    kLogOdds = 2,  // the largest score so far, which is the logarithm of the odds
  };
  double weight = 0.0;  // a beam's value is its log-probability - weight * risk; 0: off
  Risk risk = Risk::kMaximum;
  // Factors from 0 to 1000 of the labels, which are 1 unless named here. The risk of a beam is the largest product of a
  // factor and a label's risk. A label of factor 0 has no part in it.
  LabelValues label_weights;
};

// The sampling parameters of a request with beams must have their defaults, except for the seed and the variant of a
// stochastic one.
struct BeamOptions {
  int32_t width = 0;            // replies that are continued at once, 1 to kMaxBeams; 0: no beams
  int32_t candidates = 0;       // likeliest tokens of each beam that are looked at; 0: twice the width
  double length_penalty = 1.0;  // 0 to 10: an ended reply is worth log-probability / length^penalty
  bool early_stopping = false;  // end when `width` replies have ended; else when no other can become better
  int32_t groups = 1;           // diverse groups, each of width / groups beams (Vijayakumar et al. 2018)
  double diversity = 0.0;       // 0 to 100: what a token loses for each earlier group that has chosen it in this place
  bool stochastic = false;      // samples without replacement instead (Kool et al. 2019); needs one group
  Guidance guidance;
};
inline constexpr int32_t kMaxBeams = 32;

}  // namespace kaiju
