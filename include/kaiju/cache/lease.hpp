// Lease: what one running sequence holds of the cache: its path in the tree, its block tables, and blocks in hand for
// all it may still need. It finds what is there, follows a sequence that is computing the same, copies what it must not
// write, and leaves behind what it computed. Every change an executor must know goes into a StepPlan.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kaiju/cache/tree.hpp"
#include "kaiju/step/plan.hpp"

namespace kaiju {

// Where the edits of one sequence go: its slot in the plan being written.
struct EditSink {
  StepPlan* plan = nullptr;
  int32_t slot = 0;
};

struct LeaseRequest {
  std::span<const int32_t> prompt;  // not empty
  int32_t most_positions = 0;       // that will ever hold KV
  int32_t chunk_tokens = 1;         // most tokens of it in a step
  Regions regions;
  uint64_t owner = 0;         // the session
  int32_t ticket = 0;         // positive; no other lease's
  int32_t counted_from = -1;  // tokens below are in the statistics already, INT32_MAX: all; -1: not even their number
};

// How much of what is cached a lease uses. Less than all is for an arena so full that the request fits only by giving
// up its own hits.
enum class Reuse { kAll = 0, kWholeBlocks = 1, kGlobalOnly = 2, kNothing = 3 };

// One thread at a time. While it holds anything, finish it before the tree dies.
class Lease {
 public:
  // Window blocks that a sequence of `positions` holds at most at once: the window, the chunk, 63 positions lost at
  // three edges, one block kept behind the window, and one that a follower has not let go of yet.
  static int64_t window_blocks(int32_t positions, int32_t chunk_tokens, int32_t window) {
    return (int64_t{std::min(positions, chunk_tokens)} + window + kWindowSlack) / kBlockTokens;
  }
  static constexpr int32_t kWindowSlack = 3 * (kBlockTokens - 1) + kBlockTokens;
  // What a sequence that finds nothing needs.
  static BlockNeed need_alone(int32_t positions, int32_t chunk_tokens, const Facts& facts) {
    const int32_t blocks = blocks_for(positions);
    BlockNeed need;
    if (facts.has_global) need.count[0] = blocks;
    if (facts.window > 0)
      need.count[1] =
          static_cast<int32_t>(std::min<int64_t>(blocks, window_blocks(positions, chunk_tokens, facts.window)));
    return need;
  }

  // Finds what the prompt begins with, holds it, and takes every block the request may ever need; or does nothing and
  // says false.
  bool start(Tree& tree, const LeaseRequest& request, Reuse reuse, const EditSink& sink) {
    request_ = request;
    prompt_.assign(request.prompt.begin(), request.prompt.end());
    request_.prompt = {};
    const Found found = find(tree, reuse);
    hold(tree, found);
    if (!tree.take(need(tree, found), stash_)) {
      let_go(tree);
      return false;
    }
    next_ = found.resume;
    completed_ = next_ / kBlockTokens;
    count_found(tree, found);
    insert_prompt(tree, found);
    fill_tables(tree, found, sink);
    mark_found(tree);
    return true;
  }

  // Position of the next token to compute; the prompt's tokens below are in the cache.
  int32_t next() const { return next_; }
  // Global KV below is someone's already: the write mask.
  int32_t write_from() const { return ready_ * kBlockTokens; }

