// Promotion: finds the position at which a prompt can resume with the KV on the device, and the later position at which
// it can resume with KV from the lower tiers. Part of promotion.hpp, which states the contract.
#pragma once

#include "kaiju/cache/promotion.hpp"

namespace kaiju {

inline Promotion::Outcome Promotion::look(const PrefixTree& tree, const LeaseRequest& request) {
  const std::span<const int32_t> prompt = request.prompt;
  const auto limit = static_cast<int32_t>(prompt.size()) - 1;
  spots_.clear();
  NodeId last = kRoot;
  while ((spots_.size() + 1) * kBlockTokens <= prompt.size()) {
    const NodeId node = tree.find(tree.key(last, request.regions.of_block(static_cast<int32_t>(spots_.size())),
                                           prompt.subspan(spots_.size() * kBlockTokens, kBlockTokens)));
    if (node == kNoNode) break;
    if (tree.at(node).arriving()) return Outcome::kWait;
    if (!tree.at(node).ready()) return Outcome::kNothing;  // a lease is computing it: this one will follow
    spots_.push_back({last = node, kNoStored, kBlockTokens});
  }
  first_new_ = spots_.size();
  const NodeId shared_tail = unready_shared_tail(tree, request, last);
  if (shared_tail != kNoNode && tree.at(shared_tail).arriving()) return Outcome::kWait;
  Spot tail = device_tail(tree, request, last);
  resident_ = resume(tree, limit, tail, false);
  find_below(tree, request, last, tail);
  if (spots_.size() == first_new_ && shared_tail != kNoNode)
    return Outcome::kNothing;  // a lease is making it: this one will follow
  position_ = resume(tree, limit, tail, true);
  if (position_ < resident_ + kLeastGain) return Outcome::kNothing;
  if (position_ > std::ssize(spots_) * kBlockTokens) {
    if (tail.node != kNoNode) ++first_new_;
    spots_.push_back(tail);
  }
  spots_.resize(static_cast<size_t>(blocks_for(position_)));
  first_new_ = std::min(first_new_, spots_.size());
  return Outcome::kBegun;
}

// The shared tail, where the path leads up to it and it is in the tree but not ready; else kNoNode.
inline NodeId Promotion::unready_shared_tail(const PrefixTree& tree, const LeaseRequest& request, NodeId last) const {
  const auto end = static_cast<size_t>(request.regions.shared_tokens);
  if (end % kBlockTokens == 0 || end > request.prompt.size() || end / kBlockTokens != spots_.size()) return kNoNode;
  const std::span<const int32_t> tokens = request.prompt.subspan(spots_.size() * kBlockTokens, end % kBlockTokens);
  const NodeId tail = tree.find(tree.key(last, request.regions.shared, tokens));
  return tail != kNoNode && !tree.at(tail).ready() ? tail : kNoNode;
}

// The beginning of a block on the device that continues the path.
inline Promotion::Spot Promotion::device_tail(const PrefixTree& tree, const LeaseRequest& request, NodeId last) const {
  Spot tail;
  tail.node = tree.find_partial(last, request.regions, static_cast<int32_t>(spots_.size()),
                                request.prompt.subspan(spots_.size() * kBlockTokens), tail.count);
  return tail;
}

// Appends the whole blocks that lie below behind `last`, and replaces `tail` by one from there that is longer, or that
// is behind them.
inline void Promotion::find_below(const PrefixTree& tree, const LeaseRequest& request, NodeId last, Spot& tail) {
  const Tiers& tiers = *tree.tiers();
  if (!tree.uses(kGlobal)) return;  // nothing else says that a path is whole
  uint64_t path = tree.at(last).path;
  BlockName name = tree.at(last).name;
  for (;; tail = {kNoNode, kNoStored, 0}) {
    const auto index = static_cast<int32_t>(spots_.size());
    const std::span<const int32_t> rest = request.prompt.subspan(spots_.size() * kBlockTokens);
    StoredId whole = kNoStored;
    if (rest.size() >= kBlockTokens) {
      const DomainId domain = request.regions.of_block(index);
      name = tree.namer().of(name, tree.domains().at(domain).name, rest.data(), kBlockTokens);
      whole = tiers.find(path, domain, rest.first(kBlockTokens), name);
    }
    if (!tiers.ready(whole, kGlobal)) {
      int32_t count = 0;
      const StoredId id = tiers.find_partial(path, request.regions, index, rest, count);
      if (count > tail.count && !(spots_.size() == first_new_ && on_device(tree, last, id)))
        tail = {kNoNode, id, count};
      return;
    }
    spots_.push_back({kNoNode, whole, kBlockTokens});
    path = tiers.at(whole).path;
  }
}

// Whether the tree has this block, too, among more children of `parent` than it looks through: then there must not be a
// second one.
inline bool Promotion::on_device(const PrefixTree& tree, NodeId parent, StoredId id) {
  const StoredBlock& stored = tree.tiers()->at(id);
  return tree.find({parent, stored.domain, stored.known_tokens(), stored.name}) != kNoNode;
}

// The last position whose window is whole: on the device, or with what lies below.
inline int32_t Promotion::resume(const PrefixTree& tree, int32_t limit, Spot& tail, bool below) {
  const auto whole = static_cast<int32_t>(spots_.size());
  int32_t position = std::min(limit, whole * kBlockTokens + tail.count);
  if (!tree.uses(kWindow)) return position;
  for (int32_t index = blocks_for(position) - 1; index >= 0 && index >= tree.first_visible(position); --index)
    if (!has_window(tree, index < whole ? spots_[static_cast<size_t>(index)] : tail, below))
      position = index * kBlockTokens;
  return position;
}

inline bool Promotion::has_window(const PrefixTree& tree, Spot& spot, bool below) {
  if (spot.node != kNoNode && tree.at(spot.node).has(kWindow)) return true;
  if (!below) return false;
  if (spot.stored == kNoStored && spot.node != kNoNode)
    spot.stored = tree.tiers()->find(tree.at(spot.node).name, tree.at(spot.node).path);
  return tree.tiers()->ready(spot.stored, kWindow);
}

}  // namespace kaiju
