// Tables: the blocks of one sequence, in both kinds: which positions they hold, growing, cutting, forking, letting go of what left the
// window. Every change an executor must know goes into a StepPlan. BlockPool counts; the engine decides when.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kaiju/cache/blocks.hpp"
#include "kaiju/step/plan.hpp"

namespace kaiju {

// The two pools and what decides which blocks a sequence needs.
class Cache {
 public:
  explicit Cache(const Facts& facts)
      : window_(facts.window),
        has_global_(facts.has_global),
        pools_{BlockPool(facts.has_global ? facts.block_count[0] : 0), BlockPool(facts.window > 0 ? facts.block_count[1] : 0)} {}

  int32_t window() const { return window_; }
  bool uses(BlockKind kind) const { return kind == BlockKind::kGlobal ? has_global_ : window_ > 0; }
  BlockPool& pool(BlockKind kind) { return pools_[static_cast<int>(kind)]; }
  const BlockPool& pool(BlockKind kind) const { return pools_[static_cast<int>(kind)]; }

  // Index of the first window block that a query at `position` or later may see; everything below may go.
  int32_t first_visible(int32_t position) const { return std::max(0, position - window_ + 1) / kBlockTokens; }
  // Same, keeping one block's worth of positions more: so that an undo of up to 64 tokens finds its window whole.
  int32_t first_kept(int32_t position) const { return first_visible(std::max(0, position - kBlockTokens)); }

 private:
  int32_t window_;
  bool has_global_;
  BlockPool pools_[kBlockKinds];
};

// Positions to which a sequence may be cut back without computing its window again: the turn's beginning stays near for a retry or an undo.
struct KeepRange {
  int32_t from = 0;
  int32_t to = -1;  // inclusive; below `from`: nothing is kept

  bool none() const { return to < from; }
  int32_t first_block(const Cache& cache) const { return cache.first_kept(from); }
  int32_t end_block() const { return (to + kBlockTokens - 1) / kBlockTokens; }
  bool needs(const Cache& cache, int32_t index) const { return !none() && index >= first_block(cache) && index < end_block(); }
  int32_t block_count(const Cache& cache) const { return none() ? 0 : std::max(0, end_block() - first_block(cache)); }
};

inline int32_t blocks_for(int32_t positions) { return (positions + kBlockTokens - 1) / kBlockTokens; }

inline constexpr BlockKind kBothKinds[kBlockKinds] = {BlockKind::kGlobal, BlockKind::kWindow};

// Where the edits of one sequence go: its slot in the plan being written. No plan: the sequence is not bound to a slot.
struct EditSink {
  StepPlan* plan = nullptr;
  int32_t slot = 0;

  void edit(BlockKind kind, int32_t index, BlockId block) const {
    if (plan) plan->table_edits.push_back({slot, kind, index, block});
  }
};

// One thread at a time. Holds references and promises of `cache`: call clear before it dies, or the ledger says so.
class Tables {
 public:
  // Positions below this hold KV. Window blocks among them may have been released: see resume_point.
  int32_t written(BlockKind kind) const { return written_[at(kind)]; }
  const std::vector<BlockId>& blocks(BlockKind kind) const { return blocks_[at(kind)]; }
  // Blocks it may still take, promised by reserve.
  int32_t credit(BlockKind kind) const { return credit_[at(kind)]; }

  void set_written(int32_t positions) {
    for (const BlockKind kind : kBothKinds) written_[at(kind)] = std::max(written_[at(kind)], positions);
  }

  // The largest position <= limit from which the next tokens can be computed: all window blocks its queries see are here and written.
  int32_t resume_point(const Cache& cache, int32_t limit) const {
    if (!cache.uses(BlockKind::kWindow)) return std::min(limit, written(BlockKind::kGlobal));
    int32_t position = std::min(limit, written(BlockKind::kWindow));
    if (cache.uses(BlockKind::kGlobal)) position = std::min(position, written(BlockKind::kGlobal));
    const auto& window = blocks(BlockKind::kWindow);
    for (int32_t index = blocks_for(position) - 1; index >= 0 && index >= cache.first_visible(position); --index)
      if (window[static_cast<size_t>(index)] == kNoBlock) position = index * kBlockTokens;
    return position;
  }

  // Forgets everything from `positions` on, in one kind.
  void truncate(Cache& cache, BlockKind kind, int32_t positions) {
    auto& blocks = blocks_[at(kind)];
    const size_t keep = static_cast<size_t>(blocks_for(positions));
    while (blocks.size() > keep) {
      give_back(cache, kind, blocks.back());
      blocks.pop_back();
    }
    written_[at(kind)] = std::min(written_[at(kind)], positions);
    if (kind == BlockKind::kWindow) released_ = std::min(released_, static_cast<int32_t>(blocks.size()));
  }

  // Takes all-or-nothing promises for `count` more blocks of each kind; false when they are not available.
  bool reserve(Cache& cache, const int32_t (&count)[kBlockKinds]) {
    for (const BlockKind kind : kBothKinds)
      if (count[at(kind)] > cache.pool(kind).available()) return false;
    for (const BlockKind kind : kBothKinds) {
      cache.pool(kind).reserve(count[at(kind)]);
      credit_[at(kind)] += count[at(kind)];
    }
    return true;
  }
  // Returns promises that were not needed.
  void unreserve(Cache& cache) {
    for (const BlockKind kind : kBothKinds) {
      cache.pool(kind).unreserve(credit_[at(kind)]);
      credit_[at(kind)] = 0;
    }
  }

