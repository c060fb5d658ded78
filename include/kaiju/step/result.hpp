// StepResult: the result of one step, as plain data.
#pragma once

#include <cstdint>
#include <vector>

namespace kaiju {

struct TokenLogprob {
  int32_t token = -1;
  float logprob = 0.0f;  // natural log-probability under the model itself: no penalty, temperature 1
};

// A result has one SampledToken for each row that is sampled from (Segment::sample_count), in the order of the plan's
// segments and their rows.
struct SampledToken {
  int32_t slot = 0;
  int32_t token = -1;
  float logprob = 0.0f;
  float mu = 0.0f;                // of the sampler mirostat, after this token
  std::vector<TokenLogprob> top;  // best first
  std::vector<float> scores;      // classifier scores of the sampled row: [labels]; empty if the segment asks for none
};

struct StepResult {
  std::vector<SampledToken> sampled;
  std::vector<int32_t> failed_transfers;  // indices into StepPlan::transfers: their bytes must not be used
  std::vector<float> logits;              // rows of segments with all_logits, in plan order: [rows, vocab_size]
  std::vector<float> scores;  // classifier scores of these rows, if the segment asks for scores: [rows, labels]

  void clear() {
    sampled.clear();
    failed_transfers.clear();
    logits.clear();
    scores.clear();
  }
};

}  // namespace kaiju
