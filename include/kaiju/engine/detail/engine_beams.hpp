// Engine's beam search: what a step found out about the live beams of a request goes to its BeamSearch, and the
// sequences follow. Part of engine_impl.hpp.
#pragma once

#include "kaiju/engine/detail/engine_impl.hpp"

namespace kaiju {

inline Status EngineImpl::check_beams(const RequestOptions& options) const {
  const BeamOptions& beams = options.beams;
  const Guidance& guidance = beams.guidance;
  if (beams.width == 0) return {};
  const int32_t running = options_.max_running > 0 ? options_.max_running : info().slot_count;
  KAIJU_TRY(check_in_range("beam width", beams.width, 1, std::min({kMaxBeams, info().slot_count, running})));
  if (options.sequence_count > beams.width)
    return invalid_argument("sequence_count is " + std::to_string(options.sequence_count) + "; " +
                            std::to_string(beams.width) + " beams have at most as many results");
  KAIJU_TRY(check_in_range("beam candidates", beams.candidates, 0, kMaxTopLogprobs));
  if (beams.candidates != 0 && beams.candidates < beams.width)
    return invalid_argument("beam candidates is " + std::to_string(beams.candidates) +
                            "; it must be at least the width, " + std::to_string(beams.width));
  if (beams.groups < 1 || beams.width % beams.groups != 0)
    return invalid_argument("the beams of width " + std::to_string(beams.width) + " make no " +
                            std::to_string(beams.groups) + " groups of one size");
  if (!(beams.length_penalty >= 0.0 && beams.length_penalty <= 10.0))
    return invalid_argument("length_penalty must be from 0 to 10");
  if (!(beams.diversity >= 0.0 && beams.diversity <= 100.0)) return invalid_argument("diversity must be from 0 to 100");
  if (beams.stochastic && beams.groups > 1) return invalid_argument("stochastic beams make one group");
  if (options.max_tokens == 0) return invalid_argument("beams need max_tokens of 1 or more");
  SamplingParams plain;
  plain.seed = options.sampling.seed, plain.variant = options.sampling.variant;
  if (options.sampling != plain)
    return invalid_argument("beams take the likeliest tokens: leave the sampling parameters at their defaults");
  if (options.guided || options.logits_hook || options.logprobs > 0)
    return Status(StatusCode::kUnsupported, "a request with beams cannot be guided, and has no hook and no logprobs");
  if (guidance.weight == 0.0) return {};
  if (info().label_count == 0)
    return Status(StatusCode::kUnsupported, "the model has no classifier: search without guidance");
  if (!(std::abs(guidance.weight) <= 1000.0)) return invalid_argument("the guidance weight must be from -1000 to 1000");
  return by_label(guidance.label_weights, "weight", 1000.0, 1.0).status();
}

// The sequences of a request with beams: the first computes the prompt, the others are spare.
inline void EngineImpl::make_beams(Request& request, const RequestOptions& options, const SamplingSpec& sampling,
                                   std::vector<std::unique_ptr<Sequence>>& sequences) const {
  const Guidance& guidance = options.beams.guidance;
  request.beams = std::make_shared<BeamGroup>(
      BeamSearch(options.beams, by_label(guidance.label_weights, "weight", 1000.0, 1.0).value(), request.max_tokens,
                 sampling.seed, sampling.stream),
      ReplyText(options.stop_strings, options.loop_guard), options.sequence_count);
  request.top_logprobs = std::min(request.beams->search.candidates(), info().vocab_size);
  request.scores |= guidance.weight != 0.0;
  request.beams->live = {sequences.front().get()};
  for (size_t i = 1; i < sequences.size(); ++i) {
    sequences[i]->beam.spare = true;
    sequences[i]->counted = kAllCounted;
  }
  request.histories.resize(static_cast<size_t>(options.sequence_count));
  request.unended = options.sequence_count;
}

// A live beam has its alternatives. When all have, the search goes on.
inline void EngineImpl::take_beam_sample(Sequence& sequence, SampledToken& sampled, TimePoint now) {
  if (sequence.first_token == TimePoint()) sequence.first_token = now;
  sequence.last_token = now;
  ++metrics_.tokens_decoded;
  sequence.beam.sample = std::move(sampled);
  sequence.beam.sampled = true;
  const std::vector<Sequence*>& live = sequence.request->beams->live;
  if (std::all_of(live.begin(), live.end(), [](const Sequence* beam) { return beam->beam.sampled; }))
    advancing_.push_back(sequence.request);
}

// What ends a beam that goes on with a token.
inline DoneReason EngineImpl::end_of_beam(const Sequence& beam, int32_t token) const {
  const std::vector<int32_t>& stops = beam.request->stop_tokens;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) return DoneReason::kStopToken;
  if (!pieces_ || !beam.text.may_stop()) return DoneReason::kNone;
  ReplyText text = beam.text;
  std::string shown;
  switch (text.push(pieces_->piece(token), shown)) {
    case TextEnd::kNone:
      return DoneReason::kNone;
    case TextEnd::kStopString:
      return DoneReason::kStopString;
    case TextEnd::kLoop:
      return DoneReason::kLoop;
  }
  return DoneReason::kNone;
}

