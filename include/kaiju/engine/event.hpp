// Event: a message from the engine to its host about one request. An Event is plain data, owned by the code that polled
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/cache/reuse_report.hpp"
#include "kaiju/engine/request.hpp"
#include "kaiju/step/result.hpp"

namespace kaiju {

struct ReplyRecord;

// The enumerators have the same values as in the C header.
enum class EventKind : int32_t {
  kNone = 0,
  kToken = 1,   // one generated token
  kDone = 5,    // last event of a request that ran: `reason`, `counts`, `timing`
  kFailed = 6,  // last event of a request that failed: `status`; the session's history is as before the submit
  // The request is not computed for now, because the host called suspend, or because no memory was free for its next
  // tokens (StepLimits::reserve_tokens). A request that was suspended for lack of memory resumes by itself.
  kSuspended = 7,
  kResumed = 8,  // the request is computed again after kSuspended
  kVerdict = 9,  // RequestOptions::safety: `label` and its `probability`; before the token that follows the judged text
  kPrefetched = 10,  // Engine::prefetch has ended: the next request can resume at `counts.cached_tokens`
  // The C header lacks kSequenceDone, because a request of the C interface has only one sequence.
  kSequenceDone = 101,  // a sequence ended while others of its request continue: `sequence`, `reason`, `counts`
};

enum class DoneReason : int32_t {
  kNone = 0,
  kStopToken = 1,   // Event::stop is the token
  kLength = 2,      // max_tokens reached
  kCancelled = 3,   // the request was cancelled, or its session was destroyed
  kDeadline = 4,    // the deadline passed before the request was done
  kStopString = 5,  // Event::stop is the index of the string in RequestOptions::stop_strings
  kLoop = 6,        // RequestOptions::loop_guard
  kRefused = 7,     // RequestOptions::safety: a verdict ended the reply, or the last beam; `label` and `probability`
};

struct RequestCounts {
  int32_t prompt_tokens = 0;  // tokens of the prompt, history included
  int32_t cached_tokens = 0;  // prompt tokens whose KV was found in the cache
  int32_t generated = 0;      // a stop token included
};

// The fields of RequestTiming are durations on the engine's clock.
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
  int32_t label = -1;        // kVerdict, and kDone with kRefused: index of a label of the classifier
  float probability = 0.0f;  // likewise, of the label
  // kDone and kSequenceDone of a request with scores or limits: for each label.
  std::vector<LabelStatistics> statistics;
  std::string text;      // whole UTF-8, may be empty; kDone has text that was still held back
  int32_t stop = -1;     // kDone, kSequenceDone: what stopped the reply (DoneReason); -1: no token and no string did
  ReuseReport reuse;     // why counts.cached_tokens is no larger
  RequestCounts counts;  // so far; final in kDone
  RequestTiming timing;  // so far; final in kDone
  // kDone and kSequenceDone of a request with RequestOptions::record; else null. reply_record.hpp.
  std::shared_ptr<const ReplyRecord> record;
};

}  // namespace kaiju
