// RequestOptions: what a caller says about one turn, besides its tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kaiju/base/time.hpp"
#include "kaiju/cache/scope.hpp"
#include "kaiju/sample/sampling_params.hpp"

namespace kaiju {

using SessionId = uint64_t;  // never reused; 0 is none
using RequestId = uint64_t;  // never reused; 0 is none; later requests have larger ones

// As many tokens as the context has room for (memory is reserved for all of them).
inline constexpr int32_t kToContextEnd = -1;
inline constexpr int32_t kMaxTopLogprobs = 64;
inline constexpr int32_t kMaxSequences = 256;  // of one request, those that have ended included
inline constexpr size_t kMaxStopStrings = 64;
inline constexpr size_t kMaxStopStringBytes = 1024;

struct RequestOptions {
  SamplingParams sampling;  // seed and stream number included
  // Sequences that the request generates from the same prompt, 1 to the executor's slot_count; sequence i draws with
  // stream number sampling.stream + i. Each generates what a request of its own with that stream would. Not 1: Engine
  // alone, not Engine::generate, not Conversation.
  int32_t sequence_count = 1;
  int32_t max_tokens = 256;  // generated tokens; 0: only compute the prompt's KV; kToContextEnd
  // UTF-8, none empty. The stop string is not part of the reply's text; its tokens are part of the session's history,
  // but not of a Conversation's turn.
  std::vector<std::string> stop_strings;
  std::vector<int32_t> stop_tokens;  // end the reply; part of its tokens and of the history, not of its text
  int32_t logprobs = 0;  // alternatives reported with each token, 0 to kMaxTopLogprobs; the token's own always is
  bool scores = false;   // the classifier's scores with each token; refused where the model has no classifier
  int32_t priority = 0;  // higher ones are admitted and have their prompts computed first, equal ones in order of
                         // arrival; replies under way share a step by turns, whatever their priority
  std::optional<TimePoint>
      deadline;               // on the engine's clock: the first step from then on ends the request with kDeadline
  Scope scope;                // who may share this prompt's KV; nobody but the session and its forks unless it says so
  void* user_data = nullptr;  // comes back in every event of the request; never looked at
};

}  // namespace kaiju
