// Lease: reports how much of its prompt the cache knows, and why not more. Part of lease.hpp, which states the
// contract.
#pragma once

#include "kaiju/cache/lease.hpp"

namespace kaiju {

// Before insert_prompt: the path has only what was there.
inline ReuseReport Lease::report(const PrefixTree& tree, const Found& found, Reuse reuse) const {
  ReuseReport report;
  const int32_t ready = std::max(found.known, found.resume);
  report.known_tokens = std::min(std::max(ready, path_count() * kBlockTokens), limit());
  report.known_end = known_end(tree, report.known_tokens);
  report.end = found.resume < std::min(ready, limit()) ? ReuseEnd::kNoWindow : report.known_end;
  if (reuse != Reuse::kAll) report.end = ReuseEnd::kNoRoom;
  if (reuse == Reuse::kNothing) report.known_end = ReuseEnd::kNoRoom;
  return report;
}

inline ReuseEnd Lease::known_end(const PrefixTree& tree, int32_t known) const {
  if (known >= limit()) return ReuseEnd::kWhole;
  const int32_t index = known / kBlockTokens;
  if (at(index) < evicted_.size() && evicted_[at(index)] > known % kBlockTokens) return ReuseEnd::kEvicted;
  const Regions &now = request_.regions, &before = request_.regions_before;
  if (before.own != kNoDomain && before.of_block(index) != now.of_block(index)) return ReuseEnd::kOtherScope;
  const NodeId parent = parent_of(index);
  int32_t same = 0;
  const NodeId nearest = tree.find_partial(parent, now, index, request_.prompt.subspan(at(index * kBlockTokens)), same);
  if (nearest != kNoNode) {
    const bool region_ends = tree.at(nearest).domain == now.shared && index * kBlockTokens + same == now.shared_tokens;
    return same < tree.at(nearest).count && !region_ends ? ReuseEnd::kDifferent : ReuseEnd::kNew;
  }
  return parent != kRoot && tree.has_child_of(parent, now) ? ReuseEnd::kDifferent : ReuseEnd::kNew;
}

}  // namespace kaiju
