// PrefixTree: the cached KV blocks as a prefix tree over tokens. The tree finds, holds and pins nodes and records
// resume points (positions from which a later prompt can continue). The tree gives out blocks. If no block is free, it
// evicts what no resume point needs, and gives up the resume point that is worth least. The tree knows block numbers
// and tokens and never touches KV memory. The code in prefix_tree_nodes.hpp adds and removes nodes, that in
// prefix_tree_points.hpp adds and gives up resume points, and that in prefix_tree_eviction.hpp evicts blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kaiju/base/buffer.hpp"
#include "kaiju/base/float_state.hpp"
#include "kaiju/cache/block_pool.hpp"
#include "kaiju/cache/detail/cache_shares.hpp"
#include "kaiju/cache/detail/evicted_names.hpp"
#include "kaiju/cache/detail/resume_points.hpp"
#include "kaiju/cache/domain.hpp"
#include "kaiju/cache/events.hpp"
#include "kaiju/cache/node.hpp"
#include "kaiju/cache/options.hpp"
#include "kaiju/cache/tiers.hpp"

namespace kaiju {

// NodeKey identifies a node of the tree by its `parent`, its domain (domain.hpp: which requests may use it) and its
// `tokens`. A node has 64 tokens, or fewer if it is a tail, the last block of a path. PrefixTree::key makes a NodeKey.
struct NodeKey {
  NodeId parent = kRoot;
  DomainId domain = kNoDomain;
  std::span<const int32_t> tokens;
  BlockName name;

  int32_t count() const { return static_cast<int32_t>(tokens.size()); }
};

// Invariants of the tree, in addition to those of a node (node.hpp) and of the blocks (block_pool.hpp). The functions
// check_tree and check_holders (invariants.hpp) verify these invariants:
// - A block that is not free belongs to one node, or to the one lease, promotion or path builder that has taken it.
// - The tokens and domains of a node's path determine its KV. No two nodes have the same parent, domain and tokens.
// - Every node is in its domain's list of nodes. If a node and its parent have the same domain, the parent comes first
//   in that list.
// - If a domain is dead (no request can find its blocks any more), each node of it is removed as soon as nothing holds
//   the node.
//
// Nodes are read through at() and changed only by methods of the PrefixTree. One thread at a time may use a PrefixTree.
// The cost of a call does not depend on the number of blocks, except for purge and set_epoch, which visit every node
// that they remove.
class PrefixTree {
 public:
  // Allocates all memory of the tree, and throws std::bad_alloc if that fails. Pages of the tree's memory that are
  // never used do not become resident.
  PrefixTree(const ExecutorInfo& info, const CacheOptions& options)
      : options_(options),
        has_global_(info.has_global),
        window_(info.window),
        reach_(info.window > 0 ? (info.window + kBlockTokens - 2 + kBlockTokens - 1) / kBlockTokens : 0),
        pool_(info),
        events_({options.event_capacity, options.publish_private, options.event_tokens}),
        epoch_(options.epoch),
        namer_(options.key, identity(options.epoch)),
        shares_(info.block_bytes[BlockKind::kGlobal] + info.block_bytes[BlockKind::kWindow]) {
    // If the model has global layers, every node has a global block, so there are at most as many nodes as global
    // blocks. If the model has no global layers, a node may remain for some time after its window block was evicted.
    const int64_t nodes = info.has_global ? int64_t{info.block_count[BlockKind::kGlobal]}
                                          : int64_t{8} * info.block_count[BlockKind::kWindow];
    capacity_ = static_cast<int32_t>(std::min<int64_t>(nodes + 1, INT32_MAX / 2));
    size_t buckets = 16;
    while (buckets < static_cast<size_t>(capacity_)) buckets *= 2;
    nodes_ = make_table<Node>(static_cast<size_t>(capacity_));
    buckets_ = make_table<NodeId>(buckets);
    const auto names = static_cast<size_t>(options.evicted_names > 0 ? options.evicted_names : int64_t{4} * capacity_);
    evicted_ = EvictedNames(make_table<uint64_t>(EvictedNames::words_for(names)));
    points_ = ResumePoints(make_table<ResumePoint>(static_cast<size_t>(capacity_)),
                           make_table<ForgottenPoint>(ForgottenPoints::places_for(static_cast<size_t>(capacity_ / 8))),
                           {reach_ + 1, info.block_bytes});
    reset_root();
  }
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  bool uses(BlockKind kind) const { return kind == BlockKind::kGlobal ? has_global_ : window_ > 0; }
  int32_t window() const { return window_; }
  // To resume at the end of a node, a sequence needs the window blocks of that node and of reach() nodes before it.
  int32_t reach() const { return reach_; }
  const Retention& retention() const { return options_.retention; }
  const BlockPool& pool() const { return pool_; }
  Domains& domains() { return domains_; }
  const Domains& domains() const { return domains_; }
  const Namer& namer() const { return namer_; }
  const std::string& identity() const { return options_.identity; }
  uint64_t epoch() const { return epoch_; }
  CacheEvents& events() { return events_; }
  // Appends a stored event for each block of which stored events are told, in all tiers, each after its parent.
  void list_cached(std::vector<CacheEvent>& events) const;
  CacheStats& stats() { return stats_; }
  const CacheStats& stats() const { return stats_; }
  const Node& at(NodeId id) const { return const_cast<PrefixTree*>(this)->node(id); }
  int32_t node_count() const { return node_count_; }
  bool alive(const NodeRef& ref) const {
    return ref.node != kNoNode && at(ref.node).generation == ref.generation && at(ref.node).parent != kNoNode;
  }
  NodeRef ref(NodeId id) const { return {id, at(id).generation}; }
  // Returns how many bytes of host memory the bookkeeping takes when all nodes are in use.
  size_t bookkeeping_bytes() const {
    size_t bytes = nodes_.bytes() + buckets_.bytes() + evicted_.bytes() + points_.bytes() +
                   (tiers_ ? tiers_->bookkeeping_bytes() : 0);
    for (const BlockKind kind : kBothKinds)
      bytes += (sizeof(BlockState) + sizeof(BlockId)) * static_cast<size_t>(pool_.total(kind)) +
               sizeof(NodeId) * owner_of_[kind].size();
    return bytes;
  }
  // The tree calls on_evict with each block that it evicts, before the block's number is used again.
  std::function<void(const EvictedBlock&)> on_evict;

