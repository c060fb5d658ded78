// PrefixTree: the cached KV blocks as a prefix tree over tokens. It finds, holds and pins nodes, keeps resume points,
// and gives out blocks, evicting the least recently used. It knows block numbers and tokens and never touches KV
// memory. prefix_tree_nodes.hpp adds and removes nodes; prefix_tree_eviction.hpp chooses what to evict.
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
#include "kaiju/cache/block_pool.hpp"
#include "kaiju/cache/detail/evicted_names.hpp"
#include "kaiju/cache/domain.hpp"
#include "kaiju/cache/events.hpp"
#include "kaiju/cache/node.hpp"
#include "kaiju/cache/options.hpp"
#include "kaiju/cache/tiers.hpp"

namespace kaiju {

// Identifies a node: its `tokens` (64, or fewer for a tail), its `parent` and its domain. Made by PrefixTree::key.
struct NodeKey {
  NodeId parent = kRoot;
  DomainId domain = kNoDomain;
  std::span<const int32_t> tokens;
  BlockName name;

  int32_t count() const { return static_cast<int32_t>(tokens.size()); }
};

// Invariants, in addition to those of a node (node.hpp) and of the blocks (block_pool.hpp). check_tree and
// check_holders (invariants.hpp) recount them:
// - A used block belongs to one node, or to one lease, promotion or path builder that has taken it.
// - The tokens and domains of a node's path determine its KV. No two nodes have the same parent, domain and tokens.
// - Every node is in the list of its domain, after its parent if both have the same domain.
// - A node of a dead domain is removed as soon as nothing holds it.
//
// Nodes are read through at() and changed only by the methods below. Allows one thread at a time. The cost of a call
// does not depend on the number of blocks, except purge and set_epoch, which visit the nodes they remove.
class PrefixTree {
 public:
  // Allocates all memory of the tree; throws std::bad_alloc. Pages that are never used are not resident.
  PrefixTree(const ExecutorInfo& info, const CacheOptions& options)
      : options_(options),
        has_global_(info.has_global),
        window_(info.window),
        reach_(info.window > 0 ? (info.window + kBlockTokens - 2 + kBlockTokens - 1) / kBlockTokens : 0),
        pool_(info),
        events_(options.event_capacity),
        namer_(options.key, identity(0)) {
    // If the model has global blocks, every node has one. Otherwise a node can outlive its window block for a while.
    const int64_t nodes = info.has_global ? int64_t{info.block_count[BlockKind::kGlobal]}
                                          : int64_t{8} * info.block_count[BlockKind::kWindow];
    capacity_ = static_cast<int32_t>(std::min<int64_t>(nodes + 1, INT32_MAX / 2));
    size_t buckets = 16;
    while (buckets < static_cast<size_t>(capacity_)) buckets *= 2;
    nodes_ = make_table<Node>(static_cast<size_t>(capacity_));
    buckets_ = make_table<NodeId>(buckets);
    const auto names = static_cast<size_t>(options.evicted_names > 0 ? options.evicted_names : int64_t{4} * capacity_);
    evicted_ = EvictedNames(make_table<uint64_t>(EvictedNames::words_for(names)));
    reset_root();
  }
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  bool uses(BlockKind kind) const { return kind == BlockKind::kGlobal ? has_global_ : window_ > 0; }
  int32_t window() const { return window_; }
  // Number of nodes before a resume point's node whose window blocks are needed to resume there.
  int32_t reach() const { return reach_; }
  const Retention& retention() const { return options_.retention; }
  const BlockPool& pool() const { return pool_; }
  Domains& domains() { return domains_; }
  const Domains& domains() const { return domains_; }
  const Namer& namer() const { return namer_; }
  const std::string& identity() const { return options_.identity; }
  uint64_t epoch() const { return epoch_; }
  CacheEvents& events() { return events_; }
  CacheStats& stats() { return stats_; }
  const CacheStats& stats() const { return stats_; }
  const Node& at(NodeId id) const { return const_cast<PrefixTree*>(this)->node(id); }
  int32_t node_count() const { return node_count_; }
  bool alive(const NodeRef& ref) const {
    return ref.node != kNoNode && at(ref.node).generation == ref.generation && at(ref.node).parent != kNoNode;
  }
  NodeRef ref(NodeId id) const { return {id, at(id).generation}; }
  // Bytes of host memory for bookkeeping when all nodes are in use.
  size_t bookkeeping_bytes() const {
    size_t bytes = nodes_.bytes() + buckets_.bytes() + evicted_.bytes() + (tiers_ ? tiers_->bookkeeping_bytes() : 0);
    for (const BlockKind kind : kBothKinds)
      bytes += (sizeof(BlockState) + sizeof(BlockId)) * static_cast<size_t>(pool_.total(kind)) +
               sizeof(NodeId) * owner_of_[kind].size();
    return bytes;
  }
  // Called with each block that is evicted, before its number is used again.
  std::function<void(const EvictedBlock&)> on_evict;