  // Before a step is planned: takes over what others have computed meanwhile.
  void prepare(Tree& tree, const EditSink& sink) {
    follow(tree);
    if (seal_ != kNoNode && next_ <= request_.regions.shared_tokens) pass_seal(tree, sink);
  }
  // The slot has been started with the tokens below next(), and has our tables.
  bool bound() const { return bound_; }
  // Tokens from next() on that may be computed now; 0: others are computing them, or memory for them comes later.
  int32_t room(Tree& tree, int32_t wanted) {
    int32_t end = next_ + wanted;
    if (seal_ != kNoNode && next_ < request_.regions.shared_tokens) {
      const bool mine = tree.at(seal_).claim == request_.ticket;
      end = std::min(end, mine ? request_.regions.shared_tokens : seal_index() * kBlockTokens);
    }
    for (int32_t index = std::max(ready_, next_ / kBlockTokens); index < path_count() && index * kBlockTokens < end;
         ++index) {
      int32_t& claim = tree.at(path_[at(index)]).claim;
      if (claim == kUnclaimed) claim = request_.ticket;
      if (claim != request_.ticket) end = std::min(end, index * kBlockTokens);
    }
    if (tree.uses(BlockKind::kWindow)) {
      release_windows(tree, {});
      const int64_t held = std::ssize(table_[1]) + std::ssize(stash_[1]);
      end = static_cast<int32_t>(std::min<int64_t>(end, held * kBlockTokens));
    }
    return std::max(0, end - next_);
  }
  // Writes the whole of both tables into a slot that was just started.
  void bind(const EditSink& sink) {
    for (const BlockKind kind : kBothKinds)
      for (size_t i = 0; i < table(kind).size(); ++i)
        if (table(kind)[i] != kNoBlock)
          sink.plan->table_edits.push_back({sink.slot, kind, static_cast<int32_t>(i), table(kind)[i]});
    edits_.clear();
    bound_ = true;
  }
  // Room for positions below `end`, which `room` allowed; tells a bound slot what has changed.
  bool extend(Tree& tree, int32_t end, const EditSink& sink) {
    release_windows(tree, sink);
    for (const BlockKind kind : kBothKinds) {
      if (!tree.uses(kind)) continue;
      while (static_cast<int32_t>(table(kind).size()) < blocks_for(end)) {
        const auto index = static_cast<int32_t>(table(kind).size());
        const BlockId block = kind == BlockKind::kGlobal ? global_for(tree, index) : pop(kind);
        if (block == kNoBlock) return false;
        table(kind).push_back(block);
        if (kind == BlockKind::kWindow) from_stash_.push_back(true);
        edits_.push_back({sink.slot, kind, index, block});
      }
    }
    flush(sink);
    return true;
  }
  // `count` tokens from next() on have been computed; `tokens` are the whole sequence.
  void commit(Tree& tree, std::span<const int32_t> tokens, int32_t count) {
    count_computed(tree, count);
    next_ += count;
    for (; (completed_ + 1) * kBlockTokens <= next_; ++completed_) complete(tree, tokens, completed_);
    if (seal_ != kNoNode && next_ == request_.regions.shared_tokens && tree.at(seal_).claim == request_.ticket)
      complete_seal(tree);
  }
  // Leaves everything computed behind and holds nothing any more. The resume points of this turn, for the session to
  // drop one day.
  std::vector<NodeRef> finish(Tree& tree, std::span<const int32_t> tokens) {
    leave_pending(tree);
    leave_tail(tree, tokens);
    const bool joined = !detached_;
    let_go(tree);
    if (joined && next_ > next_at_start_) drop_superseded(tree);
    return std::move(points_);
  }

  // -- for the ledger --
  const std::vector<BlockId>& blocks(BlockKind kind) const { return table_[static_cast<size_t>(kind)]; }
  const std::vector<BlockId>& stash(BlockKind kind) const { return stash_[static_cast<size_t>(kind)]; }
  const std::vector<NodeId>& path() const { return path_; }
  NodeId seal() const { return seal_; }

 private:
  struct Found {
    int32_t resume = 0;
    NodeId tail = kNoNode;  // its first tokens continue the path: copied
    int32_t tail_tokens = 0;
    int32_t known =
        0;  // tokens of the prompt, from the first on, whose global KV is here, whether a window lets us use it or not
    int32_t first_window = 0;  // window blocks held from this index to the resume point's block
    bool makes_seal = false;
  };

  static size_t at(int32_t index) { return static_cast<size_t>(index); }
  std::vector<BlockId>& table(BlockKind kind) { return table_[static_cast<size_t>(kind)]; }
  const std::vector<BlockId>& table(BlockKind kind) const { return table_[static_cast<size_t>(kind)]; }
  int32_t path_count() const { return static_cast<int32_t>(path_.size()); }
  int32_t prompt_count() const { return static_cast<int32_t>(prompt_.size()); }
  int32_t limit() const { return prompt_count() - 1; }  // a prompt found whole still computes its last token
  int32_t seal_index() const { return request_.regions.shared_tokens / kBlockTokens; }
  int32_t seal_tokens() const { return request_.regions.shared_tokens % kBlockTokens; }
  NodeId parent_of(int32_t index) const { return index == 0 ? kRoot : path_[at(index - 1)]; }
  bool seal_possible() const { return seal_tokens() > 0 && request_.regions.shared_tokens <= prompt_count(); }

