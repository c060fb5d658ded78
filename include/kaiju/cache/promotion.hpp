// Promotion: copies KV that a prompt can use from the lower tiers (host memory and a file) to the device, before the
// request's lease (its sequence's hold on the cache) starts. A promotion chooses the blocks (promotion_look.hpp), makes
// room for them on the device, and inserts their nodes into the prefix tree with the claim kTransfer. A promotion makes
// these nodes ready (readable by all sequences) once the step plan with their copies has run. The promotion holds the
// promoted nodes until release().
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kaiju/cache/lease.hpp"
#include "kaiju/cache/prefix_tree.hpp"
#include "kaiju/cache/tiers.hpp"

namespace kaiju {

// Invariants from begin() to release():
// - `nodes_` is the path of tree nodes to the position at which the lease will resume, first node first. The promotion
//   holds each node of `nodes_`. The KV of the nodes before index `first_new_` was on the device before begin(). The KV
//   of the nodes from index `first_new_` on is being copied to the device and may be read only after ran() was called.
// - `pieces_` lists the blocks that are being copied from a lower tier to the device. ran() ends these copies and
//   empties `pieces_`. Until ran() is called, every block in `pieces_` stays stored in its lower tier and also has a
//   block on the device that receives the copy. A global block that receives a copy is already attached to its tree
//   node. A window block that receives a copy belongs to the promotion.
// - The promotion holds the window blocks of the nodes in `windows_`.
// The lower tiers keep the source of every copy until the step plan has run. So no cached KV is lost if the plan is
// tried again or if the request ends before the plan has run. One thread at a time may use a Promotion. release() must
// be called before the tree is destroyed.
class Promotion {
 public:
  enum class Outcome {
    kNothing,  // nothing to promote, or no room: start the lease with what is on the device
    kWait,     // another promotion copies some of the blocks: call begin again after the next step
    kBegun,    // the copies begin with the next step; the request waits for it
  };
  // If a promotion would save the computation of fewer than kLeastGain tokens, the request starts without a promotion,
  // because a promotion delays the request by a step.
  static constexpr int32_t kLeastGain = 16;

  // How much a promotion for nobody's sake may copy at once (Engine::prefetch).
  struct Bounds {
    int32_t most_blocks = INT32_MAX;  // of the larger part; what is left waits for another promotion
    bool may_read_file = true;
  };

