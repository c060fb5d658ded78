// PrefixTree: what routers are told of its blocks. Part of prefix_tree.hpp, which states the contract.
#pragma once

#include <span>
#include <vector>

#include "kaiju/cache/prefix_tree.hpp"

namespace kaiju {

inline void PrefixTree::publish_stored(NodeId id) {
  const Node& node = at(id);
  events_.push_stored(node.name, parent_name(node), {node.tokens, static_cast<size_t>(node.count)}, CacheTier::kDevice,
                      is_private(node.domain));
}

inline void PrefixTree::publish_removed(const Node& node) {
  events_.push_removed(node.name, parent_name(node), node.count, CacheTier::kDevice, is_private(node.domain));
}

inline void PrefixTree::list_cached(std::vector<CacheEvent>& events) const {
  // A private block may follow a shared one, and never the other way round.
  for (const bool of_private : {false, true}) {
    if (!events_.records(of_private)) continue;
    for (DomainId domain = 0; domain < static_cast<DomainId>(domains_.end()); ++domain) {
      if (is_private(domain) != of_private || domains_.at(domain).nodes == 0) continue;
      for (NodeId id = domains_.at(domain).first; id != kNoNode; id = at(id).domain_next)
        if (const Node& node = at(id); node.ready())
          events.push_back(events_.stored(node.name, parent_name(node), {node.tokens, static_cast<size_t>(node.count)},
                                          CacheTier::kDevice, of_private));
    }
  }
  if (tiers_) tiers_->list_cached(events);
}

}  // namespace kaiju