  // -- start: lease_start.hpp --
  Found find(Tree& tree, Reuse reuse);
  void find_tail(Tree& tree, Found& found);
  void find_resume(const Tree& tree, Found& found, Reuse reuse);
  NodeId copied_from(const Found& found) const;
  void hold(Tree& tree, const Found& found);
  BlockNeed need(const Tree& tree, const Found& found) const;
  void insert_prompt(Tree& tree, const Found& found);
  void fill_tables(Tree& tree, const Found& found, const EditSink& sink);
  // Goes on at `position`, in the middle of a block that `source` holds.
  void enter_block(Tree& tree, NodeId source, int32_t position, bool copy_global, const EditSink& sink) {
    const int32_t index = position / kBlockTokens, count = position % kBlockTokens;
    if (tree.uses(BlockKind::kGlobal)) {
      const BlockId own = copy_global ? global_for(tree, index) : tree.at(source).block[0];
      put(BlockKind::kGlobal, index, own, sink);
      if (copy_global) sink.plan->copies.push_back({BlockKind::kGlobal, tree.at(source).block[0], own, count});
    }
    if (tree.uses(BlockKind::kWindow)) {
      const BlockId own = pop(BlockKind::kWindow);
      put(BlockKind::kWindow, index, own, sink);
      from_stash_.resize(table_[1].size());
      from_stash_[at(index)] = true;
      sink.plan->copies.push_back({BlockKind::kWindow, tree.at(source).block[1], own, count});
    }
  }

  // -- following and sealing --
  void follow(Tree& tree) {
    while (ready_ < path_count() && tree.at(path_[at(ready_)]).claim == kReady) ++ready_;
    const bool windows = tree.uses(BlockKind::kWindow);
    while (next_ % kBlockTokens == 0 && next_ / kBlockTokens < ready_) {
      const int32_t index = next_ / kBlockTokens;
      const NodeId node = path_[at(index)];
      // A last block is computed again from its beginning: it is that or a copy.
      if (next_ + kBlockTokens > limit() || (windows && tree.at(node).block[1] == kNoBlock)) return;
      if (std::max(table_[0].size(), table_[1].size()) > at(index)) return;  // begun already
      if (tree.uses(BlockKind::kGlobal)) table_[0].push_back(tree.at(node).block[0]);
      if (windows) {
        tree.hold_window(node);
        table_[1].push_back(tree.at(node).block[1]);
        from_stash_.push_back(false);
      }
      count_hit(tree, node, next_, kBlockTokens);
      next_ += kBlockTokens;
      completed_ = next_ / kBlockTokens;
      bound_ = false;
      mark_at(tree, index, node);
      release_windows(tree, {});
    }
  }
  // At the seal: somebody made it, or we did; what follows is written into a copy.
  void pass_seal(Tree& tree, const EditSink& sink) {
    Node& seal = tree.at(seal_);
    if (next_ == seal_index() * kBlockTokens && seal.claim == kUnclaimed) seal.claim = request_.ticket;
    if (seal.claim != kReady) return;
    const bool ours = next_ == request_.regions.shared_tokens;
    const int32_t position = ours ? next_ : std::min(limit(), request_.regions.shared_tokens);
    if (!ours && (next_ != seal_index() * kBlockTokens || position <= next_ || next_ / kBlockTokens < ready_ ||
                  (tree.uses(BlockKind::kWindow) && seal.block[1] == kNoBlock))) {
      if (next_ >= seal_index() * kBlockTokens) drop_seal(tree);  // of no use: computed again
      return;
    }
    if (ours) {
      if (tree.uses(BlockKind::kWindow)) tree.let_go_window(seal_);
    } else {
      count_hit(tree, seal_, next_, position - next_);
      bound_ = false;
    }
    next_ = position;
    enter_block(tree, seal_, position, true, sink);
    drop_seal(tree);
  }
  void complete_seal(Tree& tree) {
    if (tree.uses(BlockKind::kWindow)) {
      tree.hold_window(seal_);
      tree.attach(seal_, BlockKind::kWindow, table_[1][at(seal_index())]);
    }
    tree.make_ready(seal_);
    mark_junction(tree, seal_);
  }
  void drop_seal(Tree& tree) {
    tree.let_go(seal_);
    seal_ = kNoNode;
  }

