// What the Scheduler has a step compute. Part of scheduler.hpp, which says what each function promises.
#pragma once

#include "kaiju/engine/detail/scheduler.hpp"

namespace kaiju {

inline Status Scheduler::plan(StepPlan& plan, TimePoint now) {
  plan.clear();
  renew();
  admit(plan, now);
  while (give_way()) admit(plan, now);
  demands_.clear();
  for (const auto& sequence : running_) demands_.push_back(demand(*sequence, plan));
  share_step(demands_, limits_, rotation_, grants_, step_shares_);
  if (!running_.empty()) rotation_ = (rotation_ + static_cast<size_t>(limits_.step_tokens)) % running_.size();
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    sequence.row = i;
    sequence.granted = grants_[i];
    if (sequence.granted > 0) KAIJU_TRY(write_segment(sequence, plan));
    computed_[static_cast<size_t>(sequence.request->share)] += static_cast<uint64_t>(sequence.granted);
  }
  prefetch(plan);
  write_downs(plan);
  for (Promotion& promotion : promoting_) promotion.write(plan);
  return fault_;
}

inline Status Scheduler::plan_next(StepPlan& plan) {
  plan.clear();
  close_gaps();
  const bool admits =
      !blocked() && running_.size() < static_cast<size_t>(limits_.max_running) && first_waiting() != nullptr;
  if (admits || tree_.tiers() || !next_step_fits_shares())
    return {};  // copies into lower tiers have to come before what is written in their place
  int32_t rows = 0;
  for (const auto& sequence : running_) {
    if (sequence->request->shows_tokens || sequence->request->beams) return {};
    if (is_beside(*sequence)) {
      rows += joins(*sequence) ? 1 : 0;
      if (joins(*sequence) &&
          (!sequence->lease.bound() || sequence->told_suspended ||
           sequence->token_count() > sequence->leased_positions || sequence->lease.room(tree_, 1) < 1))
        return {};
      continue;
    }
    if (sequence->granted != 1 || !sequence->decoding() || sequence->told_suspended || !sequence->drafts.empty())
      return {};
    if (!goes_on(*sequence)) continue;
    ++rows;
    if (sequence->token_count() >= sequence->leased_positions || sequence->lease.room(tree_, 2) < 2) return {};
  }
  if (rows > limits_.step_tokens) return {};
  for (const auto& sequence : running_) {
    if (is_beside(*sequence)) {
      if (!joins(*sequence)) continue;
      sequence->granted_next = 1;
      KAIJU_TRY(write_segment(*sequence, plan, sequence->next, 1, 1));
      plan.tokens.push_back(sequence->tokens->back());
      continue;
    }
    if (!goes_on(*sequence)) continue;
    sequence->granted_next = 1;
    ++computed_[static_cast<size_t>(sequence->request->share)];
    KAIJU_TRY(write_segment(*sequence, plan, sequence->next + 1, 1, 1));
    plan.tokens.push_back(kSampledToken);
  }
  return {};
}

inline void Scheduler::commit_transfers(const std::vector<int32_t>& failed) {
  if (!tree_.tiers()) return;
  const auto has_failed = [&](size_t i) {
    return std::find(failed.begin(), failed.end(), static_cast<int32_t>(i)) != failed.end();
  };
  tree_.tiers()->downs_ran(has_failed);
  for (Promotion& promotion : promoting_) {
    promotion.ran(tree_, has_failed);
    promoted_.push_back(std::move(promotion));
  }
  promoting_.clear();
  if (waiting_.empty()) release_promoted();
}

inline void Scheduler::commit(Sequence& sequence, int32_t count) {
  sequence.lease.commit(tree_, *sequence.tokens, count);
  if (count < sequence.granted) sequence.lease.unbind();  // the executor has seen tokens that are not the sequence's
  sequence.next = sequence.lease.next();
  sequence.granted = std::exchange(sequence.granted_next, 0);
}

inline Demand Scheduler::demand(Sequence& sequence, StepPlan& plan) {
  sequence.lease.prepare(tree_, {&plan, sequence.slot});
  if (!sequence.ran_before)
    sequence.counts.cached_tokens =
        std::min(sequence.counts.cached_tokens + sequence.lease.next() - sequence.next, sequence.request->prompt_count);
  sequence.next = sequence.lease.next();
  const int32_t wanted = std::min(sequence.ready() + usable_drafts(sequence), limits_.chunk_tokens);
  if (wanted == 0) return {};  // it waits for a guide
  const int32_t tokens = sequence.lease.room(tree_, wanted);
  return {tokens, sequence.decoding() && tokens > 0, sequence.request->share};
}

