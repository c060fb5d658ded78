// ReplyRecord: all that it takes to compute a reply again, bit for bit, on any machine. The last event of a reply has
// it if the request asked for one (RequestOptions::record). kaiju/records.hpp writes records as bytes and replays them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kaiju/engine/event.hpp"

namespace kaiju {

struct ReplyRecord {
  std::string identity;  // of the model: the checkpoint's digest and the version of the arithmetic
  uint64_t epoch = 0;    // of the scales
  // As the request asked, but for this sequence alone: sampling.variant is its own, and sequence_count is 1 unless the
  // request has beams. stop_tokens are set. safety.limits has those of the tier too, as they were at the end. What
  // cannot be kept has its default: logits_hook, deadline, user_data.
  RequestOptions options;
  bool hooked = false;   // the request had a logits hook, so the reply cannot be computed again
  int32_t sequence = 0;  // index among the request's sequences; with beams its place among the results
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // of the prompt, found in the cache
  // The prompt, history included, and the reply. Of a reply that a verdict has ended, what was held back too.
  std::shared_ptr<const std::vector<int32_t>> tokens;
  DoneReason reason = DoneReason::kNone;
  std::string label;         // kRefused
  float probability = 0.0f;  // kRefused
};

}  // namespace kaiju
