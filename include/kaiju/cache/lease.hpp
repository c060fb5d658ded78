// Lease: what one running sequence holds of the cache: its path in the tree, its block tables, and blocks in hand for
// all that it may still need. It starts from what the tree has (lease_start.hpp), follows sequences that compute the
// same (lease_follow.hpp), hands out and collects blocks as the sequence grows (lease_blocks.hpp), keeps resume points
// (lease_points.hpp), counts hits and misses (lease_counts.hpp), and leaves what it computed behind (lease_finish.hpp).
// Every change that an executor must know goes into a StepPlan.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "kaiju/cache/need.hpp"
#include "kaiju/cache/prefix_tree.hpp"
#include "kaiju/step/plan.hpp"

namespace kaiju {

// Where the edits of one sequence go: its slot in the plan being written.
struct EditSink {
  StepPlan* plan = nullptr;
  int32_t slot = 0;
};

struct LeaseRequest {
  std::span<const int32_t> prompt;  // not empty; read during start alone
  int32_t most_positions = 0;       // that will ever hold KV
  int32_t chunk_tokens = 1;         // most tokens of it in a step
  Regions regions;
  uint64_t owner = 0;         // the session
  int32_t ticket = 0;         // positive; no other lease's
  int32_t counted_from = -1;  // tokens below are in the statistics already, INT32_MAX: all; -1: not even their number

  SequenceSize size() const { return {most_positions, chunk_tokens}; }
};

// How much of what is cached a lease uses. Less than all is for a cache so full that the request fits only by evicting
// its own hits.
enum class Reuse { kAll = 0, kWholeBlocks = 1, kGlobalOnly = 2, kNothing = 3 };

// Invariants while a lease is started:
// - `path_` has the nodes of the sequence's blocks from the first on, each held once. Those before `ready_` are ready;
//   each of the others is claimed by this lease, by one that it follows, by a transfer, or not claimed.
// - Positions below `next_` are computed, and the tables lead to all of their KV that position `next_` may see.
// - A block in a table is a node's, or nobody else's. A global block is entered once; a window block is held (or its
//   own) from the moment it is entered until it has left the window.
// - Blocks in hand (`stash_`) are live and nobody else's. For every block that the sequence may ever need there is one
//   in a table, in a node of the path, or in hand; of window blocks some may be owed: the tree kept them for resume
//   points, and the lease takes others for them as soon as it can.
// - `shared_tail_` is held while it is set: the node is being made, by this lease or by another.
// - What a `detached_` lease computes does not join the tree any more.
// It must be finished before the tree goes. One thread at a time.
class Lease {
 public:
  enum class Outcome {
    kStarted,
    kNoRoom,  // not all blocks that it may need can be had: it holds nothing
  };

  static constexpr int32_t kWindowSlack = kaiju::kWindowSlack;
  // What a sequence that finds nothing needs.
  static BlockNeed need_alone(int32_t positions, int32_t chunk_tokens, const ExecutorInfo& info) {
    return blocks_needed({positions, chunk_tokens}, {}, info.has_global, info.window);
  }

  // Finds what the prompt begins with, holds it, and takes every block the request may ever need.
  Outcome start(PrefixTree& tree, const LeaseRequest& request, Reuse reuse, const EditSink& sink) {
    request_ = request;
    prompt_count_ = static_cast<int32_t>(request.prompt.size());
    const Found found = find(tree, reuse);
    hold(tree, found);
    const bool taken = tree.take(need(tree, found), stash_);
    if (taken)
      begin(tree, found, sink);
    else
      let_go(tree);
    request_.prompt = {};
    return taken ? Outcome::kStarted : Outcome::kNoRoom;
  }

  // Position of the next token to compute; the prompt's tokens below are in the cache.
  int32_t next() const { return next_; }
  // Global KV below is in the cache already: the write mask.
  int32_t write_from() const { return ready_ * kBlockTokens; }