  // Whether the block that the next write falls into is half full and someone else's too.
  bool tail_is_shared(const Cache& cache, BlockKind kind) const {
    const int32_t positions = written(kind);
    if (!cache.uses(kind) || positions % kBlockTokens == 0) return false;
    const BlockId tail = blocks(kind)[static_cast<size_t>(positions / kBlockTokens)];
    return tail != kNoBlock && cache.pool(kind).references(tail) > 1;
  }
  // Copy on write of that block; what was written past the cut is not copied. Uses one promise. Before bind.
  void own_tail(Cache& cache, BlockKind kind, const EditSink& sink) {
    if (!tail_is_shared(cache, kind)) return;
    const int32_t positions = written(kind);
    BlockId& tail = blocks_[at(kind)][static_cast<size_t>(positions / kBlockTokens)];
    const BlockId copy = take(cache, kind);
    if (sink.plan) sink.plan->copies.push_back({kind, tail, copy, positions % kBlockTokens});
    cache.pool(kind).drop(tail);
    tail = copy;
  }

  // Writes the whole of both tables into a slot that was just started.
  void bind(const EditSink& sink) const {
    for (const BlockKind kind : kBothKinds)
      for (size_t i = 0; i < blocks(kind).size(); ++i)
        if (blocks(kind)[i] != kNoBlock) sink.edit(kind, static_cast<int32_t>(i), blocks(kind)[i]);
  }

  // Makes room for positions below `end`. Uses promises; false when one was missing, which the ledger excludes.
  bool extend(Cache& cache, int32_t end, const EditSink& sink) {
    for (const BlockKind kind : kBothKinds) {
      if (!cache.uses(kind)) continue;
      auto& blocks = blocks_[at(kind)];
      while (static_cast<int32_t>(blocks.size()) < blocks_for(end)) {
        const BlockId block = take(cache, kind);
        if (block == kNoBlock) return false;
        sink.edit(kind, static_cast<int32_t>(blocks.size()), block);
        blocks.push_back(block);
      }
    }
    return true;
  }

  // Lets go of window blocks that no query at `next` or later can see, but for one block more (first_kept) and for what a return into
  // `keep` needs. A block that becomes free is promised to this sequence again while it runs.
  void release(Cache& cache, int32_t next, const KeepRange& keep, bool running, const EditSink& sink) {
    if (!cache.uses(BlockKind::kWindow)) return;
    auto& blocks = blocks_[at(BlockKind::kWindow)];
    const int32_t end = std::min(static_cast<int32_t>(blocks.size()), cache.first_kept(next));
    for (int32_t index = std::min(released_, end); index < end; ++index) {
      BlockId& block = blocks[static_cast<size_t>(index)];
      if (block == kNoBlock || keep.needs(cache, index)) continue;
      if (give_back(cache, BlockKind::kWindow, block) && running) {
        cache.pool(BlockKind::kWindow).reserve(1);
        ++credit_[at(BlockKind::kWindow)];
      }
      block = kNoBlock;
      sink.edit(BlockKind::kWindow, index, kNoBlock);
    }
    released_ = end;
  }
  // What must be kept has changed: the next release looks at every block again.
  void review() { released_ = 0; }

  // Shares what `parent` holds below `length`.
  void fork(Cache& cache, const Tables& parent, int32_t length) {
    clear(cache);
    for (const BlockKind kind : kBothKinds) {
      const int32_t positions = std::min(length, parent.written(kind));
      const auto& from = parent.blocks(kind);
      blocks_[at(kind)].assign(from.begin(), from.begin() + std::min<std::ptrdiff_t>(blocks_for(positions), std::ssize(from)));
      for (const BlockId block : blocks_[at(kind)])
        if (block != kNoBlock) cache.pool(kind).share(block);
      written_[at(kind)] = positions;
    }
  }

  void clear(Cache& cache) {
    unreserve(cache);
    for (const BlockKind kind : kBothKinds) truncate(cache, kind, 0);
    released_ = 0;
  }

  bool empty() const { return blocks_[0].empty() && blocks_[1].empty(); }
  // Blocks of a kind that are here and nobody else's.
  int32_t own_count(const Cache& cache, BlockKind kind) const {
    return static_cast<int32_t>(std::count_if(blocks(kind).begin(), blocks(kind).end(),
                                              [&](BlockId block) { return block != kNoBlock && cache.pool(kind).references(block) == 1; }));
  }

 private:
  static size_t at(BlockKind kind) { return static_cast<size_t>(kind); }

  BlockId take(Cache& cache, BlockKind kind) {
    if (credit_[at(kind)] == 0) return kNoBlock;
    --credit_[at(kind)];
    cache.pool(kind).unreserve(1);
    return cache.pool(kind).take();
  }
  static bool give_back(Cache& cache, BlockKind kind, BlockId block) { return block != kNoBlock && cache.pool(kind).drop(block); }

  std::vector<BlockId> blocks_[kBlockKinds];
  int32_t written_[kBlockKinds] = {0, 0};
  int32_t credit_[kBlockKinds] = {0, 0};
  int32_t released_ = 0;  // window blocks below this have been looked at
};

}  // namespace kaiju
