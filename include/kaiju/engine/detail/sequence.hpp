// Request and Sequence: a request is what the host asked for in one submit; it owns one or several sequences. A
// sequence is a run of tokens that grows: it is scheduled, computed and ended by itself.
//
// A sequence is not a slot: a slot is a place in the executor, and a sequence has one only while it runs. It is not a
// segment either: a segment is the rows of one sequence in one step (step/plan.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "kaiju/arith/mirostat.hpp"
#include "kaiju/cache/lease.hpp"
#include "kaiju/engine/detail/banned_phrases.hpp"
#include "kaiju/engine/detail/beam_group.hpp"
#include "kaiju/engine/detail/judge.hpp"
#include "kaiju/engine/detail/reply_text.hpp"
#include "kaiju/engine/detail/sequence_state.hpp"
#include "kaiju/engine/event.hpp"

namespace kaiju {

struct Sequence;

// Tokens that several holders read: a sequence appends to its own until it ends; from then on they never change.
using SharedTokens = std::shared_ptr<const std::vector<int32_t>>;

struct Request : std::enable_shared_from_this<Request> {
  // What was asked; constant after submit.
  RequestId id = 0;
  SessionId session = 0;
  void* user_data = nullptr;
  int32_t max_tokens = 0;
  int32_t top_logprobs = 0;
  bool scores = false;          // the classifier scores its rows
  bool reports_scores = false;  // and the host is told
  SafetyOptions safety;
  LabelLimits limits;  // SafetyOptions::limits by label; empty: none
  bool guided = false;
  std::shared_ptr<const RequestOptions> recorded;  // null: no record is asked for
  LogitsHook hook;
  bool shows_tokens = false;  // a hook or a chain of samplers is shown the tokens of its sequences
  bool goes_back = false;     // its sequences have banned phrases
  std::vector<int32_t> stop_tokens;
  std::shared_ptr<BeamGroup> beams;  // null: each sequence is a reply of its own
  int32_t prompt_count = 0;
  int32_t begun_count = 0;  // of the prompt's last tokens, those that begin the reply
  int32_t priority = 0;
  std::optional<TimePoint> deadline;
  Scope scope;
  ShareId share = kCommonShare;       // of steps, and of memory behind the shared region; since it is scheduled
  ShareId step_share = kCommonShare;  // the same, or kUnlimited
  TimePoint submitted;
  std::optional<Regions> regions_before;  // of the session's request before; nullopt: not looked up yet

  // Progress.
  std::vector<Sequence*> sequences;     // by index; null: left the scheduler, or never came there
  std::vector<SharedTokens> histories;  // by index, of the sequences that ended for the host
  int32_t unended = 0;                  // sequences that have not ended for the host
  int32_t scheduled = 0;                // sequences in the scheduler
  int32_t suspended = 0;                // of those, the suspended ones
  std::vector<NodeRef> points;          // resume points of the sequences that left the scheduler
  bool ran = false;                     // one of those had a slot

  // The most positions of a sequence that will ever hold KV: the last token sampled needs none.
  int32_t most_positions() const { return prompt_count + std::max(0, max_tokens - 1); }
};

// Values of Sequence::counted beside a number of tokens.
inline constexpr int32_t kNothingCounted = -1, kAllCounted = std::numeric_limits<int32_t>::max();

struct Sequence {
  std::shared_ptr<Request> request;
  int32_t index = 0;       // among the request's sequences
  SamplingSpec sampling;   // with a stream of its own
  std::vector<float> mus;  // of the sampler mirostat, after each generated token; empty without it

  SequenceState state = SequenceState::kWaiting;
  int32_t slot = -1;  // in the executor, while it has one (runs())
  size_t row = 0;     // its place among the running, while it has a slot

  // Tokens and how far they are computed.
  std::shared_ptr<std::vector<int32_t>> tokens = std::make_shared<std::vector<int32_t>>();  // prompt, then generated
  int32_t next = 0;             // position of the next token to compute
  int32_t granted = 0;          // tokens it computes in the step being planned or run
  int32_t granted_next = 0;     // likewise in the step planned while that one runs
  std::vector<int32_t> drafts;  // proposed tokens from position `drafts_at` on, not sampled yet
  int32_t drafts_at = 0;
  std::shared_ptr<const TokenGuide> guide;  // of a guided request: for the next token that is sampled; null: none yet
  int32_t twin = -1;                        // index of the sequence that it was forked from, until it starts; -1: none
  std::optional<int32_t> cut_to;            // kCutting, or kSuspending: its number of tokens once it has left its slot

  BeamPath beam;  // of a request with beams

  // What it holds of the cache, and what the cache remembers of it.
  Lease lease;                   // while it has a slot
  int32_t leased_positions = 0;  // it has memory for these
  bool ran_before = false;       // it had a slot and gave it up: what the cache has of it now is its own doing
  std::vector<NodeRef> first_points, last_points;  // resume points of the first and the latest time that it ran
  int32_t counted = kNothingCounted;  // tokens of the prompt, from the first on, that are in the cache's statistics
  int32_t calibrated_block = -1;      // the newest that a calibration has counted
  bool promoted_from_file = false;    // kPromoting: from the file, not from host memory
  int32_t resident = 0;               // kPromoting: where it could have started without the promotion

  // What the host is told.
  bool told_suspended = false;  // the host knows that it is suspended, and not yet that it goes on
  ReplyText text;
  std::string begun_text;  // of Request::begun_count, until the first token is told
  BannedPhrases banned;
  std::vector<std::pair<int32_t, int32_t>> forbidden;  // (place in the reply, token): it would begin a banned phrase
  std::vector<Event> held;                             // tokens that are told when later ones have been judged
  Judge judge;                                         // with Request::scores
  std::vector<float> scores;                           // with max_tokens 0: of the prompt
  int32_t refused_label = -1;                          // of the verdict that ended it
  RequestCounts counts;
  ReuseReport reuse;
  TimePoint admitted, first_token, last_token;

  int32_t token_count() const { return static_cast<int32_t>(tokens->size()); }
  int32_t remaining() const { return token_count() - next; }
  // The host has to say what its next token may be, before the last of its tokens can be computed.
  bool awaits_guide() const { return request->guided && !guide && request->max_tokens > 0; }
  // Tokens that may be computed now.
  int32_t ready() const {
    if (request->beams && (beam.spare || beam.sampled)) return 0;
    return remaining() - (awaits_guide() ? 1 : 0);
  }
  // The sampler mirostat of its chain; null: there is none.
  const Sampler* mirostat() const { return sampling.chain ? arith::mirostat_of(sampling.chain->samplers) : nullptr; }
  // Of that sampler, before the next token.
  float mu() const { return !mus.empty() ? mus.back() : mirostat() ? arith::first_mu(*mirostat()) : 0.0f; }
  // Those of tokens that it no longer has.
  void forget_mus() { mus.resize(std::min(mus.size(), static_cast<size_t>(counts.generated))); }
  // All is computed but the token sampled last.
  bool decoding() const { return counts.generated > 0 && remaining() == 1; }
  bool started() const { return admitted != TimePoint(); }
  bool has_slot() const { return slot >= 0; }
  // Whether the host has not been told of its end.
  bool live() const { return state != SequenceState::kEnding && state != SequenceState::kEnded; }
};

}  // namespace kaiju
