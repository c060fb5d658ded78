// PrefixTree: the blocks whose tokens are known, as a prefix tree. It finds, holds and pins them, keeps resume points,
// and gives blocks out, evicting what was used longest ago. It knows numbers and tokens and never touches memory. How
// nodes come, settle and go is in prefix_tree_nodes.hpp; what is evicted first, in prefix_tree_eviction.hpp.
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

// Which block: `tokens`, 64 or the fewer of a tail, behind `parent`, in a domain. Made by PrefixTree::key.
struct NodeKey {
  NodeId parent = kRoot;
  DomainId domain = kNoDomain;
  std::span<const int32_t> tokens;
  BlockName name;

  int32_t count() const { return static_cast<int32_t>(tokens.size()); }
};

// Invariants beside those of a node (node.hpp) and of the blocks (block_pool.hpp); check_tree and check_holders
// (invariants.hpp) recount them:
// - A used block belongs to one node, or is in the hand of one lease, promotion or path builder.
// - The tokens and domains of a node's path say what its KV is. No two nodes have the same parent, domain and tokens.
// - Every node is in the list of its domain, behind its parent if that has the same domain.
// - A node of a dead domain goes as soon as nobody holds it.
//
// Nodes are read through at() and changed by the methods below alone. One thread at a time. Costs do not depend on the
// number of blocks, except purge and set_epoch, which visit the nodes they remove.
class PrefixTree {
 public:
  // Takes its memory here (std::bad_alloc); pages never used cost nothing.
  PrefixTree(const ExecutorInfo& info, const CacheOptions& options)
      : options_(options),
        has_global_(info.has_global),
        window_(info.window),
        reach_(info.window > 0 ? (info.window + kBlockTokens - 2 + kBlockTokens - 1) / kBlockTokens : 0),
        pool_(info),
        events_(options.event_capacity),
        namer_(options.key, identity(0)) {
    // With global blocks every node has one. Without, a node outlives its window block for a while: its path is still
    // its name.
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
  int32_t reach() const { return reach_; }  // nodes before that of a resume point whose window blocks it needs
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
  // Host memory of the books, in bytes, when all nodes are in use.
  size_t bookkeeping_bytes() const {
    size_t bytes = nodes_.bytes() + buckets_.bytes() + evicted_.bytes() + (tiers_ ? tiers_->bookkeeping_bytes() : 0);
    for (const BlockKind kind : kBothKinds)
      bytes += (sizeof(BlockState) + sizeof(BlockId)) * static_cast<size_t>(pool_.total(kind)) +
               sizeof(NodeId) * owner_of_[kind].size();
    return bytes;
  }
  // Called with a block that is being evicted, before its number is used again.
  std::function<void(const EvictedBlock&)> on_evict;

  // Adds tiers behind the executor's blocks, before anything is known. Errors: see Tiers::make.
  Status add_tiers(const ExecutorInfo& info, const Tiers::HostSource& host = plain_memory) {
    Result<std::unique_ptr<Tiers>> made = Tiers::make(info, options_, domains_, events_, host);
    if (!made.ok()) return made.status();
    tiers_ = std::move(made).value();
    return {};
  }
  Tiers* tiers() { return tiers_.get(); }  // null: there are none
  const Tiers* tiers() const { return tiers_.get(); }

  // Index of the first window block that a query at `position` or later may see; everything below may go.
  int32_t first_visible(int32_t position) const { return std::max(0, position - window_ + 1) / kBlockTokens; }
  // The same, keeping one block's worth of positions more: so that an undo of up to 64 tokens finds its window whole.
  int32_t first_kept(int32_t position) const { return first_visible(std::max(0, position - kBlockTokens)); }

  // -- finding --
  NodeKey key(NodeId parent, DomainId domain, std::span<const int32_t> tokens) const {
    return {parent, domain, tokens,
            namer_.of(at(parent).name, domains_.at(domain).name, tokens.data(), static_cast<int32_t>(tokens.size()))};
  }
  // The node with exactly this parent, domain and tokens; kNoNode. It may not be ready.
  NodeId find(const NodeKey& key) const {
    for (NodeId id = bucket(key.name); id != kRoot; id = at(id).bucket_next) {
      const Node& node = at(id);
      if (node.parent == key.parent && node.domain == key.domain && node.count == key.count() &&
          std::memcmp(node.tokens, key.tokens.data(), key.tokens.size_bytes()) == 0)
        return id;
    }
    return kNoNode;
  }
  // The node with this name, wherever it is; kNoNode. For lower tiers and events: tokens are not compared.
  NodeId find(const BlockName& name) const {
    for (NodeId id = bucket(name); id != kRoot; id = at(id).bucket_next)
      if (at(id).name == name) return id;
    return kNoNode;
  }
  // The ready child of `parent` that begins like `tokens` for longest, and for how long (at most 63 tokens). Looks at
  // the newest few children only. `index` is that of the child's block in the prompt.
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
  // Whether a block of this name was evicted, as far as is remembered, and has not been written again since.
  bool was_evicted(const BlockName& name) const { return evicted_.has(name); }
  // The node that a block belongs to; kNoNode: none.
  NodeId node_of(BlockKind kind, BlockId block) const { return owner_of_[kind][static_cast<size_t>(block)]; }
  // Whether sequences have parted behind this node.
  bool has_branches(NodeId id) const {
    return at(id).first_child != kNoNode && at(at(id).first_child).next_sibling != kNoNode;
  }

  // -- growing --
  // A new node, not ready, without blocks; kNoNode when there is no room for one more. `claim`: who writes it, a ticket
  // or kTransfer. The caller holds the parent, and is to hold the node.
  NodeId insert(const NodeKey& key, int32_t claim, uint64_t owner);
  // Gives a node a block from the caller's hand; from then on the tree says what becomes of it.
  void attach(NodeId id, BlockKind kind, BlockId block) {
    node(id).block[kind] = block;
    owner_slot(kind, block) = id;
    settle(id);
  }
  // Takes a block out of a node into the caller's hand, live.
  BlockId detach(NodeId id, BlockKind kind);
  // Claims a node that nobody writes. Whether the ticket's lease is the one that writes it.
  bool claim(NodeId id, int32_t ticket) {
    if (at(id).claimed_by(kUnclaimed)) node(id).claim = ticket;
    return at(id).claimed_by(ticket);
  }
  // Its writer leaves it unwritten: whoever needs it next claims it. The caller holds it still, and removes it when it
  // lets go as the last.
  void abandon(NodeId id) {
    node(id).claim = kUnclaimed;
    settle(id);
  }
  // Its KV is written: everybody may read it.
  void make_ready(NodeId id) {
    node(id).claim = kReady;
    evicted_.remove(at(id).name);
    publish(CacheEventKind::kStored, at(id));
    settle(id);
  }

  // -- holding --
  // A path is held whole, root first, and let go whole, tip first.
  void hold(NodeId id) {
    ++node(id).refs;
    if (at(id).refs == 1) settle(id);
  }
  void let_go(NodeId id) {
    if (--node(id).refs == 0) settle(id);
  }
  void hold_window(NodeId id) {
    ++node(id).window_refs;
    if (at(id).window_refs == 1) settle(id);
  }
  void let_go_window(NodeId id) {
    if (--node(id).window_refs == 0) settle(id);
  }
  // Keeps the path to `tip`, and the window to resume there, until unpin. Calls nest.
  void pin(NodeId tip) { change_pins(tip, 1); }
  void unpin(NodeId tip) { change_pins(tip, -1); }

  // A resume point at the end of a node: the window before it is evicted later than others.
  void add_point(NodeId id) {
    if (++node(id).points == 1) change_retainers(id, 1);
  }
  void drop_point(const NodeRef& ref) {
    if (alive(ref) && at(ref.node).points > 0 && --node(ref.node).points == 0) change_retainers(ref.node, -1);
  }
  // Sequences part at the end of this node: a resume point for good, where the options keep such points.
  void mark_branch_point(NodeId id) {
    if (!options_.retention.branch_points || at(id).branch_point) return;
    node(id).branch_point = true;
    add_point(id);
  }
  // Its window block belongs to a resume point in a lower tier: evicted, it goes there, too.
  void want_window_below(NodeId id) { node(id).window_wanted_below = true; }

  // -- making room --
  // A block, live, evicting what is cached if need be; kNoBlock when all are busy.
  BlockId take(BlockKind kind) {
    do {
      if (const BlockId block = pool_.take(kind); block != kNoBlock) return block;
    } while (evict_for(kind));
    return kNoBlock;
  }
  // Takes all of `need`, appending to `blocks`, or nothing.
  bool take(const BlockNeed& need, PerKind<std::vector<BlockId>>& blocks);
  // Gives back a block from the caller's hand.
  void give_back(BlockKind kind, BlockId block) { pool_.give_back(kind, block); }

  // Removes a node nobody holds, and what is behind it. False when some of it is held or pinned.
  bool remove(NodeId id) {
    if (!removable(id)) return false;
    remove_all(id, false);
    return true;
  }
  // Removes all nodes of the domain that nobody holds, now; the rest goes when it is let go.
  void purge(DomainId id);
  void release(DomainId id) {
    Domain& domain = domains_.at(id);
    if (--domain.holders > 0) return;
    if (domain.ends_unheld)
      purge(id);
    else
      domains_.forget_if_unused(id);
  }
  // A character's version has been replaced: it goes with its last holder, now if it has none.
  void retire(const std::string& character) {
    const DomainId id = domains_.find(DomainKind::kShared, character);
    if (id == kNoDomain) return;
    domains_.at(id).ends_unheld = true;
    if (domains_.at(id).holders == 0) purge(id);
  }
  // Nothing known so far may be found again: the weights' scales have changed.
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
  static constexpr int32_t kSlabsLooked = 8;  // for one to hand over: 8 finds nearly what 128 do (kaiju-bench replay)
  enum WindowList : int8_t { kPassing = 0, kRetained = 1 };  // kPassing goes first
  struct List {
    NodeId oldest = kNoNode, newest = kNoNode;
  };

  template <class T>
  static Buffer<T> make_table(size_t count) {
    Result<Buffer<T>> made = Buffer<T>::make(count, "the cache's books");
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

  // -- nodes: prefix_tree_nodes.hpp --
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
  // Nobody holds it: then nobody holds what is behind it either.
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
