// Engine's calls about one sequence of a request: they check, then leave a command in the inbox; and what the next step
// does about them. Part of engine_impl.hpp; engine.hpp says what each call promises.
#pragma once

#include "kaiju/engine/detail/engine_impl.hpp"

namespace kaiju {

// Finds an unfinished request under the inbox's lock, and checks that it has such a sequence.
inline Result<RequestControl*> EngineImpl::control_of(Inbox& inbox, RequestId request, int32_t sequence) {
  if (!inbox.stopped.ok()) return inbox.stopped;
  const auto found = inbox.unfinished.find(request);
  if (found == inbox.unfinished.end())
    return Status(StatusCode::kNotFound, "there is no unfinished request " + std::to_string(request));
  if (sequence < 0 || sequence >= found->second.sequence_count)
    return Status(StatusCode::kNotFound, "request " + std::to_string(request) + " has no sequence " +
                                             std::to_string(sequence) + "; it has " +
                                             std::to_string(found->second.sequence_count));
  return &found->second;
}

// Leaves `call` in the inbox, once `check` has looked at the request and completed the call.
template <class Check>
Status EngineImpl::call_sequence(RequestId request, SequenceCall call, Check check) {
  KAIJU_TRY(check_process());
  const Status status = guarded<Status>([&] {
    return inbox_.locked([&](Inbox& inbox) -> Status {
      Result<RequestControl*> control = control_of(inbox, request, call.sequence);
      if (!control.ok()) return control.status();
      if ((*control)->beams)
        return {StatusCode::kUnsupported, "request " + std::to_string(request) +
                                              " searches with beams, and its sequences are the search's alone"};
      if (inbox.sequence_calls >= static_cast<size_t>(options_.max_events))
        return {StatusCode::kBusy, "too many calls about sequences wait for the next step: call step first"};
      KAIJU_TRY(check(**control, call));
      Command command;
      command.kind = Command::Kind::kSequence;
      command.request = request;
      command.call = std::move(call);
      inbox.commands.push_back(std::move(command));
      ++inbox.sequence_calls;
      return {};
    });
  });
  inbox_.notify();
  return status;
}

inline Result<int32_t> EngineImpl::fork_sequence(RequestId request, int32_t sequence, uint32_t variant) {
  SequenceCall call{.kind = SequenceCall::Kind::kFork, .sequence = sequence, .stream = variant};
  int32_t child = 0;
  KAIJU_TRY(call_sequence(request, std::move(call), [&](RequestControl& control, SequenceCall& asked) -> Status {
    if (control.sequence_count >= kMaxSequences)
      return {StatusCode::kBusy, "a request has at most " + std::to_string(kMaxSequences) + " sequences"};
    child = asked.child = control.sequence_count++;
    return {};
  }));
  return child;
}

inline Status EngineImpl::cut_sequence(RequestId request, int32_t sequence, int32_t length) {
  SequenceCall call{.kind = SequenceCall::Kind::kCut, .sequence = sequence, .length = length};
  return call_sequence(request, std::move(call), [&](const RequestControl& control, const SequenceCall&) {
    return check_in_range("length", length, control.prompt_count, INT32_MAX);
  });
}

inline Status EngineImpl::end_sequence(RequestId request, int32_t sequence) {
  SequenceCall call{.kind = SequenceCall::Kind::kEnd, .sequence = sequence};
  return call_sequence(request, std::move(call),
                       [](const RequestControl&, const SequenceCall&) -> Status { return {}; });
}

inline Status EngineImpl::keep_sequence(RequestId request, int32_t sequence) {
  KAIJU_TRY(check_process());
  return inbox_.locked([&](Inbox& inbox) -> Status {
    Result<RequestControl*> control = control_of(inbox, request, sequence);
    if (!control.ok()) return control.status();
    (*control)->kept = sequence;
    return {};
  });
}

inline Status EngineImpl::propose(RequestId request, int32_t sequence, std::span<const int32_t> tokens) {
  if (info().most_samples < 2)
    return {StatusCode::kUnsupported, "this executor samples one token of a sequence in a step: propose nothing"};
  KAIJU_TRY(check_tokens(tokens));
  if (tokens.size() > static_cast<size_t>(info().context))
    return invalid_argument(std::to_string(tokens.size()) + " proposed tokens exceed the context of " +
                            std::to_string(info().context) + ": propose fewer");
  SequenceCall call{.kind = SequenceCall::Kind::kPropose, .sequence = sequence};
  call.tokens.assign(tokens.begin(), tokens.end());
  return call_sequence(request, std::move(call), [&](const RequestControl& control, const SequenceCall&) -> Status {
    if (!control.guided && !control.hooked) return {};
    return {StatusCode::kUnsupported,
            "request " + std::to_string(request) +
                (control.guided ? " is guided" : " has a logits hook, a chain of samplers or banned phrases") +
                ", and samples one token in a step: propose nothing"};
  });
}

inline Status EngineImpl::guide(RequestId request, const Guide& guide, int32_t sequence) {
  Result<TokenGuide> checked =
      guarded<Result<TokenGuide>>([&] { return check_guide(guide.allowed, guide.logit_bias, info().vocab_size); });
  SequenceCall call{.kind = SequenceCall::Kind::kGuide, .sequence = sequence};
  if (checked.ok())
    KAIJU_TRY(guarded<Status>([&]() -> Status {
      call.guide = std::make_shared<const TokenGuide>(std::move(checked).value());
      return {};
    }));
  // A request that ended is told first: a grammar that is at its end allows no token.
  return call_sequence(request, std::move(call), [&](const RequestControl& control, const SequenceCall&) -> Status {
    if (control.guided) return checked.status();
    return invalid_argument("request " + std::to_string(request) +
                            " is not guided: set the option guided when you submit a request");
  });
}

// ---- in the step

inline void EngineImpl::do_sequence_call(RequestId id, SequenceCall& call) {
  Request* const request = scheduler_.find(id);
  if (!request || request->unended == 0) return;  // it ended meanwhile
  const auto index = static_cast<size_t>(call.sequence);
  Sequence* const sequence = index < request->sequences.size() ? request->sequences[index] : nullptr;
  const bool live = sequence && sequence->live();
  switch (call.kind) {
    case SequenceCall::Kind::kFork:
      fork_in_flight(*request, live ? sequence : nullptr, call);
      break;
    case SequenceCall::Kind::kCut:
      if (!live || call.length >= sequence->cut_to.value_or(sequence->token_count())) break;
      sequence->guide.reset();
      cut(*sequence, call.length);
      break;
    case SequenceCall::Kind::kEnd:
      if (live) end_sequence(*sequence, DoneReason::kCancelled);
      break;
    case SequenceCall::Kind::kPropose:
      if (!live || sequence->cut_to) break;
      sequence->drafts = std::move(call.tokens);
      sequence->drafts_at = sequence->token_count();
      break;
    case SequenceCall::Kind::kGuide:
      if (live) take_guide(*sequence, std::move(call.guide));
      break;
  }
}

// A plan that is to be run again has the guide before this one, for the same token.
inline void EngineImpl::take_guide(Sequence& sequence, std::shared_ptr<const TokenGuide> guide) {
  if (plan_stage_ == PlanStage::kToRunAgain && sequence.granted > 0 && !sequence.cut_to)
    for (const Segment& segment : plan_.segments)
      if (segment.slot == sequence.slot && segment.guide >= 0) {
        plan_.guides[static_cast<size_t>(segment.guide)] = std::move(guide);
        return;
      }
  sequence.guide = std::move(guide);
}

// A new sequence with the parent's tokens so far. Without a parent, which ended meanwhile, it ends at once.
inline void EngineImpl::fork_in_flight(Request& request, const Sequence* parent, const SequenceCall& call) {
  auto child = std::make_unique<Sequence>();
  const auto count = static_cast<size_t>(call.child) + 1;
  if (request.sequences.size() < count) {
    request.sequences.resize(count, nullptr);
    request.histories.resize(count);
  }
  child->index = call.child;
  child->twin = call.sequence;
  ++request.unended;
  if (!parent) {
    child->request = request.shared_from_this();
    child->state = SequenceState::kEnded;
    tell_end(*child, DoneReason::kCancelled);
    request.histories[static_cast<size_t>(call.child)] = request.histories[static_cast<size_t>(call.sequence)];
    return;
  }
  const size_t length = static_cast<size_t>(parent->cut_to.value_or(parent->token_count()));
  child->request = parent->request;
  child->sampling = parent->sampling;
  child->sampling.stream = call.stream;
  child->tokens->reserve(parent->tokens->capacity());
  child->tokens->assign(parent->tokens->begin(), parent->tokens->begin() + static_cast<std::ptrdiff_t>(length));
  child->counted = kAllCounted;  // no prompt that anybody submitted
  child->counts.prompt_tokens = request.prompt_count;
  child->counts.generated = static_cast<int32_t>(length) - request.prompt_count;
  child->mus = parent->mus;
  child->forget_mus();
  child->text = parent->text;
  child->judge = parent->judge;
  child->judge.cut(child->counts.generated);
  child->banned = parent->banned;
  child->banned.cut(child->counts.generated);
  child->forbidden = parent->forbidden;
  if (parent->cut_to) say_again(*child);
  scheduler_.add(std::move(child));
}

// Back to `length` tokens: at once, or, where a step that was planned before computes the sequence, after that.
inline void EngineImpl::cut(Sequence& sequence, int32_t length) {
  sequence.drafts.clear();
  if (sequence.has_slot() && is_planned(sequence)) {
    sequence.cut_to = length;
    if (sequence.state == SequenceState::kRunning) scheduler_.move(sequence, SequenceState::kCutting);
    return;
  }
  scheduler_.cut(sequence, length);
  sequence.banned.cut(sequence.counts.generated);
  sequence.judge.cut(sequence.counts.generated);
  std::erase_if(sequence.held, [&](const Event& held) { return held.counts.generated > sequence.counts.generated; });
  say_again(sequence);
}

// The text so far, from the sequence's tokens: what of it is held back, and what of a stop string was seen.
inline void EngineImpl::say_again(Sequence& sequence) {
  sequence.text.begin_again();
  if (!pieces_) return;
  std::string said;
  const Request& request = *sequence.request;
  for (int32_t i = request.prompt_count - request.begun_count; i < sequence.token_count(); ++i)
    sequence.text.push(pieces_->piece((*sequence.tokens)[static_cast<size_t>(i)]), said);
}

}  // namespace kaiju
