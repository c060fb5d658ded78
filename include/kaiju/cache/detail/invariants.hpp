// Validators of the cache: they check the invariants in the comments above BlockPool, Node, PrefixTree, TierPool and
// Tiers. They are pure functions over const state, and an error names what is broken. For tests and for
// EngineOptions::check_ledger.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/cache/lease.hpp"
#include "kaiju/cache/prefix_tree.hpp"
#include "kaiju/cache/promotion.hpp"
#include "kaiju/cache/tiers.hpp"

namespace kaiju {

inline Status ledger_error(const BlockPool& pool, BlockKind kind, const std::string& what) {
  const auto counted = [&](const char* name, BlockState state) {
    return std::string(", ") + name + " " + std::to_string(pool.count(kind, state));
  };
  return internal_error(std::string("cache ledger: ") + name_of(kind) + " blocks: " + what + " (total " +
                        std::to_string(pool.total(kind)) + counted("free", BlockState::kFree) +
                        counted("cached", BlockState::kCached) + counted("live", BlockState::kLive) +
                        counted("pinned", BlockState::kPinned) + counted("arriving", BlockState::kArriving) + ")");
}

// The pool of blocks: states, slabs, lists and counts. O(blocks).
inline Status check_blocks(const BlockPool& pool) {
  struct Seen {
    int32_t used = 0, busy = 0;
  };
  std::vector<Seen> seen(pool.slabs_.size());
  for (const BlockKind kind : kBothKinds) {
    const BlockPool::Kind& k = pool.kinds_[kind];
    int32_t count[kBlockStates] = {};
    for (BlockId block = 0; block < k.total; ++block) {
      const BlockState state = pool.state(kind, block);
      ++count[static_cast<size_t>(state)];
      const auto slab = static_cast<size_t>(pool.slab_of(kind, block));
      if (state == BlockState::kFree) continue;
      if (pool.slabs_[slab].kind != kind)
        return ledger_error(pool, kind, "block " + std::to_string(block) + " is used in a slab of the other kind");
      ++seen[slab].used;
      seen[slab].busy += BlockPool::is_busy(state) ? 1 : 0;
    }
    for (size_t state = 1; state < kBlockStates; ++state)
      if (count[state] != k.count[state]) return ledger_error(pool, kind, "the states do not add up");
  }
  PerKind<int32_t> room, open, idle;
  for (size_t number = 0; number < pool.slabs_.size(); ++number) {
    const BlockPool::Slab& slab = pool.slabs_[number];
    const BlockPool::Kind& k = pool.kinds_[slab.kind];
    const auto broken = [&](const char* what) {
      return ledger_error(pool, slab.kind, "slab " + std::to_string(number) + " " + what);
    };
    if (slab.used != seen[number].used || slab.busy != seen[number].busy) return broken("is miscounted");
    if (slab.used == 0) continue;
    int32_t free = 0;
    for (BlockId block = slab.first_free; block != kNoBlock; block = k.next_free[static_cast<size_t>(block)], ++free)
      if (pool.state(slab.kind, block) != BlockState::kFree || free > k.per_slab)
        return broken("has a block among the free ones that is not free");
    if (free + slab.used != k.per_slab) return broken("has lost a block");
    if ((slab.open_place >= 0) != (free > 0)) return broken("is listed as open wrongly");
    if ((slab.idle_place >= 0) != (slab.busy == 0)) return broken("is listed as idle wrongly");
    if (slab.spare != (slab.wanted == 0)) return broken("is listed as spare wrongly");
    open[slab.kind] += free > 0 ? 1 : 0;
    idle[slab.kind] += slab.busy == 0 ? 1 : 0;
    if (slab.busy > 0) room[slab.kind] += k.per_slab - slab.busy;
  }
  for (const BlockKind kind : kBothKinds) {
    const BlockPool::Kind& k = pool.kinds_[kind];
    if (room[kind] != k.room) return ledger_error(pool, kind, "the room in busy slabs is miscounted");
    if (open[kind] != std::ssize(k.open) || idle[kind] != std::ssize(k.idle))
      return ledger_error(pool, kind, "a list of slabs has one too many");
  }
  return {};
}

// The tiers behind the device: every place against what is in it. O(places).
inline Status check_tiers(const Tiers& tiers) {
  const auto broken = [](const std::string& what) { return internal_error("cache ledger: lower tiers: " + what); };
  KAIJU_TRY(check_blocks(tiers.host_pool_.places()));
  KAIJU_TRY(check_blocks(tiers.file_pool_.places()));
  int32_t stored_count = 0;
  for (size_t d = 0; d < tiers.domains_.end(); ++d) {
    const Domain& domain = tiers.domains_.at(static_cast<DomainId>(d));
    int32_t count = 0;
    for (StoredId id = domain.first_stored; id != kNoStored; id = tiers.at(id).domain_next, ++count) {
      const StoredBlock& stored = tiers.at(id);
      const std::string block = "block " + std::to_string(id);
      if (stored.domain != static_cast<DomainId>(d) || stored.gone) return broken(block + " is in the wrong domain");
      if (tiers.find(stored.name, stored.path) != id) return broken(block + " cannot be found");
      if (tiers.find(stored.parent, stored.domain, stored.known_tokens(), stored.name) != id)
        return broken(block + " is there twice");
      if (!stored.has(BlockKind::kGlobal) && !stored.has(BlockKind::kWindow)) return broken(block + " is nowhere");
    }
    if (count != domain.stored) return broken("a domain is miscounted");
    stored_count += count;
  }
  for (const CacheTier tier : {CacheTier::kHost, CacheTier::kFile})
    for (const BlockKind kind : kBothKinds) {
      const TierPool& pool = tiers.pool(tier);
      int32_t used_count = 0;
      for (BlockId place = 0; place < pool.places().total(kind); ++place) {
        const bool used = pool.places().state(kind, place) != BlockState::kFree;
        const StoredId id = pool.at(kind, place);
        if (used != (id != kNoStored)) return broken("place " + std::to_string(place) + " is miscounted");
        if (!used) continue;
        const StoredBlock& stored = tiers.at(id);
        if (stored.tier[kind] != tier || stored.place[kind] != place)
          return broken("place " + std::to_string(place) + " is another's");
        ++used_count;
        // One that is gone is in no domain's list: it is counted by the first block it has.
        if (stored.gone && (kind == BlockKind::kGlobal || !stored.has(BlockKind::kGlobal))) ++stored_count;
      }
      if (pool.places().used_count(kind) != used_count) return broken("places are lost");
    }
  for (const BlockKind kind : kBothKinds)
    if (tiers.host_pool_.places().count(kind, BlockState::kArriving) !=
        std::count_if(tiers.downs_.begin(), tiers.downs_.end(), [&](const auto& down) { return down.kind == kind; }))
      return broken("the copies on their way down are miscounted");
  return stored_count == tiers.stored_count_ ? Status() : broken("blocks are lost");
}

// One node; `domain` is the one in whose list it was found.
inline Status check_node(const PrefixTree& tree, NodeId id, DomainId domain) {
  const Node& node = tree.at(id);
  const auto broken = [&](const char* what) {
    return ledger_error(tree.pool(), BlockKind::kGlobal, "node " + std::to_string(id) + " " + what);
  };
  if (node.domain != domain || node.parent == kNoNode) return broken("is in the wrong domain");
  if (node.count < 1 || node.count > kBlockTokens || (node.count < kBlockTokens && node.first_child != kNoNode))
    return broken("goes on behind its end");
  if (tree.find({node.parent, domain, {node.tokens, static_cast<size_t>(node.count)}, node.name}) != id)
    return broken("is there twice, or not in the index");
  if (tree.uses(BlockKind::kGlobal) != node.has(BlockKind::kGlobal)) return broken("lacks its global block");
  for (const BlockKind kind : kBothKinds) {
    if (!node.has(kind)) continue;
    if (tree.node_of(kind, node.block[kind]) != id) return broken("has a block that is another's");
    if (tree.pool().state(kind, node.block[kind]) != node.state_of(kind))
      return broken("has a block in a state that its counts do not ask for");
  }
  if (node.refs < 0 || node.window_refs < 0 || node.pins < 0 || node.window_pins < 0 || node.points < 0 ||
      node.retainers < 0)
    return broken("has a negative count");
  if (node.window_refs > node.refs) return broken("is read by more sequences than hold it");
  if (node.claimed_by(kUnclaimed) && node.refs == 0) return broken("waits for nobody");
  int32_t kept_children = 0;
  for (NodeId child = node.first_child; child != kNoNode; child = tree.at(child).next_sibling)
    kept_children += tree.at(child).listed && tree.share_of(child) == tree.share_of(id) ? 0 : 1;
  if (node.kept_children != kept_children) return broken("miscounts its children");
  const bool held = node.refs > 0 || !node.ready() || node.pins > 0 || node.points > 0 || kept_children > 0;
  if (node.listed == held) return broken(held ? "is needed and may be evicted" : "is nobody's and may not be evicted");
  const bool window_may_go =
      node.has(BlockKind::kWindow) && node.state_of(BlockKind::kWindow) == BlockState::kCached && node.retainers == 0;
  if (node.window_listed != window_may_go) return broken("lists its window block wrongly");
  if ((node.points > 0) != (node.point >= 0) || (node.points > 0 && tree.points().at(node.point).node != id))
    return broken("has lost its resume point");
  if (node.parent == kRoot) return {};
  const Node& parent = tree.at(node.parent);
  if (parent.refs < node.refs || parent.pins < node.pins) return broken("is held more than its parent");
  if (parent.listed && parent.idle[BlockKind::kGlobal] < node.idle[BlockKind::kGlobal])
    return broken("is evicted after its parent");
  return {};
}

// Every used block is wanted, or in one of the lists of what may be evicted. O(blocks).
inline Status check_wanted(const PrefixTree& tree) {
  const BlockPool& pool = tree.pool();
  std::vector<int32_t> wanted(static_cast<size_t>(pool.slab_count()), 0);
  for (const BlockKind kind : kBothKinds)
    for (BlockId block = 0; block < pool.total(kind); ++block) {
      if (pool.state(kind, block) == BlockState::kFree) continue;
      const NodeId id = tree.node_of(kind, block);
      const bool listed =
          id != kNoNode && (kind == BlockKind::kGlobal ? tree.at(id).listed : tree.at(id).window_listed);
      wanted[static_cast<size_t>(pool.slab_of(kind, block))] += listed ? 0 : 1;
    }
  for (int32_t slab = 0; slab < pool.slab_count(); ++slab)
    if (pool.wanted_count(slab) != wanted[static_cast<size_t>(slab)])
      return internal_error("cache ledger: slab " + std::to_string(slab) + " has " +
                            std::to_string(wanted[static_cast<size_t>(slab)]) + " wanted blocks and counts " +
                            std::to_string(pool.wanted_count(slab)));
  return {};
}

// What is charged to each share, its lists and its ring. O(nodes).
inline Status check_shares(const PrefixTree& tree) {
  const CacheShares& shares = tree.shares();
  const auto broken = [](ShareId id, const char* what) {
    return internal_error("cache ledger: share " + std::to_string(id) + " " + what);
  };
  std::vector<int64_t> bytes(static_cast<size_t>(shares.count())), points(bytes.size());
  for (size_t d = 0; d < tree.domains().end(); ++d)
    for (NodeId id = tree.domains().at(static_cast<DomainId>(d)).first; id != kNoNode; id = tree.at(id).domain_next) {
      const auto share = static_cast<size_t>(tree.share_of(id));
      for (const BlockKind kind : kBothKinds) bytes[share] += tree.at(id).has(kind) ? tree.pool().block_bytes(kind) : 0;
      points[share] += tree.at(id).points > 0 ? 1 : 0;
    }
  for (ShareId id = 0; id < shares.count(); ++id) {
    const CacheShare& share = shares.at(id);
    if (share.bytes != bytes[static_cast<size_t>(id)]) return broken(id, "is charged for other blocks than it has");
    if (share.points != points[static_cast<size_t>(id)]) return broken(id, "miscounts its resume points");
    int32_t in_ring = 0;
    for (NodeId at = share.hand; at != kNoNode && in_ring <= share.points; ++in_ring) {
      if (tree.share_of(at) != id) return broken(id, "has another's resume point in its ring");
      at = tree.points().at(tree.at(at).point).ring_next;
      if (at == share.hand) at = kNoNode;
    }
    if (in_ring != share.points) return broken(id, "has lost resume points of its ring");
    if ((share.point_place >= 0) != (share.points > 0 && !shares.is_promised(id)) ||
        (share.over_place >= 0) != shares.is_over(id))
      if (shares.any() && id != kCommonShare) return broken(id, "is in a list wrongly");
    for (const BlockKind kind : kBothKinds) {
      const NodeId oldest = share.idle[kind].oldest;
      const uint64_t when = oldest == kNoNode ? UINT64_MAX : tree.at(oldest).idle[kind];
      if (share.oldest[kind] != when) return broken(id, "does not know its oldest entry");
      const ShareId first = shares.oldest(kind, EvictionPass::kUnpromised, {});
      if (when != UINT64_MAX && !shares.is_promised(id) && (first < 0 || shares.at(first).oldest[kind] > when))
        return broken(id, "was passed over by the tournament");
      if (first >= 0 && shares.is_promised(first)) return broken(first, "may be evicted below its floor");
    }
  }
  return {};
}

// All of the cache's books. O(nodes + blocks).
inline Status check_tree(const PrefixTree& tree) {
  KAIJU_TRY(check_blocks(tree.pool()));
  KAIJU_TRY(check_wanted(tree));
  int32_t seen = 0, points = 0;
  for (size_t d = 0; d < tree.domains().end(); ++d) {
    const auto domain = static_cast<DomainId>(d);
    int32_t nodes = 0;
    for (NodeId id = tree.domains().at(domain).first; id != kNoNode; id = tree.at(id).domain_next, ++nodes) {
      KAIJU_TRY(check_node(tree, id, domain));
      points += tree.at(id).points > 0 ? 1 : 0;
    }
    if (nodes != tree.domains().at(domain).nodes)
      return internal_error("cache ledger: a domain's nodes are miscounted");
    seen += nodes;
  }
  if (seen != tree.node_count()) return internal_error("cache ledger: the tree has lost nodes");
  if (points != tree.points().count()) return internal_error("cache ledger: resume points without a node");
  KAIJU_TRY(check_shares(tree));
  return tree.tiers() ? check_tiers(*tree.tiers()) : Status();
}

// Every used block has one holder: a node, or the hand of one of these leases and promotions. O(blocks).
inline Status check_holders(const PrefixTree& tree, std::span<const Lease* const> leases,
                            std::span<const Promotion* const> promotions) {
  const BlockPool& pool = tree.pool();
  for (const BlockKind kind : kBothKinds) {
    std::vector<int32_t> holders(static_cast<size_t>(pool.total(kind)), 0);
    const auto hold = [&](BlockId block) {
      if (block != kNoBlock && tree.node_of(kind, block) == kNoNode) ++holders[static_cast<size_t>(block)];
    };
    for (const Lease* lease : leases) {
      std::ranges::for_each(lease->stash(kind), hold);
      std::ranges::for_each(lease->blocks(kind), hold);
    }
    for (const Promotion* promotion : promotions) promotion->for_blocks(kind, hold);
    for (BlockId block = 0; block < pool.total(kind); ++block) {
      const bool used = pool.state(kind, block) != BlockState::kFree;
      const int32_t count = holders[static_cast<size_t>(block)] + (tree.node_of(kind, block) != kNoNode ? 1 : 0);
      if (count != (used ? 1 : 0))
        return ledger_error(pool, kind,
                            "block " + std::to_string(block) + (used ? " is in use and has " : " is free and has ") +
                                std::to_string(count) + " holders");
    }
  }
  return {};
}

}  // namespace kaiju
