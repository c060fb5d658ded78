// Validators of the scheduler's books: pure functions over const state; an error names what is broken. For tests and
// for EngineOptions::check_ledger.
#pragma once

#include <memory>
#include <vector>

#include "kaiju/cache/detail/invariants.hpp"
#include "kaiju/engine/detail/sequence.hpp"

namespace kaiju {

// Recounts the cache's books, and that every block has one holder: the tree, the lease of a running sequence (null: one
// that has just left), or a promotion. O(nodes + blocks).
inline Status check_ledger(const PrefixTree& tree, const std::vector<std::unique_ptr<Sequence>>& running,
                           const std::vector<Promotion>& promotions) {
  KAIJU_TRY(check_tree(tree));
  std::vector<const Lease*> leases;
  for (const auto& sequence : running)
    if (sequence) leases.push_back(&sequence->lease);
  std::vector<const Promotion*> under_way;
  for (const Promotion& promotion : promotions) under_way.push_back(&promotion);
  return check_holders(tree, leases, under_way);
}

}  // namespace kaiju
