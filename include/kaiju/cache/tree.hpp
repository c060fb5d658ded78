// Tree: the blocks that hold known tokens, as a prefix tree, and which of them goes first when room is needed. One node
// is one block of positions in both kinds; its path from the root says which tokens it stands behind. Knows numbers;
// never touches memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "kaiju/base/buffer.hpp"
#include "kaiju/cache/arena.hpp"
#include "kaiju/cache/domain.hpp"
#include "kaiju/cache/events.hpp"
#include "kaiju/cache/evicted_names.hpp"
#include "kaiju/cache/options.hpp"
#include "kaiju/cache/tiers.hpp"

namespace kaiju {

inline constexpr NodeId kRoot = 0;

// Who writes a node's KV. Readers wait; tickets are given out by the leases.
inline constexpr int32_t kReady = 0;       // written
inline constexpr int32_t kUnclaimed = -1;  // nobody at the moment: the next who needs it
inline constexpr int32_t kTransfer = -2;   // a lower tier

struct Node {
  int32_t tokens[kBlockTokens];
  BlockName name;
  uint64_t used;   // when it was last let go
  uint64_t owner;  // the session that computed it
  uint64_t path;   // its number among lower tiers (BlockKey); 0 without
  NodeId parent, first_child, next_sibling, previous_sibling;
  NodeId bucket_next;                   // in the index; kRoot ends the chain
  NodeId domain_next, domain_previous;  // in the domain's list
  NodeId older, newer;                  // among nodes that may go
  NodeId window_older, window_newer;    // among window blocks that may go
  DomainId domain;
  BlockId block[kBlockKinds];  // the window block is here only once it is written
  int32_t count;               // tokens: 64, or fewer in a tail, which has no children
  int32_t claim;
  uint32_t generation;  // tells a node from a later one in its place
  int32_t refs;         // running sequences whose path it is on
  int32_t window_refs;  // of those, which see its window block
  int32_t pins, window_pins;
  int32_t points;     // resume points at its end
  int32_t retainers;  // nodes with points whose window this one belongs to
  bool listed, junction;
  bool wanted_below;   // a resume point in a lower tier wants its window block there
  int8_t window_list;  // which list its window block is in; -1: none
};

// A node that may have gone meanwhile.
struct NodeRef {
  NodeId node = kNoNode;
  uint32_t generation = 0;
};

// A block that is about to be given up: a lower tier may copy it down before this step writes anything.
struct EvictedBlock {
  BlockKind kind = BlockKind::kGlobal;
  BlockId block = kNoBlock;
  const Node* node = nullptr;
};

// One thread at a time. Costs do not depend on the number of blocks, but for check.
class Tree {
 public:
  // Takes its memory here (std::bad_alloc); pages never used cost nothing.
  Tree(const Facts& facts, const CacheOptions& options)
      : options_(options),
        has_global_(facts.has_global),
        window_(facts.window),
        reach_(facts.window > 0 ? (facts.window + kBlockTokens - 2 + kBlockTokens - 1) / kBlockTokens : 0),
        arena_(facts),
        events_(options.event_capacity),
        namer_(options.key, identity(0)) {
    // With global blocks every node has one. Without, a node outlives its window block for a while: its path is still
    // its name.
    const int64_t nodes = facts.has_global ? int64_t{facts.block_count[0]} : int64_t{8} * facts.block_count[1];
    capacity_ = static_cast<int32_t>(std::min<int64_t>(nodes + 1, INT32_MAX / 2));
    size_t buckets = 16;
    while (buckets < static_cast<size_t>(capacity_)) buckets *= 2;
    nodes_ = take<Node>(static_cast<size_t>(capacity_));
    buckets_ = take<NodeId>(buckets);
    const auto names = static_cast<size_t>(options.evicted_names > 0 ? options.evicted_names : int64_t{4} * capacity_);
    evicted_ = EvictedNames(take<uint64_t>(EvictedNames::words_for(names)));
    reset_root();
  }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  bool uses(BlockKind kind) const { return kind == BlockKind::kGlobal ? has_global_ : window_ > 0; }
  int32_t window() const { return window_; }
  int32_t reach() const { return reach_; }  // nodes before that of a resume point whose window blocks it needs
  const Retention& retention() const { return options_.retention; }
  Arena& arena() { return arena_; }
  const Arena& arena() const { return arena_; }
  Domains& domains() { return domains_; }
  const Domains& domains() const { return domains_; }
  const Namer& namer() const { return namer_; }
  const std::string& identity() const { return options_.identity; }
  uint64_t epoch() const { return epoch_; }
  CacheEvents& events() { return events_; }
  CacheStats& stats() { return stats_; }
  const CacheStats& stats() const { return stats_; }
  Node& at(NodeId node) { return nodes_.data()[node]; }
  const Node& at(NodeId node) const { return const_cast<Tree*>(this)->nodes_.data()[node]; }
  int32_t node_count() const { return node_count_; }
  bool alive(const NodeRef& ref) const {
    return ref.node != kNoNode && at(ref.node).generation == ref.generation && at(ref.node).parent != kNoNode;
  }
  NodeRef ref(NodeId node) const { return {node, at(node).generation}; }
  // Host memory of the books, in bytes, when all nodes are in use.
  size_t bookkeeping_bytes() const {
    return nodes_.bytes() + buckets_.bytes() + evicted_.bytes() +
           (sizeof(BlockState) + sizeof(BlockId)) * (static_cast<size_t>(arena_.total(BlockKind::kGlobal)) +
                                                     static_cast<size_t>(arena_.total(BlockKind::kWindow))) +
           sizeof(NodeId) * (owner_of_[0].size() + owner_of_[1].size()) + (tiers_ ? tiers_->bookkeeping_bytes() : 0);
  }
  // Called with a block that is being evicted, before its number is used again.
  std::function<void(const EvictedBlock&)> on_evict;

