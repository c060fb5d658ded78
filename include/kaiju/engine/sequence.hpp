// Sequence: one request from submit to its last event: its tokens, how far they are computed, what its reply looks like so far.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "kaiju/cache/lease.hpp"
#include "kaiju/engine/event.hpp"
#include "kaiju/engine/reply_text.hpp"

namespace kaiju {

using Clock = std::chrono::steady_clock;

struct Sequence {
  // What was asked; constant after submit.
  RequestId request = 0;
  SessionId session = 0;
  void* user_data = nullptr;
  SamplingSpec sampling;
  int32_t max_tokens = 0;
  int32_t top_logprobs = 0;
  std::vector<int32_t> stop_tokens;
  int32_t prompt_count = 0;
  Scope scope;

  // Progress.
  std::vector<int32_t> tokens;  // the prompt, then what was generated
  int32_t next = 0;             // position of the next token to compute
  int32_t granted = 0;          // tokens it computes in the step being planned or run
  int32_t slot = -1;            // in the executor; -1 while waiting
  Lease lease;          // while running
  ReplyText text;
  RequestCounts counts;
  Clock::time_point submitted, admitted, first_token, last_token;

  int32_t remaining() const { return static_cast<int32_t>(tokens.size()) - next; }
  bool decoding() const { return next >= prompt_count; }
  // The most positions that will ever hold KV: the last token drawn needs none.
  int32_t most_positions() const { return prompt_count + std::max(0, max_tokens - 1); }
};

}  // namespace kaiju