  // Adds lower tiers: host memory and a file for evicted KV. Call it while the tree is empty. Errors: see Tiers::make.
  Status add_tiers(const ExecutorInfo& info, const Tiers::HostSource& host = plain_memory) {
    Result<std::unique_ptr<Tiers>> made = Tiers::make(info, options_, domains_, events_, host);
    if (!made.ok()) return made.status();
    tiers_ = std::move(made).value();
    return {};
  }
  Tiers* tiers() { return tiers_.get(); }  // null if there are no lower tiers
  const Tiers* tiers() const { return tiers_.get(); }

  // Index of the first window block that a query at `position` or later can see. Earlier window blocks may be released.
  int32_t first_visible(int32_t position) const { return std::max(0, position - window_ + 1) / kBlockTokens; }
  // Index of the first window block to keep at `position`: 64 positions more than visible, so that the whole window is
  // still cached after an undo of up to 64 tokens.
  int32_t first_kept(int32_t position) const { return first_visible(std::max(0, position - kBlockTokens)); }

  // -- finding --
  NodeKey key(NodeId parent, DomainId domain, std::span<const int32_t> tokens) const {
    return {parent, domain, tokens,
            namer_.of(at(parent).name, domains_.at(domain).name, tokens.data(), static_cast<int32_t>(tokens.size()))};
  }
  // The node with exactly this parent, domain and tokens, or kNoNode. The node may not be ready yet.
  NodeId find(const NodeKey& key) const {
    for (NodeId id = bucket(key.name); id != kRoot; id = at(id).bucket_next) {
      const Node& node = at(id);
      if (node.parent == key.parent && node.domain == key.domain && node.count == key.count() &&
          std::memcmp(node.tokens, key.tokens.data(), key.tokens.size_bytes()) == 0)
        return id;
    }
    return kNoNode;
  }
  // A node with this name, or kNoNode. For lower tiers and events: tokens are not compared.
  NodeId find(const BlockName& name) const {
    for (NodeId id = bucket(name); id != kRoot; id = at(id).bucket_next)
      if (at(id).name == name) return id;
    return kNoNode;
  }
  // The ready child of `parent` whose tokens agree longest with the beginning of `tokens`. `count` receives the number
  // of tokens that agree, at most 63. Only the newest few children are compared. `index` is the index of the child's
  // block in the prompt.
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
  // Whether a block of this name was evicted and has not been written again since, as far as the tree remembers.
  bool was_evicted(const BlockName& name) const { return evicted_.has(name); }
  // The node that a block belongs to, or kNoNode.
  NodeId node_of(BlockKind kind, BlockId block) const { return owner_of_[kind][static_cast<size_t>(block)]; }
  // Whether the node has more than one child: sequences have branched after it.
  bool has_branches(NodeId id) const {
    return at(id).first_child != kNoNode && at(at(id).first_child).next_sibling != kNoNode;
  }