  // -- blocks that become full --
  void complete(Tree& tree, std::span<const int32_t> tokens, int32_t index) {
    if (index < path_count()) {
      const NodeId node = path_[at(index)];
      give_window(tree, node, index);
      if (tree.at(node).claim == request_.ticket) tree.make_ready(node);
      if (index == ready_) ++ready_;
    } else if (!append(tree, tokens, index)) {
      detached_ = true;
      return;
    }
    mark_at(tree, index, path_[at(index)]);
  }
  // A block beyond the prompt joins the tree.
  bool append(Tree& tree, std::span<const int32_t> tokens, int32_t index) {
    if (detached_ || index != path_count()) return false;
    const int32_t* block = &tokens[at(index * kBlockTokens)];
    const DomainId domain = request_.regions.of_block(index);
    const BlockName name = tree.name_after(parent_of(index), domain, block, kBlockTokens);
    NodeId node = tree.find(parent_of(index), domain, block, kBlockTokens, name);
    if (node != kNoNode && tree.at(node).claim != kReady) return false;
    const bool found = node != kNoNode;  // then our own blocks stay ours, and go with us
    if (!found)
      node = tree.insert(parent_of(index), domain, block, kBlockTokens, name, request_.ticket, request_.owner);
    if (node == kNoNode) return false;
    tree.hold(node);
    if (!found && tree.uses(BlockKind::kGlobal)) tree.attach(node, BlockKind::kGlobal, table_[0][at(index)]);
    give_window(tree, node, index);
    if (!found) tree.make_ready(node);
    path_.push_back(node);
    ready_ = path_count();
    return true;
  }
  void give_window(Tree& tree, NodeId node, int32_t index) {
    if (!tree.uses(BlockKind::kWindow) || tree.at(node).block[1] != kNoBlock || table_[1][at(index)] == kNoBlock)
      return;
    tree.hold_window(node);
    tree.attach(node, BlockKind::kWindow, table_[1][at(index)]);
  }

  // -- window blocks that left the window --
  void release_windows(Tree& tree, const EditSink& sink) {
    if (!tree.uses(BlockKind::kWindow)) return;
    const int32_t end = std::min(static_cast<int32_t>(table_[1].size()), tree.first_kept(next_));
    for (; window_first_ < end; ++window_first_) {
      BlockId& block = table_[1][at(window_first_)];
      if (block == kNoBlock) continue;
      release_window(tree, window_first_, block);
      block = kNoBlock;
      edits_.push_back({sink.slot, BlockKind::kWindow, window_first_, kNoBlock});
    }
    for (; owed_ > 0; --owed_) {
      const BlockId block = tree.take(BlockKind::kWindow);
      if (block == kNoBlock) break;
      stash_[1].push_back(block);
    }
    if (sink.plan) flush(sink);
  }
  // What came out of our hand comes back into it: this block, if nobody has use for it, or another one.
  void release_window(Tree& tree, int32_t index, BlockId block) {
    const NodeId node = tree.node_of(BlockKind::kWindow, block);
    if (node == kNoNode) {
      stash_[1].push_back(block);
      return;
    }
    tree.let_go_window(node);
    if (!from_stash_[at(index)]) return;
    const Node& n = tree.at(node);
    if (n.window_refs == 0 && n.window_pins == 0 && n.retainers == 0 && !keeps(tree, index))
      stash_[1].push_back(tree.detach(node, BlockKind::kWindow));
    else
      ++owed_;
  }
  void flush(const EditSink& sink) {
    for (TableEdit& edit : edits_) {
      edit.slot = sink.slot;
      if (bound_) sink.plan->table_edits.push_back(edit);
    }
    edits_.clear();
  }

