// Scheduler: which sequences run, and what the next step computes. Owns the sequences and the cache's books; writes
// StepPlans; knows no text, no events, no threads. Its parts: who is here (scheduler_members.hpp), who starts
// (scheduler_admission.hpp), what a step computes (scheduler_plan.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kaiju/cache/lease.hpp"
#include "kaiju/cache/promotion.hpp"
#include "kaiju/engine/detail/invariants.hpp"
#include "kaiju/engine/detail/policy.hpp"
#include "kaiju/engine/detail/prefetch.hpp"
#include "kaiju/engine/detail/sequence.hpp"
#include "kaiju/engine/detail/session.hpp"
#include "kaiju/engine/detail/step_places.hpp"
#include "kaiju/engine/detail/step_shares.hpp"
#include "kaiju/engine/detail/waiting_queue.hpp"
#include "kaiju/step/plan.hpp"

namespace kaiju {

// One thread at a time.
class Scheduler {
 public:
  // `limits`: none is 0 but reserve_tokens.
  Scheduler(const ExecutorInfo& info, const StepLimits& limits, const CacheOptions& cache)
      : info_(info), limits_(limits), tree_(info, cache), books_(tree_), places_(limits.max_running) {
    if (info.window > 0) {
      // Memory for a window and little more wants small chunks rather than refusals.
      const int64_t room = int64_t{info.block_count[1]} * kBlockTokens - info.window - Lease::kWindowSlack;
      limits_.chunk_tokens = static_cast<int32_t>(std::clamp<int64_t>(room, 1, limits_.chunk_tokens));
    }
    running_.reserve(static_cast<size_t>(limits.max_running));
    for (int32_t slot = info.slot_count - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  }
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // kOutOfMemory, with the numbers, when a sequence of this size could not run even alone. Safe from any thread.
  Status check_fits(int32_t prompt_tokens, int32_t max_tokens) const;

  const StepLimits& limits() const { return limits_; }
  // The bytes of blocks that a request of the whole context needs. Safe from any thread.
  int64_t largest_bytes() const;

  // -- shares: scheduler_shares.hpp --
  void set_share(ShareOf of, const std::string& name, const ShareLimits& limits);
  ShareUsage usage(ShareId share) const;

  // -- who is here: scheduler_members.hpp --
  // Takes a sequence of its request, whose `sequences` has a place for it. Taken only when all went well: a sequence
  // that memory had no place for stays with the caller.
  void add(std::unique_ptr<Sequence>&& sequence);
  // Null when unknown.
  Request* find(RequestId request) const;
  // Takes a sequence out for good, wherever it is. Its KV stays with its session.
  std::unique_ptr<Sequence> remove(Sequence& sequence);
  // Takes running sequence `i` out for good. Its place stays, empty, until running() is called again.
  std::unique_ptr<Sequence> finish(size_t i) { return leave(stop(i), SequenceState::kEnded); }
  // Sets a sequence aside until resume. Its KV stays with its session for as long as others do not need the room.
  void suspend(Sequence& sequence);
  // Back to its place among the waiting.
  void resume(Sequence& sequence);
  // Cuts a sequence back to its first `count` tokens. One that has a slot gives it up and waits to start again.
  void cut(Sequence& sequence, int32_t count);
  // Moves a sequence to another state; a transition that the table lacks is kept as fault().
  void move(Sequence& sequence, SequenceState to) {
    if (const Status allowed = check_transition(sequence.state, to); !allowed.ok() && fault_.ok()) fault_ = allowed;
    sequence.state = to;
  }
  // The first transition that was not allowed; ok without one.
  const Status& fault() const { return fault_; }

  void fork(SessionId parent, SessionId child) { books_.fork(parent, child); }
  // A session is gone. What only it could find goes too.
  void close(SessionId session) {
    books_.close(session);
    blocked_ = false;
  }
  // Every running sequence gives up its slot, and waits to start again from its tokens.
  void restart_running();
  // Takes a sequence out for good, like remove, and forgets its resume points: nobody will continue it.
  void discard(Sequence& sequence);
  // A sequence gives up its slot, if it has one, and forgets its resume points. It may go on with other tokens.
  void give_up(Sequence& sequence);
  // The engine has stopped: nothing runs or waits any more. The books stay as they are.
  void abandon();

  // In the order of service. Closes the gaps that finish and suspend have left.
  const std::vector<std::unique_ptr<Sequence>>& running() {
    close_gaps();
    return running_;
  }
  // Whether a running sequence has something to compute that no call of the host has to come for.
  bool computes() const {
    return std::any_of(running_.begin(), running_.end(), [](const auto& sequence) {
      return sequence && (!sequence->live() || sequence->granted > 0 || sequence->ready() > 0);
    });
  }
  // Whether a sequence has had a slot and has not ended.
  bool has_started() const;
  // No sequence that has not started is admitted while this holds.
  void hold_new(bool hold) { holds_new_ = hold; }
  // Whether a waiting sequence may be admitted once there is room.
  bool has_waiting() const { return holds_new_ ? first_waiting() != nullptr : !waiting_.empty(); }
  const WaitingQueue& waiting() const { return waiting_; }
  const SuspendedSequences& suspended() const { return suspended_; }
  size_t suspended_requests() const { return suspended_requests_; }
  // Sequences whose memory had to be renewed in the last plan; those without a slot found none, and wait.
  const std::vector<Sequence*>& displaced() const { return displaced_; }
  SessionBooks& books() { return books_; }
  PrefixTree& cache() { return tree_; }
  const PrefixTree& cache() const { return tree_; }

  // -- prefetches: scheduler_prefetch.hpp --
  // Brings up what lower tiers have of a history, in steps where nothing has to wait for that.
  void add(Prefetch prefetch) { prefetches_.push_back(std::move(prefetch)); }
  // A session is gone, or its request has come: its prefetches end without more ado.
  void drop_prefetches(SessionId session);
  // At how many of these tokens a request of this scope could resume with what is on the device.
  int32_t cached_tokens(std::span<const int32_t> tokens, const Scope& scope);
  bool has_prefetches() const { return !prefetches_.empty(); }
  // Those that have ended since the last call.
  std::vector<Prefetch> take_prefetched() { return std::exchange(prefetched_, {}); }

  // -- the step: scheduler_plan.hpp --
  // Admits waiting sequences and writes the next step; Sequence::granted says what each computes. A plan without
  // segments: nothing to do.
  Status plan(StepPlan& plan, TimePoint now);
  // Writes the step after the one that is being run, where only that one's samples are unknown: every sequence decodes,
  // and none could begin. Its tokens are what that step samples. Guided sequences are never ahead of their guides. A
  // plan without segments: plan it when that one has run.
  Status plan_next(StepPlan& plan);
  // Copies into lower tiers that are due, into a plan without transfers; commit_transfers when it has run.
  void write_downs(StepPlan& plan) {
    if (tree_.tiers()) tree_.tiers()->write_downs(plan);
  }
  // `failed`: places among the plan's transfers.
  void commit_transfers(const std::vector<int32_t>& failed);
  // The step has run: `count` of the granted tokens are computed and kept. Fewer than granted: the rest were drafts
  // that the samples did not confirm.
  void commit(Sequence& sequence, int32_t count);

  // Recounts every block, see invariants.hpp. O(blocks).
  Status check_ledger() const { return kaiju::check_ledger(tree_, running_, promoting_); }

 private:
  // -- scheduler_members.hpp --
  std::unique_ptr<Sequence> take(Sequence& sequence);
  std::unique_ptr<Sequence> stop(size_t i);
  Sequence* wait(std::unique_ptr<Sequence>&& sequence);
  std::unique_ptr<Sequence> leave(std::unique_ptr<Sequence> sequence, SequenceState state);
  void close_gaps();
  void drop_points(Sequence& sequence);

  // -- scheduler_admission.hpp --
  void renew();
  int32_t positions_to_lease(const Sequence& sequence) const;
  bool blocked();
  void admit(StepPlan& plan, TimePoint now);
  bool give_way();
  bool promote(Sequence& sequence, BlockNeed& promised);
  bool release_promoted();
  static const Sequence* twin_of(const Sequence& sequence);
  LeaseRequest lease_request(Sequence& sequence);
  bool start(Sequence& sequence, StepPlan& plan);

  // -- scheduler_shares.hpp --
  Sequence* first_waiting(const Sequence* after = nullptr) const;
  void take_share(Request& request);
  bool next_step_fits_shares();

  // -- scheduler_prefetch.hpp --
  int32_t prefetch_blocks(const StepPlan& plan) const;
  void prefetch(StepPlan& plan);
  LeaseRequest prefetch_request(const Prefetch& prefetch, std::span<const int32_t> prompt);
  void end_prefetch(Prefetch& prefetch, const Regions& regions);
  int32_t resumable(const KnownPath& path) const;

  // -- scheduler_plan.hpp --
  Demand demand(Sequence& sequence, StepPlan& plan);
  int32_t usable_drafts(Sequence& sequence) const;
  std::shared_ptr<const TokenGuide> without_forbidden(const Sequence& sequence, int32_t place) const;
  Status write_segment(Sequence& sequence, StepPlan& plan);
  Status write_segment(Sequence& sequence, StepPlan& plan, int32_t position, int32_t count, int32_t sample_count);
  // Whether it decodes on after the step that is being run, for all that is known.
  static bool goes_on(const Sequence& sequence) {
    return sequence.state == SequenceState::kRunning && sequence.counts.generated + 1 < sequence.request->max_tokens;
  }
  // A guided sequence of which the step that is being run has nothing or the last row: the next step has its next row
  // if the host has said what its token may be, and can do without it otherwise.
  static bool is_beside(const Sequence& sequence) {
    return sequence.request->guided && sequence.granted <= 1 && sequence.remaining() == 1;
  }
  static bool joins(const Sequence& sequence) {
    return sequence.granted == 0 && sequence.state == SequenceState::kRunning && sequence.guide;
  }

  ExecutorInfo info_;
  StepLimits limits_;
  PrefixTree tree_;
  SessionBooks books_;
  WaitingQueue waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;  // in the order of service (policy.hpp)
  SuspendedSequences suspended_;
  std::unordered_map<RequestId, std::shared_ptr<Request>> requests_;
  size_t suspended_requests_ = 0;     // with at least one suspended sequence
  bool has_gaps_ = false;             // among the running
  bool holds_new_ = false;            // none begins
  std::vector<Sequence*> displaced_;  // by the last plan
  std::vector<Promotion> promoting_;  // in the last plan
  std::vector<Promotion> promoted_;   // by the one before
  std::deque<Prefetch> prefetches_;   // in their order; the first may have been brought up in part
  std::vector<Prefetch> prefetched_;
  std::vector<int32_t> free_slots_;
  bool blocked_ = false;  // the first of the waiting did not fit, and nothing has become free since
  PerKind<int32_t> busy_when_blocked_;
  int32_t last_ticket_ = 0;
  size_t rotation_ = 0;
  StepPlaces places_;                                          // among the running, by share
  std::vector<StepShare> step_shares_;                         // by share; empty: no share has limits of steps
  std::vector<uint64_t> computed_ = std::vector<uint64_t>(1);  // tokens, by share
  std::vector<Demand> demands_;
  std::vector<int32_t> grants_;
  Status fault_;
};

}  // namespace kaiju

#include "kaiju/engine/detail/scheduler_admission.hpp"
#include "kaiju/engine/detail/scheduler_members.hpp"
#include "kaiju/engine/detail/scheduler_plan.hpp"
#include "kaiju/engine/detail/scheduler_prefetch.hpp"
#include "kaiju/engine/detail/scheduler_shares.hpp"
