// Lease: what one running sequence holds of the cache. A lease has the sequence's path of nodes in the prefix tree, its
// block tables, and a stash: blocks that were taken in advance for all tokens that the sequence may still generate. A
// lease starts with the cached prefix of its prompt (lease_start.hpp), waits for sequences that compute the same blocks
// (lease_follow.hpp), and gives out and collects blocks as the sequence grows (lease_blocks.hpp). A lease also adds
// resume points, which are positions from which a later prompt can continue (lease_points.hpp), and counts hits and
// misses (lease_counts.hpp). When a lease ends, it leaves its computed blocks in the tree (lease_finish.hpp). A lease
// writes the changes that the executor must know to a StepPlan.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "kaiju/cache/need.hpp"
#include "kaiju/cache/prefix_tree.hpp"
#include "kaiju/cache/reuse_report.hpp"
#include "kaiju/step/plan.hpp"

namespace kaiju {

// The step plan to which a lease writes its block-table edits, and the executor slot of its sequence.
struct EditSink {
  StepPlan* plan = nullptr;
  int32_t slot = 0;
};

class Lease;

struct LeaseRequest {
  std::span<const int32_t> prompt;  // not empty; read during start only
  int32_t most_positions = 0;       // most positions that will hold KV
  int32_t chunk_tokens = 1;         // most tokens of the sequence in one step
  Regions regions;
  uint64_t owner = 0;  // id of the session
  int32_t ticket = 0;  // positive and unique among leases
  // Prompt tokens before position `counted_from` were already counted in CacheStats. If `counted_from` is INT32_MAX,
  // all prompt tokens were already counted. If `counted_from` is -1, no prompt token was counted, and
  // CacheStats::prompt_tokens does not include this prompt yet.
  int32_t counted_from = -1;

  // Whether the last token may be computed long after the others (a guided request waits for its host). Then no other
  // lease has to wait for the block of that token.
  bool last_waits = false;

  // A running sequence whose tokens before its next() are this prompt without its last token; null: none. Its last,
  // partly filled block is copied, so that only the prompt's last token is computed. Read during start only.
  const Lease* twin = nullptr;

  Claimant claimant = {};  // whose share asks for blocks

  Regions regions_before = {};  // of the session's request before; own is kNoDomain: there was none

  SequenceSize size() const { return {most_positions, chunk_tokens}; }
};

// Reuse states how much of the prompt's cached prefix a lease uses. Values of Reuse other than kAll are needed when the
// cache is so full that a request fits only if cached blocks of its own prompt are evicted.
enum class Reuse { kAll = 0, kWholeBlocks = 1, kGlobalOnly = 2, kNothing = 3 };

// Invariants of a lease from start() to finish():
// - `path_` has the tree nodes of the sequence's blocks from the first block on, and the lease holds each of these
//   nodes once. The KV of the first `ready_` nodes of `path_` is already computed. The KV of each later node of `path_`
//   will be computed by this lease or by another lease that holds the node, or it is being copied from a lower tier
//   (host memory or a file).
// - The KV of all positions below `next_` is already computed. The block tables contain every block whose KV the token
//   at position `next_` attends to.
// - A block in a block table belongs to a tree node or to this lease. No global block is entered into the global table
//   twice. A window block is held by this lease or belongs to it, from when the block is entered into its table until
//   the block has left the window.
// - The blocks in `stash_` are live and belong to this lease. For every block that the sequence may ever need, there is
//   a block in a block table, in a node of `path_`, or in `stash_`. The exceptions are `owed_` window blocks that
//   stayed in the tree when they left this sequence's window, because a resume point, a pin or another sequence needs
//   them. The lease takes another window block for each of them as soon as the cache has room.
// - `shared_tail_` is the node of the last, partly filled block of the shared region (the part of the prompt that
//   several sessions share). While `shared_tail_` is set, this lease holds that node, and this lease or another one
//   will compute its KV.
// - While `detached_` is true, the blocks that this lease computes are not added to the tree.
// finish() must be called before the lease's tree is destroyed. One thread at a time may use a Lease.
class Lease {
 public:
  enum class Outcome {
    kStarted,
    kNoRoom,  // the blocks that the sequence may need are not available; the lease holds nothing
  };