  // -- growing --
  // Adds a node that is not ready and has no blocks; kNoNode if the tree is full. `claim` says who writes the KV: the
  // ticket of a lease, or kTransfer. The caller must hold the parent, and must hold the new node.
  NodeId insert(const NodeKey& key, int32_t claim, uint64_t owner);
  // Gives a block that the caller had taken to a node. From then on the tree owns the block.
  void attach(NodeId id, BlockKind kind, BlockId block) {
    node(id).block[kind] = block;
    owner_slot(kind, block) = id;
    settle(id);
  }
  // Removes a block from a node and gives it to the caller, in state kLive.
  BlockId detach(NodeId id, BlockKind kind);
  // Claims the node for the lease with this ticket, if no lease has claimed it. Returns whether that lease has the
  // claim.
  bool claim(NodeId id, int32_t ticket) {
    if (at(id).claimed_by(kUnclaimed)) node(id).claim = ticket;
    return at(id).claimed_by(ticket);
  }
  // Gives up the claim on a node whose KV is not written; the next lease that needs the node claims it. The caller
  // still holds the node, and must remove it if nothing else holds it.
  void abandon(NodeId id) {
    node(id).claim = kUnclaimed;
    settle(id);
  }
  // Marks the node as ready: its KV is written and may be read by all.
  void make_ready(NodeId id) {
    node(id).claim = kReady;
    evicted_.remove(at(id).name);
    publish(CacheEventKind::kStored, at(id));
    settle(id);
  }

  // -- holding --
  // A path is held as a whole from its first node, and released as a whole from its last node.
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
  // Keeps the path that ends with `tip`, and the window blocks needed to resume there, until unpin. Calls nest.
  void pin(NodeId tip) { change_pins(tip, 1); }
  void unpin(NodeId tip) { change_pins(tip, -1); }

  // Adds a resume point at the end of a node: the window blocks needed to resume there are evicted later than others.
  void add_point(NodeId id) {
    if (++node(id).points == 1) change_retainers(id, 1);
  }
  void drop_point(const NodeRef& ref) {
    if (alive(ref) && at(ref.node).points > 0 && --node(ref.node).points == 0) change_retainers(ref.node, -1);
  }
  // Marks that sequences branch at the end of this node. If the options keep branch points, this adds a permanent
  // resume point.
  void mark_branch_point(NodeId id) {
    if (!options_.retention.branch_points || at(id).branch_point) return;
    node(id).branch_point = true;
    add_point(id);
  }
  // Marks that the node's window block belongs to a resume point in a lower tier. When evicted, it moves to that tier.
  void want_window_below(NodeId id) { node(id).window_wanted_below = true; }

  // -- making room --
  // Takes a block and makes it live, evicting cached blocks if needed. kNoBlock if all blocks are busy.
  BlockId take(BlockKind kind) {
    do {
      if (const BlockId block = pool_.take(kind); block != kNoBlock) return block;
    } while (evict_for(kind));
    return kNoBlock;
  }
  // Takes all blocks of `need` and appends them to `blocks`, or takes nothing and returns false.
  bool take(const BlockNeed& need, PerKind<std::vector<BlockId>>& blocks);
  // Frees a block that the caller had taken.
  void release_block(BlockKind kind, BlockId block) { pool_.release_block(kind, block); }

  // Removes a node and all its descendants. False if any of them is held or pinned.
  bool remove(NodeId id) {
    if (!removable(id)) return false;
    remove_all(id, false);
    return true;
  }
  // Removes all nodes of the domain that nothing holds. The others are removed when they are released.
  void purge(DomainId id);
  void release_domain(DomainId id) {
    Domain& domain = domains_.at(id);
    if (--domain.holders > 0) return;
    if (domain.ends_unheld)
      purge(id);
    else
      domains_.forget_if_unused(id);
  }
  // Retires a character's version. Its blocks are removed when its last holder releases it, or now if it has no holder.
  void retire(const std::string& character) {
    const DomainId id = domains_.find(DomainKind::kShared, character);
    if (id == kNoDomain) return;
    domains_.at(id).ends_unheld = true;
    if (domains_.at(id).holders == 0) purge(id);
  }
  // Starts a new scale epoch, after the weights' scales have changed: nothing that is cached now is found again.
  void set_epoch(uint64_t epoch) {
    epoch_ = epoch;
    for (size_t id = 0; id < domains_.end(); ++id)
      if (const Domain& domain = domains_.at(static_cast<DomainId>(id));
          domain.nodes > 0 || domain.holders > 0 || domain.stored > 0)
        purge(static_cast<DomainId>(id));
    namer_ = Namer(options_.key, identity(epoch));
    node(kRoot).name = namer_.root();
    events_.push({});
  }

