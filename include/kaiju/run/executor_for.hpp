// ExecutorFor: an Executor that runs step plans on a backend which computes in host memory. An ExecutorFor allocates
// all its memory at creation, and a step then allocates only its result.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kaiju/base/buffer.hpp"
#include "kaiju/base/detail/memory_placement.hpp"
#include "kaiju/base/float_state.hpp"
#include "kaiju/format/scales.hpp"
#include "kaiju/model/forward.hpp"
#include "kaiju/run/hooked_row.hpp"
#include "kaiju/run/kv_counter.hpp"
#include "kaiju/run/slots.hpp"
#include "kaiju/run/weight_check.hpp"
#include "kaiju/step/executor.hpp"

namespace kaiju {

template <Backend B>
class ExecutorFor final : public Executor {
 public:
  static Result<std::unique_ptr<Executor>> create(std::unique_ptr<B> backend, Weights weights,
                                                  const ExecutorSizes& sizes) {
    auto executor = std::unique_ptr<ExecutorFor>(new ExecutorFor(std::move(backend), std::move(weights)));
    KAIJU_TRY(executor->take_memory(sizes));
    return std::unique_ptr<Executor>(std::move(executor));
  }

  const ExecutorInfo& info() const override { return slots_.info(); }

  Status run(const StepPlan& plan, StepResult& result) override {
    const FloatState float_state;
    float_state_ = &float_state;
    result.clear();
    KAIJU_TRY(slots_.apply(plan));
    for (const SlotStart& start : plan.starts) forget_tokens(start);
    for (const BlockTransfer& transfer : plan.transfers)
      if (transfer.way == BlockTransfer::Way::kDown) transfer_block(transfer);
    for (const BlockCopy& copy : plan.copies) copy_block(copy);
    for (const BlockTransfer& transfer : plan.transfers)
      if (transfer.way == BlockTransfer::Way::kUp) transfer_block(transfer);
    if (plan.segments.empty()) return {};
    mark_tokens(plan);
    fill_angles();

    const Batch batch{slots_.row_count(),
                      {plan.tokens.data(), static_cast<size_t>(slots_.row_count())},
                      slots_.positions(),
                      slots_.segments(),
                      slots_.row_segment()};
    forward(*backend_, weights_, kv_slots_, batch, workspace_);
    return_logits(plan, result);
    sample(plan, result);
    return {};
  }

  Result<Scrubbed> scrub(size_t most_bytes) override {
    if (!weight_check_)
      weight_check_ = std::make_unique<WeightCheck>(weights_, head_ ? *head_->checkpoint : *weights_.checkpoint);
    return weight_check_->look(most_bytes);
  }

  Status set_head(const std::shared_ptr<const Checkpoint>& checkpoint) override {
    head_ = std::make_unique<Weights>(Weights::classifier_from(checkpoint));
    weights_.classifier = head_->classifier;
    weights_.classifier_bias = head_->classifier_bias;
    weight_check_.reset();
    return {};
  }

  Status set_scales(const std::shared_ptr<const Checkpoint>& checkpoint) override {
    if (!has_clips(weights_.config.shape)) return no_clips();
    Result<Weights> read = Weights::from(checkpoint);
    if (!read.ok()) return read.status();
    scales_ = std::make_unique<Weights>(std::move(read).value());
    weights_.slots = scales_->slots;
    for (size_t i = 0; i < weights_.layers.size(); ++i) {
      weights_.layers[i].q_inverse = scales_->layers[i].q_inverse;
      weights_.layers[i].out_inverse = scales_->layers[i].out_inverse;
    }
    return {};
  }

  Status set_weights(const std::shared_ptr<const Checkpoint>& checkpoint) override {
    Result<Weights> read = Weights::from(checkpoint);
    if (!read.ok()) return read.status();
    if (skips_zeros_) KAIJU_TRY(skip_zeros(*read));
    weights_ = std::move(read).value();
    head_.reset();
    scales_.reset();
    weight_check_.reset();
    return {};
  }

  Status count_kv(BlockKind kind, BlockId block, KvCounts& counts) override {
    if (!has_clips(weights_.config.shape)) return no_clips();
    const FloatState float_state;
    for (size_t i = 0; i < kv_slots_.size(); ++i)
      if (kv_slots_[i].kind == kind) kv_counter_.count(*backend_, kv_slots_[i], block, counts.slots[i]);
    return {};
  }