// Drops the drafts that what was sampled meanwhile has decided. How many of the others the next step may try: every
// token that it samples may be the last one, and none may lie beyond the memory that the sequence has.
inline int32_t Scheduler::usable_drafts(Sequence& sequence) const {
  std::vector<int32_t>& drafts = sequence.drafts;
  if (drafts.empty()) return 0;
  const int32_t sampled = sequence.token_count() - sequence.drafts_at;
  if (sampled < 0 || sampled > static_cast<int32_t>(drafts.size()) ||
      !std::equal(drafts.begin(), drafts.begin() + sampled, sequence.tokens->end() - sampled))
    drafts.clear();
  else
    drafts.erase(drafts.begin(), drafts.begin() + sampled);
  sequence.drafts_at = sequence.token_count();
  if (!sequence.decoding()) drafts.clear();
  return std::max(0, std::min({static_cast<int32_t>(drafts.size()), info_.most_samples - 1,
                               sequence.leased_positions - sequence.token_count(),
                               sequence.request->max_tokens - sequence.counts.generated - 1}));
}

inline Status Scheduler::write_segment(Sequence& sequence, StepPlan& plan) {
  const std::vector<int32_t>& tokens = *sequence.tokens;
  const int32_t known = std::min(sequence.granted, sequence.remaining()), drafts = sequence.granted - known;
  const bool samples = known == sequence.remaining() && (sequence.request->max_tokens > 0 || sequence.request->scores);
  KAIJU_TRY(write_segment(sequence, plan, sequence.next, sequence.granted, samples ? 1 + drafts : 0));
  plan.tokens.insert(plan.tokens.end(), tokens.begin() + sequence.next, tokens.begin() + sequence.next + known);
  plan.tokens.insert(plan.tokens.end(), sequence.drafts.begin(), sequence.drafts.begin() + drafts);
  return {};
}

// What the token in a place of the reply may be, if a banned phrase has been found to begin there; null: any token.
inline std::shared_ptr<const TokenGuide> Scheduler::without_forbidden(const Sequence& sequence, int32_t place) const {
  std::shared_ptr<TokenGuide> guide;
  for (const auto& [forbidden_place, token] : sequence.forbidden) {
    if (forbidden_place != place) continue;
    if (!guide) {
      guide = std::make_shared<TokenGuide>();
      guide->allowed.assign(static_cast<size_t>(mask_words(info_.vocab_size)), ~0u);
    }
    guide->allowed[static_cast<size_t>(token / 32)] &= ~(1u << token % 32);
  }
  return guide;
}

inline Status Scheduler::write_segment(Sequence& sequence, StepPlan& plan, int32_t position, int32_t count,
                                       int32_t sample_count) {
  Lease& lease = sequence.lease;
  const EditSink sink = {&plan, sequence.slot};
  const int32_t end = position + count;
  if (!lease.extend(tree_, end, sink))
    return internal_error("cache ledger: request " + std::to_string(sequence.request->id) +
                          " was promised too few blocks for position " + std::to_string(end - 1));
  if (!lease.bound()) {
    plan.starts.push_back(
        {sequence.slot, sequence.sampling, {sequence.tokens->begin(), sequence.tokens->begin() + sequence.next}});
    lease.bind(sink);
  }
  Segment segment;
  segment.slot = sequence.slot;
  segment.position = position;
  segment.first_token = static_cast<int32_t>(plan.tokens.size());
  segment.token_count = count;
  segment.sample_count = sample_count;
  segment.top_logprobs = sample_count > 0 ? sequence.request->top_logprobs : 0;
  segment.scores = sample_count > 0 && sequence.request->scores;
  segment.write_from = lease.write_from();
  if (sample_count > 0 && sequence.guide) {
    segment.guide = static_cast<int32_t>(plan.guides.size());
    plan.guides.push_back(std::move(sequence.guide));
    sequence.guide.reset();
  }
  if (sample_count > 0 && !sequence.forbidden.empty())
    if (std::shared_ptr<const TokenGuide> guide =
            without_forbidden(sequence, position + count - sequence.request->prompt_count)) {
      segment.guide = static_cast<int32_t>(plan.guides.size());
      plan.guides.push_back(std::move(guide));
    }
  if (sample_count > 0 && sequence.request->shows_tokens) {
    const LogitsHook& hook = sequence.request->hook;
    segment.hook = static_cast<int32_t>(plan.hooks.size());
    plan.hooks.push_back({hook ? &hook : nullptr, *sequence.tokens, sequence.mu()});
  }
  plan.segments.push_back(segment);
  return {};
}

}  // namespace kaiju
