// ExecutorFor: runs step plans on a backend that computes in host memory. All memory is taken at creation; a step allocates only what its
// result returns.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kaiju/base/buffer.hpp"
#include "kaiju/base/float_state.hpp"
#include "kaiju/model/forward.hpp"
#include "kaiju/step/executor.hpp"

namespace kaiju {

template <Backend B>
class ExecutorFor final : public Executor {
 public:
  struct Sizes {
    int32_t slot_count = 1;    // live sequences
    int32_t step_tokens = 64;  // most tokens of one plan
    int32_t block_count[kBlockKinds] = {0, 0};
  };

  static Result<std::unique_ptr<Executor>> create(std::unique_ptr<B> backend, Weights weights, const Sizes& sizes) {
    auto executor = std::unique_ptr<ExecutorFor>(new ExecutorFor(std::move(backend), std::move(weights)));
    KAIJU_TRY(executor->take_memory(sizes));
    return std::unique_ptr<Executor>(std::move(executor));
  }

  const Facts& facts() const override { return facts_; }

  Status run(const StepPlan& plan, StepResult& result) override {
    const FloatState float_state;
    result.clear();
    for (const SlotStart& start : plan.starts) KAIJU_TRY(begin_slot(start));
    for (const TableEdit& edit : plan.table_edits) KAIJU_TRY(edit_table(edit));
    for (const BlockCopy& copy : plan.copies) KAIJU_TRY(copy_block(copy));
    if (plan.segments.empty()) return {};
    KAIJU_TRY(make_batch(plan));

    const Batch batch{row_count_, {plan.tokens.data(), static_cast<size_t>(row_count_)}, {positions_.data(), static_cast<size_t>(row_count_)}, segments_, row_segment_};
    forward(*backend_, weights_, kv_slots_, batch, workspace_);
    return_logits(plan, result);
    sample(plan, result);
    return {};
  }

 private:
  // Sampling state of a slot.
  struct Slot {
    SamplingSpec sampling;
    uint8_t* seen = nullptr;                       // [vocab_size] tokens of the sequence so far
    std::vector<BlockId> table[kBlockKinds];       // [context / 64]
  };

  ExecutorFor(std::unique_ptr<B> backend, Weights weights) : backend_(std::move(backend)), weights_(std::move(weights)) {}

  Status take_memory(const Sizes& sizes) {
    const ModelConfig& config = weights_.config;
    facts_.vocab_size = config.vocab_size;
    facts_.context = config.context;
    facts_.has_global = false;
    facts_.slot_count = sizes.slot_count;
    facts_.step_tokens = sizes.step_tokens;
    lay_out_cache(sizes);
    for (int32_t kind = 0; kind < kBlockKinds; ++kind) {
      KAIJU_TRY(take(cache_[kind], static_cast<size_t>(facts_.block_bytes[kind] * facts_.block_count[kind]), "the KV cache"));
    }
    for (size_t s = 0; s < kv_slots_.size(); ++s) kv_slots_[s].pool = cache_[static_cast<int32_t>(kv_slots_[s].kind)].data();

    const auto rows = static_cast<size_t>(sizes.step_tokens);
    const auto width = static_cast<size_t>(std::max(config.d_model, config.query_width()));
    KAIJU_TRY(take(x_, rows * config.d_model, "the residual stream"));
    KAIJU_TRY(take(a_, rows * width, "the activations"));
    KAIJU_TRY(take(q_, rows * config.query_width(), "the queries"));
    KAIJU_TRY(take(queries_, rows * config.query_width(), "the quantised queries"));
    KAIJU_TRY(take(k_, rows * config.kv_width(), "the keys"));
    KAIJU_TRY(take(v_, rows * config.kv_width(), "the values"));
    KAIJU_TRY(take(h_, rows * config.d_ff, "the feed-forward activations"));
    KAIJU_TRY(take(last_x_, static_cast<size_t>(sizes.slot_count) * config.d_model, "the sampled rows"));
    KAIJU_TRY(take(last_logits_, static_cast<size_t>(sizes.slot_count) * config.vocab_size, "the logits"));
    KAIJU_TRY(take(seen_, static_cast<size_t>(sizes.slot_count) * config.vocab_size, "the seen tokens"));
    angles_.resize(weights_.rope.size());
    for (auto& angles : angles_) KAIJU_TRY(take(angles, rows * (config.head_dim / 2), "the rotary angles"));

    workspace_ = {x_.data(), a_.data(), q_.data(), queries_.data(), k_.data(), v_.data(), h_.data(), {}};
    for (auto& angles : angles_) workspace_.angles.push_back(angles.data());
    slots_.resize(static_cast<size_t>(sizes.slot_count));
    for (size_t s = 0; s < slots_.size(); ++s) {
      slots_[s].seen = seen_.data() + s * config.vocab_size;
      for (auto& table : slots_[s].table) table.assign(static_cast<size_t>((config.context + kBlockTokens - 1) / kBlockTokens), kNoBlock);
    }
    positions_.resize(rows);
    row_segment_.resize(rows);
    return {};
  }