  // Adds the lower tiers, which are host memory and a file for evicted KV. add_tiers must be called while the tree is
  // empty. add_tiers returns the errors that are described at Tiers::make.
  Status add_tiers(const ExecutorInfo& info, const Tiers::HostSource& host = plain_memory) {
    Result<std::unique_ptr<Tiers>> made = Tiers::make(info, options_, domains_, events_, host);
    if (!made.ok()) return made.status();
    tiers_ = std::move(made).value();
    return {};
  }
  Tiers* tiers() { return tiers_.get(); }  // null if there are no lower tiers
  const Tiers* tiers() const { return tiers_.get(); }

  // Returns the index of the first window block that a query at `position` or later can see. Window blocks before this
  // index may be released.
  int32_t first_visible(int32_t position) const { return std::max(0, position - window_ + 1) / kBlockTokens; }
  // Returns the index of the first window block that a sequence at `position` does not release. first_kept(position) is
  // the first window block that was visible 64 positions earlier, so the whole window is still cached after an undo of
  // up to 64 tokens.
  int32_t first_kept(int32_t position) const { return first_visible(std::max(0, position - kBlockTokens)); }

  // -- finding --
  NodeKey key(NodeId parent, DomainId domain, std::span<const int32_t> tokens) const {
    return {parent, domain, tokens,
            namer_.of(at(parent).name, domains_.at(domain).name, tokens.data(), static_cast<int32_t>(tokens.size()))};
  }
  // Returns the node with exactly this parent, domain and tokens, or kNoNode if there is none. The KV of the returned
  // node may not be computed yet.
  NodeId find(const NodeKey& key) const {
    for (NodeId id = bucket(key.name); id != kRoot; id = at(id).bucket_next) {
      const Node& node = at(id);
      if (node.parent == key.parent && node.domain == key.domain && node.count == key.count() &&
          std::memcmp(node.tokens, key.tokens.data(), key.tokens.size_bytes()) == 0)
        return id;
    }
    return kNoNode;
  }
  // Returns a node with this name, or kNoNode if there is none. Only lower tiers and events use this call, because it
  // does not compare tokens.
  NodeId find(const BlockName& name) const {
    for (NodeId id = bucket(name); id != kRoot; id = at(id).bucket_next)
      if (at(id).name == name) return id;
    return kNoNode;
  }
  // Returns the child of `parent` that has the longest common prefix with `tokens`, among the children whose KV is
  // computed. `count` receives the length of the common prefix, at most 63 tokens. Only the newest few children are
  // compared. `index` is the index of the child's block in the prompt.
  NodeId find_partial(NodeId parent, const Regions& regions, int32_t index, std::span<const int32_t> tokens,
                      int32_t& count) const {
    NodeId best = kNoNode;
    count = 0;
    int32_t looked = 0;
    for (NodeId id = at(parent).first_child; id != kNoNode && looked < kChildrenLooked;
         id = at(id).next_sibling, ++looked) {
      const Node& node = at(id);
      const bool shared = node.domain == regions.shared;
      if (!node.ready() || (!shared && node.domain != regions.own)) continue;
      int32_t most = std::min({node.count, static_cast<int32_t>(tokens.size()), kBlockTokens - 1});
      if (shared) most = std::min(most, regions.shared_tokens - index * kBlockTokens);
      int32_t same = 0;
      while (same < most && node.tokens[same] == tokens[static_cast<size_t>(same)]) ++same;
      if (same > count) count = same, best = id;
    }
    return best;
  }
  // Returns whether a block of this name was evicted and has not been computed again since, as far as the tree
  // remembers.
  bool was_evicted(const BlockName& name) const { return evicted_.has(name); }
  // Returns the node that this block belongs to, or kNoNode if it belongs to none.
  NodeId node_of(BlockKind kind, BlockId block) const { return owner_of_[kind][static_cast<size_t>(block)]; }
  // Returns whether the node has more than one child, which means that sequences have branched after this node.
  bool has_branches(NodeId id) const {
    return at(id).first_child != kNoNode && at(at(id).first_child).next_sibling != kNoNode;
  }

