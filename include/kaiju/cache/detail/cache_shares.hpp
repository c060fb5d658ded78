// CacheShares: which share (share_limits.hpp) each cached byte is charged to, and whose KV may go. Knows sizes, clocks
// and numbers of nodes, and no tree. Share 0 is everything that no share was set for: it has no floor and no ceiling.
//
// Every share has its own lists of nodes and window blocks to evict, oldest first, and its own ring of resume points. A
// tournament over the shares finds the oldest entry of all those that may go in O(1); a change costs O(log shares).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kaiju/cache/domain.hpp"
#include "kaiju/cache/share_limits.hpp"
#include "kaiju/step/kinds.hpp"

namespace kaiju {

// A list of nodes, through links in the nodes.
struct NodeList {
  NodeId oldest = kNoNode, newest = kNoNode;
};

struct CacheShare {
  ShareLimits limits;
  int64_t bytes = 0;  // of all blocks in nodes of its domains
  PerKind<NodeList> idle;
  PerKind<uint64_t> oldest;  // when the oldest entry of each list came there; UINT64_MAX: the list is empty
  NodeId hand = kNoNode;     // a node of its ring of resume points: where the last search ended
  int32_t points = 0;        // in the ring
  int32_t point_place = -1;  // in the list of shares whose points may go
  int32_t over_place = -1;   // in the list of shares above their ceiling
};

// Who asks for room. What a request evicts is chosen in passes: what is above a ceiling, what nobody was promised, what
// belongs to its own share, and, if nothing else runs, the rest.
struct Claimant {
  ShareId share = kCommonShare;
  bool over_floors = false;
};
enum class EvictionPass : int32_t { kOver, kUnpromised, kOwn, kAll };
inline constexpr EvictionPass kEvictionPasses[] = {EvictionPass::kOver, EvictionPass::kUnpromised, EvictionPass::kOwn,
                                                   EvictionPass::kAll};

// Invariants, which check_shares (invariants.hpp) recounts:
// - `bytes` is the sum over the blocks of the share's nodes.
// - A share protects its KV while evicting one more node could leave it less than its floor.
// - The tournament of a kind has the entry `oldest` of each share that does not protect its KV.
//
// One thread at a time.
class CacheShares {
 public:
  // `node_bytes`: the most that one node has.
  explicit CacheShares(int64_t node_bytes = 0) : node_bytes_(node_bytes) {
    all_.emplace_back();
    all_[0].oldest = {kNever, kNever};
    build_tournaments();
  }

  int32_t count() const { return static_cast<int32_t>(all_.size()); }
  // Whether there are limits at all.
  bool any() const { return all_.size() > 1; }
  CacheShare& at(ShareId id) { return all_[static_cast<size_t>(id)]; }
  const CacheShare& at(ShareId id) const { return all_[static_cast<size_t>(id)]; }
  // The share of a name; kCommonShare if none was set for it.
  ShareId find(ShareOf of, const std::string& name) const {
    const auto found = names_.find({of, name});
    return found == names_.end() ? kCommonShare : found->second;
  }
  // Makes the share, or changes its limits.
  ShareId set(ShareOf of, const std::string& name, const ShareLimits& limits) {
    const auto [place, added] = names_.try_emplace({of, name}, count());
    if (added) {
      all_.emplace_back();
      all_.back().oldest = {kNever, kNever};
      build_tournaments();
    }
    at(place->second).limits = limits;
    settle(place->second);
    return place->second;
  }
  // The sum of all floors of memory but one's.
  int64_t promised_bytes(ShareId but) const {
    int64_t bytes = 0;
    for (ShareId id = 1; id < count(); ++id) bytes += id == but ? 0 : at(id).limits.cache_floor_bytes;
    return bytes;
  }