  static constexpr int32_t kWindowSlack = kaiju::kWindowSlack;
  // Returns the number of blocks that a sequence needs if none of its KV is cached.
  static BlockNeed need_alone(int32_t positions, int32_t chunk_tokens, const ExecutorInfo& info) {
    return blocks_needed({positions, chunk_tokens}, {}, info.has_global, info.window);
  }

  // Finds and holds the cached prefix of the prompt, and takes all further blocks that the sequence may ever need. If
  // these blocks are not available, start() holds nothing and returns kNoRoom.
  Outcome start(PrefixTree& tree, const LeaseRequest& request, Reuse reuse, const EditSink& sink) {
    request_ = request;
    prompt_count_ = static_cast<int32_t>(request.prompt.size());
    const Found found = find(tree, reuse);
    hold(tree, found);
    const bool taken = tree.take(need(tree, found), stash_, request.claimant);
    if (taken)
      begin(tree, found, reuse, sink);
    else
      release_all(tree);
    request_.prompt = {};
    request_.twin = nullptr;
    return taken ? Outcome::kStarted : Outcome::kNoRoom;
  }

  // Returns the position of the next token to compute. The KV of all tokens before position next() is already computed.
  int32_t next() const { return next_; }
  // Returns the first position whose global KV must be written. The global KV of all positions before write_from() is
  // in the cache already and must not be written again.
  int32_t write_from() const { return ready_ * kBlockTokens; }

  // Returns what was found at the start, and why not more.
  const ReuseReport& reuse_report() const { return report_; }

  // Moves next() past the tokens whose blocks other leases have computed since the last step. prepare() must be called
  // before each step is planned.
  void prepare(PrefixTree& tree, const EditSink& sink) {
    follow(tree);
    if (shared_tail_ != kNoNode && next_ <= request_.regions.shared_tokens) pass_shared_tail(tree, sink);
  }
  // Returns whether the executor's slot was started with the tokens before next() and has this lease's block tables.
  bool bound() const { return bound_; }
  // States that the executor's slot no longer has this lease's block tables. The slot must be started again before this
  // sequence's next segment.
  void unbind() { bound_ = false; }
  // Returns how many of the `wanted` tokens from next() on may be computed in the next step. room() returns 0 if
  // another lease is computing the next token's block, or if no block is available for the next token yet.
  int32_t room(PrefixTree& tree, int32_t wanted);
  // Writes the complete global and window block tables as edits for a slot that is started in this plan.
  void bind(const EditSink& sink);
  // Provides blocks for all positions below `end`, which must not exceed what room() has allowed. If the slot is bound,
  // extend() also writes the table edits to the plan. extend() returns false if a block is missing, which is a broken
  // invariant.
  bool extend(PrefixTree& tree, int32_t end, const EditSink& sink);
  // Records that the step has computed `count` tokens from position next() on. `tokens` are all tokens of the sequence.
  void commit(PrefixTree& tree, std::span<const int32_t> tokens, int32_t count) {
    count_computed(tree, count);
    next_ += count;
    for (; (completed_ + 1) * kBlockTokens <= next_; ++completed_) complete(tree, tokens, completed_);
    if (shared_tail_ != kNoNode && next_ == request_.regions.shared_tokens &&
        tree.at(shared_tail_).claimed_by(request_.ticket))
      complete_shared_tail(tree);
  }
  // Leaves the blocks that this lease has computed in the tree and releases everything that the lease holds. finish()
  // returns the resume points that this turn of the session has added; the session drops these resume points later.
  std::vector<NodeRef> finish(PrefixTree& tree, std::span<const int32_t> tokens) {
    leave_pending(tree);
    const NodeId tail = leave_tail(tree, tokens);
    const bool joined = !detached_;
    if (tail != kNoNode || !path_.empty()) tree.use_path(tail != kNoNode ? tail : path_.back(), uses_);
    release_all(tree);
    if (joined && next_ > next_at_start_) drop_superseded(tree);
    return std::move(points_);
  }

