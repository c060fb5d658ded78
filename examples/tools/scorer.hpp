// Scorer: runs token sequences through an executor in chunks and returns the logits of every position and, on request,
// the classifier's scores. It plans steps itself, without an engine: a sequence's global blocks are consecutive, and
// its window blocks form a ring that is just long enough.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kaiju/run/executors.hpp"
#include "kaiju/step/executor.hpp"

namespace kaiju::tools {

class Scorer {
 public:
  // rows [count, vocab_size] of sequence 0, in order of position; a nonzero return stops.
  using Rows = std::function<Status(std::span<const float> rows, int64_t position)>;

  explicit Scorer(std::unique_ptr<Executor> executor) : executor_(std::move(executor)) {}

  int32_t vocab_size() const { return executor_->info().vocab_size; }
  int32_t context() const { return executor_->info().context; }
  int32_t label_count() const { return executor_->info().label_count; }

  // From now on with the classifier's scores; of models that have one.
  void ask_for_scores() { scores_ = true; }
  // Within a call of Rows: the classifier's scores of its rows, [count, label_count]; empty where not asked for.
  std::span<const float> scores() const { return result_.scores; }

  // Scores sequences[0] in chunks of at most `chunk` tokens, the first of `first` if that is not 0. The other sequences
  // are strangers that ride in the same steps. kInvalidArgument for a sequence that does not fit the context.
  Status score(const std::vector<std::vector<int32_t>>& sequences, int32_t chunk, const Rows& rows, int32_t first = 0) {
    const ExecutorInfo& info = executor_->info();
    for (const std::vector<int32_t>& sequence : sequences)
      if (sequence.size() > static_cast<size_t>(info.context))
        return invalid_argument(std::to_string(sequence.size()) + " tokens do not fit the model's context of " +
                                std::to_string(info.context));
    int64_t step = first > 0 ? first : chunk;
    for (int64_t position = 0; position < static_cast<int64_t>(sequences[0].size()); position += step, step = chunk) {
      plan_.clear();
      for (size_t s = 0; s < sequences.size(); ++s) {
        const auto left = static_cast<int64_t>(sequences[s].size()) - position;
        if (left > 0)
          add_segment(info, static_cast<int32_t>(s), static_cast<int32_t>(sequences.size()), sequences[s], position,
                      std::min(left, step));
      }
      KAIJU_TRY(executor_->run(plan_, result_));
      KAIJU_TRY(rows(result_.logits, position));
    }
    return {};
  }

 private:
  void add_segment(const ExecutorInfo& info, int32_t slot, int32_t slots, const std::vector<int32_t>& tokens,
                   int64_t position, int64_t count) {
    if (position == 0) plan_.starts.push_back({slot, {}, {}});
    const int64_t first = position == 0 ? 0 : (position - 1) / kBlockTokens + 1,
                  last = (position + count - 1) / kBlockTokens;
    for (int32_t kind = 0; kind < kBlockKinds; ++kind) {
      const int32_t ring = info.block_count[kind] / slots;
      if (ring == 0) continue;
      for (int64_t i = first; i <= last; ++i)
        plan_.table_edits.push_back({slot, static_cast<BlockKind>(kind), static_cast<int32_t>(i),
                                     static_cast<BlockId>(int64_t{slot} * ring + i % ring)});
    }
    Segment segment;
    segment.slot = slot;
    segment.position = static_cast<int32_t>(position);
    segment.first_token = static_cast<int32_t>(plan_.tokens.size());
    segment.token_count = static_cast<int32_t>(count);
    segment.all_logits = slot == 0;
    segment.scores = slot == 0 && scores_;
    plan_.segments.push_back(segment);
    plan_.tokens.insert(plan_.tokens.end(), tokens.begin() + position, tokens.begin() + position + count);
  }

  std::unique_ptr<Executor> executor_;
  StepPlan plan_;
  StepResult result_;
  bool scores_ = false;
};

}  // namespace kaiju::tools