  int64_t node_bytes() const { return node_bytes_; }
  bool is_promised(ShareId id) const {
    const CacheShare& share = at(id);
    return share.limits.cache_floor_bytes > 0 && share.bytes - node_bytes_ < share.limits.cache_floor_bytes;
  }
  bool is_over(ShareId id) const {
    const CacheShare& share = at(id);
    return share.limits.cache_ceiling_bytes > 0 && share.bytes > share.limits.cache_ceiling_bytes && !is_promised(id);
  }
  // Whether a share's KV may go in this pass.
  bool may_go(ShareId id, EvictionPass pass, const Claimant& claimant) const {
    switch (pass) {
      case EvictionPass::kOver:
        return is_over(id);
      case EvictionPass::kUnpromised:
        return !is_promised(id);
      case EvictionPass::kOwn:
        return id == claimant.share;
      case EvictionPass::kAll:
        return claimant.over_floors;
    }
    return false;
  }
  // The share with the oldest entry of the kind's list, of those that may go; -1: none.
  ShareId oldest(BlockKind kind, EvictionPass pass, const Claimant& claimant) const {
    switch (pass) {
      case EvictionPass::kOver:
        return over_.empty() || at(over_.back()).oldest[kind] == kNever ? -1 : over_.back();
      case EvictionPass::kUnpromised:
        return winner(kind);
      case EvictionPass::kOwn:
        return at(claimant.share).oldest[kind] == kNever ? -1 : claimant.share;
      case EvictionPass::kAll:
        return claimant.over_floors ? oldest_of_all(kind) : -1;
    }
    return -1;
  }
  // Shares above their ceiling, and those whose resume points nobody was promised; in no order.
  const std::vector<ShareId>& over() const { return over_; }
  const std::vector<ShareId>& with_free_points() const { return with_points_; }

  // A block of a node of the share came (1) or went (-1).
  void charge(ShareId id, int64_t bytes) {
    at(id).bytes += bytes;
    if (id != kCommonShare) settle(id);
  }
  // The oldest entry of a list is another one.
  void set_oldest(ShareId id, BlockKind kind, uint64_t when) {
    at(id).oldest[kind] = when;
    if (any()) enter(kind, id);
  }
  void count_point(ShareId id, int32_t by) {
    at(id).points += by;
    settle_points(id);
  }

 private:
  static constexpr uint64_t kNever = UINT64_MAX;

  // Puts a share where its bytes and limits ask for.
  void settle(ShareId id) {
    for (const BlockKind kind : kBothKinds) enter(kind, id);
    place(over_, at(id).over_place, id, is_over(id), &CacheShare::over_place);
    settle_points(id);
  }
  void settle_points(ShareId id) {
    place(with_points_, at(id).point_place, id, at(id).points > 0 && !is_promised(id), &CacheShare::point_place);
  }
  void place(std::vector<ShareId>& list, int32_t at_place, ShareId id, bool wanted, int32_t CacheShare::* member) {
    if (wanted == (at_place >= 0)) return;
    if (wanted) {
      at(id).*member = static_cast<int32_t>(list.size());
      list.push_back(id);
      return;
    }
    list[static_cast<size_t>(at_place)] = list.back();
    at(list.back()).*member = at_place;
    list.pop_back();
    at(id).*member = -1;
  }

  // -- the tournament: leaves are shares, each inner place has the winner of its two --
  void enter(BlockKind kind, ShareId id) {
    std::vector<Entry>& tree = tournament_[kind];
    size_t at_place = tree.size() / 2 + static_cast<size_t>(id);
    const Entry entry{is_promised(id) ? kNever : at(id).oldest[kind], id};
    if (tree[at_place] == entry) return;
    tree[at_place] = entry;
    while (at_place > 1) {
      at_place /= 2;
      const Entry winner = std::min(tree[2 * at_place], tree[2 * at_place + 1]);
      if (tree[at_place] == winner) return;
      tree[at_place] = winner;
    }
  }
  ShareId winner(BlockKind kind) const {
    if (!any()) return at(kCommonShare).oldest[kind] == kNever ? -1 : kCommonShare;
    const Entry& first = tournament_[kind][1];
    return first.first == kNever ? -1 : first.second;
  }
  ShareId oldest_of_all(BlockKind kind) const {
    ShareId best = kCommonShare;
    for (ShareId id = 1; id < count(); ++id)
      if (at(id).oldest[kind] < at(best).oldest[kind]) best = id;
    return at(best).oldest[kind] == kNever ? -1 : best;
  }
  // Builds both tournaments anew, over all shares.
  void build_tournaments() {
    size_t leaves = 2;
    while (leaves < all_.size()) leaves *= 2;
    over_.reserve(leaves), with_points_.reserve(leaves);
    for (const BlockKind kind : kBothKinds) {
      tournament_[kind].assign(2 * leaves, {kNever, INT32_MAX});
      for (ShareId id = 0; id < count(); ++id) enter(kind, id);
    }
  }

  using Entry = std::pair<uint64_t, ShareId>;
  int64_t node_bytes_;
  std::vector<CacheShare> all_;
  std::map<std::pair<ShareOf, std::string>, ShareId> names_;
  std::vector<ShareId> over_, with_points_;
  PerKind<std::vector<Entry>> tournament_;
};

}  // namespace kaiju