  // -- for the validators (invariants.hpp) --
  const std::vector<BlockId>& blocks(BlockKind kind) const { return table_[kind]; }
  const std::vector<BlockId>& stash(BlockKind kind) const { return stash_[kind]; }
  const std::vector<NodeId>& path() const { return path_; }
  NodeId shared_tail() const { return shared_tail_; }

 private:
  // Found: the part of a prompt that find() has found in the cache.
  struct Found {
    int32_t resume = 0;     // position of the first token to compute
    NodeId tail = kNoNode;  // node whose first tokens continue the path; its block is copied
    int32_t tail_tokens = 0;
    int32_t known = 0;         // number of the prompt's first tokens whose global KV is cached, usable or not
    int32_t first_window = 0;  // index of the first window block to hold; the last one is that of the resume point
    SharedTail shared_tail = SharedTail::kNone;
    bool copies_twin = false;  // the resume point lies in the last block of LeaseRequest::twin, which is copied
  };

  static size_t at(int32_t index) { return static_cast<size_t>(index); }
  int32_t path_count() const { return static_cast<int32_t>(path_.size()); }
  int32_t limit() const { return prompt_count_ - 1; }  // a prompt that is found whole still computes its last token
  // Tokens of the prompt whose blocks other leases may wait for.
  int32_t claimed_count() const { return request_.last_waits ? prompt_count_ - 1 : prompt_count_; }
  int32_t shared_tail_index() const { return request_.regions.shared_tokens / kBlockTokens; }
  int32_t shared_tail_tokens() const { return request_.regions.shared_tokens % kBlockTokens; }
  bool shared_tail_possible() const {
    return shared_tail_tokens() > 0 && request_.regions.shared_tokens <= claimed_count();
  }
  NodeId parent_of(int32_t index) const { return index == 0 ? kRoot : path_[at(index - 1)]; }
  std::span<const int32_t> prompt_block(int32_t index, int32_t count = kBlockTokens) const {
    return request_.prompt.subspan(at(index * kBlockTokens), at(count));
  }

  // -- start: lease_start.hpp --
  Found find(const PrefixTree& tree, Reuse reuse);
  void find_tail(const PrefixTree& tree, Found& found);
  void find_resume(const PrefixTree& tree, Found& found, Reuse reuse);
  void find_twin(const PrefixTree& tree, Found& found) const;
  NodeId copied_from(const Found& found) const;
  void hold(PrefixTree& tree, const Found& found);
  BlockNeed need(const PrefixTree& tree, const Found& found) const;
  void begin(PrefixTree& tree, const Found& found, Reuse reuse, const EditSink& sink);
  void insert_prompt(PrefixTree& tree, const Found& found);
  void fill_tables(PrefixTree& tree, const Found& found, const EditSink& sink);

  // -- waiting for other leases, and the shared tail: lease_follow.hpp --
  void follow(PrefixTree& tree);
  void pass_shared_tail(PrefixTree& tree, const EditSink& sink);
  void complete_shared_tail(PrefixTree& tree);
  void drop_shared_tail(PrefixTree& tree);
  void enter_block(PrefixTree& tree, const PerKind<BlockId>& from, int32_t position, bool copy_global,
                   const EditSink& sink);

  // -- blocks that are handed out, become full, or leave the window: lease_blocks.hpp --
  void complete(PrefixTree& tree, std::span<const int32_t> tokens, int32_t index);
  bool append(PrefixTree& tree, std::span<const int32_t> tokens, int32_t index);
  void give_window(PrefixTree& tree, NodeId node, int32_t index);
  void release_windows(PrefixTree& tree, const EditSink& sink);
  void release_window(PrefixTree& tree, int32_t index, BlockId block);
  void release_retained(PrefixTree& tree);
  void flush(const EditSink& sink);
  BlockId pop(BlockKind kind);
  BlockId global_for(const PrefixTree& tree, int32_t index);
  void put(BlockKind kind, int32_t index, BlockId block, const EditSink& sink);