  // -- resume points --
  template <class Visit>
  void for_turn_points(Visit visit) const {
    if (next_at_start_ > 0) visit(next_at_start_);  // where the turn before ended
    if (limit() > 0) visit(limit());                // the first generated token: a swipe
  }
  bool keeps(const Tree& tree, int32_t index) const {
    bool kept = false;
    const auto look = [&](int32_t position) {
      const int32_t node = (position - 1) / kBlockTokens;
      kept = kept || (index <= node && index >= node - tree.reach());
    };
    if (tree.retention().turns > 0) for_turn_points(look);
    if (const int32_t end = request_.regions.shared_tokens;
        tree.retention().junctions && end > 0 && end <= prompt_count())
      look(end);
    if (const int32_t every = tree.retention().every_tokens; every > 0)
      look((index * kBlockTokens / every + 1) * every);
    return kept;
  }
  void mark_found(Tree& tree) {
    next_at_start_ = next_;
    if (tree.retention().turns > 0)
      for_turn_points([&](int32_t position) {
        if (const int32_t index = (position - 1) / kBlockTokens; index < completed_) mark_turn(tree, path_[at(index)]);
      });
    // Somebody else went on from here otherwise: others may, too.
    if (next_ > 0 && next_ % kBlockTokens == 0) {
      const NodeId node = path_[at(next_ / kBlockTokens - 1)];
      if (tree.at(node).first_child != kNoNode && tree.at(tree.at(node).first_child).next_sibling != kNoNode)
        mark_junction(tree, node);
    }
  }
  void mark_at(Tree& tree, int32_t index, NodeId node) {
    const Retention& retention = tree.retention();
    if (retention.turns > 0)
      for_turn_points([&](int32_t position) {
        if ((position - 1) / kBlockTokens == index) mark_turn(tree, node);
      });
    if (request_.regions.shared_tokens == (index + 1) * kBlockTokens) mark_junction(tree, node);
    if (const int32_t every = retention.every_tokens;
        every > 0 && (index + 1) * kBlockTokens / every > index * kBlockTokens / every)
      tree.add_point(node);
  }
  void mark_turn(Tree& tree, NodeId node) {
    tree.add_point(node);
    points_.push_back(tree.ref(node));
  }
  static void mark_junction(Tree& tree, NodeId node) {
    if (!tree.retention().junctions || tree.at(node).junction) return;
    tree.at(node).junction = true;
    tree.add_point(node);
  }

  // -- the end: lease_finish.hpp --
  void leave_pending(Tree& tree);
  void leave(Tree& tree, NodeId node, bool keep_global);
  bool holds(BlockKind kind, BlockId block) const;
  void leave_tail(Tree& tree, std::span<const int32_t> tokens);
  void mark_end(Tree& tree, NodeId node);
  bool owns(const Tree& tree, int32_t index) const;
  void let_go(Tree& tree);
  void drop_superseded(Tree& tree);

  // -- accounts --
  void count_found(Tree& tree, const Found& found) {
    if (request_.counted_from >= prompt_count()) return;
    if (request_.counted_from < 0) tree.stats().prompt_tokens += prompt_.size();
    for (int32_t index = 0; index < found.resume / kBlockTokens; ++index)
      count_hit(tree, path_[at(index)], index * kBlockTokens, kBlockTokens);
    if (const NodeId source = copied_from(found); source != kNoNode)
      count_hit(tree, source, found.resume / kBlockTokens * kBlockTokens, found.resume % kBlockTokens);
    found_end_ = found.known;
    find_evicted(tree);
  }
  // What of the rest was here once: whole blocks, and the beginning of the block behind them, which was a tail.
  void find_evicted(const Tree& tree) {
    evicted_.assign(at(blocks_for(prompt_count())), 0);
    const auto name_of = [&](const BlockName& parent, int32_t index, int32_t count) {
      const int32_t end = index * kBlockTokens + count;
      const DomainId domain = end <= request_.regions.shared_tokens ? request_.regions.shared : request_.regions.own;
      return tree.namer().of(parent, tree.domains().at(domain).name, &prompt_[at(index * kBlockTokens)], count);
    };
    int32_t next = ready_;  // what comes after the last that is or was here
    BlockName name = tree.at(parent_of(ready_)).name, tip = name;
    for (int32_t index = ready_; (index + 1) * kBlockTokens <= prompt_count(); ++index) {
      name = name_of(name, index, kBlockTokens);
      if (!tree.was_evicted(name)) continue;
      evicted_[at(index)] = kBlockTokens;
      next = index + 1;
      tip = name;
    }
    for (int32_t count = std::min(kBlockTokens - 1, prompt_count() - next * kBlockTokens);
         count > 0 && evicted_[at(next)] == 0; --count)
      if (tree.was_evicted(name_of(tip, next, count))) evicted_[at(next)] = static_cast<uint8_t>(count);
  }
  void count_hit(Tree& tree, NodeId node, int32_t position, int32_t tokens) const {
    const Node& n = tree.at(node);
    CacheStats& stats = tree.stats();
    (n.domain == request_.regions.shared ? stats.hit_shared
     : n.owner == request_.owner         ? stats.hit_own
                                         : stats.hit_other) +=
        static_cast<uint64_t>(std::max(0, position + tokens - std::max(position, request_.counted_from)));
  }
  void count_computed(Tree& tree, int32_t count) const {
    CacheStats& stats = tree.stats();
    const int32_t begin = std::max(next_, request_.counted_from), end = std::min(next_ + count, prompt_count());
    if (begin >= end) return;
    const auto computed_in = [&](int32_t from, int32_t to) {
      return static_cast<uint64_t>(std::max(0, std::min(end, to) - std::max(begin, from)));
    };
    const bool last = end == prompt_count() && found_end_ >= prompt_count();
    const uint64_t window = computed_in(0, found_end_) - (last ? 1 : 0);
    uint64_t evicted = 0;
    for (int32_t index = begin / kBlockTokens;
         index < std::min<int32_t>(blocks_for(end), static_cast<int32_t>(evicted_.size())); ++index)
      evicted += computed_in(std::max(found_end_, index * kBlockTokens), index * kBlockTokens + evicted_[at(index)]);
    stats.miss_last += last ? 1 : 0;
    stats.miss_window += window;
    stats.miss_evicted += evicted;
    stats.miss_new += computed_in(0, prompt_count()) - (last ? 1 : 0) - window - evicted;
  }

