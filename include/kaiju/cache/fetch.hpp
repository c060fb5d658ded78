// Fetch: brings up from lower tiers what a prompt can be resumed with, before its lease starts. Chooses, makes room,
// puts the blocks into the tree as arriving, and sees them in once the plan with their transfers has run. It holds what
// it brought until let_go.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kaiju/cache/lease.hpp"
#include "kaiju/cache/tiers.hpp"
#include "kaiju/cache/tree.hpp"

namespace kaiju {

// One thread at a time. Let go before the tree dies.
class Fetch {
 public:
  enum class Outcome {
    kNothing,  // nothing to gain, or no room: start the lease with what is on the device
    kWait,     // another fetch brings up some of it: look again after the next step
    kBegun,    // wait for the next step
  };
  // What a lease would gain at least to wait a step for it.
  static constexpr int32_t kLeastGain = 16;

  // Looks, and begins. `promised` is what other fetches of this plan leave for their leases to take; what this one
  // leaves is added.
  Outcome begin(Tree& tree, const LeaseRequest& request, BlockNeed& promised) {
    for (int tries = 0; tries < kTries && tree.tiers(); ++tries) {
      const Outcome found = look(tree, request);
      if (found != Outcome::kBegun) return found;
      hold(tree);
      bool lost = false;
      // Into host memory first: what then leaves the device for it wants places there, too.
      const BlockNeed rest = left_for_lease(tree, request);
      if (feasible(tree, promised, rest) && stage(tree, lost) && take(tree) && insert(tree)) {
        for (int kind = 0; kind < kBlockKinds; ++kind) promised.count[kind] += rest.count[kind];
        return Outcome::kBegun;
      }
      give_up(tree);
      if (!lost) return Outcome::kNothing;  // else it is forgotten now: look again
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
  void ran(Tree& tree, Failed failed) {
    Tiers& tiers = *tree.tiers();
    size_t good = nodes_.size();  // nodes before it are whole
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const Piece& piece = pieces_[i];
      if (piece.kind == BlockKind::kGlobal && failed(first_transfer_ + i)) good = std::min(good, piece.index);
    }
    for (size_t i = first_new_; i < good; ++i) {
      tree.make_ready(nodes_[i]);
      if (junctions_[i - first_new_] && tree.retention().junctions && !tree.at(nodes_[i]).junction) {
        tree.at(nodes_[i]).junction = true;
        tree.add_point(nodes_[i]);
      }
    }
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const Piece& piece = pieces_[i];
      const bool lost = failed(first_transfer_ + i), used = !lost && piece.index < good;
      if (piece.kind == BlockKind::kWindow) settle_window(tree, piece, used);
      tiers.release(piece.stored, piece.kind,
                    lost   ? Tiers::End::kLost
                    : used ? Tiers::End::kMoved
                           : Tiers::End::kUnused);
    }
    pieces_.clear();
    remove_new(tree, good);
    first_new_ = good;
  }
  // What it brought is in the tree like everything else.
  void let_go(Tree& tree) {
    for (const NodeId node : windows_) tree.let_go_window(node);
    for (size_t i = nodes_.size(); i-- > 0;) tree.let_go(nodes_[i]);
    windows_.clear();
    nodes_.clear();
    first_new_ = 0;
  }

  // Where the lease could have started without it.
  int32_t resident() const { return resident_; }
  int32_t position() const { return position_; }  // where it can start with what was brought up
  bool from_file() const { return from_file_; }

  // -- for the ledger --
  const std::vector<NodeId>& path() const { return nodes_; }
  // Blocks in hand: neither free nor the tree's.
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
  struct Piece {
    size_t index = 0;  // of its node
    BlockKind kind = BlockKind::kGlobal;
    StoredId stored = kNoStored;
    BlockId block = kNoBlock;  // of the device
    std::byte* host = nullptr;
    bool lost = false;
  };