 private:
  static constexpr int32_t kChildrenLooked = 8;
  // How many slabs (runs of blocks) are searched for one that can be given to the other kind of block: 8 give nearly
  // the hit rate of 128 (kaiju-bench replay).
  static constexpr int32_t kSlabsLooked = 8;
  enum WindowList : int8_t { kPassing = 0, kRetained = 1 };  // kPassing is evicted first
  struct List {
    NodeId oldest = kNoNode, newest = kNoNode;
  };

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
  void publish(CacheEventKind kind, const Node& node) {
    if (domains_.at(node.domain).kind == DomainKind::kShared || options_.publish_private)
      events_.push({kind, node.name, at(node.parent).name, node.count});
  }

  // -- adding and removing nodes: prefix_tree_nodes.hpp --
  void reset_root();
  NodeId fresh_node();
  void settle(NodeId id);
  void list(NodeId id);
  void unlist(NodeId id);
  void list_window(NodeId id, WindowList which);
  void unlist_window(NodeId id);
  void link(List& list, NodeId id, NodeId Node::* older, NodeId Node::* newer);
  void unlink(List& list, NodeId id, NodeId Node::* older, NodeId Node::* newer);
  template <class Visit>
  void for_reach(NodeId id, Visit visit);
  void change_retainers(NodeId id, int32_t by);
  void change_pins(NodeId tip, int32_t by);
  // A node that is not held or pinned has no descendant that is.
  bool removable(NodeId id) const { return at(id).refs == 0 && at(id).pins == 0 && !at(id).arriving(); }
  void remove_all(NodeId top, bool evicted);
  void erase(NodeId id, bool evicted);

  // -- eviction: prefix_tree_eviction.hpp --
  bool evict_for(BlockKind kind);
  NodeId oldest(BlockKind kind) const;
  NodeId next_oldest(BlockKind kind, NodeId id) const;
  uint64_t age(BlockKind kind, NodeId id) const;
  bool evict_node(NodeId id);
  bool evict_window(NodeId id);
  void tell_evicted(BlockKind kind, NodeId id);
  void put_below(BlockKind kind, NodeId id);
  bool used_before(BlockKind kind, int32_t slab, uint64_t then) const;
  bool clear_slab(BlockKind kind, int32_t slab);
  bool evict_block(BlockKind kind, BlockId block);
  BlockId take_beside_busy(BlockKind kind);
  BlockId take_whole(BlockKind kind);
  template <class Take>
  static bool take_each(const BlockNeed& need, PerKind<std::vector<BlockId>>& blocks, Take take);

  CacheOptions options_;
  bool has_global_;
  int32_t window_;
  int32_t reach_;
  BlockPool pool_;
  Domains domains_;
  CacheEvents events_;
  Namer namer_;
  CacheStats stats_;
  int32_t capacity_ = 0, used_nodes_ = 0, node_count_ = 0;
  NodeId free_node_ = kNoNode;
  Buffer<Node> nodes_;
  Buffer<NodeId> buckets_;
  EvictedNames evicted_;
  PerKind<std::vector<NodeId>> owner_of_;  // the node of each block
  uint64_t clock_ = 0;
  uint64_t epoch_ = 0;
  List nodes_list_;       // nodes that may be evicted
  List window_lists_[2];  // window blocks that may be evicted, by WindowList
  std::unique_ptr<Tiers> tiers_;
};

}  // namespace kaiju

#include "kaiju/cache/detail/prefix_tree_eviction.hpp"
#include "kaiju/cache/detail/prefix_tree_nodes.hpp"
