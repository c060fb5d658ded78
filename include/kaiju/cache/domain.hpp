// A domain is a set of cache blocks that the same requests may use. Every block belongs to one domain. A domain stands
// for a shared region (the prompt of one version of a character), for a salt (a secret that several sessions use), or
// for one session with its forks. A request finds only the blocks of the domains that it names. Two domains are the
// same if they have the same kind and the same key.
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
using ShareId = int32_t;
inline constexpr ShareId kCommonShare = 0;  // of everything that no share was set for (detail/cache_shares.hpp)

enum class DomainKind : char { kShared = 'c', kSalt = 's', kSession = 'o' };

// Regions holds the domains that a request may use, as named by its Scope (scope.hpp): the shared region's domain for
// the prompt's first `shared_tokens` tokens, and the request's own domain for all later tokens.
struct Regions {
  DomainId shared = kNoDomain;
  int32_t shared_tokens = 0;
  DomainId own = kNoDomain;

  // Returns the domain of the prompt's block `index`. A block belongs to the shared region only if all its tokens lie
  // in the shared region.
  DomainId of_block(int32_t index) const { return (index + 1) * kBlockTokens <= shared_tokens ? shared : own; }
};

struct Domain {
  DomainKind kind = DomainKind::kShared;
  std::string key;
  BlockName name;
  ShareId share = kCommonShare;  // whose memory its blocks take
  int32_t holders = 0;           // sessions and requests that may still use the domain
  int32_t nodes = 0;
  NodeId first = kNoNode, last = kNoNode;  // list of its nodes in the prefix tree, parents before children
  int32_t stored = 0, first_stored = -1;   // its stored blocks in lower tiers (tiers.hpp)
  bool ends_unheld = false;  // removed with its last holder: for a session's own domain and a retired character version
  bool dead = false;         // no request can find its blocks any more; each block is removed when no lease holds it
};

// Domains: the table of all domains. Invariants: A domain that is not `dead` can be found by its key. A dead domain
// cannot be found, and its key may name a new domain. A table entry is reused once its domain has no holder (session or
// request) and no block in any tier. One thread at a time may use a Domains object.
class Domains {
 public:
  // Returns the domain with this kind and key, and creates the domain if it does not exist. In both cases, hold() adds
  // one holder (session or request) to the domain. `share`: what its blocks are charged to; a domain that has blocks
  // already keeps its share.
  DomainId hold(DomainKind kind, const std::string& key, const Namer& namer, ShareId share = kCommonShare) {
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
    Domain& held = at(place->second);
    if (held.nodes == 0) held.share = share;
    ++held.holders;
    return place->second;
  }
  Domain& at(DomainId id) { return domains_[static_cast<size_t>(id)]; }
  const Domain& at(DomainId id) const { return domains_[static_cast<size_t>(id)]; }
  // Makes a domain dead: from now on no request finds the domain, and a later hold() with its key creates a new domain.
  void kill(DomainId id) {
    if (at(id).dead) return;
    at(id).dead = true;
    index_.erase(at(id).key);
  }
  // Frees the table entry of this domain if the domain has no holder and no blocks.
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
      // Memory is reserved here so that forget_if_unused never allocates.
      if (free_.capacity() <= domains_.size()) free_.reserve(2 * domains_.size() + 16);
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
