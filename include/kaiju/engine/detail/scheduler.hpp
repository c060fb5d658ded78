// Scheduler: who runs, and what the next step computes. Owns the cache's books; writes StepPlans; knows no text, no
// events, no threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kaiju/cache/lease.hpp"
#include "kaiju/cache/promotion.hpp"
#include "kaiju/engine/detail/invariants.hpp"
#include "kaiju/engine/detail/policy.hpp"
#include "kaiju/engine/detail/sequence.hpp"
#include "kaiju/engine/detail/session.hpp"
#include "kaiju/step/plan.hpp"

namespace kaiju {

// What one running sequence could compute now: one token when it decodes, else the rest of its prompt.
struct Demand {
  int32_t tokens = 0;
  bool decode = false;
};

// Most tokens of a step: of all; of one request's prompt; of all prompts where a reply goes on in the same step.
struct StepBudget {
  int32_t tokens = 0, chunk = 0, prefill = 0;
};

// Shares a step's tokens out. Decode rows come first, one token each, starting with row `first` so that a budget below
// the number of rows still serves all in turn; then prefill, in the order given. grants[i] may be 0.
inline void share_step(const std::vector<Demand>& demands, const StepBudget& budget, size_t first,
                       std::vector<int32_t>& grants) {
  grants.assign(demands.size(), 0);
  int32_t left = budget.tokens;
  for (size_t n = 0; n < demands.size() && left > 0; ++n) {
    const size_t i = (first + n) % demands.size();
    if (!demands[i].decode) continue;
    grants[i] = 1;
    --left;
  }
  if (left < budget.tokens) left = std::min(left, budget.prefill);
  for (size_t i = 0; i < demands.size() && left > 0; ++i) {
    if (demands[i].decode) continue;
    grants[i] = std::min({demands[i].tokens, budget.chunk, left});
    left -= grants[i];
  }
}

struct SchedulerOptions {
  int32_t step_tokens = 0;
  int32_t chunk_tokens = 0;
  int32_t prefill_tokens = 0;
  int32_t max_running = 0;
  int32_t reserve_tokens = 0;
  CacheOptions cache;
};

// One thread at a time.
class Scheduler {
 public:
  Scheduler(const ExecutorInfo& info, const SchedulerOptions& options)
      : info_(info), options_(options), tree_(info, options.cache), books_(tree_) {
    if (info.window > 0) {
      // Memory for a window and little more wants small chunks rather than refusals.
      const int64_t room = int64_t{info.block_count[1]} * kBlockTokens - info.window - Lease::kWindowSlack;
      options_.chunk_tokens = static_cast<int32_t>(std::clamp<int64_t>(room, 1, options_.chunk_tokens));
    }
    running_.reserve(static_cast<size_t>(options.max_running));
    for (int32_t slot = info.slot_count - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  }
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // kOutOfMemory, with the numbers, when a sequence of this size could not run even alone. Safe from any thread.
  Status check_fits(int32_t prompt_tokens, int32_t max_tokens) const {
    const int32_t positions = prompt_tokens + std::max(0, max_tokens - 1);
    const BlockNeed need = Lease::need_alone(positions, options_.chunk_tokens, info_);
    if (tree_.pool().could_ever_hold(need)) return {};
    const bool shared = tree_.pool().shared();
    std::string needed, whole;
    for (const BlockKind kind : kBothKinds) {
      if (!tree_.uses(kind)) continue;
      const std::string blocks = std::string(" ") + name_of(kind) + " blocks",
                        total = std::to_string(tree_.pool().total(kind));
      needed += (needed.empty() ? "" : " and ") + std::to_string(need.count[kind]) + blocks +
                (shared ? "" : " (of " + total + ")");
      whole += (whole.empty() ? "" : " or ") + total + blocks;
    }
    return {StatusCode::kOutOfMemory, std::to_string(prompt_tokens) + " prompt tokens and " +
                                          std::to_string(max_tokens) + " to generate need " + needed + " of " +
                                          std::to_string(kBlockTokens) + " tokens" +
                                          (shared ? " in one memory, which " + whole + " alone fill" : "") +
                                          ": ask for fewer tokens or give the engine more memory"};
  }

  // -- who is here --
  // Taken only when all went well: a sequence that memory had no place for stays with the caller.
  void add(std::unique_ptr<Sequence>&& sequence) {
    books_.open(sequence->session);
    Sequence*& here = here_[sequence->request];
    here = wait(std::move(sequence));
  }
  // Who has this request, wherever it is; null when unknown.
  Sequence* find(RequestId request) const {
    const auto found = here_.find(request);
    return found == here_.end() ? nullptr : found->second;
  }
  // Takes a sequence out for good, wherever it is; null when unknown. Its KV stays with its session.
  std::unique_ptr<Sequence> remove(RequestId request) {
    Sequence* const sequence = find(request);
    return sequence ? let_go(take(*sequence)) : nullptr;
  }
  // Sets a sequence aside until resume. What it has computed stays with its session, for as long as nobody else needs
  // the room. Null when it is not here, or set aside already.
  Sequence* suspend(RequestId request) {
    Sequence* const sequence = find(request);
    if (!sequence || suspended_.contains(*sequence)) return nullptr;
    std::unique_ptr<Sequence> taken = take(*sequence);
    sequence->set_aside = ++last_set_aside_;
    suspended_.insert(std::move(taken));
    return sequence;
  }
  // Back to its place among the waiting.
  void resume(RequestId request) {
    if (Sequence* const sequence = find(request); sequence && suspended_.contains(*sequence)) wait(take(*sequence));
  }
  // Takes running sequence `i` out for good. Its place stays, empty, until running is called again.
  std::unique_ptr<Sequence> finish(size_t i) { return let_go(stop(i)); }
  void fork(SessionId parent, SessionId child) { books_.fork(parent, child); }
  // A session is gone. What only it could find goes too.
  void close(SessionId session) {
    books_.close(session);
    blocked_ = false;
  }

  // The engine has stopped: nobody runs or waits any more. The books stay as they are.
  void abandon() {
    running_.clear();
    waiting_.clear();
    suspended_.clear();
    here_.clear();
  }

  // In the order of service. Closes the gaps that finish and suspend have left.
  const std::vector<std::unique_ptr<Sequence>>& running() {
    close_gaps();
    return running_;
  }
  const WaitingSequences& waiting() const { return waiting_; }
  const SuspendedSequences& suspended() const { return suspended_; }
  // Whose memory had to be renewed in the last plan; a slot of -1: there was none, and it waits.
  const std::vector<Sequence*>& displaced() const { return displaced_; }
  SessionBooks& books() { return books_; }
  PrefixTree& cache() { return tree_; }
  const PrefixTree& cache() const { return tree_; }

  // -- the step --
  // Admits whom it can and writes the next step; Sequence::granted says what each computes. A plan without segments:
  // nothing to do.
  Status plan(StepPlan& plan, TimePoint now) {
    plan.clear();
    renew();
    admit(plan, now);
    demands_.clear();
    for (const auto& sequence : running_) demands_.push_back(demand(*sequence, plan));
    share_step(demands_, {options_.step_tokens, options_.chunk_tokens, options_.prefill_tokens}, rotation_, grants_);
    if (!running_.empty()) rotation_ = (rotation_ + static_cast<size_t>(options_.step_tokens)) % running_.size();
    for (size_t i = 0; i < running_.size(); ++i) {
      Sequence& sequence = *running_[i];
      sequence.row = i;
      sequence.granted = grants_[i];
      if (sequence.granted > 0) KAIJU_TRY(write_segment(sequence, plan));
    }
    write_downs(plan);
    for (Promotion& promotion : promoting_) promotion.write(plan);
    return {};
  }
  // Writes the step behind the one that is being run, where only draws are still to be known of that: everybody
  // decodes, and nobody could begin. Its tokens are what that draws. A plan without segments: it has to be planned when
  // that one has run.
  Status plan_next(StepPlan& plan) {
    plan.clear();
    close_gaps();
    const bool admits = !blocked() && !waiting_.empty() && running_.size() < static_cast<size_t>(options_.max_running);
    if (admits || tree_.tiers())
      return {};  // copies into lower tiers have to come before what is written in their place
    for (const auto& sequence : running_) {
      if (sequence->granted != 1 || !sequence->decoding() || sequence->suspended) return {};
      if (!goes_on(*sequence)) continue;
      if (std::ssize(sequence->tokens) >= sequence->leased_positions || sequence->lease.room(tree_, 2) < 2) return {};
    }
    for (const auto& sequence : running_) {
      if (!goes_on(*sequence)) continue;
      sequence->granted_next = 1;
      KAIJU_TRY(write_segment(*sequence, plan, sequence->next + 1, 1, true));
      plan.tokens.push_back(kDrawnToken);
    }
    return {};
  }
  // Copies into lower tiers that are due, into a plan without transfers; commit_transfers when it has run.
  void write_downs(StepPlan& plan) {
    if (tree_.tiers()) tree_.tiers()->write_downs(plan);
  }
  // `failed`: places among the plan's transfers.
  void commit_transfers(const std::vector<int32_t>& failed) {
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
    if (waiting_.empty()) let_go_promoted();
  }
  // The step has run: what was granted is computed.
  void commit(Sequence& sequence) {
    sequence.lease.commit(tree_, sequence.tokens, sequence.granted);
    sequence.next = sequence.lease.next();
    sequence.granted = std::exchange(sequence.granted_next, 0);
  }

  // Recounts every block, see invariants.hpp. O(blocks).
  Status check_ledger() const { return kaiju::check_ledger(tree_, running_, promoting_); }

 private:
  // Takes a sequence out of its list.
  std::unique_ptr<Sequence> take(Sequence& sequence) {
    if (sequence.slot >= 0) return stop(sequence.row);
    if (const auto place = suspended_.find(sequence); place != suspended_.end())
      return std::move(suspended_.extract(place).value());
    sequence.promoted = false;
    let_go_promoted();
    blocked_ = false;
    return std::move(waiting_.extract(waiting_.find(sequence)).value());
  }
  // Computes running sequence `i` no more, for now.
  std::unique_ptr<Sequence> stop(size_t i) {
    std::unique_ptr<Sequence> sequence = std::move(running_[i]);
    has_gaps_ = true;
    std::vector<NodeRef> points = sequence->lease.finish(tree_, sequence->tokens);
    if (sequence->restarted) {
      for (const NodeRef& point : sequence->last_points) tree_.drop_point(point);
      sequence->last_points = std::move(points);
    } else {
      sequence->first_points = std::move(points);
    }
    sequence->restarted = true;
    sequence->counted =
        std::max(sequence->counted, sequence->next < sequence->prompt_count ? sequence->next : INT32_MAX);
    sequence->lease = Lease();
    free_slots_.push_back(sequence->slot);
    sequence->slot = -1;
    sequence->granted = sequence->granted_next = 0;
    sequence->promoted = false;
    blocked_ = false;
    return sequence;
  }
  // Erased one by one, as many as end in a step would each move all behind them.
  void close_gaps() {
    if (!std::exchange(has_gaps_, false)) return;
    std::erase(running_, nullptr);
    for (size_t i = 0; i < running_.size(); ++i) running_[i]->row = i;
  }
  // Puts it to its place among the waiting.
  Sequence* wait(std::unique_ptr<Sequence>&& sequence) {
    const auto place = waiting_.insert(std::move(sequence)).first;
    if (place == waiting_.begin()) blocked_ = false;  // who did not fit is not the first any more
    return place->get();
  }
  std::unique_ptr<Sequence> let_go(std::unique_ptr<Sequence> sequence) {
    here_.erase(sequence->request);
    turn_over(*sequence);
    return sequence;
  }
  void turn_over(Sequence& sequence) {
    if (!sequence.restarted) return;  // it never ran
    std::vector<NodeRef>& points = sequence.first_points;
    points.insert(points.end(), sequence.last_points.begin(), sequence.last_points.end());
    books_.turn_ended(sequence.session, std::move(points));
  }

  // Whose memory was reserved in parts and is used up asks for more at its place in the order of service.
  void renew() {
    displaced_.clear();
    close_gaps();
    for (size_t i = 0; i < running_.size(); ++i) {
      if (std::ssize(running_[i]->tokens) <= running_[i]->leased_positions) continue;
      displaced_.push_back(running_[i].get());
      wait(stop(i));
    }
    close_gaps();
  }
  int32_t positions_to_lease(const Sequence& sequence) const {
    if (options_.reserve_tokens == 0) return sequence.most_positions();
    return static_cast<int32_t>(
        std::min<int64_t>(sequence.most_positions(), std::ssize(sequence.tokens) + options_.reserve_tokens));
  }

  // Blocks that running sequences let go of are free again without anybody's leaving.
  bool blocked() {
    for (const BlockKind kind : kBothKinds)
      if (tree_.pool().busy_count(kind) < busy_when_blocked_[kind]) blocked_ = false;
    return blocked_;
  }

  // In the order of service; nobody overtakes the first. Whoever did not fit is tried again when something has become
  // free. Whom lower tiers can help waits a step for that, with all behind it, for whom the same is done meanwhile.
  void admit(StepPlan& plan, TimePoint now) {
    BlockNeed promised;
    size_t promoting = 0;  // of the waiting, from the first on
    auto next = waiting_.begin();
    while (!blocked() && next != waiting_.end() &&
           running_.size() + promoting < static_cast<size_t>(options_.max_running)) {
      Sequence& sequence = **next;
      if (promote(sequence, promised) || promoting > 0) {
        ++promoting;
        ++next;
        continue;
      }
      if (!start(sequence, plan) && !(let_go_promoted() && start(sequence, plan))) {
        blocked_ = true;
        for (const BlockKind kind : kBothKinds) busy_when_blocked_[kind] = tree_.pool().busy_count(kind);
        break;
      }
      if (!sequence.started()) sequence.admitted = now;
      running_.insert(place_for(running_, sequence), std::move(waiting_.extract(next++).value()));
    }
    let_go_promoted();
  }
  // Begins to bring up what lower tiers have for it. False: it need not wait.
  bool promote(Sequence& sequence, BlockNeed& promised) {
    if (sequence.promoted || !tree_.tiers()) return false;
    Promotion promotion;
    const Promotion::Outcome outcome = promotion.begin(tree_, lease_request(sequence), promised);
    if (outcome != Promotion::Outcome::kBegun) return outcome == Promotion::Outcome::kWait;
    sequence.promoted = true;
    sequence.promoted_from_file = promotion.from_file();
    sequence.resident = promotion.resident();
    promoting_.push_back(std::move(promotion));
    return true;
  }
  // What was brought up is held until those it is for could start; from then on it is cached like everything else.
  bool let_go_promoted() {
    for (Promotion& promotion : promoted_) promotion.let_go(tree_);
    const bool any = !promoted_.empty();
    promoted_.clear();
    return any;
  }

  LeaseRequest lease_request(Sequence& sequence) {
    LeaseRequest request;
    request.prompt = sequence.tokens;
    request.most_positions = sequence.leased_positions = positions_to_lease(sequence);
    request.chunk_tokens = options_.chunk_tokens;
    request.regions = books_.regions(sequence.session, sequence.scope);
    request.owner = sequence.session;
    request.counted_from = sequence.counted;
    return request;
  }
  // Holds what the prompt begins with, and every block the request may ever need, or nothing.
  bool start(Sequence& sequence, StepPlan& plan) {
    LeaseRequest request = lease_request(sequence);
    request.ticket = last_ticket_ = last_ticket_ % INT32_MAX + 1;
    const EditSink sink = {&plan, free_slots_.back()};
    for (const Reuse reuse : {Reuse::kAll, Reuse::kWholeBlocks, Reuse::kGlobalOnly, Reuse::kNothing}) {
      if (reuse >= Reuse::kGlobalOnly && !running_.empty()) return false;  // better wait than compute again
      if (sequence.lease.start(tree_, request, reuse, sink) != Lease::Outcome::kStarted) continue;
      sequence.slot = free_slots_.back();
      free_slots_.pop_back();
      sequence.next = sequence.lease.next();
      sequence.counts.prompt_tokens = sequence.prompt_count;
      if (!sequence.restarted) sequence.counts.cached_tokens = sequence.next;
      if (sequence.promoted)
        (sequence.promoted_from_file ? tree_.stats().hit_file : tree_.stats().hit_host) +=
            static_cast<uint64_t>(std::max(0, sequence.next - std::max(sequence.resident, sequence.counted)));
      return true;
    }
    return false;
  }

  Demand demand(Sequence& sequence, StepPlan& plan) {
    sequence.lease.prepare(tree_, {&plan, sequence.slot});
    if (!sequence.restarted) sequence.counts.cached_tokens += sequence.lease.next() - sequence.next;
    sequence.next = sequence.lease.next();
    const int32_t wanted = std::min(sequence.remaining(), options_.chunk_tokens);
    const int32_t tokens = sequence.lease.room(tree_, wanted);
    return {tokens, sequence.decoding() && tokens > 0};
  }

  // Whether it decodes on behind the step that is being run, for all that is known.
  static bool goes_on(const Sequence& sequence) {
    return !sequence.ended && sequence.counts.generated + 1 < sequence.max_tokens;
  }

  Status write_segment(Sequence& sequence, StepPlan& plan) {
    const int32_t end = sequence.next + sequence.granted;
    const bool sample = end == static_cast<int32_t>(sequence.tokens.size()) && sequence.max_tokens > 0;
    KAIJU_TRY(write_segment(sequence, plan, sequence.next, sequence.granted, sample));
    plan.tokens.insert(plan.tokens.end(), sequence.tokens.begin() + sequence.next, sequence.tokens.begin() + end);
    return {};
  }
  Status write_segment(Sequence& sequence, StepPlan& plan, int32_t position, int32_t count, bool sample) {
    Lease& lease = sequence.lease;
    const EditSink sink = {&plan, sequence.slot};
    const int32_t end = position + count;
    if (!lease.extend(tree_, end, sink))
      return internal_error("cache ledger: request " + std::to_string(sequence.request) +
                            " was promised too few blocks for position " + std::to_string(end - 1));
    if (!lease.bound()) {
      plan.starts.push_back(
          {sequence.slot, sequence.sampling, {sequence.tokens.begin(), sequence.tokens.begin() + sequence.next}});
      lease.bind(sink);
    }
    Segment segment;
    segment.slot = sequence.slot;
    segment.position = position;
    segment.first_token = static_cast<int32_t>(plan.tokens.size());
    segment.token_count = count;
    segment.sample = sample;
    segment.top_logprobs = segment.sample ? sequence.top_logprobs : 0;
    segment.scores = segment.sample && sequence.scores;
    segment.write_from = lease.write_from();
    plan.segments.push_back(segment);
    return {};
  }

  ExecutorInfo info_;
  SchedulerOptions options_;
  PrefixTree tree_;
  SessionBooks books_;
  WaitingSequences waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;  // in the order of service (policy.hpp)
  SuspendedSequences suspended_;
  std::unordered_map<RequestId, Sequence*> here_;  // all of them
  bool has_gaps_ = false;                          // among the running
  uint64_t last_set_aside_ = 0;
  std::vector<Sequence*> displaced_;  // by the last plan
  std::vector<Promotion> promoting_;  // in the last plan
  std::vector<Promotion> promoted_;   // by the one before
  std::vector<int32_t> free_slots_;
  bool blocked_ = false;  // the oldest did not fit, and nothing has become free since
  PerKind<int32_t> busy_when_blocked_;
  int32_t last_ticket_ = 0;
  size_t rotation_ = 0;
  std::vector<Demand> demands_;
  std::vector<int32_t> grants_;
};

}  // namespace kaiju
