// RequestOptions: the options of one request. Guide: what the next token of a guided request may be.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kaiju/base/time.hpp"
#include "kaiju/cache/scope.hpp"
#include "kaiju/engine/beam_options.hpp"
#include "kaiju/engine/safety.hpp"
#include "kaiju/sample/sampling_params.hpp"
#include "kaiju/step/plan.hpp"

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

// A guide is for exactly one token. Engine::guide copies it. arithmetic.md, section 11, says what it does to a token.
struct Guide {
  // [mask_words(vocab_size)] a bitmask with one bit for each token, in the layout of xgrammar and llguidance: token t
  // is bit t % 32 of word t / 32, and 1 means that the token may be sampled. Empty: every token may be sampled.
  std::span<const uint32_t> allowed;
  std::span<const std::pair<int32_t, float>> logit_bias;  // (token, bias), beside the request's own; as SamplingParams
};

struct RequestOptions {
  SamplingParams sampling;  // seed and variant included
  // Number of sequences that the request generates from the same prompt, from 1 to the executor's slot_count. Sequence
  // i samples with variant sampling.variant + i and generates the same tokens as a separate request with that
  // variant. Engine::generate and Conversation accept only 1 as the sequence_count.
  int32_t sequence_count = 1;
  // With beams, a request searches beams.width replies at once, and its sequences are the best sequence_count of them,
  // the best first. Tokens that all of them have in common are told as soon as that is certain, the rest at the end.
  BeamOptions beams;
  int32_t max_tokens = 256;  // generated tokens; 0: only compute the prompt's KV; kToContextEnd
  // Each stop string is UTF-8 and not empty. A stop string ends the reply and is not part of the reply's text. The
  // tokens of a stop string are part of the session's history, but not of a Conversation's turn.
  std::vector<std::string> stop_strings;
  // Phrases that the reply must not have, whatever the letters' case (ASCII): UTF-8, as stop_strings. When the reply
  // has come to have one, it goes back to before the phrase's first token and takes another one there, with the same
  // random numbers. Text that may become a phrase is held back. A reply that has none is as without. The request cannot
  // be guided, have beams, or have tokens proposed.
  std::vector<std::string> banned_phrases;
  // A stop token ends the reply. The stop token is part of the reply's tokens and of the session's history, but not of
  // the reply's text. nullopt: the engine's stop tokens (EngineOptions::stop_tokens); an empty list: none.
  std::optional<std::vector<int32_t>> stop_tokens;
  // End a reply that goes in circles: its end repeats a piece of at most 80 bytes four times or more, in 24 bytes or
  // more. Text that repeats is held back until it is no circle, so most of a circle is not part of the reply's text.
  bool loop_guard = false;
  // That many tokens at the end of the prompt are the beginning of the reply, which another engine began and did not
  // end. The rest is, bit for bit, what that engine would have generated, with the same sampling, seed and variant.
  // Stop strings and the guard against circles see the whole reply; the first token's event has the text from its
  // beginning on. max_tokens and the counts are of the tokens that are generated here. Refused with beams, verdicts,
  // banned phrases and the sampler mirostat, whose state tokens alone do not give, and by Conversation.
  int32_t begun_tokens = 0;
  // Number of alternative tokens reported with each generated token, from 0 to kMaxTopLogprobs. The log-probability of
  // the generated token itself is always reported.
  int32_t logprobs = 0;
  bool scores = false;  // report the classifier's scores with each token; refused if the model has no classifier
  // Verdicts on the reply. With beams, a beam that reaches a limit ends and is no result; run, reports and hold_back
  // must then have their defaults.
  SafetyOptions safety;
  // The host says for each token, the first included, what it may be (Engine::guide). Until then the sequence keeps its
  // slot and its KV and waits, with its prompt computed except for the last token. Engine::generate refuses it.
  bool guided = false;
  // For experiments: changes each row of logits before a token is sampled from it, before penalties and biases.
  // Reported log-probabilities stay those of the model. The hook runs inside step, on the thread of that call; it must
  // not throw and must not call step. It is slow, and the request cannot have tokens proposed. On a GPU, each row
  // is copied to the host, and no step runs beside one with a hook.
  LogitsHook logits_hook;
  // Requests of higher priority are admitted first and have their prompts computed first; requests of equal priority do
  // so in the order in which they were submitted. If a step cannot compute a token for every running reply, the replies
  // take turns, whatever their priority.
  int32_t priority = 0;
  // A time on the engine's clock: the first step after this time ends the request with kDeadline.
  std::optional<TimePoint> deadline;
  // The last event of each sequence has a record, with which anybody can compute the reply again (reply_record.hpp).
  bool record = false;
  Scope scope;                // which requests share this prompt's KV; by default only the session and its forks
  void* user_data = nullptr;  // returned in every event of the request; never dereferenced
};

}  // namespace kaiju