 private:
  ExecutorFor(std::unique_ptr<B> backend, Weights weights)
      : backend_(std::move(backend)), weights_(std::move(weights)) {}

  Status take_memory(const ExecutorSizes& sizes) {
    const ModelConfig& config = weights_.config;
    ExecutorSizes own_sizes = sizes;
    own_sizes.most_samples = sizes.step_tokens;
    slots_.create(config, own_sizes);
    sampled_rows_.reserve(static_cast<size_t>(sizes.step_tokens));
    totals_.resize(static_cast<size_t>(sizes.slot_count));
    const ExecutorInfo& info = slots_.info();
    KAIJU_TRY(take(cache_, static_cast<size_t>(info.cache_bytes()), "the KV cache"));
    if (sizes.interleave) KAIJU_TRY(interleave({cache_.data(), cache_.bytes()}, "the KV cache"));
    if (sizes.large_pages) cache_.prefer_large_pages();
    if (sizes.skip_zeros) KAIJU_TRY(skip_zeros(weights_));
    pool_[1] = cache_.data();
    pool_[0] = info.shares_memory() ? pool_[1] : pool_[1] + info.block_bytes[1] * info.block_count[1];
    kv_slots_ = slots_.kv_slots();
    for (KvSlot& slot : kv_slots_) slot.pool = pool_[slot.kind];

    const auto rows = static_cast<size_t>(sizes.step_tokens), slot_count = static_cast<size_t>(sizes.slot_count);
    for (const RoomSize& size : rooms_of(config, ProjectsPacked<B>)) {
      Buffer<std::byte>& room = rooms_[static_cast<size_t>(size.room)];
      KAIJU_TRY(take(room, (size.rows > 0 ? static_cast<size_t>(size.rows) : rows) * size.row_bytes, size.what));
      workspace_[size.room] = room.data();
    }
    KAIJU_TRY(take(last_x_, slot_count * stream_bytes(config), "the sampled rows"));
    KAIJU_TRY(take(last_logits_, slot_count * config.vocab_size, "the logits"));
    KAIJU_TRY(take(scores_, rows * weights_.classifier_bias.size(), "the scores"));
    KAIJU_TRY(take(seen_, slot_count * config.vocab_size, "the seen tokens"));
    if constexpr (TakesMemory<B>)
      KAIJU_TRY(backend_->take_memory(step_sizes(config, sizes.step_tokens, sizes.slot_count)));
    for (int32_t r = 0; r < config.rope_count; ++r) {
      const auto width = static_cast<size_t>(config.rope_head_dim(r) / 2);
      KAIJU_TRY(take(angles_.emplace_back(), rows * width, "the rotary angles"));
      workspace_.angles.push_back(angles_.back().data());
    }
    return {};
  }

  Status skip_zeros(const Weights& weights) {
    skips_zeros_ = true;
    if constexpr (SkipsZeros<B>) {
      std::vector<Matrix> downs;
      if (weights.config.shape.ffn == Ffn::kSquaredRelu)
        for (const LayerWeights& layer : weights.layers) downs.push_back(layer[Matmul::kDown]);
      if (!downs.empty()) return backend_->skip_zeros_of(downs);
      return {StatusCode::kUnsupported,
              "feed-forward layers without a squared ReLU have no zeros to skip: leave it out"};
    }
    return {StatusCode::kUnsupported, "backend " + slots_.info().backend + " does not skip zeros: leave it out"};
  }

  template <class T>
  static Status take(Buffer<T>& buffer, size_t count, const char* what) {
    Result<Buffer<T>> made = Buffer<T>::make(count, what);
    if (!made.ok()) return made.status();
    buffer = std::move(made).value();
    return {};
  }

  uint8_t* seen(int32_t slot) { return seen_.data() + int64_t{slot} * slots_.info().vocab_size; }

  void forget_tokens(const SlotStart& start) {
    std::memset(seen(start.slot), 0, static_cast<size_t>(slots_.info().vocab_size));
    for (const int32_t token : start.history) seen(start.slot)[token] = 1;
  }

