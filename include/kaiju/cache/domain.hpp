// Domains: which requests may share blocks. Every block belongs to one domain: a shared region (a character's version),
// a salt, or a session with its forks. A request sees the blocks of its own domains and of no other. Domains are told
// apart by their keys, compared as text.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "kaiju/cache/name.hpp"
#include "kaiju/cache/scope.hpp"

namespace kaiju {

using NodeId = int32_t;
inline constexpr NodeId kNoNode = -1;
using DomainId = int32_t;
inline constexpr DomainId kNoDomain = -1;

enum class DomainKind : char { kShared = 'c', kSalt = 's', kSession = 'o' };

// A scope with its keys looked up.
struct Regions {
  DomainId shared = kNoDomain;
  int32_t shared_tokens = 0;
  DomainId own = kNoDomain;

  // A block with one private token is private.
  DomainId of_block(int32_t index) const { return (index + 1) * kBlockTokens <= shared_tokens ? shared : own; }
};

struct Domain {
  DomainKind kind = DomainKind::kShared;
  std::string key;
  BlockName name;
  int32_t holders = 0;  // sessions and requests that may still use it
  int32_t nodes = 0;
  NodeId first = kNoNode, last = kNoNode;  // its blocks in the tree, parents before children
  int32_t stored = 0, first_stored = -1;   // its blocks in lower tiers (tiers.hpp)
  bool ends_unheld = false;                // dies with its last holder: a session's own, a retired character version
  bool dead = false;                       // no request can reach its blocks any more: they go once nobody holds them
};

// Invariants: a living domain is found under its key; a dead one is not, and its key may name another. An entry is
// reused once its domain has no holder and no block anywhere. One thread at a time.
class Domains {
 public:
  // The domain of a key, with one more holder.
  DomainId hold(DomainKind kind, const std::string& key, const Namer& namer) {
    const auto [place, added] = index_.try_emplace(static_cast<char>(kind) + key, kNoDomain);
    if (added) {
      place->second = fresh();
      Domain& domain = domains_[static_cast<size_t>(place->second)];
      domain = {};
      domain.kind = kind;
      domain.key = place->first;
      domain.name = namer.of(place->first);
      domain.ends_unheld = kind == DomainKind::kSession;
    }
    ++at(place->second).holders;
    return place->second;
  }
  Domain& at(DomainId id) { return domains_[static_cast<size_t>(id)]; }
  const Domain& at(DomainId id) const { return domains_[static_cast<size_t>(id)]; }
  // No request finds it from now on: its key will name another domain.
  void kill(DomainId id) {
    if (at(id).dead) return;
    at(id).dead = true;
    index_.erase(at(id).key);
  }
  // Forgets a domain that nobody holds and that has no blocks.
  void forget_if_unused(DomainId id) {
    if (at(id).holders > 0 || at(id).nodes > 0 || at(id).stored > 0) return;
    kill(id);
    free_.push_back(id);
  }
  DomainId find(DomainKind kind, const std::string& key) const {
    const auto found = index_.find(static_cast<char>(kind) + key);
    return found == index_.end() ? kNoDomain : found->second;
  }
  size_t count() const { return domains_.size() - free_.size(); }
  size_t end() const { return domains_.size(); }

 private:
  DomainId fresh() {
    if (free_.empty()) {
      if (free_.capacity() <= domains_.size()) free_.reserve(2 * domains_.size() + 16);  // forgetting must not fail
      domains_.emplace_back();
      return static_cast<DomainId>(domains_.size() - 1);
    }
    const DomainId id = free_.back();
    free_.pop_back();
    return id;
  }
  std::unordered_map<std::string, DomainId> index_;
  std::vector<Domain> domains_;
  std::vector<DomainId> free_;
};

}  // namespace kaiju