  // Gives each KV slot its place within the blocks of its kind.
  void lay_out_cache(const Sizes& sizes) {
    const ModelConfig& config = weights_.config;
    const int64_t slot_bytes = int64_t{2} * kBlockTokens * config.kv_width();
    for (int32_t s = 0; s < config.slot_count; ++s) {
      const LayerConfig& owner = config.layers[config.owner_of(s)];
      const bool global = owner.kind == LayerKind::kGlobal;
      const BlockKind kind = global ? BlockKind::kGlobal : BlockKind::kWindow;
      int64_t& block_bytes = facts_.block_bytes[static_cast<int32_t>(kind)];
      kv_slots_.push_back({nullptr, 0, block_bytes, config.n_kv_heads, config.head_dim, kind, global ? 0 : owner.window});
      block_bytes += slot_bytes;
      facts_.has_global |= global;
      if (!global) facts_.window = std::max(facts_.window, owner.window);
    }
    for (KvSlot& slot : kv_slots_) slot.block_bytes = facts_.block_bytes[static_cast<int32_t>(slot.kind)];
    for (int32_t kind = 0; kind < kBlockKinds; ++kind) facts_.block_count[kind] = facts_.block_bytes[kind] > 0 ? sizes.block_count[kind] : 0;
  }

  template <class T>
  static Status take(Buffer<T>& buffer, size_t count, const char* what) {
    Result<Buffer<T>> made = Buffer<T>::make(count, what);
    if (!made.ok()) return made.status();
    buffer = std::move(made).value();
    return {};
  }

  Status begin_slot(const SlotStart& start) {
    if (!is_slot(start.slot)) return internal_error("a plan starts slot " + std::to_string(start.slot) + ", which does not exist");
    Slot& slot = slots_[start.slot];
    slot.sampling = start.sampling;
    for (auto& table : slot.table) std::fill(table.begin(), table.end(), kNoBlock);
    std::memset(slot.seen, 0, static_cast<size_t>(facts_.vocab_size));
    for (const int32_t token : start.history)
      if (is_token(token)) slot.seen[token] = 1;
    return {};
  }

  Status edit_table(const TableEdit& edit) {
    const auto kind = static_cast<int32_t>(edit.kind);
    if (!is_slot(edit.slot) || edit.index < 0 || edit.index >= static_cast<int32_t>(slots_[edit.slot].table[kind].size()) || edit.block < kNoBlock ||
        edit.block >= facts_.block_count[kind])
      return internal_error("a plan edits a block table out of range: slot " + std::to_string(edit.slot) + ", index " + std::to_string(edit.index) + ", block " +
                            std::to_string(edit.block));
    slots_[edit.slot].table[kind][edit.index] = edit.block;
    return {};
  }

  // The whole block is copied: how tokens lie within it is the backend's affair, and what lies past the copied tokens is never visible.
  Status copy_block(const BlockCopy& copy) {
    const auto kind = static_cast<int32_t>(copy.kind);
    const auto in_pool = [&](BlockId block) { return block >= 0 && block < facts_.block_count[kind]; };
    if (!in_pool(copy.from) || !in_pool(copy.to)) return internal_error("a plan copies a block out of range");
    const int64_t bytes = facts_.block_bytes[kind];
    std::memcpy(cache_[kind].data() + copy.to * bytes, cache_[kind].data() + copy.from * bytes, static_cast<size_t>(bytes));
    return {};
  }

  // Turns the plan's segments into rows, checking everything that would otherwise be a wild access.
  Status make_batch(const StepPlan& plan) {
    row_count_ = 0;
    segments_.clear();
    for (const Segment& segment : plan.segments) {
      if (!is_slot(segment.slot)) return internal_error("a plan names slot " + std::to_string(segment.slot) + ", which does not exist");
      if (segment.token_count < 1 || segment.first_token != row_count_ || segment.first_token + segment.token_count > static_cast<int32_t>(plan.tokens.size()))
        return internal_error("a plan's segments do not follow one another");
      if (row_count_ + segment.token_count > facts_.step_tokens)
        return internal_error("a plan carries more than the " + std::to_string(facts_.step_tokens) + " tokens a step was sized for");
      if (segment.position < 0 || segment.position + segment.token_count > facts_.context) return internal_error("a plan runs past the context");
      Slot& slot = slots_[segment.slot];
      KAIJU_TRY(check_blocks(slot, segment));
      for (int32_t i = 0; i < segment.token_count; ++i) {
        const int32_t token = plan.tokens[segment.first_token + i];
        if (!is_token(token)) return internal_error("a plan carries token " + std::to_string(token) + ", which is outside the vocabulary");
        slot.seen[token] = 1;
        positions_[row_count_ + i] = segment.position + i;
        row_segment_[row_count_ + i] = static_cast<int32_t>(segments_.size());
      }
      segments_.push_back({row_count_, segment.token_count, segment.position, segment.write_from, {slot.table[0].data(), slot.table[1].data()}});
      row_count_ += segment.token_count;
    }
    fill_angles();
    return {};
  }

