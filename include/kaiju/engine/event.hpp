// Event: a message from the engine to its host about one request. An Event is plain data, owned by the code that polled
// it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/engine/request.hpp"
#include "kaiju/step/result.hpp"

namespace kaiju {

// The values are those of the C header.
enum class EventKind : int32_t {
  kNone = 0,
  kToken = 1,   // one generated token
  kDone = 5,    // last event of a request that ran: `reason`, `counts`, `timing`
  kFailed = 6,  // last event of a request that failed: `status`; the session's history is as before the submit
  kSuspended =
      7,  // not computed for now: by suspend, or because memory reserved in parts ran short (then it goes on by itself)
  kResumed = 8,  // computed again
  // The C header lacks this event, because a request of the C interface has one sequence.
  kSequenceDone = 101,  // a sequence ended while others of its request continue: `sequence`, `reason`, `counts`
};

enum class DoneReason : int32_t {
  kNone = 0,
  kStop = 1,       // a stop token or a stop string
  kLength = 2,     // max_tokens reached
  kCancelled = 3,  // the request was cancelled, or its session was destroyed
  kDeadline = 4,   // the deadline passed before the request was done
};

struct RequestCounts {
  int32_t prompt_tokens = 0;  // tokens of the prompt, history included
  int32_t cached_tokens = 0;  // prompt tokens whose KV was found in the cache
  int32_t generated = 0;      // a stop token included
};

// These times are durations on the engine's clock.
struct RequestTiming {
  int64_t wait_ns = 0;     // from submit to admission
  int64_t prefill_ns = 0;  // from admission to the first token
  int64_t decode_ns = 0;   // from the first token to the last
};

struct Event {
  EventKind kind = EventKind::kNone;
  RequestId request = 0;
  SessionId session = 0;
  int32_t sequence = 0;  // index of the request's sequence that the event is about; kDone: the sequence that ended last
  void* user_data = nullptr;
  DoneReason reason = DoneReason::kNone;
  Status status;                  // kFailed: why
  int32_t token = -1;             // kToken
  float logprob = 0.0f;           // kToken
  std::vector<TokenLogprob> top;  // kToken with logprobs
  // In a kToken event of a request with RequestOptions::scores: one score for each label of the classifier. The scores
  // judge the text before this token; the next kToken event has the scores of the text that includes this token.
  std::vector<float> scores;
  std::string text;      // whole UTF-8, may be empty; kDone has text that was still held back
  RequestCounts counts;  // so far; final in kDone
  RequestTiming timing;  // so far; final in kDone
};

}  // namespace kaiju
