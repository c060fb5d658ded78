// BeamGroup: the beam search of one request on its sequences. The request has as many sequences as the search is wide,
// so that the memory of all beams is reserved at once. A sequence is live, which means that it is one of the search's
// live beams, or it is spare, and keeps its slot and memory until a beam is continued in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kaiju/engine/detail/beam_search.hpp"
#include "kaiju/engine/detail/reply_text.hpp"
#include "kaiju/engine/event.hpp"

namespace kaiju {

struct Sequence;

// The generated tokens of a beam, with what is told about each of them.
struct BeamPath {
  std::vector<float> logprobs;
  std::vector<float> scores;  // [tokens, labels]; empty without scores
  SampledToken sample;        // of the last step: the alternatives for its next token
  bool sampled = false;       // `sample` waits for those of the other live beams
  bool spare = false;
};

// A reply that has ended and may be a result.
struct BeamReply {
  uint64_t id = 0;              // BeamEnd::id
  std::vector<int32_t> tokens;  // generated
  std::vector<float> logprobs;  // of each
  std::vector<float> scores;    // as BeamPath
  DoneReason reason = DoneReason::kNone;
};

struct BeamGroup {
  BeamGroup(BeamSearch beam_search, ReplyText reply_text, int32_t result_count)
      : search(std::move(beam_search)), fresh(reply_text), text(std::move(reply_text)), results(result_count) {}

  BeamSearch search;
  ReplyText fresh;               // of a reply that begins
  ReplyText text;                // of the first result
  int32_t results = 1;           // asked for
  std::vector<Sequence*> live;   // in the search's order
  std::vector<BeamReply> ended;  // kept so far
  int32_t told = 0;              // generated tokens that every result begins with, and the host knows
};

}  // namespace kaiju