  // Before a step is planned: takes over what others have computed meanwhile.
  void prepare(PrefixTree& tree, const EditSink& sink) {
    follow(tree);
    if (shared_tail_ != kNoNode && next_ <= request_.regions.shared_tokens) pass_shared_tail(tree, sink);
  }
  // Whether the slot has been started with the tokens below next(), and has these tables.
  bool bound() const { return bound_; }
  // The slot holds something else now: it must be started again before its next segment.
  void unbind() { bound_ = false; }
  // Tokens from next() on that may be computed now; 0: others are computing them, or memory for them comes later.
  int32_t room(PrefixTree& tree, int32_t wanted);
  // Writes the whole of both tables into a slot that was just started.
  void bind(const EditSink& sink);
  // Provides blocks for positions below `end`, which `room` allowed; tells a bound slot what has changed. False: a
  // block is missing, which breaks the promise of start.
  bool extend(PrefixTree& tree, int32_t end, const EditSink& sink);
  // `count` tokens from next() on have been computed; `tokens` are the whole sequence.
  void commit(PrefixTree& tree, std::span<const int32_t> tokens, int32_t count) {
    count_computed(tree, count);
    next_ += count;
    for (; (completed_ + 1) * kBlockTokens <= next_; ++completed_) complete(tree, tokens, completed_);
    if (shared_tail_ != kNoNode && next_ == request_.regions.shared_tokens &&
        tree.at(shared_tail_).claimed_by(request_.ticket))
      complete_shared_tail(tree);
  }
  // Leaves everything computed behind and holds nothing any more. Returns the resume points of this turn, for the
  // session to drop one day.
  std::vector<NodeRef> finish(PrefixTree& tree, std::span<const int32_t> tokens) {
    leave_pending(tree);
    leave_tail(tree, tokens);
    const bool joined = !detached_;
    let_go(tree);
    if (joined && next_ > next_at_start_) drop_superseded(tree);
    return std::move(points_);
  }

  // -- for the validators --
  const std::vector<BlockId>& blocks(BlockKind kind) const { return table_[kind]; }
  const std::vector<BlockId>& stash(BlockKind kind) const { return stash_[kind]; }
  const std::vector<NodeId>& path() const { return path_; }
  NodeId shared_tail() const { return shared_tail_; }

 private:
  // What a prompt begins with.
  struct Found {
    int32_t resume = 0;     // position of the first token to compute
    NodeId tail = kNoNode;  // its first tokens continue the path: copied
    int32_t tail_tokens = 0;
    int32_t known = 0;         // tokens of the prompt, from the first on, whose global KV is here, usable or not
    int32_t first_window = 0;  // window blocks held from this index to the resume point's block
    SharedTail shared_tail = SharedTail::kNone;
  };

  static size_t at(int32_t index) { return static_cast<size_t>(index); }
  int32_t path_count() const { return static_cast<int32_t>(path_.size()); }
  int32_t limit() const { return prompt_count_ - 1; }  // a prompt found whole still computes its last token
  int32_t shared_tail_index() const { return request_.regions.shared_tokens / kBlockTokens; }
  int32_t shared_tail_tokens() const { return request_.regions.shared_tokens % kBlockTokens; }
  bool shared_tail_possible() const {
    return shared_tail_tokens() > 0 && request_.regions.shared_tokens <= prompt_count_;
  }
  NodeId parent_of(int32_t index) const { return index == 0 ? kRoot : path_[at(index - 1)]; }
  std::span<const int32_t> prompt_block(int32_t index, int32_t count = kBlockTokens) const {
    return request_.prompt.subspan(at(index * kBlockTokens), at(count));
  }

  // -- start: lease_start.hpp --
  Found find(const PrefixTree& tree, Reuse reuse);
  void find_tail(const PrefixTree& tree, Found& found);
  void find_resume(const PrefixTree& tree, Found& found, Reuse reuse);
  NodeId copied_from(const Found& found) const;
  void hold(PrefixTree& tree, const Found& found);
  BlockNeed need(const PrefixTree& tree, const Found& found) const;
  void begin(PrefixTree& tree, const Found& found, const EditSink& sink);
  void insert_prompt(PrefixTree& tree, const Found& found);
  void fill_tables(PrefixTree& tree, const Found& found, const EditSink& sink);

