// Slots: the data that an executor holds for each live sequence (block tables and sampling parameters). Slots check
// each step plan against these data and turn the plan's segments into rows. All data of Slots are in host memory. The
// executor, not Slots, owns the KV cache and the workspaces.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "kaiju/backend/batch.hpp"
#include "kaiju/base/host_threads.hpp"
#include "kaiju/base/status.hpp"
#include "kaiju/format/config.hpp"
#include "kaiju/step/plan.hpp"

namespace kaiju {

// ExecutorOptions::products.
enum class Products : int32_t { kAuto = 0, kOwn = 1, kCublasLt = 2 };

// The sizes for which an executor allocates memory.
struct ExecutorSizes {
  int32_t slot_count = 1;    // number of live sequences
  int32_t step_tokens = 64;  // most tokens in one plan
  int32_t most_samples = 1;  // see ExecutorInfo
  PerKind<int32_t> block_count;
  // If share_memory is true, both kinds of cache block share one memory, which is at least as large as two separate
  // ones would be together. Block number b of a kind lies at offset b * block_bytes[kind] in this memory.
  bool share_memory = false;
  std::string kv_layout;  // see ExecutorInfo
  std::string backend;
  int32_t device = 0, threads = 1;
  int32_t draw_threads = 1;  // on a GPU: those that draw from rows with chains of samplers
  HostThreads host_threads;  // see ExecutorOptions, as what follows
  bool interleave = false, large_pages = false, skip_zeros = false;
  std::vector<int32_t> gpus = {0};  // which of the GPUs that CUDA shows; several share the model
  bool graphs = true;               // see ExecutorOptions::graphs and products_file
  std::string products_file;
  Products products = Products::kAuto;
};

class Slots {
 public:
  struct Slot {
    SamplingSpec sampling;
    bool sampled = false;                 // whether the slot has sampled a token already
    PerKind<std::vector<BlockId>> table;  // [context / 64]
    // The range of block-table entries that were already checked to contain a block, so that a step need not check
    // these entries again.
    struct Found {
      int32_t first = 0, end = 0;
    };
    PerKind<Found> found;
  };

  void create(const ModelConfig& config, const ExecutorSizes& sizes) {
    info_.vocab_size = config.vocab_size;
    info_.context = config.context;
    info_.has_global = false;
    info_.kv_layout = sizes.kv_layout;
    info_.backend = sizes.backend;
    info_.device = sizes.device;
    info_.threads = sizes.threads;
    info_.slot_count = sizes.slot_count;
    info_.step_tokens = sizes.step_tokens;
    info_.most_samples = sizes.most_samples;
    info_.label_count = config.label_count();
    info_.labels = config.labels;
    lay_out_cache(config, sizes);
    slots_.resize(static_cast<size_t>(sizes.slot_count));
    for (Slot& slot : slots_)
      for (auto& table : slot.table)
        table.assign(static_cast<size_t>((config.context + kBlockTokens - 1) / kBlockTokens), kNoBlock);
    segments_.reserve(slots_.size());
    positions_.resize(static_cast<size_t>(sizes.step_tokens));
    row_segment_.resize(positions_.size());
  }

  const ExecutorInfo& info() const { return info_; }
  // Returns all KV slots of the model. The `pool` pointers of these KV slots are null, because the executor owns the
  // memory.
  const std::vector<KvSlot>& kv_slots() const { return kv_slots_; }
  const Slot& operator[](int32_t slot) const { return slots_[slot]; }

  // Applies the starts and the block-table edits of a step plan, checks its transfers and copies, and turns its
  // segments into rows. apply() returns an error for every plan that would access memory out of range. If
  // `knows_samples` is true, the plan's tokens may be kSampledToken (the token that the previous step will have
  // sampled).
  Status apply(const StepPlan& plan, bool knows_samples = false) {
    for (const SlotStart& start : plan.starts) KAIJU_TRY(begin_slot(start));
    for (const TableEdit& edit : plan.table_edits) KAIJU_TRY(edit_table(edit));
    for (const BlockTransfer& transfer : plan.transfers) KAIJU_TRY(check_transfer(transfer));
    for (const BlockCopy& copy : plan.copies) KAIJU_TRY(check_copy(copy));
    return make_rows(plan, knows_samples);
  }

  // The following methods return the rows of the step plan that was applied last.
  int32_t row_count() const { return row_count_; }
  std::span<const BatchSegment> segments() const { return segments_; }
  std::span<const int32_t> positions() const { return {positions_.data(), static_cast<size_t>(row_count_)}; }
  std::span<const int32_t> row_segment() const { return {row_segment_.data(), static_cast<size_t>(row_count_)}; }

