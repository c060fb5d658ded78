// Sequence: one request from submit to its last event: its tokens, how far they are computed, what its reply looks like
// so far.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kaiju/cache/lease.hpp"
#include "kaiju/engine/detail/reply_text.hpp"
#include "kaiju/engine/event.hpp"

namespace kaiju {

struct Sequence {
  // What was asked; constant after submit.
  RequestId request = 0;
  SessionId session = 0;
  void* user_data = nullptr;
  SamplingSpec sampling;
  int32_t max_tokens = 0;
  int32_t top_logprobs = 0;
  bool scores = false;
  std::vector<int32_t> stop_tokens;
  int32_t prompt_count = 0;
  int32_t priority = 0;
  std::optional<TimePoint> deadline;
  Scope scope;

  // Progress.
  std::vector<int32_t> tokens;  // the prompt, then what was generated
  int32_t next = 0;             // position of the next token to compute
  int32_t granted = 0;          // tokens it computes in the step being planned or run
  int32_t granted_next = 0;     // likewise in the one planned while that one runs
  int32_t slot = -1;            // in the executor; -1 while waiting
  size_t row = 0;               // its place among the running
  bool ended = false;           // over for the host; it leaves once the step it is planned for has run
  bool aside = false;           // likewise, to be suspended
  bool suspended = false;       // the host was told so, and not yet that it goes on
  uint64_t set_aside = 0;       // counts the times that anybody was: its place among the suspended
  bool restarted = false;       // computed before, then set aside: what the cache has of it now is its own doing
  int32_t counted = -1;  // tokens of the prompt, from the first on, that are in the cache's statistics; INT32_MAX: all;
                         // -1: it never ran
  int32_t leased_positions = 0;                    // it has memory for these
  std::vector<NodeRef> first_points, last_points;  // resume points of the first and the latest time it was computed
  bool promoted = false;                           // what lower tiers had of it was brought up for the start to come
  bool promoted_from_file = false;
  int32_t resident = 0;  // where it could have started without
  Lease lease;           // while running
  ReplyText text;
  RequestCounts counts;
  TimePoint submitted, admitted, first_token, last_token;

  int32_t remaining() const { return static_cast<int32_t>(tokens.size()) - next; }
  // All is computed but the token drawn last.
  bool decoding() const { return counts.generated > 0 && remaining() == 1; }
  bool started() const { return admitted != TimePoint(); }
  // The most positions that will ever hold KV: the last token drawn needs none.
  int32_t most_positions() const { return prompt_count + std::max(0, max_tokens - 1); }
};

}  // namespace kaiju