inline void EngineImpl::advance_beams(Request& request) {
  const FloatState float_state;
  BeamGroup& group = *request.beams;
  const std::vector<Sequence*> before = group.live;
  std::vector<BeamRow> rows;
  for (const Sequence* beam : before) rows.push_back({beam->beam.sample.top, beam->beam.sample.scores});
  group.search.advance(rows, limits_of(request), [&](int32_t beam, int32_t token) {
    return end_of_beam(*before[static_cast<size_t>(beam)], token) != DoneReason::kNone;
  });

  for (const BeamEnd& end : group.search.ended()) {
    const Sequence& parent = *before[static_cast<size_t>(end.last.parent)];
    BeamReply reply{end.id,
                    {parent.tokens->begin() + request.prompt_count, parent.tokens->end()},
                    parent.beam.logprobs,
                    parent.beam.scores,
                    DoneReason::kLength};
    reply.tokens.push_back(end.last.token);
    reply.logprobs.push_back(end.last.logprob);
    append_beam_scores(parent, reply.scores);
    if (end.stopped) reply.reason = end_of_beam(parent, end.last.token);
    group.ended.push_back(std::move(reply));
  }
  std::erase_if(group.ended, [&](const BeamReply& reply) { return !group.search.keeps(reply.id); });
  if (group.search.done()) return end_search(request, before);

  std::vector<Sequence*> spare;
  std::vector<uint8_t> goes_on(before.size(), false);
  for (const BeamStep& step : group.search.steps()) goes_on[static_cast<size_t>(step.parent)] = true;
  for (Sequence* sequence : request.sequences)
    if (sequence->beam.spare) spare.push_back(sequence);
  for (size_t i = 0; i < before.size(); ++i)
    if (!goes_on[i]) spare.push_back(before[i]);

  // Copies first, while the parents still end where the step has left them; the first child of each parent is the
  // parent itself.
  group.live.clear();
  std::fill(goes_on.begin(), goes_on.end(), false);
  for (const BeamStep& step : group.search.steps()) {
    const auto parent = static_cast<size_t>(step.parent);
    if (!std::exchange(goes_on[parent], true)) {
      group.live.push_back(before[parent]);
      continue;
    }
    Sequence& child = *spare.back();
    spare.pop_back();
    copy_beam(*before[parent], child);
    group.live.push_back(&child);
  }
  for (Sequence* sequence : spare) {
    sequence->beam.spare = true;
    sequence->beam.sampled = false;
  }
  for (size_t i = 0; i < group.live.size(); ++i) {
    const BeamStep& step = group.search.steps()[i];
    Sequence& beam = *group.live[i];
    append_beam_scores(beam, beam.beam.scores);
    beam.tokens->push_back(step.token);
    beam.beam.logprobs.push_back(step.logprob);
    beam.beam.sampled = beam.beam.spare = false;
    ++beam.counts.generated;
    std::string shown;
    if (pieces_) beam.text.push(pieces_->piece(step.token), shown);
  }
  tell_common(request);
}