 private:
  // Computes the offset of each KV slot within the cache blocks of its kind.
  void lay_out_cache(const ModelConfig& config, const ExecutorSizes& sizes) {
    const bool scaled = config.arithmetic() == 2;
    for (int32_t s = 0; s < config.kv_slot_count; ++s) {
      const int32_t layer = config.owner_of(s), kv_heads = config.kv_heads_of(layer),
                    head_dim = config.head_dim_of(layer);
      const LayerConfig& owner = config.layers[layer];
      const bool global = owner.kind == LayerKind::kGlobal;
      const BlockKind kind = global ? BlockKind::kGlobal : BlockKind::kWindow;
      int64_t& block_bytes = info_.block_bytes[kind];
      kv_slots_.push_back({nullptr, 0, block_bytes, kv_heads, head_dim, kind, global ? 0 : owner.window, scaled});
      block_bytes += kv_heads * KvSlot::head_bytes(head_dim, scaled);
      info_.has_global |= global;
      if (!global) info_.window = std::max(info_.window, owner.window);
    }
    for (KvSlot& slot : kv_slots_) slot.block_bytes = info_.block_bytes[slot.kind];
    for (int32_t kind = 0; kind < kBlockKinds; ++kind)
      info_.block_count[kind] = info_.block_bytes[kind] > 0 ? sizes.block_count[kind] : 0;
    if (sizes.share_memory && info_.has_global && info_.window > 0) share_memory();
  }
  // The size of a slab (a run of neighbouring blocks of one kind) is the least common multiple of the sizes of the two
  // kinds of block. Because a block consists of whole KV slots, a slab holds only a few blocks of either kind.
  void share_memory() {
    const int64_t slab_bytes = std::lcm(info_.block_bytes[0], info_.block_bytes[1]);
    if (slab_bytes > 64 * std::max(info_.block_bytes[0], info_.block_bytes[1]))
      return;  // an unusual shape: two memories are better than huge slabs
    int64_t slabs = 0;
    for (int32_t kind = 0; kind < kBlockKinds; ++kind) {
      info_.slab_blocks[kind] = static_cast<int32_t>(slab_bytes / info_.block_bytes[kind]);
      slabs += (info_.block_count[kind] + info_.slab_blocks[kind] - 1) / info_.slab_blocks[kind];
    }
    slabs = std::min<int64_t>(
        slabs, INT32_MAX / std::max(info_.slab_blocks[0], info_.slab_blocks[1]));  // block numbers must fit an int32_t
    for (int32_t kind = 0; kind < kBlockKinds; ++kind)
      info_.block_count[kind] = static_cast<int32_t>(slabs * info_.slab_blocks[kind]);
  }

  Status begin_slot(const SlotStart& start) {
    if (!is_slot(start.slot))
      return internal_error("a plan starts slot " + std::to_string(start.slot) + ", which does not exist");
    for (const int32_t token : start.history)
      if (!is_token(token))
        return internal_error("a plan's history names token " + std::to_string(token) +
                              ", which is outside the vocabulary");
    Slot& slot = slots_[start.slot];
    slot.sampling = start.sampling;
    slot.sampled = false;
    for (auto& table : slot.table) std::fill(table.begin(), table.end(), kNoBlock);
    for (auto& found : slot.found) found = {};
    return {};
  }

  Status edit_table(const TableEdit& edit) {
    if (!is_slot(edit.slot) || edit.index < 0 ||
        edit.index >= static_cast<int32_t>(slots_[edit.slot].table[edit.kind].size()) || edit.block < kNoBlock ||
        edit.block >= info_.block_count[edit.kind])
      return internal_error("a plan edits a block table out of range: slot " + std::to_string(edit.slot) + ", index " +
                            std::to_string(edit.index) + ", block " + std::to_string(edit.block));
    slots_[edit.slot].table[edit.kind][edit.index] = edit.block;
    if (edit.block == kNoBlock) slots_[edit.slot].found[edit.kind] = {};
    return {};
  }

  Status check_transfer(const BlockTransfer& transfer) const {
    if (transfer.host && transfer.token_count >= 0 && transfer.token_count <= kBlockTokens && transfer.block >= 0 &&
        transfer.block < info_.block_count[transfer.kind])
      return {};
    return internal_error("a plan transfers a block out of range, or to no memory");
  }

  Status check_copy(const BlockCopy& copy) const {
    const auto in_pool = [&](BlockId block) { return block >= 0 && block < info_.block_count[copy.kind]; };
    return in_pool(copy.from) && in_pool(copy.to) ? Status() : internal_error("a plan copies a block out of range");
  }