  // Returns whether one of the newest few children belongs to the shared region or the own domain, and its KV is
  // computed.
  bool has_child_of(NodeId parent, const Regions& regions) const {
    int32_t looked = 0;
    for (NodeId id = at(parent).first_child; id != kNoNode && looked < kChildrenLooked;
         id = at(id).next_sibling, ++looked)
      if (at(id).ready() && (at(id).domain == regions.shared || at(id).domain == regions.own)) return true;
    return false;
  }

  // -- growing --

  // Adds a node whose KV is not computed and which has no blocks, and returns it. Returns kNoNode if the tree is full.
  // `claim` is the ticket of the lease that will compute the KV, or kTransfer if the KV will be copied. The caller of
  // insert() must already hold the parent, and must call hold() for the new node.
  NodeId insert(const NodeKey& key, int32_t claim, uint64_t owner);
  // Gives a block, which the caller has taken before, to a node. After attach(), the tree owns the block.
  void attach(NodeId id, BlockKind kind, BlockId block) {
    node(id).block[kind] = block;
    owner_slot(kind, block) = id;
    shares_.charge(share_of(id), pool_.block_bytes(kind));
    settle(id);
  }
  // Removes a block from a node and returns it. The caller then owns the block, whose state is kLive.
  BlockId detach(NodeId id, BlockKind kind);
  // If no lease has claimed the node, claims it for the lease with this ticket: this lease will compute the node's KV.
  // Returns whether the lease with this ticket now has the claim.
  bool claim(NodeId id, int32_t ticket) {
    if (at(id).claimed_by(kUnclaimed)) node(id).claim = ticket;
    return at(id).claimed_by(ticket);
  }
  // Gives up the claim on a node whose KV is not computed. The next lease that needs the node's KV will claim the node
  // and compute it. The caller of abandon() still holds the node, and must remove the node if nothing else holds it.
  void abandon(NodeId id) {
    node(id).claim = kUnclaimed;
    settle(id);
  }
  // Marks the node as ready, which means that its KV is computed and that all sequences may read it.
  void make_ready(NodeId id) {
    node(id).claim = kReady;
    evicted_.remove(at(id).name);
    publish_stored(id);
    settle(id);
  }

