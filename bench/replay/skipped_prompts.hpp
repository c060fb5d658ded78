// SkippedPrompts: an executor around another one that can skip the computing of prompts. While it skips, the blocks
// that a step would write get copies of blocks that were computed before. So a benchmark may fill a GPU's memory with
// histories which would take an hour to compute: memory, block tables and eviction are real, keys and values are those
// of other tokens. Time does not depend on that; replies do.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "kaiju/step/executor.hpp"

namespace kaiju::replay {

class SkippedPrompts final : public Executor {
 public:
  explicit SkippedPrompts(std::unique_ptr<Executor> inner)
      : inner_(std::move(inner)), tables_(static_cast<size_t>(info().slot_count)) {}

  // From the next step on. Only prompts without replies may run meanwhile, and some prompt must have been computed.
  void skip(bool skips) { skips_ = skips; }

  const ExecutorInfo& info() const override { return inner_->info(); }
  Status run(const StepPlan& plan, StepResult& result) override { return inner_->run(prepare(plan), result); }
  Status start(const StepPlan& plan) override { return inner_->start(prepare(plan)); }
  Status finish(const StepPlan& plan, StepResult& result) override {
    return inner_->finish(skips_ ? skipped_ : plan, result);
  }
  bool runs_beside_host() const override { return inner_->runs_beside_host(); }
  Result<HostMemory> host_memory(size_t bytes, const char* what) override { return inner_->host_memory(bytes, what); }

 private:
  using Table = PerKind<std::vector<BlockId>>;

  // The plan to run in place of one.
  const StepPlan& prepare(const StepPlan& plan) {
    for (const SlotStart& start : plan.starts) tables_[static_cast<size_t>(start.slot)] = {};
    for (const TableEdit& edit : plan.table_edits) {
      std::vector<BlockId>& table = tables_[static_cast<size_t>(edit.slot)][edit.kind];
      if (table.size() <= static_cast<size_t>(edit.index)) table.resize(static_cast<size_t>(edit.index) + 1, kNoBlock);
      table[static_cast<size_t>(edit.index)] = edit.block;
    }
    if (!skips_) {
      remember_written(plan);
      return plan;
    }
    skipped_.clear();
    skipped_.starts = plan.starts;
    skipped_.table_edits = plan.table_edits;
    skipped_.transfers = plan.transfers;
    skipped_.copies = plan.copies;
    for (const Segment& segment : plan.segments)
      for (const BlockKind kind : kBothKinds)
        for_written(segment, kind, [&](BlockId block) { copy_some(kind, block); });
    return skipped_;
  }

  // The blocks of one kind that a segment's rows write.
  template <class Use>
  void for_written(const Segment& segment, BlockKind kind, Use&& use) {
    const int32_t end = segment.position + segment.token_count;
    const int32_t from = kind == BlockKind::kGlobal ? std::max(segment.position, segment.write_from) : segment.position;
    const std::vector<BlockId>& table = tables_[static_cast<size_t>(segment.slot)][kind];
    for (int32_t i = from / kBlockTokens; i * kBlockTokens < end && static_cast<size_t>(i) < table.size(); ++i)
      if (from < end && table[static_cast<size_t>(i)] != kNoBlock) use(table[static_cast<size_t>(i)]);
  }

  void remember_written(const StepPlan& plan) {
    constexpr size_t kMostModels = 256;  // enough that copies are not all alike
    for (const BlockKind kind : kBothKinds)
      for (size_t s = 0; s < plan.segments.size() && models_[kind].size() < kMostModels; ++s)
        for_written(plan.segments[s], kind, [&](BlockId block) { models_[kind].push_back(block); });
  }
  void copy_some(BlockKind kind, BlockId block) {
    if (models_[kind].empty()) return;
    const BlockId from = models_[kind][next_++ % models_[kind].size()];
    if (from != block) skipped_.copies.push_back({kind, from, block, kBlockTokens});
  }

  std::unique_ptr<Executor> inner_;
  std::vector<Table> tables_;             // by slot
  PerKind<std::vector<BlockId>> models_;  // computed blocks
  size_t next_ = 0;
  bool skips_ = false;
  StepPlan skipped_;
};

}  // namespace kaiju::replay