// The scores of the text before a beam's next token.
inline void EngineImpl::append_beam_scores(const Sequence& beam, std::vector<float>& to) {
  const std::vector<float>& scores = beam.beam.sample.scores;
  to.insert(to.end(), scores.begin(), scores.end());
}

// What the texts before the first `tokens` tokens of a beam were judged to be.
inline std::vector<LabelStatistics> EngineImpl::statistics_of_beam(const Request& request,
                                                                   std::span<const float> scores, size_t tokens) {
  Judge judge;
  const auto labels = static_cast<size_t>(info().label_count);
  for (size_t at = 0; at < tokens && (at + 1) * labels <= scores.size() && labels > 0; ++at)
    judge.see(scores.subspan(at * labels, labels), limits_of(request));
  return judge.statistics();
}

// A spare sequence continues another one's beam. It starts again in the next step, with the parent's whole blocks and a
// copy of the last one.
inline void EngineImpl::copy_beam(const Sequence& parent, Sequence& child) {
  scheduler_.give_up(child);
  *child.tokens = *parent.tokens;
  child.next = 0;
  child.twin = parent.index;
  child.beam.logprobs = parent.beam.logprobs;
  child.beam.scores = parent.beam.scores;
  child.beam.sample = parent.beam.sample;
  child.counts = parent.counts;
  child.reuse = parent.reuse;
  child.text = parent.text;
  child.admitted = parent.admitted;
  child.first_token = parent.first_token;
  child.last_token = parent.last_token;
  child.counted = kAllCounted;
}

inline Event EngineImpl::beam_event(const Sequence& any, int32_t result, int32_t generated, EventKind kind) const {
  Event event = event_of(any, kind);
  event.sequence = result;
  event.counts.generated = generated;
  return event;
}

// Token `at` of a result, after those before it.
inline void EngineImpl::tell_beam_token(const Sequence& any, int32_t result, size_t at, const BeamReply& reply,
                                        ReplyText& text) {
  Event event = beam_event(any, result, static_cast<int32_t>(at) + 1, EventKind::kToken);
  event.token = reply.tokens[at];
  event.logprob = reply.logprobs[at];
  if (any.request->reports_scores) {
    const auto labels = static_cast<std::ptrdiff_t>(info().label_count),
               first = static_cast<std::ptrdiff_t>(at) * labels;
    event.scores.assign(reply.scores.begin() + first, reply.scores.begin() + first + labels);
  }
  const bool stop_token = at + 1 == reply.tokens.size() && reply.reason == DoneReason::kStopToken;
  if (pieces_ && !stop_token) text.push(pieces_->piece(event.token), event.text);
  events_.push_back(std::move(event));
}

// Tells the tokens that every beam and every ended reply has in common.
inline void EngineImpl::tell_common(Request& request) {
  BeamGroup& group = *request.beams;
  const Sequence& first = *group.live.front();
  const BeamReply path{0,
                       {first.tokens->begin() + request.prompt_count, first.tokens->end()},
                       first.beam.logprobs,
                       first.beam.scores,
                       DoneReason::kNone};
  const auto have = [&](size_t at) {
    for (const Sequence* beam : group.live)
      if ((*beam->tokens)[static_cast<size_t>(request.prompt_count) + at] != path.tokens[at]) return false;
    for (const BeamReply& reply : group.ended)
      if (at >= reply.tokens.size() || reply.tokens[at] != path.tokens[at]) return false;
    return true;
  };
  for (; static_cast<size_t>(group.told) < path.tokens.size() && have(static_cast<size_t>(group.told)); ++group.told)
    tell_beam_token(first, 0, static_cast<size_t>(group.told), path, group.text);
}