  // Marks the segments' tokens as seen, for the repetition penalty. In a segment with several sampled rows, the tokens
  // after the first sampled row are not marked here. sample_rows marks each of them before it samples from that token's
  // row.
  void mark_tokens(const StepPlan& plan) {
    for (const Segment& segment : plan.segments)
      for (int32_t i = 0; i < segment.token_count - std::max(0, segment.sample_count - 1); ++i)
        mark_token(plan, segment, i);
  }
  void mark_token(const StepPlan& plan, const Segment& segment, int32_t index) {
    seen(segment.slot)[plan.tokens[segment.first_token + index]] = 1;
  }

  // Copies the whole block even if only its first tokens are needed, because only the backend knows the layout within
  // the block. The KV after the needed tokens is never read.
  void copy_block(const BlockCopy& copy) {
    const BlockKind kind = copy.kind;
    const int64_t bytes = slots_.info().block_bytes[kind];
    std::memcpy(pool_[kind] + copy.to * bytes, pool_[kind] + copy.from * bytes, static_cast<size_t>(bytes));
  }

  void transfer_block(const BlockTransfer& transfer) {
    const BlockKind kind = transfer.kind;
    const int64_t bytes = slots_.info().block_bytes[kind];
    auto* block = pool_[kind] + transfer.block * bytes;
    if (transfer.way == BlockTransfer::Way::kUp) {
      std::memcpy(block, transfer.host, static_cast<size_t>(bytes));
      return;
    }
    std::memcpy(transfer.host, block, static_cast<size_t>(bytes));
    if (transfer.token_count < kBlockTokens) clear_rest(transfer);
  }

  // After a partly filled block was copied to host memory, writes zero keys and values for the positions after its last
  // token to the copy. clear_rest calls the backend's append for this, because only the backend knows the layout within
  // the block.
  void clear_rest(const BlockTransfer& transfer) {
    auto *k = workspace_.at<float>(Room::kK), *v = workspace_.at<float>(Room::kV);
    const BlockId block = 0;
    const int32_t first_segment = 0;
    for (size_t i = 0; i < kv_slots_.size(); ++i) {
      KvSlot kv = kv_slots_[i];
      if (kv.kind != transfer.kind) continue;
      kv.pool = transfer.host;
      const auto width = static_cast<size_t>(kv.kv_heads * kv.head_dim);
      std::fill_n(k, width, 0.0f);
      std::fill_n(v, width, 0.0f);
      for (int32_t token = transfer.token_count; token < kBlockTokens; ++token) {
        const BatchSegment segment{0, 1, token, 0, {&block, &block}};
        const Batch batch{1, {}, {&token, 1}, {&segment, 1}, {&first_segment, 1}};
        if constexpr (ScaledBackend<B>)
          if (kv.scaled) {
            scaled::append_zeros(*backend_, weights_, static_cast<int32_t>(i), batch, kv, workspace_);
            continue;
          }
        backend_->append(k, v, batch, angles_[0].data(), weights_.slots[i].k_inverse.data(),
                         weights_.slots[i].v_inverse.data(), kv);
      }
    }
  }

  void fill_angles() {
    for (size_t r = 0; r < angles_.size(); ++r) {
      const auto half = static_cast<int32_t>(weights_.rope[r].size());
      for (int32_t row = 0; row < slots_.row_count(); ++row)
        for (int32_t i = 0; i < half; ++i)
          angles_[r].data()[int64_t{row} * half + i] =
              arith::cos_sin(static_cast<uint64_t>(slots_.positions()[row]), weights_.rope[r][i]);
    }
  }

  // Row `row` of the residual stream.
  const std::byte* stream_row(int64_t row) const {
    return workspace_.at<std::byte>(Room::kStream) + row * static_cast<int64_t>(stream_bytes(weights_.config));
  }

  void return_logits(const StepPlan& plan, StepResult& result) {
    const int64_t vocab = slots_.info().vocab_size;
    int64_t rows = 0;
    for (const Segment& segment : plan.segments) rows += segment.all_logits ? segment.token_count : 0;
    result.logits.resize(static_cast<size_t>(rows * vocab));
    float* out = result.logits.data();
    for (const Segment& segment : plan.segments) {
      if (!segment.all_logits) continue;
      const std::byte* x = stream_row(segment.first_token);
      logits(*backend_, weights_, workspace_, x, segment.token_count, out);
      out += segment.token_count * vocab;
      if (!segment.scores) continue;
      classify(*backend_, weights_, workspace_, x, segment.token_count, scores_.data());
      append_scores(weights_, scores_.data(), segment.token_count, result.scores);
    }
  }

