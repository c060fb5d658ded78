// ScriptedExecutor: an executor without a model. Its pools hold one 64-bit word per token in each kind of block, found
// only through block tables, as real KV is. A word depends on the token, its position and every word it attends to, and
// so does the next token: all global words, the last `window` sliding ones. Reading a word that is unwritten, freed or
// stale, writing one that must not be written, and a plan that breaks the bridge's rules are recorded as faults.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "kaiju/step/executor.hpp"

namespace kaiju::test {

inline uint64_t mix(
    uint64_t x) {  // splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// The words of the script. What a token sees is a sum, so the reference below can keep it running.
struct Script {
  static uint64_t word(BlockKind kind, int32_t token, int32_t position, uint64_t seen_global, uint64_t seen_window) {
    return mix(mix(mix(seen_global) + seen_window) ^
               mix(static_cast<uint64_t>(position) * 4 + static_cast<uint64_t>(kind) + 1) ^
               mix(static_cast<uint64_t>(token) + 1000));
  }
  // `occurring`: order-free digest of the set of tokens in the sequence.
  static int32_t draw(const SamplingSpec& spec, int32_t position, uint64_t seen_global, uint64_t seen_window,
                      uint64_t occurring, int32_t vocab) {
    uint64_t x = mix(mix(seen_global) ^ seen_window ^ mix(static_cast<uint64_t>(position)));
    if (spec.temperature > 0) x = mix(x ^ mix(spec.seed) ^ spec.stream);
    if (spec.repetition_penalty != 1.0f) x = mix(x + occurring);
    return static_cast<int32_t>(x % static_cast<uint64_t>(vocab));
  }
  // The drawn token, or the next one that a mask allows.
  static int32_t allowed(const std::vector<uint32_t>& mask, int32_t token, int32_t vocab) {
    while (!mask.empty() && (mask[static_cast<size_t>(token / 32)] >> (token % 32) & 1) == 0)
      token = (token + 1) % vocab;
    return token;
  }
  static uint64_t occurrence(int32_t token) { return mix(static_cast<uint64_t>(token) ^ 0xABCDEF); }
};

// One-at-a-time decoding, with plain arrays instead of blocks.
class ScriptReference {
 public:
  ScriptReference(const ExecutorInfo& info, const SamplingSpec& spec) : info_(info), spec_(spec) {}

  void push(int32_t token) {
    const auto position = static_cast<int32_t>(window_.size());
    uint64_t global = Script::word(BlockKind::kGlobal, token, position, global_sum_, window_sum_);
    uint64_t window = Script::word(BlockKind::kWindow, token, position, global_sum_, window_sum_);
    if (info_.has_global) global_sum_ += global;
    window_.push_back(window);
    if (info_.window > 0) {
      window_sum_ += window;
      // The next query sees positions above position + 1 - window.
      drawn_sum_ = window_sum_;
      if (position + 1 - info_.window >= 0) window_sum_ -= window_[static_cast<size_t>(position + 1 - info_.window)];
    }
    if (occurring_.insert(token).second) occurrence_ += Script::occurrence(token);
  }
  int32_t draw() const {
    return Script::draw(spec_, static_cast<int32_t>(window_.size()), global_sum_, drawn_sum_, occurrence_,
                        info_.vocab_size);
  }
  // The next `count` tokens after `prompt`.
  static std::vector<int32_t> generate(const ExecutorInfo& info, const SamplingSpec& spec,
                                       const std::vector<int32_t>& prompt, int32_t count,
                                       const std::vector<int32_t>& stop_tokens = {}) {
    ScriptReference reference(info, spec);
    for (const int32_t token : prompt) reference.push(token);
    std::vector<int32_t> generated;
    while (static_cast<int32_t>(generated.size()) < count) {
      generated.push_back(reference.draw());
      if (std::count(stop_tokens.begin(), stop_tokens.end(), generated.back())) break;
      reference.push(generated.back());
    }
    return generated;
  }

 private:
  ExecutorInfo info_;
  SamplingSpec spec_;
  std::vector<uint64_t> window_;
  uint64_t global_sum_ = 0, window_sum_ = 0, drawn_sum_ = 0;
  std::set<int32_t> occurring_;
  uint64_t occurrence_ = 0;
};

class ScriptedExecutor final : public Executor {
 public:
  static constexpr int64_t kWordBytes = 16;  // of a token in a block, with what the script notes beside it
  explicit ScriptedExecutor(const ExecutorInfo& info) : info_(info), slots_(static_cast<size_t>(info.slot_count)) {
    for (int kind = 0; kind < kBlockKinds; ++kind)
      pool_[kind].resize(static_cast<size_t>(info.block_count[kind]) * kBlockTokens);
  }

  const ExecutorInfo& info() const override { return info_; }

  Status run(const StepPlan& plan, StepResult& result) override {
    result.clear();
    if (before_run) {
      if (Status status = before_run(plan); !status.ok()) return status;
    }
    ++runs;
    most_segments = std::max(most_segments, plan.segments.size());
    for (const SlotStart& start : plan.starts) begin(start);
    for (const TableEdit& edit : plan.table_edits) apply(edit);
    const auto transfer = [&](BlockTransfer::Way way) {
      for (size_t i = 0; i < plan.transfers.size(); ++i)
        if (plan.transfers[i].way == way && !apply(plan.transfers[i]))
          result.failed_transfers.push_back(static_cast<int32_t>(i));
    };
    transfer(BlockTransfer::Way::kDown);
    for (const BlockCopy& copy : plan.copies) apply(copy);
    transfer(BlockTransfer::Way::kUp);
    if (static_cast<int32_t>(plan.tokens.size()) > info_.step_tokens) fault("more tokens than a step may carry");
    std::set<int32_t> used;
    for (const Segment& segment : plan.segments) {
      if (!used.insert(segment.slot).second) fault("two segments of one slot");
      compute(plan, segment, result);
    }
    return {};
  }

  // Beside the host a step is over when it has been started, and told of later.
  Status start(const StepPlan& plan) override {
    if (!beside_host) return {};
    StepResult answer;
    KAIJU_TRY(run(plan, answer));
    if (!answers_.empty() && (answers_.size() > 1 || !plan.transfers.empty()))
      fault("a step is started behind one that it cannot follow");
    answers_.push_back(std::move(answer));
    most_under_way = std::max(most_under_way, answers_.size());
    return {};
  }
  Status finish(const StepPlan& plan, StepResult& result) override {
    if (!beside_host) return run(plan, result);
    if (answers_.empty()) return internal_error("no step is under way");
    if (before_finish) KAIJU_TRY(before_finish());
    std::swap(result, answers_.front());
    answers_.pop_front();
    return {};
  }
  bool runs_beside_host() const override { return beside_host; }

  // What the executor cannot know: this block is free now, whoever reads it from here on errs.
  void poison(BlockKind kind, BlockId block) {
    for (int32_t i = 0; i < kBlockTokens; ++i) at(kind, block, i) = {0, -1, Entry::kFreed};
  }

  std::vector<std::string> faults;  // must stay empty
  bool beside_host = false;
  size_t runs = 0;
  size_t transfers = 0;
  std::function<bool(const BlockTransfer&)> fails_transfer;
  size_t most_segments = 0;
  size_t most_under_way = 0;
  int64_t rows = 0;
  int64_t guided = 0;                                 // tokens that were drawn under a guide
  std::function<Status(const StepPlan&)> before_run;  // may look, fail, or wait
  std::function<Status()> before_finish;
  std::function<bool(BlockKind, BlockId)>
      is_known;  // whether the block's words are others' too: it must not be written

 private:
  struct Entry {
    enum State : uint8_t { kUnwritten, kWritten, kFreed, kStale };
    uint64_t word = 0;
    int32_t position = -1;
    State state = kUnwritten;
  };
  static_assert(sizeof(Entry) == kWordBytes);
  struct Slot {
    bool started = false;
    int32_t next = 0;
    int32_t drawn = kSampledToken;  // the last token
    SamplingSpec sampling;
    std::set<int32_t> occurring;
    uint64_t occurrence = 0;
    std::vector<BlockId> table[kBlockKinds];
  };

  void fault(const std::string& what) {
    if (faults.size() < 20) faults.push_back(what);
  }
  Entry& at(BlockKind kind, BlockId block, int32_t offset) {
    return pool_[static_cast<int>(kind)][static_cast<size_t>(block) * kBlockTokens + static_cast<size_t>(offset)];
  }
  bool valid(BlockKind kind, BlockId block) const {
    return block >= 0 && block < info_.block_count[static_cast<int>(kind)];
  }

  void begin(const SlotStart& start) {
    if (start.slot < 0 || start.slot >= info_.slot_count) return fault("start of a slot that does not exist");
    Slot& slot = slots_[static_cast<size_t>(start.slot)];
    slot = {};
    slot.started = true;
    slot.sampling = start.sampling;
    slot.next = static_cast<int32_t>(start.history.size());
    for (const int32_t token : start.history) note(slot, token);
  }
  static void note(Slot& slot, int32_t token) {
    if (slot.occurring.insert(token).second) slot.occurrence += Script::occurrence(token);
  }
  void apply(const TableEdit& edit) {
    if (edit.slot < 0 || edit.slot >= info_.slot_count) return fault("edit of a slot that does not exist");
    if (edit.block != kNoBlock && !valid(edit.kind, edit.block)) return fault("edit names a block that does not exist");
    if (edit.index < 0 || edit.index > info_.context / kBlockTokens)
      return fault("edit of an index beyond the context");
    auto& table = slots_[static_cast<size_t>(edit.slot)].table[static_cast<int>(edit.kind)];
    if (static_cast<int32_t>(table.size()) <= edit.index) table.resize(static_cast<size_t>(edit.index) + 1, kNoBlock);
    table[static_cast<size_t>(edit.index)] = edit.block;
  }
  // A failed one leaves garbage where it should have written.
  bool apply(const BlockTransfer& transfer) {
    if (!valid(transfer.kind, transfer.block) || !transfer.host)
      return fault("transfer of a block that does not exist"), false;
    if (transfer.way == BlockTransfer::Way::kUp && is_known && is_known(transfer.kind, transfer.block))
      fault("transfer into a block of the tree");
    ++transfers;
    const bool fails = fails_transfer && fails_transfer(transfer);
    const size_t bytes = kBlockTokens * sizeof(Entry);
    Entry* block = &at(transfer.kind, transfer.block, 0);
    if (transfer.way == BlockTransfer::Way::kDown) {
      fails ? std::memset(transfer.host, 0xEE, bytes) : std::memcpy(transfer.host, block, bytes);
      const size_t rest = static_cast<size_t>(kBlockTokens - transfer.token_count) * sizeof(Entry);
      std::memset(transfer.host + bytes - rest, 0, rest);
    } else
      fails ? std::memset(static_cast<void*>(block), 0xEE, bytes)
            : std::memcpy(static_cast<void*>(block), transfer.host, bytes);
    return !fails;
  }
  void apply(const BlockCopy& copy) {
    if (!valid(copy.kind, copy.from) || !valid(copy.kind, copy.to) || copy.from == copy.to)
      return fault("copy of blocks that do not exist");
    if (is_known && is_known(copy.kind, copy.to)) return fault("copy into a block of the tree");
    if (copy.token_count < 1 || copy.token_count >= kBlockTokens)
      return fault("copy of a count that is not part of a block");
    for (int32_t i = 0; i < kBlockTokens; ++i) {
      Entry entry = i < copy.token_count ? at(copy.kind, copy.from, i) : Entry{0, -1, Entry::kUnwritten};
      if (i < copy.token_count && entry.state != Entry::kWritten) fault("copy of a word that is " + name(entry.state));
      at(copy.kind, copy.to, i) = entry;
    }
  }

  static std::string name(Entry::State state) {
    return state == Entry::kUnwritten ? "unwritten"
           : state == Entry::kFreed   ? "freed"
           : state == Entry::kStale   ? "stale"
                                      : "written";
  }
  BlockId block_of(const Slot& slot, BlockKind kind, int32_t position) const {
    const auto& table = slot.table[static_cast<int>(kind)];
    const auto index = static_cast<size_t>(position / kBlockTokens);
    return index < table.size() ? table[index] : kNoBlock;
  }
  std::string where(BlockKind kind, const Segment& segment, int32_t position) const {
    return std::string(kind == BlockKind::kGlobal ? " global" : " window") + " word of slot " +
           std::to_string(segment.slot) + " at position " + std::to_string(position) + " (segment from " +
           std::to_string(segment.position) + ", run " + std::to_string(runs) + ")";
  }
  uint64_t read(const Slot& slot, BlockKind kind, const Segment& segment, int32_t position) {
    const BlockId block = block_of(slot, kind, position);
    if (block == kNoBlock) return fault("read without a block:" + where(kind, segment, position)), 0;
    const Entry& entry = at(kind, block, position % kBlockTokens);
    if (entry.state != Entry::kWritten) fault("read of a " + name(entry.state) + where(kind, segment, position));
    if (entry.position != position) fault("read of another position's" + where(kind, segment, position));
    return entry.word;
  }
  void write(const Slot& slot, BlockKind kind, const Segment& segment, int32_t position, uint64_t word) {
    const BlockId block = block_of(slot, kind, position);
    if (block == kNoBlock) return fault("write without a block:" + where(kind, segment, position));
    for (const Slot& other : slots_)
      if (&other != &slot && other.started && live_.count(static_cast<int32_t>(&other - slots_.data())) &&
          block_of(other, kind, position) == block)
        fault("write into a shared block:" + where(kind, segment, position));
    if (is_known && is_known(kind, block)) fault("write into a block of the tree:" + where(kind, segment, position));
    at(kind, block, position % kBlockTokens) = {word, position, Entry::kWritten};
    // What was written behind it belonged to something that has been cut off.
    for (int32_t i = position % kBlockTokens + 1; i < kBlockTokens; ++i)
      if (Entry& entry = at(kind, block, i); entry.state == Entry::kWritten) entry.state = Entry::kStale;
  }

  void compute(const StepPlan& plan, const Segment& segment, StepResult& result) {
    if (segment.slot < 0 || segment.slot >= info_.slot_count) return fault("segment of a slot that does not exist");
    Slot& slot = slots_[static_cast<size_t>(segment.slot)];
    if (!slot.started) return fault("segment of a slot that was not started");
    if (segment.token_count < 1 || segment.position != slot.next)
      return fault("segment does not go on where the slot ended");
    if (segment.position + segment.token_count > info_.context) return fault("segment beyond the context");
    if (segment.sample_count < 0 || segment.sample_count > std::min(segment.token_count, info_.most_samples))
      return fault("more draws than a segment may have");
    live_.clear();
    for (const Segment& other : plan.segments) live_.insert(other.slot);

    // A word's inputs are sums of what is visible, read through the tables once per segment and moved along.
    uint64_t global = 0, window = 0;
    if (info_.has_global)
      for (int32_t p = 0; p < segment.position; ++p) global += read(slot, BlockKind::kGlobal, segment, p);
    if (info_.window > 0)
      for (int32_t p = std::max(0, segment.position - info_.window + 1); p < segment.position; ++p)
        window += read(slot, BlockKind::kWindow, segment, p);
    uint64_t drawn = 0;
    for (int32_t i = 0; i < segment.token_count; ++i) {
      const int32_t position = segment.position + i;
      int32_t token = plan.tokens[static_cast<size_t>(segment.first_token + i)];
      if (token == kSampledToken && beside_host) token = slot.drawn;
      if (token < 0 || token >= info_.vocab_size)
        return fault("token " + std::to_string(token) + " of slot " + std::to_string(segment.slot));
      ++rows;
      note(slot, token);
      const uint64_t own_global = Script::word(BlockKind::kGlobal, token, position, global, window);
      const uint64_t own_window = Script::word(BlockKind::kWindow, token, position, global, window);
      if (info_.has_global) {
        if (position >= segment.write_from)
          write(slot, BlockKind::kGlobal, segment, position, own_global);
        else if (read(slot, BlockKind::kGlobal, segment, position) != own_global)
          fault("the cache holds another token's" + where(BlockKind::kGlobal, segment, position));
        global += own_global;
      }
      if (info_.window > 0) {
        write(slot, BlockKind::kWindow, segment, position, own_window);
        window += own_window;
        drawn = window;
        if (const int32_t left = position + 1 - info_.window; left >= 0)
          window -= read(slot, BlockKind::kWindow, segment, left);
      }
      if (i >= segment.token_count - segment.sample_count) draw(plan, slot, segment, position, global, drawn, result);
    }
    slot.next = segment.position + segment.token_count;
  }
  // The token that follows the one at `position`, from what that sees.
  void draw(const StepPlan& plan, Slot& slot, const Segment& segment, int32_t position, uint64_t global,
            uint64_t window, StepResult& result) {
    SampledToken sampled;
    sampled.slot = segment.slot;
    sampled.token = slot.drawn =
        Script::draw(slot.sampling, position + 1, global, window, slot.occurrence, info_.vocab_size);
    if (segment.guide >= 0) {
      ++guided;
      const TokenGuide& guide = *plan.guides[static_cast<size_t>(segment.guide)];
      sampled.token = slot.drawn = Script::allowed(guide.allowed, slot.drawn, info_.vocab_size);
    }
    for (int32_t i = 0; i < segment.top_logprobs; ++i) sampled.top.push_back({i, -1.0f * static_cast<float>(i)});
    if (segment.scores) sampled.scores.assign(static_cast<size_t>(info_.label_count), static_cast<float>(position + 1));
    result.sampled.push_back(std::move(sampled));
  }

  ExecutorInfo info_;
  std::vector<Entry> pool_[kBlockKinds];
  std::vector<Slot> slots_;
  std::set<int32_t> live_;          // slots of the plan being run
  std::deque<StepResult> answers_;  // of steps beside the host
};

}  // namespace kaiju::test
