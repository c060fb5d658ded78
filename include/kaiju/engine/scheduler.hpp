// Scheduler: who runs, and what the next step computes. Owns the block bookkeeping; writes StepPlans; knows no text, no events, no threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kaiju/cache/table.hpp"
#include "kaiju/engine/sequence.hpp"
#include "kaiju/engine/session.hpp"
#include "kaiju/step/plan.hpp"

namespace kaiju {

// What one running sequence could compute now: one token when it decodes, else the rest of its prompt.
struct Demand {
  int32_t tokens = 0;
  bool decode = false;
};

// Shares a step's tokens out. Decode rows come first, one token each, starting with row `first` so that a budget below the number of rows
// still serves all in turn; then prefill, oldest first, at most `chunk` each. grants[i] may be 0.
inline void share_step(const std::vector<Demand>& demands, int32_t budget, int32_t chunk, size_t first, std::vector<int32_t>& grants) {
  grants.assign(demands.size(), 0);
  for (size_t n = 0; n < demands.size() && budget > 0; ++n) {
    const size_t i = (first + n) % demands.size();
    if (!demands[i].decode) continue;
    grants[i] = 1;
    --budget;
  }
  for (size_t i = 0; i < demands.size() && budget > 0; ++i) {
    if (demands[i].decode) continue;
    grants[i] = std::min({demands[i].tokens, chunk, budget});
    budget -= grants[i];
  }
}

struct SchedulerOptions {
  int32_t step_tokens = 0;
  int32_t chunk_tokens = 0;
  int32_t max_running = 0;
};

// One thread at a time.
class Scheduler {
 public:
  Scheduler(const Facts& facts, const SchedulerOptions& options) : facts_(facts), options_(options), cache_(facts), caches_(cache_) {
    if (facts.window > 0) {
      // A pool that holds a window and little more wants small chunks rather than refusals.
      const int64_t room = int64_t{facts.block_count[1]} * kBlockTokens - facts.window - kWindowSlack;
      options_.chunk_tokens = static_cast<int32_t>(std::clamp<int64_t>(room, 1, options_.chunk_tokens));
    }
    for (int32_t slot = facts.slot_count - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  }
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // kOutOfMemory, with the numbers, when a sequence of this size could not run even alone. Safe from any thread.
  Status check_fits(int32_t prompt_tokens, int32_t max_tokens) const {
    const int32_t positions = prompt_tokens + std::max(0, max_tokens - 1);
    const int32_t need[kBlockKinds] = {blocks_for(positions), std::min(blocks_for(positions), window_blocks(positions))};
    for (const BlockKind kind : kBothKinds) {
      const int32_t blocks = need[static_cast<int>(kind)], total = facts_.block_count[static_cast<int>(kind)];
      if (cache_.uses(kind) && blocks > total)
        return {StatusCode::kOutOfMemory, std::to_string(prompt_tokens) + " prompt tokens and " + std::to_string(max_tokens) +
                                              " to generate need " + std::to_string(blocks) + " " + name(kind) + " blocks of " +
                                              std::to_string(kBlockTokens) + " tokens; the cache has " + std::to_string(total) +
                                              ": ask for fewer tokens or give the engine more memory"};
    }
    return {};
  }

  // -- who is here --
  void add(std::unique_ptr<Sequence> sequence) {
    caches_.touch(sequence->session);
    waiting_.push_back(std::move(sequence));
  }
  // Takes a sequence out, wherever it is; null when unknown. Its KV stays with its session.
  std::unique_ptr<Sequence> remove(RequestId request) {
    for (size_t i = 0; i < waiting_.size(); ++i)
      if (waiting_[i]->request == request) {
        std::unique_ptr<Sequence> sequence = std::move(waiting_[i]);
        waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
        blocked_ = false;
        return sequence;
      }
    for (size_t i = 0; i < running_.size(); ++i)
      if (running_[i]->request == request) return finish(i);
    return nullptr;
  }
  // Takes running sequence `i` out; those after it move down.
  std::unique_ptr<Sequence> finish(size_t i) {
    std::unique_ptr<Sequence> sequence = std::move(running_[i]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    SessionCache& record = *sequence->cache;
    record.tables.unreserve(cache_);
    int32_t written = 0;
    for (const BlockKind kind : kBothKinds)
      if (cache_.uses(kind)) written = std::max(written, record.tables.written(kind));
    record.tokens.assign(sequence->tokens.begin(), sequence->tokens.begin() + written);
    caches_.stop(record);
    free_slots_.push_back(sequence->slot);
    sequence->cache = nullptr;
    sequence->slot = -1;
    blocked_ = false;
    return sequence;
  }
  void fork(SessionId parent, SessionId child, int32_t length) { caches_.fork(parent, child, length); }
  // Forgets an idle session's KV.
  void drop(SessionId session) {
    caches_.drop(session);
    blocked_ = false;
  }

  // The engine has stopped: nobody runs or waits any more. The books stay as they are.
  void abandon() {
    running_.clear();
    waiting_.clear();
  }

  const std::vector<std::unique_ptr<Sequence>>& running() const { return running_; }
  const std::deque<std::unique_ptr<Sequence>>& waiting() const { return waiting_; }
  const Cache& cache() const { return cache_; }
  const SessionCaches& caches() const { return caches_; }
  uint64_t sessions_dropped() const { return sessions_dropped_; }
  uint64_t tokens_from_cache() const { return tokens_from_cache_; }

  // -- the step --
  // Admits whom it can and writes the next step; Sequence::granted says what each computes. A plan without segments: nothing to do.
  Status plan(StepPlan& plan, Clock::time_point now) {
    plan.clear();
    admit(plan, now);
    demands_.clear();
    for (const auto& sequence : running_) demands_.push_back({sequence->remaining(), sequence->decoding()});
    share_step(demands_, options_.step_tokens, options_.chunk_tokens, rotation_, grants_);
    if (!running_.empty()) rotation_ = (rotation_ + static_cast<size_t>(options_.step_tokens)) % running_.size();
    for (size_t i = 0; i < running_.size(); ++i) {
      Sequence& sequence = *running_[i];
      sequence.granted = grants_[i];
      if (sequence.granted > 0) KAIJU_TRY(write_segment(sequence, plan));
    }
    return {};
  }
  // The step has run: what was granted is computed.
  static void commit(Sequence& sequence) {
    sequence.next += sequence.granted;
    sequence.granted = 0;
    sequence.cache->tables.set_written(sequence.next);
  }

  // Recounts all references and promises. O(blocks).
  Status check_ledger() const {
    for (const BlockKind kind : kBothKinds) {
      const BlockPool& pool = cache_.pool(kind);
      KAIJU_TRY(pool.check(name(kind)));
      std::vector<int32_t> references(static_cast<size_t>(pool.total()), 0);
      int32_t promised = 0;
      for (const auto& [session, record] : caches_.records()) {
        promised += record.tables.credit(kind);
        if (!record.running && record.tables.credit(kind) != 0)
          return pool.broken(name(kind), "idle session " + std::to_string(session) + " holds promises");
        for (const BlockId block : record.tables.blocks(kind))
          if (block != kNoBlock) ++references[static_cast<size_t>(block)];
        if (record.running && record.tables.tail_is_shared(cache_, kind))
          return pool.broken(name(kind), "session " + std::to_string(session) + " would write into a shared block");
      }
      for (BlockId block = 0; block < pool.total(); ++block)
        if (references[static_cast<size_t>(block)] != pool.references(block))
          return pool.broken(name(kind), "block " + std::to_string(block) + " counts " + std::to_string(pool.references(block)) +
                                             " references, tables hold " + std::to_string(references[static_cast<size_t>(block)]));
      if (promised != pool.reserved()) return pool.broken(name(kind), "sequences hold " + std::to_string(promised) + " promises");
    }
    return {};
  }

 private:
  // Positions, beyond window and chunk, whose window blocks a running sequence may hold: 63 lost at either edge of the window and at the
  // end of the chunk.
  static constexpr int32_t kWindowSlack = 3 * (kBlockTokens - 1);
  // Positions before the end of the prompt to which a session can return without computing its window again.
  static constexpr int32_t kReturnTokens = 4 * kBlockTokens;

  static const char* name(BlockKind kind) { return kind == BlockKind::kGlobal ? "global" : "window"; }

  // Window blocks that a sequence of `positions` holds at most at once.
  int32_t window_blocks(int32_t positions) const {
    const int64_t chunk = std::min(positions, options_.chunk_tokens);
    return static_cast<int32_t>((chunk + facts_.window + kWindowSlack) / kBlockTokens);
  }

  // The oldest first; nobody overtakes it. Whoever did not fit is tried again when something has become free.
  void admit(StepPlan& plan, Clock::time_point now) {
    while (!blocked_ && !waiting_.empty() && static_cast<int32_t>(running_.size()) < options_.max_running) {
      running_.reserve(running_.size() + 1);
      Sequence& sequence = *waiting_.front();
      if (!make_room(sequence)) {
        blocked_ = true;
        return;
      }
      start(sequence, plan);
      sequence.admitted = now;
      running_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
  }

  // Keeps of the session's KV what the prompt begins with, and reserves every block the request may ever need, or none.
  bool make_room(Sequence& sequence) {
    SessionCache& record = caches_.touch(sequence.session);
    Tables& tables = record.tables;
    const int32_t common = record.common_prefix(sequence.tokens);
    tables.truncate(cache_, BlockKind::kGlobal, common);
    // A prompt found whole still computes its last token: that is what the first draw needs.
    sequence.next = tables.resume_point(cache_, std::min(common, sequence.prompt_count - 1));
    tables.truncate(cache_, BlockKind::kWindow, sequence.next);
    record.tokens.resize(static_cast<size_t>(common));
    sequence.write_from = common;

    const KeepRange near_turn = {std::max(sequence.next, sequence.prompt_count - 1 - kReturnTokens), sequence.prompt_count - 1};
    for (const KeepRange& keep : {near_turn, KeepRange{}}) {
      sequence.keep = keep;
      tables.review();
      tables.release(cache_, sequence.next, keep, false, {});
      if (reserve(sequence, tables)) return true;
      if (!running_.empty() && !could_fit(sequence, tables)) continue;
      while (caches_.drop_oldest(sequence.session)) {
        ++sessions_dropped_;
        if (reserve(sequence, tables)) return true;
      }
    }
    return false;
  }

  struct Need {
    int32_t blocks[kBlockKinds];
  };
  // Blocks still to be taken, at most, counting those that come back meanwhile (Tables::release).
  Need need(const Sequence& sequence, const Tables& tables) const {
    const int32_t total = blocks_for(sequence.most_positions());
    Need need{};
    for (const BlockKind kind : kBothKinds) {
      if (!cache_.uses(kind)) continue;
      int32_t& count = need.blocks[static_cast<int>(kind)];
      count = total - static_cast<int32_t>(tables.blocks(kind).size()) + (tables.tail_is_shared(cache_, kind) ? 1 : 0);
      if (kind == BlockKind::kWindow)
        count = std::min(count, std::max(0, window_blocks(sequence.most_positions()) + sequence.keep.block_count(cache_) -
                                                tables.own_count(cache_, kind)));
    }
    return need;
  }
  bool reserve(const Sequence& sequence, Tables& tables) { return tables.reserve(cache_, need(sequence, tables).blocks); }
  bool could_fit(const Sequence& sequence, const Tables& tables) const {
    const Need needed = need(sequence, tables);
    for (const BlockKind kind : kBothKinds)
      if (needed.blocks[static_cast<int>(kind)] > cache_.pool(kind).available() + caches_.droppable(kind, sequence.session)) return false;
    return true;
  }

  void start(Sequence& sequence, StepPlan& plan) {
    SessionCache& record = caches_.touch(sequence.session);
    sequence.slot = free_slots_.back();
    const EditSink sink = {&plan, sequence.slot};
    plan.starts.push_back({sequence.slot, sequence.sampling, {sequence.tokens.begin(), sequence.tokens.begin() + sequence.next}});
    for (const BlockKind kind : kBothKinds) record.tables.own_tail(cache_, kind, sink);
    record.tables.bind(sink);
    free_slots_.pop_back();
    caches_.start(record);
    sequence.cache = &record;
    sequence.counts.prompt_tokens = sequence.prompt_count;
    sequence.counts.cached_tokens = sequence.next;
    tokens_from_cache_ += static_cast<uint64_t>(sequence.next);
  }

  Status write_segment(Sequence& sequence, StepPlan& plan) {
    Tables& tables = sequence.cache->tables;
    const EditSink sink = {&plan, sequence.slot};
    const int32_t end = sequence.next + sequence.granted;
    tables.release(cache_, sequence.next, sequence.keep, true, sink);
    if (!tables.extend(cache_, end, sink))
      return internal_error("cache ledger: request " + std::to_string(sequence.request) + " was promised too few blocks for position " +
                            std::to_string(end - 1));
    Segment segment;
    segment.slot = sequence.slot;
    segment.position = sequence.next;
    segment.first_token = static_cast<int32_t>(plan.tokens.size());
    segment.token_count = sequence.granted;
    segment.sample = end == static_cast<int32_t>(sequence.tokens.size()) && sequence.max_tokens > 0;
    segment.top_logprobs = segment.sample ? sequence.top_logprobs : 0;
    segment.write_from = sequence.write_from;
    plan.segments.push_back(segment);
    plan.tokens.insert(plan.tokens.end(), sequence.tokens.begin() + sequence.next, sequence.tokens.begin() + end);
    return {};
  }

  Facts facts_;
  SchedulerOptions options_;
  Cache cache_;
  SessionCaches caches_;
  std::deque<std::unique_ptr<Sequence>> waiting_;   // oldest first
  std::vector<std::unique_ptr<Sequence>> running_;  // in order of admission
  std::vector<int32_t> free_slots_;
  bool blocked_ = false;  // the oldest did not fit, and nothing has become free since
  size_t rotation_ = 0;
  uint64_t sessions_dropped_ = 0;
  uint64_t tokens_from_cache_ = 0;
  std::vector<Demand> demands_;
  std::vector<int32_t> grants_;
};

}  // namespace kaiju