  // -- holding --

  // A caller that holds a node must also hold all its ancestors. The nodes of a path must be held from the first node
  // to the last, and released from the last node to the first.
  void hold(NodeId id) {
    ++node(id).refs;
    if (at(id).refs == 1) settle(id);
  }
  void release_node(NodeId id) {
    if (--node(id).refs == 0) settle(id);
  }
  void hold_window(NodeId id) {
    ++node(id).window_refs;
    if (at(id).window_refs == 1) settle(id);
  }
  void release_node_window(NodeId id) {
    if (--node(id).window_refs == 0) settle(id);
  }
  // Prevents the eviction of the path that ends with node `tip`, and of the window blocks that are needed to resume
  // there, until unpin(tip) is called. If pin was called several times for a node, unpin must be called as often.
  void pin(NodeId tip) { change_pins(tip, 1); }
  void unpin(NodeId tip) { change_pins(tip, -1); }

  // -- resume points: prefix_tree_points.hpp --

  // Adds a resume point at the end of a node. What is needed to resume there is then kept until memory runs out and the
  // point is the one that is worth least. `branch`: it is no part of one sequence's history, which is thinned with
  // time.
  void add_point(NodeId id, bool branch = false);
  void drop_point(const NodeRef& ref);
  // Marks that sequences branch at the end of this node. If Retention::branch_points is true, mark_branch_point adds a
  // resume point.
  void mark_branch_point(NodeId id) {
    if (!options_.retention.branch_points) return;
    node(id).branch_point = true;
    if (at(id).points == 0 || !points_.at(at(id).point).branch) add_point(id, true);
  }
  // A point to come needs the node's window block: it is kept until release_window is called as often.
  void retain_window(NodeId id) {
    ++node(id).retainers;
    if (at(id).has(BlockKind::kWindow)) relist_window(id);
  }
  void release_window(NodeId id) {
    --node(id).retainers;
    if (at(id).has(BlockKind::kWindow)) relist_window(id);
  }
  // Whether a point at the end of a block is worth its memory: one with so many blocks from the point above it, so many
  // before its path's end, on a path that was used `uses` times. It is, as long as memory is free.
  bool worth_point(int32_t above, int32_t behind, uint32_t uses) const {
    const FloatState float_state;
    return pool_.has_free(BlockKind::kWindow) || points_.worth_adding(behind, above, uses);
  }
  // A node has no point, because it was not worth one: the policy learns whether it would have been used.
  void watch_point(NodeId id, int32_t behind, uint32_t uses) { points_.watch(at(id).name, behind, uses); }
  // A request has started. Points grow older by one.
  void request_starts() { points_.request_starts(); }
  // A request has resumed at the end of node `id` or within it. Returns how often its path was used before.
  uint32_t use_point(NodeId id);
  // A request comes by the node of this name, and could have resumed there if the node's point had not been given up.
  // `used`: it would have. Returns how often the path was used before; -1: no point is remembered.
  int64_t recall_point(const BlockName& name, bool used) { return points_.recall(name, used); }
  // The path that ends with this node was used `uses` times, now for the last time.
  void use_path(NodeId tip, uint32_t uses);
  const ResumePoints& points() const { return points_; }
  // Marks that the node's window block is needed by a resume point that is stored in a lower tier. When this window
  // block is evicted, it moves to the lower tier too.
  void want_window_below(NodeId id) { node(id).window_wanted_below = true; }

  // -- shares: whose memory it is (prefix_tree_shares.hpp) --
  const CacheShares& shares() const { return shares_; }
  ShareId share_of(NodeId id) const { return domains_.at(at(id).domain).share; }
  // Makes a share, or changes its limits. What requests compute from now on is charged to it.
  ShareId set_share(ShareOf of, const std::string& name, const ShareLimits& limits) {
    return shares_.set(of, name, limits);
  }

  // -- making room --