  // -- looking --
  Outcome look(const Tree& tree, const LeaseRequest& request) {
    const std::span<const int32_t> prompt = request.prompt;
    const auto limit = static_cast<int32_t>(prompt.size()) - 1;
    spots_.clear();
    NodeId last = kRoot;
    while ((spots_.size() + 1) * kBlockTokens <= prompt.size()) {
      const int32_t* tokens = prompt.data() + spots_.size() * kBlockTokens;
      const DomainId domain = request.regions.of_block(static_cast<int32_t>(spots_.size()));
      const NodeId node =
          tree.find(last, domain, tokens, kBlockTokens, tree.name_after(last, domain, tokens, kBlockTokens));
      if (node == kNoNode) break;
      if (tree.at(node).claim == kTransfer) return Outcome::kWait;
      if (tree.at(node).claim != kReady) return Outcome::kNothing;  // somebody is computing it: the lease will follow
      spots_.push_back({last = node, kNoStored, kBlockTokens});
    }
    first_new_ = spots_.size();
    const int32_t seal_claim = claim_of_seal(tree, request, last);
    if (seal_claim == kTransfer) return Outcome::kWait;
    Spot tail = device_tail(tree, request, last);
    resident_ = resume(tree, limit, tail, false);
    find_below(tree, request, last, tail);
    if (spots_.size() == first_new_ && seal_claim != kReady)
      return Outcome::kNothing;  // the lease will follow whoever makes it
    position_ = resume(tree, limit, tail, true);
    if (position_ < resident_ + kLeastGain) return Outcome::kNothing;
    if (position_ > std::ssize(spots_) * kBlockTokens) {
      if (tail.node != kNoNode) ++first_new_;
      spots_.push_back(tail);
    }
    spots_.resize(static_cast<size_t>(blocks_for(position_)));
    first_new_ = std::min(first_new_, spots_.size());
    return Outcome::kBegun;
  }
  // Of the shared region's tail, where the path leads up to it; kReady when it is there or nobody is making it.
  int32_t claim_of_seal(const Tree& tree, const LeaseRequest& request, NodeId last) const {
    const size_t end = static_cast<size_t>(request.regions.shared_tokens);
    if (end % kBlockTokens == 0 || end > request.prompt.size() || end / kBlockTokens != spots_.size()) return kReady;
    const int32_t* tokens = request.prompt.data() + spots_.size() * kBlockTokens;
    const auto count = static_cast<int32_t>(end % kBlockTokens);
    const DomainId shared = request.regions.shared;
    const NodeId seal = tree.find(last, shared, tokens, count, tree.name_after(last, shared, tokens, count));
    return seal == kNoNode ? kReady : tree.at(seal).claim;
  }
  // The beginning of a block on the device that continues the path.
  Spot device_tail(const Tree& tree, const LeaseRequest& request, NodeId last) const {
    Spot tail;
    tail.node = tree.find_partial(last, request.regions, static_cast<int32_t>(spots_.size()),
                                  request.prompt.subspan(spots_.size() * kBlockTokens), tail.count);
    return tail;
  }
  // Appends the whole blocks that lie below behind `last`, and replaces `tail` by one from there that is longer, or
  // that is behind them.
  void find_below(const Tree& tree, const LeaseRequest& request, NodeId last, Spot& tail) {
    const Tiers& tiers = *tree.tiers();
    if (!tree.uses(kGlobal)) return;  // nothing else says that a path is whole
    uint64_t path = tree.at(last).path;
    BlockName name = tree.at(last).name;
    for (;; tail = {kNoNode, kNoStored, 0}) {
      const auto index = static_cast<int32_t>(spots_.size());
      const std::span<const int32_t> rest = request.prompt.subspan(spots_.size() * kBlockTokens);
      StoredId whole = kNoStored;
      if (rest.size() >= kBlockTokens) {
        const DomainId domain = request.regions.of_block(index);
        name = tree.namer().of(name, tree.domains().at(domain).name, rest.data(), kBlockTokens);
        whole = tiers.find(path, domain, rest.data(), kBlockTokens, name);
      }
      if (!tiers.ready(whole, kGlobal)) {
        int32_t count = 0;
        const StoredId id = tiers.find_partial(path, request.regions, index, rest, count);
        if (count > tail.count && !(spots_.size() == first_new_ && on_device(tree, last, id)))
          tail = {kNoNode, id, count};
        return;
      }
      spots_.push_back({kNoNode, whole, kBlockTokens});
      path = tiers.at(whole).path;
    }
  }
  // Whether the tree has this block, too, among more children of `parent` than it looks through: then there must not be
  // a second one.
  static bool on_device(const Tree& tree, NodeId parent, StoredId id) {
    const Tiers::Stored& stored = tree.tiers()->at(id);
    return tree.find(parent, stored.domain, stored.tokens, stored.count, stored.name) != kNoNode;
  }
  // The last position whose window is whole: on the device, or with what lies below.
  int32_t resume(const Tree& tree, int32_t limit, Spot& tail, bool below) {
    const auto whole = static_cast<int32_t>(spots_.size());
    int32_t position = std::min(limit, whole * kBlockTokens + tail.count);
    if (!tree.uses(kWindow)) return position;
    for (int32_t index = blocks_for(position) - 1; index >= 0 && index >= tree.first_visible(position); --index)
      if (!has_window(tree, index < whole ? spots_[static_cast<size_t>(index)] : tail, below))
        position = index * kBlockTokens;
    return position;
  }
  static bool has_window(const Tree& tree, Spot& spot, bool below) {
    if (spot.node != kNoNode && tree.at(spot.node).block[1] != kNoBlock) return true;
    if (!below) return false;
    if (spot.stored == kNoStored && spot.node != kNoNode)
      spot.stored = tree.tiers()->find(tree.at(spot.node).name, tree.at(spot.node).path);
    return tree.tiers()->ready(spot.stored, kWindow);
  }