  // Every position a segment's rows read or write needs a block.
  Status check_blocks(const Slot& slot, const Segment& segment) const {
    const int32_t last = (segment.position + segment.token_count - 1) / kBlockTokens;
    const int32_t window_first = facts_.window > 0 ? std::max(0, segment.position - facts_.window + 1) / kBlockTokens : 0;
    for (int32_t kind = 0; kind < kBlockKinds; ++kind) {
      if (facts_.block_bytes[kind] == 0) continue;
      const int32_t first = kind == static_cast<int32_t>(BlockKind::kWindow) ? window_first : 0;
      for (int32_t i = first; i <= last; ++i)
        if (slot.table[kind][i] == kNoBlock) return internal_error("a plan needs block " + std::to_string(i) + " of slot " + std::to_string(segment.slot) + ", which its table lacks");
    }
    return {};
  }

  void fill_angles() {
    const int32_t half = weights_.config.head_dim / 2;
    for (size_t r = 0; r < angles_.size(); ++r)
      for (int32_t row = 0; row < row_count_; ++row)
        for (int32_t i = 0; i < half; ++i) angles_[r].data()[int64_t{row} * half + i] = arith::cos_sin(static_cast<uint64_t>(positions_[row]), weights_.rope[r][i]);
  }

  void return_logits(const StepPlan& plan, StepResult& result) {
    const int64_t vocab = facts_.vocab_size, d_model = weights_.config.d_model;
    int64_t rows = 0;
    for (const Segment& segment : plan.segments) rows += segment.all_logits ? segment.token_count : 0;
    result.logits.resize(static_cast<size_t>(rows * vocab));
    float* out = result.logits.data();
    for (const Segment& segment : plan.segments) {
      if (!segment.all_logits) continue;
      logits(*backend_, weights_, x_.data() + segment.first_token * d_model, segment.token_count, a_.data(), out);
      out += segment.token_count * vocab;
    }
  }

  void sample(const StepPlan& plan, StepResult& result) {
    const int64_t vocab = facts_.vocab_size, d_model = weights_.config.d_model;
    int32_t rows = 0;
    for (const Segment& segment : plan.segments)
      if (segment.sample) std::copy_n(x_.data() + (segment.first_token + segment.token_count - 1) * d_model, d_model, last_x_.data() + rows++ * d_model);
    if (rows == 0) return;
    logits(*backend_, weights_, last_x_.data(), rows, a_.data(), last_logits_.data());
    const float* row = last_logits_.data();
    for (const Segment& segment : plan.segments) {
      if (!segment.sample) continue;
      const Slot& slot = slots_[segment.slot];
      SampledToken token;
      token.slot = segment.slot;
      backend_->sample({row, facts_.vocab_size, &slot.sampling, slot.seen, int64_t{segment.position} + segment.token_count, segment.top_logprobs}, token);
      result.sampled.push_back(std::move(token));
      row += vocab;
    }
  }

  bool is_slot(int32_t slot) const { return slot >= 0 && slot < facts_.slot_count; }
  bool is_token(int32_t token) const { return token >= 0 && token < facts_.vocab_size; }

  std::unique_ptr<B> backend_;
  Weights weights_;
  Facts facts_;
  std::vector<KvSlot> kv_slots_;
  Buffer<std::byte> cache_[kBlockKinds];
  Buffer<arith::bf16> x_, last_x_;
  Buffer<int8_t> a_, queries_;
  Buffer<float> q_, k_, v_, last_logits_;
  Buffer<uint8_t> h_, seen_;
  std::vector<Buffer<arith::CosSin>> angles_;
  Workspace workspace_;
  std::vector<Slot> slots_;

  // The batch being run.
  int32_t row_count_ = 0;
  std::vector<BatchSegment> segments_;
  std::vector<int32_t> positions_, row_segment_;
};

}  // namespace kaiju