  // Takes a block and makes it live (in use by a running sequence), and evicts cached blocks for that if needed.
  // Returns kNoBlock if all blocks are in use, pinned or being copied.
  BlockId take(BlockKind kind, const Claimant& claimant = {}) {
    do {
      if (const BlockId block = pool_.take(kind); block != kNoBlock) return block;
    } while (evict_for(kind, claimant));
    return kNoBlock;
  }
  // Takes all blocks of `need` and appends them to `blocks`. If not all blocks of `need` are available, take() takes no
  // block and returns false.
  // `claimant`: whose share asks; what other shares were promised stays (detail/cache_shares.hpp).
  bool take(const BlockNeed& need, PerKind<std::vector<BlockId>>& blocks, const Claimant& claimant = {});
  // Takes a block only if no resume point has to be given up for it.
  BlockId take_idle(BlockKind kind) {
    do {
      if (const BlockId block = pool_.take(kind); block != kNoBlock) return block;
    } while (evict_idle(kind, EvictionPass::kUnpromised, {}));
    return kNoBlock;
  }
  // Frees a block that the caller has taken before.
  void release_block(BlockKind kind, BlockId block) { pool_.release_block(kind, block); }

  // Removes a node and all its descendants. Returns false and removes nothing if any of these nodes is held or pinned.
  bool remove(NodeId id) {
    if (!removable(id)) return false;
    remove_all(id, false);
    return true;
  }
  // Removes all nodes of the domain that nothing holds. The nodes of the domain that are still held are removed when
  // they are released.
  void purge(DomainId id);
  void release_domain(DomainId id) {
    Domain& domain = domains_.at(id);
    if (--domain.holders > 0) return;
    if (domain.ends_unheld)
      purge(id);
    else
      domains_.forget_if_unused(id);
  }
  // Retires the shared region of one version of a character. The blocks of a retired shared region are removed when the
  // last session or request that holds its domain releases it, or at once if none holds it.
  void retire(const std::string& character) {
    const DomainId id = domains_.find(DomainKind::kShared, character);
    if (id == kNoDomain) return;
    domains_.at(id).ends_unheld = true;
    if (domains_.at(id).holders == 0) purge(id);
  }
  // Starts a new epoch, which is needed after the weights, or the scales of keys and values, have changed. KV that is
  // cached at the time of this call is never found again.
  void set_epoch(uint64_t epoch) {
    epoch_ = epoch;
    for (size_t id = 0; id < domains_.end(); ++id)
      if (const Domain& domain = domains_.at(static_cast<DomainId>(id));
          domain.nodes > 0 || domain.holders > 0 || domain.stored > 0)
        purge(static_cast<DomainId>(id));
    namer_ = Namer(options_.key, identity(epoch));
    node(kRoot).name = namer_.root();
    events_.push_cleared();
  }

 private:
  static constexpr int32_t kChildrenLooked = 8;
  // The number of spare slabs that are looked at for one that a claimant may have.
  static constexpr int32_t kSlabsLooked = 8;

  template <class T>
  static Buffer<T> make_table(size_t count) {
    Result<Buffer<T>> made = Buffer<T>::make(count, "the prefix tree");
    if (!made.ok()) throw std::bad_alloc();
    made->prefer_large_pages();
    return std::move(made).value();
  }
  std::string identity(uint64_t epoch) const { return options_.identity + '\n' + std::to_string(epoch); }
  Node& node(NodeId id) { return nodes_.data()[id]; }
  NodeId& owner_slot(BlockKind kind, BlockId block) { return owner_of_[kind][static_cast<size_t>(block)]; }
  NodeId bucket(const BlockName& name) const { return const_cast<PrefixTree*>(this)->bucket_of(name); }
  NodeId& bucket_of(const BlockName& name) { return buckets_.data()[name.low & (buckets_.size() - 1)]; }

  // -- events: prefix_tree_events.hpp --
  bool is_private(DomainId id) const { return domains_.at(id).kind != DomainKind::kShared; }
  BlockName parent_name(const Node& node) const { return node.parent == kRoot ? BlockName() : at(node.parent).name; }
  void publish_stored(NodeId id);
  void publish_removed(const Node& node);