  // -- beginning --
  // Holds all that is needed where it is now: on the device, and below.
  void hold(Tree& tree) {
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
      if (i < first_new_ && tree.at(spot.node).block[1] != kNoBlock) {
        tree.hold_window(spot.node);
        windows_.push_back(spot.node);
      } else {
        keep(tree, i, kWindow);
      }
    }
  }
  void keep(Tree& tree, size_t i, BlockKind kind) {
    tree.tiers()->keep(spots_[i].stored, kind);
    pieces_.push_back({i, kind, spots_[i].stored, kNoBlock, nullptr, false});
  }
  // What the lease will take beside what is brought up.
  BlockNeed left_for_lease(const Tree& tree, const LeaseRequest& request) const {
    const int32_t blocks = blocks_for(request.most_positions);
    const int32_t seal =
        request.regions.shared_tokens % kBlockTokens > 0 && position_ < request.regions.shared_tokens ? 1 : 0;
    BlockNeed rest;
    if (tree.uses(kGlobal)) rest.count[0] = std::max(0, blocks - static_cast<int32_t>(spots_.size())) + seal;
    if (tree.uses(kWindow))
      rest.count[1] = seal + static_cast<int32_t>(std::min<int64_t>(
                                 blocks - position_ / kBlockTokens,
                                 Lease::window_blocks(request.most_positions, request.chunk_tokens, tree.window())));
    return rest;
  }
  BlockNeed own_need() const {
    BlockNeed own;
    for (const Piece& piece : pieces_) ++own.count[static_cast<size_t>(piece.kind)];
    return own;
  }
  bool feasible(const Tree& tree, const BlockNeed& promised, const BlockNeed& rest) const {
    BlockNeed all = own_need();
    for (int kind = 0; kind < kBlockKinds; ++kind) all.count[kind] += promised.count[kind] + rest.count[kind];
    return tree.arena().feasible(all);
  }
  bool take(Tree& tree) {
    std::vector<BlockId> taken[kBlockKinds];
    if (!tree.take(own_need(), taken)) return false;
    for (Piece& piece : pieces_) {
      auto& from = taken[static_cast<size_t>(piece.kind)];
      piece.block = from.back();
      from.pop_back();
    }
    return true;
  }
  // Has all bytes in host memory. False: not all could be had; `lost`: some never will.
  bool stage(Tree& tree, bool& lost) {
    from_file_ = false;
    const Tiers& tiers = *tree.tiers();
    for (Piece& piece : pieces_) {
      from_file_ = from_file_ || tiers.at(piece.stored).tier[static_cast<size_t>(piece.kind)] == CacheTier::kFile;
      piece.host = tree.tiers()->bytes(piece.stored, piece.kind, piece.lost);
      lost = lost || piece.lost;
      if (!piece.host) return false;
    }
    return true;
  }
  bool insert(Tree& tree) {
    const Tiers& tiers = *tree.tiers();
    junctions_.clear();
    for (const Piece& piece : pieces_) {
      if (piece.kind != kGlobal) continue;
      const Tiers::Stored& stored = tiers.at(piece.stored);
      const NodeId parent = nodes_.empty() ? kRoot : nodes_.back();
      const NodeId node =
          tree.insert(parent, stored.domain, stored.tokens, stored.count, stored.name, kTransfer, stored.owner);
      if (node == kNoNode) return false;
      tree.hold(node);
      tree.attach(node, kGlobal, piece.block);
      nodes_.push_back(node);
      junctions_.push_back(stored.junction);
    }
    return true;
  }

  // -- ending --
  void settle_window(Tree& tree, const Piece& piece, bool used) {
    if (used && tree.at(nodes_[piece.index]).block[1] == kNoBlock) {
      const NodeId node = nodes_[piece.index];
      tree.hold_window(node);
      tree.attach(node, kWindow, piece.block);
      tree.at(node).wanted_below = true;  // until a resume point here says so
      windows_.push_back(node);
    } else {
      tree.arena().give_back(kWindow, piece.block);
    }
  }
  // New nodes that did not come, last first.
  void remove_new(Tree& tree, size_t good) {
    for (; nodes_.size() > good; nodes_.pop_back()) {
      const NodeId node = nodes_.back();
      tree.at(node).claim = kUnclaimed;  // whoever waits for it computes it
      const bool alone = tree.at(node).refs == 1;
      tree.let_go(node);
      if (alone) tree.remove(node);
    }
  }
  void give_up(Tree& tree) {
    const size_t inserted = nodes_.size();
    size_t global = first_new_;
    for (const Piece& piece : pieces_) {
      tree.tiers()->release(piece.stored, piece.kind, piece.lost ? Tiers::End::kLost : Tiers::End::kUnused);
      const bool in_tree = piece.kind == kGlobal && global++ < inserted;
      if (piece.block != kNoBlock && !in_tree) tree.arena().give_back(piece.kind, piece.block);
    }
    pieces_.clear();
    remove_new(tree, first_new_);
    let_go(tree);
  }

  std::vector<Spot> spots_;
  std::vector<Piece> pieces_;
  std::vector<NodeId> nodes_;    // the path, root first, held
  std::vector<NodeId> windows_;  // of these, whose window is held
  std::vector<bool> junctions_;  // of the new nodes
  size_t first_new_ = 0;         // nodes before it were on the device
  size_t first_transfer_ = 0;
  int32_t position_ = 0, resident_ = 0;
  bool from_file_ = false;
};

}  // namespace kaiju