  BlockId pop(BlockKind kind) {
    auto& stash = stash_[static_cast<size_t>(kind)];
    if (stash.empty()) return kNoBlock;
    const BlockId block = stash.back();
    stash.pop_back();
    return block;
  }
  // The block for global KV at `index`: the node's, found or claimed; the seal's while we make it; else one of our own.
  BlockId global_for(const Tree& tree, int32_t index) {
    if (seal_ != kNoNode && index == seal_index() && next_ < request_.regions.shared_tokens &&
        tree.at(seal_).claim == request_.ticket)
      return tree.at(seal_).block[0];
    return index < path_count() ? tree.at(path_[at(index)]).block[0] : pop(BlockKind::kGlobal);
  }
  void put(BlockKind kind, int32_t index, BlockId block, const EditSink& sink) {
    if (static_cast<int32_t>(table(kind).size()) <= index) table(kind).resize(at(index) + 1, kNoBlock);
    table(kind)[at(index)] = block;
    edits_.push_back({sink.slot, kind, index, block});
  }

  LeaseRequest request_;
  std::vector<int32_t> prompt_;
  std::vector<NodeId> path_;  // one a block from the first on: found, claimed by us, or claimed by others
  int32_t ready_ = 0;         // nodes of the path, from the first on, whose global KV is written
  NodeId seal_ = kNoNode;     // the shared region's tail, while it is being made, by us or by others
  bool seal_found_ = false;
  bool detached_ = false;  // what we compute from here on does not join the tree
  std::vector<BlockId> table_[kBlockKinds];
  std::vector<uint8_t> from_stash_;  // of the window table: it came out of our hand
  std::vector<BlockId> stash_[kBlockKinds];
  int32_t owed_ = 0;              // window blocks that are still to come back into it
  std::vector<TableEdit> edits_;  // that the slot does not know yet
  bool bound_ = false;            // the slot has our tables
  NodeId copy_source_ = kNoNode;
  NodeRef superseded_;
  std::vector<NodeRef> points_;
  int32_t next_ = 0, next_at_start_ = 0;
  int32_t completed_ = 0;     // blocks, from the first on, that are full and in the tree
  int32_t window_first_ = 0;  // window blocks below were let go
  int32_t found_end_ = 0;     // global KV of the prompt's tokens below was here at the start
  std::vector<uint8_t>
      evicted_;  // of each block of the prompt: how many of its tokens were here once and had to make room
};

}  // namespace kaiju

#include "kaiju/cache/lease_finish.hpp"
#include "kaiju/cache/lease_start.hpp"