  // Row `index` of a segment, from whose logits a token is sampled.
  struct SampledRow {
    const Segment* segment;
    int32_t index;
  };

  void sample(const StepPlan& plan, StepResult& result) {
    sampled_rows_.clear();
    for (const Segment& segment : plan.segments)
      for (int32_t i = segment.token_count - segment.sample_count; i < segment.token_count; ++i)
        sampled_rows_.push_back({&segment, i});
    const auto at_once = static_cast<size_t>(slots_.info().slot_count);  // that there is room for
    for (std::span<const SampledRow> left(sampled_rows_); !left.empty();) {
      const std::span<const SampledRow> rows = left.first(std::min(at_once, left.size()));
      sample_rows(plan, rows, result);
      left = left.subspan(rows.size());
    }
  }

  void sample_rows(const StepPlan& plan, std::span<const SampledRow> rows, StepResult& result) {
    const int64_t vocab = slots_.info().vocab_size;
    const size_t row_bytes = stream_bytes(weights_.config);
    const auto count = static_cast<int32_t>(rows.size());
    for (size_t r = 0; r < rows.size(); ++r)
      std::memcpy(last_x_.data() + r * row_bytes, stream_row(rows[r].segment->first_token + rows[r].index), row_bytes);
    logits(*backend_, weights_, workspace_, last_x_.data(), count, last_logits_.data());
    if (std::any_of(rows.begin(), rows.end(), [](const SampledRow& row) { return row.segment->scores; }))
      classify(*backend_, weights_, workspace_, last_x_.data(), count, scores_.data());
    if constexpr (WeighsRows<B>)
      backend_->weigh_rows(last_logits_.data(), count, slots_.info().vocab_size, totals_.data());
    const float* row_logits = last_logits_.data();
    const float* row_scores = scores_.data();
    for (const SampledRow& row : rows) {
      const Segment& segment = *row.segment;
      if (row.index > segment.token_count - segment.sample_count) mark_token(plan, segment, row.index);
      SampledToken token;
      token.slot = segment.slot;
      SampleArgs args{row_logits,
                      slots_.info().vocab_size,
                      &slots_[segment.slot].sampling,
                      seen(segment.slot),
                      int64_t{segment.position} + row.index + 1,
                      segment.top_logprobs};
      args.known = totals_[static_cast<size_t>(&row - rows.data())];
      if (segment.guide >= 0) args.guide = plan.guides[static_cast<size_t>(segment.guide)].get();
      if (segment.hook >= 0) hooked_.prepare(plan.hooks[static_cast<size_t>(segment.hook)], *float_state_, args);
      backend_->sample(args, token);
      if (segment.scores) append_scores(weights_, row_scores, 1, token.scores);
      result.sampled.push_back(std::move(token));
      row_logits += vocab;
      row_scores += weights_.classifier_bias.size();
    }
  }

  std::unique_ptr<B> backend_;
  Weights weights_;
  std::unique_ptr<Weights> head_;              // whose classifier is used; null: that of weights_ as they were made
  std::unique_ptr<Weights> scales_;            // whose scales of keys and values are used; null: as above
  std::unique_ptr<WeightCheck> weight_check_;  // null before the first scrub
  KvCounter kv_counter_;
  Slots slots_;
  std::vector<KvSlot> kv_slots_;
  Buffer<std::byte> cache_;
  PerKind<std::byte*> pool_;  // address of block 0 of each kind
  std::array<Buffer<std::byte>, kRoomCount> rooms_;
  Buffer<std::byte> last_x_;  // residual stream of the sampled rows
  Buffer<float> last_logits_, scores_;
  std::vector<RowTotal> totals_;  // of last_logits_, if the backend weighs rows
  Buffer<uint8_t> seen_;
  std::vector<Buffer<arith::CosSin>> angles_;
  Workspace workspace_;
  bool skips_zeros_ = false;                 // ExecutorSizes::skip_zeros
  std::vector<SampledRow> sampled_rows_;     // of the step being run
  HookedRow hooked_;                         // the row being sampled from, where it has a hook
  const FloatState* float_state_ = nullptr;  // of the step being run
};

}  // namespace kaiju