  // -- adding and removing nodes: prefix_tree_nodes.hpp --
  void reset_root();
  NodeId fresh_node();
  void settle(NodeId id);
  void relist(NodeId id);
  void count_kept(NodeId id, int32_t by);
  void unlist(NodeId id);
  void relist_window(NodeId id);
  void unlist_window(NodeId id);
  void link(NodeList& list, NodeId id, NodeId Node::* older, NodeId Node::* newer);
  void unlink(NodeList& list, NodeId id, NodeId Node::* older, NodeId Node::* newer);
  template <class Visit>
  void for_reach(NodeId id, Visit visit);
  void change_retainers(NodeId id, int32_t by);
  void change_pins(NodeId tip, int32_t by);
  // If a node is neither held nor pinned, none of its descendants is held or pinned.
  bool removable(NodeId id) const { return at(id).refs == 0 && at(id).pins == 0 && !at(id).arriving(); }
  void remove_all(NodeId top, bool evicted);
  void erase(NodeId id, bool evicted);

  // -- resume points: prefix_tree_points.hpp --
  void remove_point(NodeId id);
  ResumePoint* point_at(const NodeRef& ref);
  void measure(ResumePoint& point);
  bool give_up_point(EvictionPass pass, const Claimant& claimant);

  // -- eviction: prefix_tree_eviction.hpp --
  bool evict_for(BlockKind kind, const Claimant& claimant);
  bool evict_idle(BlockKind kind, EvictionPass pass, const Claimant& claimant);
  bool idle_before(BlockKind kind, int32_t slab, uint64_t then) const;
  NodeId oldest(BlockKind kind, EvictionPass pass, const Claimant& claimant) const;
  bool evict_node(NodeId id);
  bool evict_window(NodeId id);
  void tell_evicted(BlockKind kind, NodeId id);
  void put_below(BlockKind kind, NodeId id);
  bool clear_slab(BlockKind kind, int32_t slab);
  bool clear_idle_slab(BlockKind kind, EvictionPass pass, const Claimant& claimant);
  bool evict_block(BlockKind kind, BlockId block);
  BlockId take_beside_busy(BlockKind kind, const Claimant& claimant);
  BlockId take_whole(BlockKind kind, const Claimant& claimant);

  // -- shares: prefix_tree_shares.hpp --
  bool same_share(NodeId id, NodeId parent) const { return parent == kRoot || share_of(id) == share_of(parent); }
  void refresh_oldest(ShareId share, BlockKind kind);
  bool may_evict(NodeId id, EvictionPass pass, const Claimant& claimant) const;
  bool may_evict(NodeId id, const Claimant& claimant) const;
  bool may_clear(BlockKind kind, int32_t slab, EvictionPass pass, const Claimant& claimant) const;
  bool evict_own(const Claimant& claimant);
  void keep_below_ceiling(const Claimant& claimant, int64_t more_bytes);
  void enter_ring(NodeId id);
  void leave_ring(NodeId id);
  template <class May>
  int32_t worst_point(EvictionPass pass, const Claimant& claimant, May may);
  template <class May>
  int32_t worst_of_rings(const std::vector<ShareId>& shares, bool all, May may);
  template <class Take>
  static bool take_each(const BlockNeed& need, PerKind<std::vector<BlockId>>& blocks, Take take);

  CacheOptions options_;
  bool has_global_;
  int32_t window_;
  int32_t reach_;
  BlockPool pool_;
  Domains domains_;
  CacheEvents events_;
  uint64_t epoch_ = 0;
  Namer namer_;
  CacheStats stats_;
  int32_t capacity_ = 0, used_nodes_ = 0, node_count_ = 0;
  NodeId free_node_ = kNoNode;
  Buffer<Node> nodes_;
  Buffer<NodeId> buckets_;
  EvictedNames evicted_;
  PerKind<std::vector<NodeId>> owner_of_;  // the node of each block
  uint64_t clock_ = 0;
  ResumePoints points_;
  CacheShares shares_;          // their lists of nodes and window blocks to evict
  uint32_t shares_looked_ = 0;  // where the next search among many shares begins
  bool over_floors_ = false;    // what is evicted now was promised to another share
  std::unique_ptr<Tiers> tiers_;
};

}  // namespace kaiju

#include "kaiju/cache/detail/prefix_tree_events.hpp"
#include "kaiju/cache/detail/prefix_tree_eviction.hpp"
#include "kaiju/cache/detail/prefix_tree_nodes.hpp"
#include "kaiju/cache/detail/prefix_tree_points.hpp"
#include "kaiju/cache/detail/prefix_tree_shares.hpp"