// The search is over: tells its results and lets the sequences go.
inline void EngineImpl::end_search(Request& request, const std::vector<Sequence*>& before) {
  const std::shared_ptr<Request> hold = request.shared_from_this();
  BeamGroup& group = *request.beams;
  const Sequence& any = *before.front();
  const std::vector<BeamEnd> ends = group.search.results();
  std::vector<int32_t> best;
  for (int32_t result = 0; result < group.results; ++result) {
    ReplyText text = result == 0 ? group.text : group.fresh;
    const size_t told = result == 0 ? static_cast<size_t>(group.told) : 0;
    if (static_cast<size_t>(result) >= ends.size()) {
      tell_beam_end(request, any, result,
                    {any.tokens->begin() + request.prompt_count,
                     any.tokens->begin() + request.prompt_count + static_cast<std::ptrdiff_t>(told)},
                    any.beam.scores, text, DoneReason::kRefused);
      continue;
    }
    const auto reply = std::find_if(group.ended.begin(), group.ended.end(), [&](const BeamReply& each) {
      return each.id == ends[static_cast<size_t>(result)].id;
    });
    for (size_t at = told; at < reply->tokens.size(); ++at) tell_beam_token(any, result, at, *reply, text);
    if (result == 0) best = reply->tokens;
    tell_beam_end(request, any, result, reply->tokens, reply->scores, text, reply->reason);
  }
  // The sequence that has most of the best reply keeps its resume points.
  const auto common = [&](const Sequence& sequence) {
    const auto own = sequence.tokens->begin() + std::min(request.prompt_count, sequence.token_count());
    return std::mismatch(own, sequence.tokens->end(), best.begin(), best.end()).first - own;
  };
  Sequence* keeper = request.sequences.front();
  for (Sequence* sequence : request.sequences)
    if (sequence->has_slot() && common(*sequence) > common(*keeper)) keeper = sequence;
  const std::vector<Sequence*> all = request.sequences;
  for (Sequence* sequence : all)
    if (sequence != keeper) scheduler_.discard(*sequence);
  scheduler_.remove(*keeper);
}

// `scores` are those of the texts before each token of the reply, and may go on.
inline void EngineImpl::tell_beam_end(Request& request, const Sequence& any, int32_t result, std::vector<int32_t> reply,
                                      std::span<const float> scores, ReplyText& text, DoneReason reason) {
  const bool last = --request.unended == 0;
  Event event =
      beam_event(any, result, static_cast<int32_t>(reply.size()), last ? EventKind::kDone : EventKind::kSequenceDone);
  event.reason = reason;
  event.counts.prompt_tokens = request.prompt_count;
  if (reason == DoneReason::kStopToken) event.stop = reply.back();
  if (reason == DoneReason::kStopString) event.stop = text.stop_index();
  if (reason == DoneReason::kRefused) {
    event.label = request.beams->search.refused_label();
    event.probability = static_cast<float>(request.beams->search.refused_probability());
  }
  event.statistics = statistics_of_beam(request, scores, reply.size());
  text.finish(event.text);
  auto history =
      std::make_shared<std::vector<int32_t>>(any.tokens->begin(), any.tokens->begin() + request.prompt_count);
  history->insert(history->end(), reply.begin(), reply.end());
  if (request.recorded) event.record = record_of(request, request.recorded->sampling.variant, history, event);
  request.histories[static_cast<size_t>(result)] = std::move(history);
  tell_reply_end(request, std::move(event));
}

// The host, or a deadline, ends the request: its results are the tokens that were told.
inline void EngineImpl::cancel_beams(Request& request, DoneReason reason) {
  const std::shared_ptr<Request> hold = request.shared_from_this();
  BeamGroup& group = *request.beams;
  const Sequence& any = *group.live.front();
  const std::vector<Sequence*> all = request.sequences;
  for (int32_t result = 0; result < group.results; ++result) {
    const auto told = static_cast<std::ptrdiff_t>(result == 0 ? group.told : 0);
    const auto begin = any.tokens->begin() + request.prompt_count;
    tell_beam_end(request, any, result, {begin, begin + told}, any.beam.scores, result == 0 ? group.text : group.fresh,
                  reason);
  }
  for (Sequence* sequence : all) {
    if (!sequence) continue;
    if (sequence->has_slot() && is_planned(*sequence))
      scheduler_.move(*sequence, SequenceState::kEnding);
    else
      scheduler_.discard(*sequence);
  }
}

}  // namespace kaiju
