// RequestOptions: the options of one request.
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

// If max_tokens is kToContextEnd, a request may generate as many tokens as the context has room for, and memory is
// reserved for all of them.
inline constexpr int32_t kToContextEnd = -1;
inline constexpr int32_t kMaxTopLogprobs = 64;
inline constexpr int32_t kMaxSequences = 256;  // most sequences of one request, ended ones included
inline constexpr size_t kMaxStopStrings = 64;
inline constexpr size_t kMaxStopStringBytes = 1024;

struct RequestOptions {
  SamplingParams sampling;  // seed and variant included
  // Number of sequences that the request generates from the same prompt, from 1 to the executor's slot_count. Sequence
  // i samples with variant sampling.variant + i and generates the same tokens as a separate request with that
  // variant. Engine::generate and Conversation accept only 1 as the sequence_count.
  int32_t sequence_count = 1;
  int32_t max_tokens = 256;  // generated tokens; 0: only compute the prompt's KV; kToContextEnd
  // Each stop string is UTF-8 and not empty. A stop string ends the reply and is not part of the reply's text. The
  // tokens of a stop string are part of the session's history, but not of a Conversation's turn.
  std::vector<std::string> stop_strings;
  // A stop token ends the reply. The stop token is part of the reply's tokens and of the session's history, but not of
  // the reply's text. nullopt: the engine's stop tokens (EngineOptions::stop_tokens); an empty list: none.
  std::optional<std::vector<int32_t>> stop_tokens;
  // End a reply that goes in circles: its end repeats a piece of at most 80 bytes four times or more, in 24 bytes or
  // more. Text that repeats is held back until it is no circle, so most of a circle is not part of the reply's text.
  bool loop_guard = false;
  // Number of alternative tokens reported with each generated token, from 0 to kMaxTopLogprobs. The log-probability of
  // the generated token itself is always reported.
  int32_t logprobs = 0;
  bool scores = false;  // report the classifier's scores with each token; refused if the model has no classifier
  // Requests of higher priority are admitted first and have their prompts computed first; requests of equal priority do
  // so in the order in which they were submitted. If a step cannot compute a token for every running reply, the replies
  // take turns, whatever their priority.
  int32_t priority = 0;
  // A time on the engine's clock: the first step after this time ends the request with kDeadline.
  std::optional<TimePoint> deadline;
  Scope scope;                // which requests share this prompt's KV; by default only the session and its forks
  void* user_data = nullptr;  // returned in every event of the request; never dereferenced
};

}  // namespace kaiju