  Status make_rows(const StepPlan& plan, bool knows_samples) {
    row_count_ = 0;
    segments_.clear();
    if (plan.segments.size() > slots_.size())
      return internal_error("a plan carries more segments than there are slots");
    for (const Segment& segment : plan.segments) {
      if (!is_slot(segment.slot))
        return internal_error("a plan names slot " + std::to_string(segment.slot) + ", which does not exist");
      if (segment.token_count > info_.step_tokens - row_count_)
        return internal_error("a plan carries more than the " + std::to_string(info_.step_tokens) +
                              " tokens a step was sized for");
      if (segment.token_count < 1 || segment.first_token != row_count_ ||
          row_count_ + segment.token_count > static_cast<int32_t>(plan.tokens.size()))
        return internal_error("a plan's segments do not follow one another");
      if (segment.scores && info_.label_count == 0)
        return internal_error("a plan asks for scores of a model without a classifier");
      if (segment.sample_count < 0 || segment.sample_count > std::min(segment.token_count, info_.most_samples))
        return internal_error("a plan samples from " + std::to_string(segment.sample_count) + " rows of a segment of " +
                              std::to_string(segment.token_count) + "; this executor samples from at most " +
                              std::to_string(info_.most_samples));
      if (segment.guide != -1 || segment.hook != -1) KAIJU_TRY(check_guide(plan, segment));
      if (segment.sample_count > 0 && segment.hook == -1 && slots_[segment.slot].sampling.chain)
        return internal_error("a plan samples by a chain without the tokens that it is to be shown");
      if (segment.top_logprobs < 0) return internal_error("a plan asks for a negative number of alternatives");
      if (segment.position < 0 || segment.position > info_.context - segment.token_count)
        return internal_error("a plan runs past the context");
      Slot& slot = slots_[segment.slot];
      KAIJU_TRY(check_blocks(slot, segment));
      for (int32_t i = 0; i < segment.token_count; ++i) {
        const int32_t token = plan.tokens[segment.first_token + i];
        if (!is_token(token) && !(token == kSampledToken && knows_samples && slot.sampled))
          return internal_error("a plan carries token " + std::to_string(token) + ", which is outside the vocabulary");
        positions_[row_count_ + i] = segment.position + i;
        row_segment_[row_count_ + i] = static_cast<int32_t>(segments_.size());
      }
      segments_.push_back({row_count_,
                           segment.token_count,
                           segment.position,
                           segment.write_from,
                           {slot.table[0].data(), slot.table[1].data()}});
      row_count_ += segment.token_count;
      slot.sampled = slot.sampled || segment.sample_count > 0;
    }
    return {};
  }

  // Checks that a segment's guide and hook exist and have the right sizes.
  Status check_guide(const StepPlan& plan, const Segment& segment) const {
    if (segment.sample_count != 1)
      return internal_error("a plan has a guide or a hook for " + std::to_string(segment.sample_count) +
                            " rows of a segment; it must be one row");
    if (segment.guide < -1 || segment.guide >= static_cast<int32_t>(plan.guides.size()) || segment.hook < -1 ||
        segment.hook >= static_cast<int32_t>(plan.hooks.size()))
      return internal_error("a plan names a guide or a hook that it does not contain");
    if (segment.guide == -1) return {};
    const TokenGuide& guide = *plan.guides[static_cast<size_t>(segment.guide)];
    if (!guide.allowed.empty() && guide.allowed.size() != static_cast<size_t>(mask_words(info_.vocab_size)))
      return internal_error("a plan's mask has " + std::to_string(guide.allowed.size()) + " words");
    for (const auto& [token, bias] : guide.logit_bias)
      if (!is_token(token))
        return internal_error("a plan's guide names token " + std::to_string(token) +
                              ", which is outside the vocabulary");
    return {};
  }

  // Checks that every position which the segment's rows read or write has a block in the slot's block tables.
  Status check_blocks(Slot& slot, const Segment& segment) const {
    const int32_t last = (segment.position + segment.token_count - 1) / kBlockTokens;
    const int32_t window_first = info_.window > 0 ? std::max(0, segment.position - info_.window + 1) / kBlockTokens : 0;
    for (const BlockKind kind : kBothKinds) {
      if (info_.block_bytes[kind] == 0) continue;
      const int32_t first = kind == BlockKind::kWindow ? window_first : 0;
      if (slot.found[kind].first <= first && last < slot.found[kind].end) continue;
      for (int32_t i = first; i <= last; ++i)
        if (slot.table[kind][i] == kNoBlock)
          return internal_error("a plan needs block " + std::to_string(i) + " of slot " + std::to_string(segment.slot) +
                                ", which its table lacks");
      slot.found[kind] = {first, last + 1};
    }
    return {};
  }

  bool is_slot(int32_t slot) const { return slot >= 0 && slot < info_.slot_count; }
  bool is_token(int32_t token) const { return token >= 0 && token < info_.vocab_size; }

  ExecutorInfo info_;
  std::vector<KvSlot> kv_slots_;
  std::vector<Slot> slots_;
  int32_t row_count_ = 0;
  std::vector<BatchSegment> segments_;
  std::vector<int32_t> positions_, row_segment_;
};

}  // namespace kaiju