  // Plans the copies for a request. `promised` must contain the number of blocks that the other requests with a
  // promotion in this step plan will take when they start. begin() adds the number of blocks that this request will
  // take when it starts.
  Outcome begin(PrefixTree& tree, const LeaseRequest& request, BlockNeed& promised) {
    return begin(tree, request, promised, Bounds());
  }
  Outcome begin(PrefixTree& tree, const LeaseRequest& request, BlockNeed& promised, const Bounds& bounds) {
    for (int tries = 0; tries < kTries && tree.tiers(); ++tries) {
      const Outcome found = look(tree, request);
      if (found != Outcome::kBegun) return found;
      shorten(tree, bounds);
      if (!bounds.may_read_file && reads_file(tree)) return Outcome::kWait;
      hold(tree);
      const Staged staged = prepare(tree, request, promised);
      if (staged == Staged::kReady) return Outcome::kBegun;
      give_up(tree);
      if (staged == Staged::kNoRoom) return Outcome::kNothing;  // kLost: the lost block is forgotten now, so look again
    }
    return Outcome::kNothing;
  }
  // Appends the copies to the device to the step plan. The copies from the device to lower tiers must already be in the
  // plan.
  void write(StepPlan& plan) {
    first_transfer_ = plan.transfers.size();
    for (const Piece& piece : pieces_)
      plan.transfers.push_back({BlockTransfer::Way::kUp, piece.kind, piece.block, piece.host});
  }
  // Ends the copies. ran() must be called after the step plan has run; failed(i) tells whether transfer i of that plan
  // failed.
  template <class Failed>
  void ran(PrefixTree& tree, Failed failed) {
    Tiers& tiers = *tree.tiers();
    size_t good = nodes_.size();  // all nodes before this index have arrived
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const Piece& piece = pieces_[i];
      if (piece.kind == BlockKind::kGlobal && failed(first_transfer_ + i)) good = std::min(good, piece.index);
    }
    for (size_t i = first_new_; i < good; ++i) {
      tree.make_ready(nodes_[i]);
      if (branch_points_[i - first_new_]) tree.mark_branch_point(nodes_[i]);
    }
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const Piece& piece = pieces_[i];
      const bool lost = failed(first_transfer_ + i), used = !lost && piece.index < good;
      if (piece.kind == BlockKind::kWindow) settle_window(tree, piece, used);
      tiers.release(piece.stored, piece.kind,
                    lost   ? TransferEnd::kLost
                    : used ? TransferEnd::kMoved
                           : TransferEnd::kUnused);
    }
    pieces_.clear();
    remove_new(tree, good);
    first_new_ = good;
  }
  // Releases the promoted nodes. The promoted nodes stay in the tree and may be evicted like all other nodes.
  void release(PrefixTree& tree) {
    for (const NodeId node : windows_) tree.release_node_window(node);
    for (size_t i = nodes_.size(); i-- > 0;) tree.release_node(nodes_[i]);
    windows_.clear();
    nodes_.clear();
    first_new_ = 0;
  }

  // Returns the position from which the request could have resumed without the promotion.
  int32_t resident() const { return resident_; }
  int32_t position() const { return position_; }  // position at which the lease can resume with the promoted blocks
  bool from_file() const { return from_file_; }

  // -- for the validators (invariants.hpp) --
  const std::vector<NodeId>& path() const { return nodes_; }
  // Visits the device blocks that the promotion has taken and has not attached to a node.
  template <class Visit>
  void for_blocks(BlockKind kind, Visit visit) const {
    for (const Piece& piece : pieces_)
      if (piece.kind == kind && kind == BlockKind::kWindow) visit(piece.block);
  }

 private:
  static constexpr int kTries = 3;
  static constexpr BlockKind kGlobal = BlockKind::kGlobal, kWindow = BlockKind::kWindow;

  // A block of the prompt, which is cached on the device, in a lower tier, or in both. For example, a block is in both
  // if only its window block was evicted from the device.
  struct Spot {
    NodeId node = kNoNode;
    StoredId stored = kNoStored;
    int32_t count = kBlockTokens;
  };
  // Piece: one block that is copied from a lower tier to the device.
  struct Piece {
    size_t index = 0;  // index of the block's node in the path
    BlockKind kind = BlockKind::kGlobal;
    StoredId stored = kNoStored;
    BlockId block = kNoBlock;  // block on the device
    std::byte* host = nullptr;
    bool lost = false;
  };

  // -- looking: promotion_look.hpp --
  Outcome look(const PrefixTree& tree, const LeaseRequest& request);
  NodeId unready_shared_tail(const PrefixTree& tree, const LeaseRequest& request, NodeId last) const;
  Spot device_tail(const PrefixTree& tree, const LeaseRequest& request, NodeId last) const;
  void find_below(const PrefixTree& tree, const LeaseRequest& request, NodeId last, Spot& tail);
  static bool on_device(const PrefixTree& tree, NodeId parent, StoredId id);
  int32_t resume(const PrefixTree& tree, int32_t limit, Spot& tail, bool below);
  static bool has_window(const PrefixTree& tree, Spot& spot, bool below);

  // -- beginning --

  // Leaves the path's end, with its windows, to a later promotion if there are too many blocks.
  void shorten(const PrefixTree& tree, const Bounds& bounds) {
    const auto most = static_cast<size_t>(std::max(1, bounds.most_blocks));
    partial_ = tree.uses(kGlobal) && spots_.size() - first_new_ > most;
    if (partial_) spots_.resize(first_new_ + most);
  }
  bool reads_file(const PrefixTree& tree) const {
    const Tiers& tiers = *tree.tiers();
    return std::any_of(spots_.begin(), spots_.end(), [&](const Spot& spot) {
      if (spot.stored == kNoStored) return false;
      const StoredBlock& stored = tiers.at(spot.stored);
      return std::any_of(std::begin(kBothKinds), std::end(kBothKinds),
                         [&](BlockKind kind) { return stored.has(kind) && stored.tier[kind] == CacheTier::kFile; });
    });
  }

  // Holds all blocks that the promotion needs, both those on the device and those in the lower tiers, so that none of
  // them is evicted.
  void hold(PrefixTree& tree) {
    const int32_t first_window = tree.uses(kWindow) && !partial_ ? tree.first_visible(position_) : INT32_MAX;
    for (size_t i = 0; i < spots_.size(); ++i) {
      Spot& spot = spots_[i];
      if (i < first_new_) {
        tree.hold(spot.node);
        nodes_.push_back(spot.node);
      } else {
        keep(tree, i, kGlobal);
      }
      if (static_cast<int64_t>(i) < first_window) continue;
      if (i < first_new_ && tree.at(spot.node).has(kWindow)) {
        tree.hold_window(spot.node);
        windows_.push_back(spot.node);
      } else {
        keep(tree, i, kWindow);
      }
    }
  }
  void keep(PrefixTree& tree, size_t i, BlockKind kind) {
    tree.tiers()->keep(spots_[i].stored, kind);
    pieces_.push_back({i, kind, spots_[i].stored, kNoBlock, nullptr, false});
  }
  // Reads all blocks to copy from the file into host memory, and then takes blocks on the device for them. The file is
  // read first, because taking device blocks may evict other blocks into host memory.
  Staged prepare(PrefixTree& tree, const LeaseRequest& request, BlockNeed& promised) {
    const BlockNeed rest = request.most_positions > 0 ? left_for_lease(tree, request) : BlockNeed();
    if (!feasible(tree, promised, rest)) return Staged::kNoRoom;
    if (const Staged staged = stage(tree); staged != Staged::kReady) return staged;
    if (!take(tree, request.claimant) || !insert(tree)) return Staged::kNoRoom;
    promised += rest;
    return Staged::kReady;
  }
  // Returns the number of blocks that the request's lease will take in addition to the promoted blocks.
  BlockNeed left_for_lease(const PrefixTree& tree, const LeaseRequest& request) const {
    const int32_t shared = request.regions.shared_tokens;
    const bool makes_tail = shared % kBlockTokens > 0 && position_ < shared;
    return blocks_needed(
        request.size(),
        {static_cast<int32_t>(spots_.size()), position_, makes_tail ? SharedTail::kToMake : SharedTail::kNone},
        tree.uses(kGlobal), tree.window());
  }
  BlockNeed own_need() const {
    BlockNeed own;
    for (const Piece& piece : pieces_) ++own.count[piece.kind];
    return own;
  }
  bool feasible(const PrefixTree& tree, const BlockNeed& promised, const BlockNeed& rest) const {
    BlockNeed all = own_need();
    all += promised;
    all += rest;
    return tree.pool().feasible(all);
  }
  Staged stage(PrefixTree& tree) {
    from_file_ = false;
    Tiers& tiers = *tree.tiers();
    for (Piece& piece : pieces_) {
      from_file_ = from_file_ || tiers.at(piece.stored).tier[piece.kind] == CacheTier::kFile;
      const Staged staged = tiers.stage(piece.stored, piece.kind);
      piece.lost = staged == Staged::kLost;
      if (staged != Staged::kReady) return staged;
      piece.host = tiers.host_bytes(piece.stored, piece.kind);
    }
    return Staged::kReady;
  }
  bool take(PrefixTree& tree, const Claimant& claimant) {
    PerKind<std::vector<BlockId>> taken;
    if (!tree.take(own_need(), taken, claimant)) return false;
    for (Piece& piece : pieces_) {
      piece.block = taken[piece.kind].back();
      taken[piece.kind].pop_back();
    }
    return true;
  }
  bool insert(PrefixTree& tree) {
    branch_points_.clear();
    for (const Piece& piece : pieces_) {
      if (piece.kind != kGlobal) continue;
      const StoredBlock& stored = tree.tiers()->at(piece.stored);
      const NodeId parent = nodes_.empty() ? kRoot : nodes_.back();
      const NodeId node =
          tree.insert({parent, stored.domain, stored.known_tokens(), stored.name}, kTransfer, stored.owner);
      if (node == kNoNode) return false;
      tree.hold(node);
      tree.attach(node, kGlobal, piece.block);
      nodes_.push_back(node);
      branch_points_.push_back(stored.branch_point);
    }
    return true;
  }

  // -- ending --
  void settle_window(PrefixTree& tree, const Piece& piece, bool used) {
    if (used && !tree.at(nodes_[piece.index]).has(kWindow)) {
      const NodeId node = nodes_[piece.index];
      tree.hold_window(node);
      tree.attach(node, kWindow, piece.block);
      tree.want_window_below(node);  // until a resume point on the device keeps it
      windows_.push_back(node);
    } else {
      tree.release_block(kWindow, piece.block);
    }
  }
  // Removes the nodes of `nodes_` from index `good` on, beginning with the last node.
  void remove_new(PrefixTree& tree, size_t good) {
    for (; nodes_.size() > good; nodes_.pop_back()) {
      const NodeId node = nodes_.back();
      tree.abandon(node);  // a lease that waits for the node computes it
      const bool alone = tree.at(node).refs == 1;
      tree.release_node(node);
      if (alone) tree.remove(node);
    }
  }
  void give_up(PrefixTree& tree) {
    const size_t inserted = nodes_.size();
    size_t global = first_new_;
    for (const Piece& piece : pieces_) {
      tree.tiers()->release(piece.stored, piece.kind, piece.lost ? TransferEnd::kLost : TransferEnd::kUnused);
      const bool in_tree = piece.kind == kGlobal && global++ < inserted;
      if (piece.block != kNoBlock && !in_tree) tree.release_block(piece.kind, piece.block);
    }
    pieces_.clear();
    remove_new(tree, first_new_);
    release(tree);
  }

  std::vector<Spot> spots_;
  std::vector<Piece> pieces_;
  std::vector<NodeId> nodes_;
  std::vector<NodeId> windows_;      // nodes of `nodes_` whose window block is held
  std::vector<bool> branch_points_;  // for each new node: whether it is a branch point
  size_t first_new_ = 0;
  size_t first_transfer_ = 0;
  int32_t position_ = 0, resident_ = 0;
  bool from_file_ = false;
  bool partial_ = false;  // the path goes on in lower tiers
};

}  // namespace kaiju

#include "kaiju/cache/detail/promotion_look.hpp"