  // -- resume points: lease_points.hpp --
  void plan_points(const PrefixTree& tree);
  bool keeps(const PrefixTree& tree, int32_t index) const;
  void use_points(PrefixTree& tree, const Found& found);
  void mark_found(PrefixTree& tree);
  void mark_at(PrefixTree& tree, int32_t index, NodeId node);
  void mark_turn(PrefixTree& tree, NodeId node);

  // -- counts: lease_counts.hpp --
  void count_found(PrefixTree& tree, const Found& found);
  void find_evicted(const PrefixTree& tree);
  void count_hit(PrefixTree& tree, NodeId node, int32_t position, int32_t tokens) const;
  void count_computed(PrefixTree& tree, int32_t count) const;

  // -- the report: lease_report.hpp --
  ReuseReport report(const PrefixTree& tree, const Found& found, Reuse reuse) const;
  ReuseEnd known_end(const PrefixTree& tree, int32_t known) const;

  // -- the end: lease_finish.hpp --
  void leave_pending(PrefixTree& tree);
  void leave(PrefixTree& tree, NodeId node, bool keep_global);
  bool holds(BlockKind kind, BlockId block) const;
  NodeId leave_tail(PrefixTree& tree, std::span<const int32_t> tokens);
  void mark_end(PrefixTree& tree, NodeId node);
  bool owns(const PrefixTree& tree, int32_t index) const;
  void release_all(PrefixTree& tree);
  void drop_superseded(PrefixTree& tree);

  LeaseRequest request_;
  int32_t prompt_count_ = 0;
  ReuseReport report_;
  std::vector<NodeId> path_;
  int32_t ready_ = 0;  // number of the path's first nodes whose global KV is written
  NodeId shared_tail_ = kNoNode;
  bool detached_ = false;
  PerKind<std::vector<BlockId>> table_;
  std::vector<uint8_t> from_stash_;  // for each entry of the window table: whether the block came from the stash
  PerKind<std::vector<BlockId>> stash_;
  int32_t owed_ = 0;              // window blocks that must still be added to the stash
  std::vector<TableEdit> edits_;  // edits that were not written to the slot yet
  bool bound_ = false;
  NodeId copy_source_ = kNoNode;         // node that is held until its first tokens are copied
  NodeRef superseded_;                   // the tail that this sequence continues
  std::vector<int32_t> turn_points_;     // positions where this turn wants resume points
  std::vector<int32_t> watched_points_;  // positions where none is worth its memory
  std::vector<NodeId> retained_;         // nodes of the path whose window blocks a point to come needs
  std::vector<NodeRef> points_;
  uint32_t uses_ = 0;        // how often its path was used before
  BlockName evicted_end_;    // of the last block of the prompt that was evicted, if that was a tail
  int32_t branches_at_ = 0;  // position at which this sequence parts from others that went on from here
  int32_t next_ = 0, next_at_start_ = 0;
  int32_t completed_ = 0;         // number of the first blocks that are full and in the tree
  int32_t window_first_ = 0;      // window blocks before this index were released
  int32_t found_end_ = 0;         // global KV of the prompt's tokens before this position was cached at the start
  std::vector<uint8_t> evicted_;  // for each block of the prompt: how many of its tokens were cached once and evicted
};

}  // namespace kaiju

#include "kaiju/cache/detail/lease_blocks.hpp"
#include "kaiju/cache/detail/lease_counts.hpp"
#include "kaiju/cache/detail/lease_finish.hpp"
#include "kaiju/cache/detail/lease_follow.hpp"
#include "kaiju/cache/detail/lease_points.hpp"
#include "kaiju/cache/detail/lease_report.hpp"
#include "kaiju/cache/detail/lease_start.hpp"