  // -- following others, and the shared tail: lease_follow.hpp --
  void follow(PrefixTree& tree);
  void pass_shared_tail(PrefixTree& tree, const EditSink& sink);
  void complete_shared_tail(PrefixTree& tree);
  void drop_shared_tail(PrefixTree& tree);
  void enter_block(PrefixTree& tree, NodeId source, int32_t position, bool copy_global, const EditSink& sink);

  // -- blocks that are handed out, become full, or leave the window: lease_blocks.hpp --
  void complete(PrefixTree& tree, std::span<const int32_t> tokens, int32_t index);
  bool append(PrefixTree& tree, std::span<const int32_t> tokens, int32_t index);
  void give_window(PrefixTree& tree, NodeId node, int32_t index);
  void release_windows(PrefixTree& tree, const EditSink& sink);
  void release_window(PrefixTree& tree, int32_t index, BlockId block);
  void flush(const EditSink& sink);
  BlockId pop(BlockKind kind);
  BlockId global_for(const PrefixTree& tree, int32_t index);
  void put(BlockKind kind, int32_t index, BlockId block, const EditSink& sink);

  // -- resume points: lease_points.hpp --
  template <class Visit>
  void for_turn_points(Visit visit) const;
  bool keeps(const PrefixTree& tree, int32_t index) const;
  void mark_found(PrefixTree& tree);
  void mark_at(PrefixTree& tree, int32_t index, NodeId node);
  void mark_turn(PrefixTree& tree, NodeId node);

  // -- counts: lease_counts.hpp --
  void count_found(PrefixTree& tree, const Found& found);
  void find_evicted(const PrefixTree& tree);
  void count_hit(PrefixTree& tree, NodeId node, int32_t position, int32_t tokens) const;
  void count_computed(PrefixTree& tree, int32_t count) const;

  // -- the end: lease_finish.hpp --
  void leave_pending(PrefixTree& tree);
  void leave(PrefixTree& tree, NodeId node, bool keep_global);
  bool holds(BlockKind kind, BlockId block) const;
  void leave_tail(PrefixTree& tree, std::span<const int32_t> tokens);
  void mark_end(PrefixTree& tree, NodeId node);
  bool owns(const PrefixTree& tree, int32_t index) const;
  void let_go(PrefixTree& tree);
  void drop_superseded(PrefixTree& tree);

  LeaseRequest request_;
  int32_t prompt_count_ = 0;
  std::vector<NodeId> path_;
  int32_t ready_ = 0;  // nodes of the path, from the first on, whose global KV is written
  NodeId shared_tail_ = kNoNode;
  bool detached_ = false;
  PerKind<std::vector<BlockId>> table_;
  std::vector<uint8_t> from_stash_;  // of the window table: the block came out of the hand
  PerKind<std::vector<BlockId>> stash_;
  int32_t owed_ = 0;              // window blocks that are still to come back into the hand
  std::vector<TableEdit> edits_;  // that the slot does not know yet
  bool bound_ = false;
  NodeId copy_source_ = kNoNode;  // held until its beginning is copied
  NodeRef superseded_;            // the tail that this sequence goes on from
  std::vector<NodeRef> points_;
  int32_t next_ = 0, next_at_start_ = 0;
  int32_t completed_ = 0;         // blocks, from the first on, that are full and in the tree
  int32_t window_first_ = 0;      // window blocks below were let go
  int32_t found_end_ = 0;         // global KV of the prompt's tokens below was here at the start
  std::vector<uint8_t> evicted_;  // of each block of the prompt: how many of its tokens were here once and were evicted
};

}  // namespace kaiju

#include "kaiju/cache/detail/lease_blocks.hpp"
#include "kaiju/cache/detail/lease_counts.hpp"
#include "kaiju/cache/detail/lease_finish.hpp"
#include "kaiju/cache/detail/lease_follow.hpp"
#include "kaiju/cache/detail/lease_points.hpp"
#include "kaiju/cache/detail/lease_start.hpp"
