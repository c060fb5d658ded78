// Lease: counts for each token of the prompt whether it was found or why not (CacheStats). Part of lease.hpp, which
// states the contract.
#pragma once

#include "kaiju/cache/lease.hpp"

namespace kaiju {

inline void Lease::count_found(PrefixTree& tree, const Found& found) {
  if (request_.counted_from >= prompt_count_) return;
  if (request_.counted_from < 0) tree.stats().prompt_tokens += static_cast<uint64_t>(prompt_count_);
  for (int32_t index = 0; index < found.resume / kBlockTokens; ++index)
    count_hit(tree, path_[at(index)], index * kBlockTokens, kBlockTokens);
  if (const NodeId source = copied_from(found); source != kNoNode)
    count_hit(tree, source, found.resume / kBlockTokens * kBlockTokens, found.resume % kBlockTokens);
  found_end_ = found.known;
  find_evicted(tree);
}

// What of the rest was here once: whole blocks, and the beginning of the block behind them, which was a tail.
inline void Lease::find_evicted(const PrefixTree& tree) {
  evicted_.assign(at(blocks_for(prompt_count_)), 0);
  const auto name_of = [&](const BlockName& parent, int32_t index, int32_t count) {
    const int32_t end = index * kBlockTokens + count;
    const DomainId domain = end <= request_.regions.shared_tokens ? request_.regions.shared : request_.regions.own;
    return tree.namer().of(parent, tree.domains().at(domain).name, prompt_block(index, count).data(), count);
  };
  int32_t next = ready_;  // what comes after the last that is or was here
  BlockName name = tree.at(parent_of(ready_)).name, tip = name;
  for (int32_t index = ready_; (index + 1) * kBlockTokens <= prompt_count_; ++index) {
    name = name_of(name, index, kBlockTokens);
    if (!tree.was_evicted(name)) continue;
    evicted_[at(index)] = kBlockTokens;
    next = index + 1;
    tip = name;
  }
  for (int32_t count = std::min(kBlockTokens - 1, prompt_count_ - next * kBlockTokens);
       count > 0 && evicted_[at(next)] == 0; --count)
    if (const BlockName end = name_of(tip, next, count); tree.was_evicted(end)) {
      evicted_[at(next)] = static_cast<uint8_t>(count);
      evicted_end_ = end;
    }
}

inline void Lease::count_hit(PrefixTree& tree, NodeId id, int32_t position, int32_t tokens) const {
  const Node& node = tree.at(id);
  CacheStats& stats = tree.stats();
  uint64_t& hits = node.domain == request_.regions.shared ? stats.hit_shared
                   : node.owner == request_.owner         ? stats.hit_own
                                                          : stats.hit_other;
  hits += static_cast<uint64_t>(std::max(0, position + tokens - std::max(position, request_.counted_from)));
}

inline void Lease::count_computed(PrefixTree& tree, int32_t count) const {
  CacheStats& stats = tree.stats();
  const int32_t begin = std::max(next_, request_.counted_from), end = std::min(next_ + count, prompt_count_);
  if (begin >= end) return;
  const auto computed_in = [&](int32_t from, int32_t to) {
    return static_cast<uint64_t>(std::max(0, std::min(end, to) - std::max(begin, from)));
  };
  const bool last = end == prompt_count_ && found_end_ >= prompt_count_;
  const uint64_t window = computed_in(0, found_end_) - (last ? 1 : 0);
  uint64_t evicted = 0;
  for (int32_t index = begin / kBlockTokens;
       index < std::min<int32_t>(blocks_for(end), static_cast<int32_t>(evicted_.size())); ++index)
    evicted += computed_in(std::max(found_end_, index * kBlockTokens), index * kBlockTokens + evicted_[at(index)]);
  stats.miss_last += last ? 1 : 0;
  stats.miss_window += window;
  stats.miss_evicted += evicted;
  stats.miss_new += computed_in(0, prompt_count_) - (last ? 1 : 0) - window - evicted;
}

}  // namespace kaiju
