// Promotion: brings up from the lower tiers what a prompt can be resumed with, before its request's lease starts. It
// chooses the blocks (promotion_look.hpp), makes room for them, puts them into the tree as arriving, and makes them
// ready once the plan with their copies has run. It holds what it brought until let_go.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kaiju/cache/lease.hpp"
#include "kaiju/cache/prefix_tree.hpp"
#include "kaiju/cache/tiers.hpp"

namespace kaiju {

// Invariants from begin to let_go:
// - `nodes_` is the path up to the resume point, root first, each node held. The nodes before `first_new_` were on the
//   device; the others arrive, until ran.
// - `pieces_` are the blocks to copy up, until ran. Each is kept in its tier and has a block of the device: a global
//   one is attached to its node, a window block is in the promotion's hand.
// - The window blocks of `windows_` are held.
// Until the plan has run, the tiers still have all that is copied: a plan that is tried again, or a request that leaves
// meanwhile, loses nothing. One thread at a time; let go before the tree goes.
class Promotion {
 public:
  enum class Outcome {
    kNothing,  // nothing to gain, or no room: start the lease with what is on the device
    kWait,     // another promotion brings up some of it: look again after the next step
    kBegun,    // wait for the next step
  };
  // The least that a lease must gain, in tokens, for its request to wait a step.
  static constexpr int32_t kLeastGain = 16;

  // `promised`: what the other promotions of this plan leave for their leases to take; what this one leaves is added.
  Outcome begin(PrefixTree& tree, const LeaseRequest& request, BlockNeed& promised) {
    for (int tries = 0; tries < kTries && tree.tiers(); ++tries) {
      const Outcome found = look(tree, request);
      if (found != Outcome::kBegun) return found;
      hold(tree);
      const Staged staged = prepare(tree, request, promised);
      if (staged == Staged::kReady) return Outcome::kBegun;
      give_up(tree);
      if (staged == Staged::kNoRoom) return Outcome::kNothing;  // else what was lost is forgotten now: look again
    }
    return Outcome::kNothing;
  }
  // Writes the copies up, behind those down.
  void write(StepPlan& plan) {
    first_transfer_ = plan.transfers.size();
    for (const Piece& piece : pieces_)
      plan.transfers.push_back({BlockTransfer::Way::kUp, piece.kind, piece.block, piece.host});
  }
  // The plan has run; failed(i) says which of its transfers did not.
  template <class Failed>
  void ran(PrefixTree& tree, Failed failed) {
    Tiers& tiers = *tree.tiers();
    size_t good = nodes_.size();  // nodes before it are whole
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
  // What it brought is in the tree like everything else.
  void let_go(PrefixTree& tree) {
    for (const NodeId node : windows_) tree.let_go_window(node);
    for (size_t i = nodes_.size(); i-- > 0;) tree.let_go(nodes_[i]);
    windows_.clear();
    nodes_.clear();
    first_new_ = 0;
  }

  int32_t resident() const { return resident_; }  // where the lease could have started without it
  int32_t position() const { return position_; }  // where it can start with what was brought up
  bool from_file() const { return from_file_; }

  // -- for the validators --
  const std::vector<NodeId>& path() const { return nodes_; }
  // Visits the blocks in hand: neither free nor a node's.
  template <class Visit>
  void for_blocks(BlockKind kind, Visit visit) const {
    for (const Piece& piece : pieces_)
      if (piece.kind == kind && kind == BlockKind::kWindow) visit(piece.block);
  }

 private:
  static constexpr int kTries = 3;
  static constexpr BlockKind kGlobal = BlockKind::kGlobal, kWindow = BlockKind::kWindow;

  // A block of the prompt: on the device, below, or both (a window block may have gone alone).
  struct Spot {
    NodeId node = kNoNode;
    StoredId stored = kNoStored;
    int32_t count = kBlockTokens;
  };
  // A block that is copied up.
  struct Piece {
    size_t index = 0;  // of its node in the path
    BlockKind kind = BlockKind::kGlobal;
    StoredId stored = kNoStored;
    BlockId block = kNoBlock;  // of the device
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
  // Holds all that is needed where it is now: on the device, and below.
  void hold(PrefixTree& tree) {
    const int32_t first_window = tree.uses(kWindow) ? tree.first_visible(position_) : INT32_MAX;
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
  // Has all bytes in host memory, and blocks of the device to copy them to. Into host memory first: what then leaves
  // the device for these blocks wants places there, too.
  Staged prepare(PrefixTree& tree, const LeaseRequest& request, BlockNeed& promised) {
    const BlockNeed rest = left_for_lease(tree, request);
    if (!feasible(tree, promised, rest)) return Staged::kNoRoom;
    if (const Staged staged = stage(tree); staged != Staged::kReady) return staged;
    if (!take(tree) || !insert(tree)) return Staged::kNoRoom;
    promised += rest;
    return Staged::kReady;
  }
  // What the lease will take beside what is brought up.
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
  bool take(PrefixTree& tree) {
    PerKind<std::vector<BlockId>> taken;
    if (!tree.take(own_need(), taken)) return false;
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
      tree.want_window_below(node);  // until a resume point here says so
      windows_.push_back(node);
    } else {
      tree.give_back(kWindow, piece.block);
    }
  }
  // Removes the new nodes from `good` on, last first.
  void remove_new(PrefixTree& tree, size_t good) {
    for (; nodes_.size() > good; nodes_.pop_back()) {
      const NodeId node = nodes_.back();
      tree.abandon(node);  // a lease that waits for it computes it
      const bool alone = tree.at(node).refs == 1;
      tree.let_go(node);
      if (alone) tree.remove(node);
    }
  }
  void give_up(PrefixTree& tree) {
    const size_t inserted = nodes_.size();
    size_t global = first_new_;
    for (const Piece& piece : pieces_) {
      tree.tiers()->release(piece.stored, piece.kind, piece.lost ? TransferEnd::kLost : TransferEnd::kUnused);
      const bool in_tree = piece.kind == kGlobal && global++ < inserted;
      if (piece.block != kNoBlock && !in_tree) tree.give_back(piece.kind, piece.block);
    }
    pieces_.clear();
    remove_new(tree, first_new_);
    let_go(tree);
  }

  std::vector<Spot> spots_;
  std::vector<Piece> pieces_;
  std::vector<NodeId> nodes_;
  std::vector<NodeId> windows_;      // nodes among them whose window block is held
  std::vector<bool> branch_points_;  // of the new nodes
  size_t first_new_ = 0;
  size_t first_transfer_ = 0;
  int32_t position_ = 0, resident_ = 0;
  bool from_file_ = false;
};

}  // namespace kaiju

#include "kaiju/cache/detail/promotion_look.hpp"
