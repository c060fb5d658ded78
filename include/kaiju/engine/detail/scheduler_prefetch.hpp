// How the Scheduler brings up KV of sessions that have no request yet. Part of scheduler.hpp, which says what each
// function promises.
#pragma once

#include "kaiju/cache/known_path.hpp"
#include "kaiju/engine/detail/scheduler.hpp"

namespace kaiju {

inline void Scheduler::drop_prefetches(SessionId session) {
  for (Prefetch& prefetch : prefetches_)
    if (prefetch.session == session) prefetch.length = 0;  // nothing is left to bring up
}

// What a step may bring up for prefetches: nothing while a sequence waits for memory or for its own KV; a few blocks of
// host memory beside others' rows, if the host allows that; else so much that a request that comes meanwhile soon has
// its turn.
inline int32_t Scheduler::prefetch_blocks(const StepPlan& plan) const {
  constexpr int32_t kAlone = 64;
  if (first_waiting() || !promoting_.empty()) return 0;
  return plan.segments.empty() && plan.copies.empty() ? kAlone : limits_.prefetch_blocks;
}

// Works off the prefetches in order, until one has something to copy.
inline void Scheduler::prefetch(StepPlan& plan) {
  while (!prefetches_.empty()) {
    const int32_t most_blocks = prefetch_blocks(plan);
    if (most_blocks == 0) return;
    Prefetch& next = prefetches_.front();
    if (next.length > 0) {
      // In the place of the next prompt's first token there is some token.
      std::vector<int32_t> prompt(next.history().begin(), next.history().end());
      prompt.push_back(0);
      const LeaseRequest request = prefetch_request(next, prompt);
      Promotion promotion;
      BlockNeed promised;
      const Promotion::Outcome outcome =
          promotion.begin(tree_, request, promised, {most_blocks, plan.segments.empty()});
      if (outcome == Promotion::Outcome::kWait) return;
      if (outcome == Promotion::Outcome::kBegun) return promoting_.push_back(std::move(promotion));
      end_prefetch(next, request.regions);
    }
    prefetched_.push_back(std::move(next));
    prefetches_.pop_front();
  }
}

inline LeaseRequest Scheduler::prefetch_request(const Prefetch& prefetch, std::span<const int32_t> prompt) {
  LeaseRequest request;
  request.prompt = prompt;
  request.chunk_tokens = limits_.chunk_tokens;
  request.regions = prefetch.scope ? books_.regions(prefetch.session, *prefetch.scope)
                                   : books_.regions_of_last_request(prefetch.session);
  request.owner = prefetch.session;
  request.claimant.share = tree_.domains().at(request.regions.own).share;
  return request;
}

// What was brought up stays as a resume point does, so that it is not the first that goes.
inline void Scheduler::end_prefetch(Prefetch& prefetch, const Regions& regions) {
  const KnownPath path = KnownPath::find(tree_, regions.shared, regions.own, prefetch.history());
  prefetch.resident_tokens = resumable(path);
  const auto last = static_cast<size_t>((prefetch.resident_tokens + kBlockTokens - 1) / kBlockTokens);
  if (last > 0 && tree_.at(path.nodes[last - 1]).points == 0) tree_.add_point(path.nodes[last - 1]);
}

inline int32_t Scheduler::cached_tokens(std::span<const int32_t> tokens, const Scope& scope) {
  constexpr SessionId kNobody = 0;  // no session has this id
  const Regions regions = books_.regions(kNobody, scope);
  const int32_t count = resumable(KnownPath::find(tree_, regions.shared, regions.own, tokens));
  books_.close(kNobody);
  return count;
}

// The last position of a path whose window is whole.
inline int32_t Scheduler::resumable(const KnownPath& path) const {
  int32_t position = path.tokens;
  if (!tree_.uses(BlockKind::kWindow)) return position;
  for (int32_t index = blocks_for(position) - 1; index >= 0 && index >= tree_.first_visible(position); --index)
    if (!tree_.at(path.nodes[static_cast<size_t>(index)]).has(BlockKind::kWindow)) position = index * kBlockTokens;
  return position;
}

}  // namespace kaiju