  // Tiers behind the executor's blocks, before anything is known. Errors: see Tiers::make.
  Status add_tiers(const Facts& facts, const Tiers::HostSource& host = plain_memory) {
    Result<std::unique_ptr<Tiers>> made = Tiers::make(facts, options_, domains_, events_, host);
    if (!made.ok()) return made.status();
    tiers_ = std::move(made).value();
    return {};
  }
  Tiers* tiers() { return tiers_.get(); }  // null: there are none
  const Tiers* tiers() const { return tiers_.get(); }

  // Index of the first window block that a query at `position` or later may see; everything below may go.
  int32_t first_visible(int32_t position) const { return std::max(0, position - window_ + 1) / kBlockTokens; }
  // Same, keeping one block's worth of positions more: so that an undo of up to 64 tokens finds its window whole.
  int32_t first_kept(int32_t position) const { return first_visible(std::max(0, position - kBlockTokens)); }

  // -- finding --
  BlockName name_after(NodeId parent, DomainId domain, const int32_t* tokens, int32_t count) const {
    return namer_.of(at(parent).name, domains_.at(domain).name, tokens, count);
  }
  // The child of `parent` with exactly these tokens; kNoNode. It may not be ready.
  NodeId find(NodeId parent, DomainId domain, const int32_t* tokens, int32_t count, const BlockName& name) const {
    for (NodeId id = bucket(name); id != kRoot; id = at(id).bucket_next) {
      const Node& node = at(id);
      if (node.parent == parent && node.domain == domain && node.count == count &&
          std::memcmp(node.tokens, tokens, static_cast<size_t>(count) * sizeof(int32_t)) == 0)
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
  // The ready child of `parent` that begins like `tokens` for longest, and for how long. Looks at the newest few
  // children only.
  NodeId find_partial(NodeId parent, const Regions& regions, int32_t index, std::span<const int32_t> tokens,
                      int32_t& count) const {
    NodeId best = kNoNode;
    count = 0;
    int32_t looked = 0;
    for (NodeId id = at(parent).first_child; id != kNoNode && looked < kChildrenLooked;
         id = at(id).next_sibling, ++looked) {
      const Node& node = at(id);
      const bool shared = node.domain == regions.shared;
      if (node.claim != kReady || (!shared && node.domain != regions.own)) continue;
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

  // -- growing --
  // A new node, not ready, with no blocks yet; kNoNode when there is no room for one more. The caller holds `parent`
  // and refs the node.
  NodeId insert(NodeId parent, DomainId domain, const int32_t* tokens, int32_t count, const BlockName& name,
                int32_t claim, uint64_t owner) {
    const NodeId id = fresh_node();
    if (id == kNoNode) return kNoNode;
    Node& node = at(id);
    const uint32_t generation = node.generation + 1;
    node = {};
    node.generation = generation;
    std::memcpy(node.tokens, tokens, static_cast<size_t>(count) * sizeof(int32_t));
    node.name = name;
    node.owner = owner;
    node.count = count;
    node.claim = claim;
    node.domain = domain;
    node.path = tiers_ ? tiers_->path_of(at(parent).path, domain, tokens, count, name) : 0;
    node.block[0] = node.block[1] = kNoBlock;
    node.first_child = node.older = node.newer = node.window_older = node.window_newer = kNoNode;
    node.window_list = -1;
    NodeId& bucket = bucket_of(name);
    node.bucket_next = bucket;
    bucket = id;
    node.parent = parent;
    node.previous_sibling = kNoNode;
    node.next_sibling = at(parent).first_child;
    if (node.next_sibling != kNoNode) at(node.next_sibling).previous_sibling = id;
    at(parent).first_child = id;
    Domain& d = domains_.at(domain);
    node.domain_next = kNoNode;
    node.domain_previous = d.last;
    (d.last == kNoNode ? d.first : at(d.last).domain_next) = id;
    d.last = id;
    ++d.nodes;
    ++node_count_;
    return id;
  }
  // The node that holds this block; kNoNode: none does.
  NodeId node_of(BlockKind kind, BlockId block) const { return owner_of_[index(kind)][static_cast<size_t>(block)]; }
  // Gives a node a block; from then on the tree says what becomes of it.
  void attach(NodeId id, BlockKind kind, BlockId block) {
    at(id).block[index(kind)] = block;
    owner_slot(kind, block) = id;
    settle(id);
  }
  // Takes a block out of a node; the caller's from then on, live.
  BlockId detach(NodeId id, BlockKind kind) {
    Node& node = at(id);
    const BlockId block = node.block[index(kind)];
    if (kind == BlockKind::kWindow) unlist_window(id);
    node.block[index(kind)] = kNoBlock;
    owner_slot(kind, block) = kNoNode;
    arena_.set(kind, block, BlockState::kLive);
    return block;
  }
  // Its KV is written.
  void make_ready(NodeId id) {
    Node& node = at(id);
    node.claim = kReady;
    evicted_.remove(node.name);
    publish(CacheEventKind::kStored, node);
    settle(id);
  }

  // -- holding --
  // A path is held whole, root first, and let go whole, tip first: so the least recently used node that may go never
  // has a child.
  void hold(NodeId id) {
    ++at(id).refs;
    if (at(id).refs == 1) settle(id);
  }
  void let_go(NodeId id) {
    if (--at(id).refs == 0) settle(id);
  }
  void hold_window(NodeId id) {
    ++at(id).window_refs;
    if (at(id).window_refs == 1) settle(id);
  }
  void let_go_window(NodeId id) {
    if (--at(id).window_refs == 0) settle(id);
  }
  // Keeps the path to `tip`, and the window to resume there, until unpin. Calls nest.
  void pin(NodeId tip) { change_pins(tip, 1); }
  void unpin(NodeId tip) { change_pins(tip, -1); }

  // A resume point at the end of a node: the window before it is kept before others.
  void add_point(NodeId id) {
    if (++at(id).points == 1) change_retainers(id, 1);
  }
  void drop_point(const NodeRef& ref) {
    if (alive(ref) && at(ref.node).points > 0 && --at(ref.node).points == 0) change_retainers(ref.node, -1);
  }

  // -- making room --
  // A block, live, giving up what is cached if need be; kNoBlock when all is busy.
  BlockId take(BlockKind kind) {
    do {
      if (const BlockId block = arena_.take(kind); block != kNoBlock) return block;
    } while (evict_for(kind));
    return kNoBlock;
  }
  // Takes all of `need`, appending to `blocks`, or nothing.
  bool take(const BlockNeed& need, std::vector<BlockId> (&blocks)[kBlockKinds]);

  // Removes a node nobody holds, and what is behind it. False when some of it is held or pinned.
  bool remove(NodeId id) {
    if (!removable(id)) return false;
    remove_all(id, false);
    return true;
  }
  // All blocks of the domain that can go, now; the rest when it is let go.
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
    at(kRoot).name = namer_.root();
    events_.push({});
  }

  // Every count against what it counts. O(nodes).
  Status check() const;

 private:
  static constexpr int32_t kChildrenLooked = 8;
  static constexpr int32_t kSlabsLooked = 8;  // for one to hand over: 8 finds nearly what 128 do (kaiju-bench replay)
  enum WindowList : int8_t { kPassing = 0, kRetained = 1 };  // kPassing goes first
  struct List {
    NodeId oldest = kNoNode, newest = kNoNode;
  };

  template <class T>
  static Buffer<T> take(size_t count) {
    Result<Buffer<T>> made = Buffer<T>::make(count, "the cache's books");
    if (!made.ok()) throw std::bad_alloc();
    made->prefer_large_pages();
    return std::move(made).value();
  }
  static size_t index(BlockKind kind) { return static_cast<size_t>(kind); }
  std::string identity(uint64_t epoch) const { return options_.identity + '\n' + std::to_string(epoch); }
  void reset_root() {
    Node& root = at(kRoot);
    root = {};
    root.first_child = kNoNode;
    root.name = namer_.root();
    used_nodes_ = 1;
    for (const BlockKind kind : kBothKinds)
      owner_of_[index(kind)].assign(static_cast<size_t>(arena_.total(kind)), kNoNode);
  }
  NodeId& owner_slot(BlockKind kind, BlockId block) { return owner_of_[index(kind)][static_cast<size_t>(block)]; }
  NodeId bucket(const BlockName& name) const { return const_cast<Tree*>(this)->bucket_of(name); }
  NodeId& bucket_of(const BlockName& name) { return buckets_.data()[name.low & (buckets_.size() - 1)]; }
  void publish(CacheEventKind kind, const Node& node) {
    if (domains_.at(node.domain).kind == DomainKind::kShared || options_.publish_private)
      events_.push({kind, node.name, at(node.parent).name, node.count});
  }

  NodeId fresh_node() {
    while (free_node_ == kNoNode && used_nodes_ == capacity_)
      if (nodes_list_.oldest == kNoNode || !evict_node(nodes_list_.oldest)) return kNoNode;
    if (free_node_ == kNoNode) return used_nodes_++;
    const NodeId id = free_node_;
    free_node_ = at(id).bucket_next;
    return id;
  }

  // Puts a node's blocks into the state, and the lists, that its counts ask for.
  void settle(NodeId id) {
    Node& node = at(id);
    const bool held = node.refs > 0 || node.claim != kReady;
    if (const BlockId block = node.block[0]; block != kNoBlock)
      arena_.set(BlockKind::kGlobal, block,
                 node.claim == kTransfer ? BlockState::kArriving
                 : held                  ? BlockState::kLive
                 : node.pins > 0         ? BlockState::kPinned
                                         : BlockState::kCached);
    if (const BlockId block = node.block[1]; block != kNoBlock) {
      const bool arriving = node.claim == kTransfer, live = node.window_refs > 0, pinned = node.window_pins > 0;
      arena_.set(BlockKind::kWindow, block,
                 arriving ? BlockState::kArriving
                 : live   ? BlockState::kLive
                 : pinned ? BlockState::kPinned
                          : BlockState::kCached);
      if (arriving || live || pinned)
        unlist_window(id);
      else
        list_window(id, node.retainers > 0 ? kRetained : kPassing);
    }
    if (held || node.pins > 0) {
      unlist(id);
    } else if (domains_.at(node.domain).dead) {
      remove_all(id, false);
    } else if (!node.listed) {
      list(id);
    }
  }

  void list(NodeId id) {
    Node& node = at(id);
    node.listed = true;
    node.used = ++clock_;
    link(nodes_list_, id, &Node::older, &Node::newer);
  }
  void unlist(NodeId id) {
    if (!at(id).listed) return;
    at(id).listed = false;
    unlink(nodes_list_, id, &Node::older, &Node::newer);
  }
  void list_window(NodeId id, WindowList which) {
    if (at(id).window_list == which) return;
    unlist_window(id);
    at(id).window_list = which;
    if (!at(id).listed) at(id).used = ++clock_;
    link(window_lists_[which], id, &Node::window_older, &Node::window_newer);
  }
  void unlist_window(NodeId id) {
    if (at(id).window_list < 0) return;
    unlink(window_lists_[at(id).window_list], id, &Node::window_older, &Node::window_newer);
    at(id).window_list = -1;
  }
  void link(List& list, NodeId id, NodeId Node::* older, NodeId Node::* newer) {
    at(id).*older = list.newest;
    at(id).*newer = kNoNode;
    (list.newest == kNoNode ? list.oldest : at(list.newest).*newer) = id;
    list.newest = id;
  }
  void unlink(List& list, NodeId id, NodeId Node::* older, NodeId Node::* newer) {
    const NodeId before = at(id).*older, after = at(id).*newer;
    (before == kNoNode ? list.oldest : at(before).*newer) = after;
    (after == kNoNode ? list.newest : at(after).*older) = before;
  }

  template <class Visit>
  void for_reach(NodeId id, Visit visit) {
    for (int32_t i = 0; i <= reach_ && id != kRoot; ++i) {
      const NodeId parent = at(id).parent;
      visit(id);
      id = parent;
    }
  }
  void change_retainers(NodeId id, int32_t by) {
    for_reach(id, [&](NodeId each) {
      Node& node = at(each);
      node.retainers += by;
      if (node.retainers == 0) node.wanted_below = false;
      if (node.window_list >= 0) list_window(each, node.retainers > 0 ? kRetained : kPassing);
    });
  }
  void change_pins(NodeId tip, int32_t by) {
    for_reach(tip, [&](NodeId each) { at(each).window_pins += by; });
    for (NodeId id = tip; id != kRoot;) {
      const NodeId parent = at(id).parent;
      at(id).pins += by;
      settle(id);
      id = parent;
    }
  }

  // -- eviction: tree_eviction.hpp --
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
  static bool take_each(const BlockNeed& need, std::vector<BlockId> (&blocks)[kBlockKinds], Take take);

  // Nobody holds it: then nobody holds what is behind it either.
  bool removable(NodeId id) const { return at(id).refs == 0 && at(id).pins == 0 && at(id).claim != kTransfer; }
  void remove_all(NodeId top, bool evicted);
  void erase(NodeId id, bool evicted);

  CacheOptions options_;
  bool has_global_;
  int32_t window_;
  int32_t reach_;
  Arena arena_;
  Domains domains_;
  CacheEvents events_;
  Namer namer_;
  CacheStats stats_;
  int32_t capacity_ = 0, used_nodes_ = 0, node_count_ = 0;
  NodeId free_node_ = kNoNode;
  Buffer<Node> nodes_;
  Buffer<NodeId> buckets_;
  EvictedNames evicted_;
  std::vector<NodeId> owner_of_[kBlockKinds];
  uint64_t clock_ = 0;
  uint64_t epoch_ = 0;
  List nodes_list_, window_lists_[2];
  std::unique_ptr<Tiers> tiers_;
};

inline Status Tree::check() const {
  KAIJU_TRY(arena_.check());
  const auto broken = [&](NodeId id, const char* what) {
    return arena_.broken(BlockKind::kGlobal, "node " + std::to_string(id) + " " + what);
  };
  int32_t seen = 0;
  for (size_t d = 0; d < domains_.end(); ++d) {
    int32_t nodes = 0;
    for (NodeId id = domains_.at(static_cast<DomainId>(d)).first; id != kNoNode; id = at(id).domain_next, ++nodes) {
      const Node& node = at(id);
      if (node.domain != static_cast<DomainId>(d) || node.parent == kNoNode)
        return broken(id, "is in the wrong domain");
      if (node.count < 1 || node.count > kBlockTokens || (node.count < kBlockTokens && node.first_child != kNoNode))
        return broken(id, "goes on behind its end");
      if (has_global_ != (node.block[0] != kNoBlock)) return broken(id, "lacks its global block");
      for (const BlockKind kind : kBothKinds)
        if (const BlockId block = node.block[index(kind)];
            block != kNoBlock && owner_of_[index(kind)][static_cast<size_t>(block)] != id)
          return broken(id, "has a block that is another's");
      if (node.parent != kRoot && (at(node.parent).refs < node.refs || at(node.parent).pins < node.pins))
        return broken(id, "is held more than its parent");
      if (node.window_refs > node.refs) return broken(id, "is seen by more sequences than hold it");
      if (node.refs < 0 || node.window_refs < 0 || node.pins < 0 || node.window_pins < 0 || node.points < 0 ||
          node.retainers < 0)
        return broken(id, "has a negative count");
      const bool held = node.refs > 0 || node.claim != kReady || node.pins > 0;
      if (node.listed == held) return broken(id, held ? "is held and may go" : "is nobody's and may not go");
      if (node.claim == kUnclaimed && node.refs == 0) return broken(id, "waits for nobody");
      if (node.block[1] == kNoBlock && node.window_list >= 0) return broken(id, "lists a window block it lacks");
      if (node.listed && node.parent != kRoot && at(node.parent).listed && at(node.parent).used < node.used)
        return broken(id, "was used after its parent");
    }
    if (nodes != domains_.at(static_cast<DomainId>(d)).nodes) return broken(kRoot, "has a domain that is miscounted");
    seen += nodes;
  }
  if (seen != node_count_) return broken(kRoot, "has lost nodes");
  return tiers_ ? tiers_->check() : Status();
}

}  // namespace kaiju

#include "kaiju/cache/tree_eviction.hpp"
