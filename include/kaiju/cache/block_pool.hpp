// BlockPool: tracks the state of every cache block of both kinds, and the slabs (runs of neighbouring blocks) that
// blocks lie in. The pool knows block numbers only and never touches KV memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/cache/need.hpp"
#include "kaiju/step/executor_info.hpp"

namespace kaiju {

// BlockState: every cache block is in exactly one of these states.
enum class BlockState : uint8_t {
  kFree = 0,      // holds no KV that is needed
  kCached = 1,    // holds KV that no running sequence uses: may be evicted
  kLive = 2,      // a running sequence uses the block or holds it in reserve
  kPinned = 3,    // holds KV that the host asked to keep: never evicted
  kArriving = 4,  // its KV is being copied up from a lower tier
};
inline constexpr int32_t kBlockStates = 5;

// A block is "used" while its state is not kFree. A block is "busy" while its state is kLive, kPinned or kArriving. A
// slab is a run of neighbouring blocks of one kind. If both kinds of block share one memory, an empty slab can be given
// to either kind. If each kind of block has its own memory, every slab is one block of a fixed kind.
//
// Invariants, which check_blocks (invariants.hpp) recounts:
// - A used block lies in a slab of its own kind. A slab belongs to a kind while it has a used block. A slab without
//   used blocks is empty and belongs to no kind.
// - The free blocks of a slab with used blocks form a linked list, which starts at the slab's `first_free`. The blocks
//   of an empty slab are in no list.
// - The list `open` has every slab with used blocks and a free block. The list `idle` has every slab with used blocks
//   and no busy block.
// - `room` counts the blocks that are not busy in slabs that have busy blocks. While a slab has busy blocks, its other
//   blocks can be used only as blocks of the slab's kind. A BlockNeed can be met if the blocks counted by `room` and
//   the blocks of empty or idle slabs suffice (feasible).
// - For each state except kFree, `count` equals the number of blocks in that state.
//
// One thread at a time may use a BlockPool. Every call is O(1), except slab_with_room, which is O(slabs).
class BlockPool {
 public:
  explicit BlockPool(const ExecutorInfo& info) : shared_(info.shares_memory()) {
    int32_t slabs = 0;
    for (const BlockKind kind : kBothKinds) {
      Kind& k = kinds_[kind];
      k.total = info.block_count[kind];
      k.block_bytes = info.block_bytes[kind];
      k.per_slab = shared_ ? info.slab_blocks[kind] : 1;
      k.base = shared_ ? 0 : slabs;
      slabs = shared_ ? std::max(slabs, k.total / k.per_slab) : slabs + k.total;
      k.states.assign(static_cast<size_t>(k.total), BlockState::kFree);
      k.next_free.assign(static_cast<size_t>(k.total), kNoBlock);
    }
    slabs_.resize(static_cast<size_t>(slabs));
    // Memory is reserved here so that take() never allocates.
    for (Kind& k : kinds_) k.open.reserve(slabs_.size()), k.idle.reserve(slabs_.size());
    for (int32_t slab = slabs - 1; slab >= 0; --slab) empty_of(slab).push_back(slab);  // low numbers first
  }

  int32_t total(BlockKind kind) const { return kinds_[kind].total; }
  int64_t block_bytes(BlockKind kind) const { return kinds_[kind].block_bytes; }
  int32_t per_slab(BlockKind kind) const { return kinds_[kind].per_slab; }
  int32_t slab_count() const { return static_cast<int32_t>(slabs_.size()); }
  int32_t count(BlockKind kind, BlockState state) const {
    return state == BlockState::kFree ? total(kind) - used_count(kind) : kinds_[kind].of(state);
  }
  int32_t used_count(BlockKind kind) const { return kinds_[kind].of(BlockState::kCached) + busy_count(kind); }
  int32_t busy_count(BlockKind kind) const {
    const Kind& k = kinds_[kind];
    return k.of(BlockState::kLive) + k.of(BlockState::kPinned) + k.of(BlockState::kArriving);
  }
  BlockState state(BlockKind kind, BlockId block) const { return kinds_[kind].states[static_cast<size_t>(block)]; }

  // Takes a free block and makes it live. A slab that already has used blocks of this kind is preferred to an empty
  // slab. Returns kNoBlock if no block is free.
  BlockId take(BlockKind kind) {
    Kind& k = kinds_[kind];
    if (k.open.empty() && !assign_slab(kind)) return kNoBlock;
    return take_from(kind, k.open.back());
  }
  // Returns whether take() would find a free block.
  bool has_free(BlockKind kind) const { return !kinds_[kind].open.empty() || !empty_slabs(kind).empty(); }
  void release_block(BlockKind kind, BlockId block) {
    Kind& k = kinds_[kind];
    set(kind, block, BlockState::kCached);  // removes the block from the busy counts
    --k.of(BlockState::kCached);
    k.states[static_cast<size_t>(block)] = BlockState::kFree;
    const int32_t number = slab_of(kind, block);
    Slab& slab = slabs_[static_cast<size_t>(number)];
    k.next_free[static_cast<size_t>(block)] = slab.first_free;
    if (slab.first_free == kNoBlock) add(k.open, number, &Slab::open_place);
    slab.first_free = block;
    --slab.used;
    change_wanted(kind, number, -1);
    if (slab.used == 0) release_slab(kind, number);
  }
  // Changes the state of a used block. To make a block free, call release_block instead.
  void set(BlockKind kind, BlockId block, BlockState state) {
    Kind& k = kinds_[kind];
    BlockState& old = k.states[static_cast<size_t>(block)];
    if (old == state) return;
    --k.of(old);
    ++k.of(state);
    const int delta = (is_busy(state) ? 1 : 0) - (is_busy(old) ? 1 : 0);
    old = state;
    if (delta != 0) change_busy(kind, slab_of(kind, block), delta);
  }

  // Returns whether the blocks of `need` could be taken if all cached blocks were evicted. The result of feasible() is
  // exact, not an estimate.
  bool feasible(const BlockNeed& need) const {
    PerKind<int64_t> slabs;
    for (const BlockKind kind : kBothKinds) {
      const Kind& k = kinds_[kind];
      const int32_t lacking = std::max(0, need.count[kind] - k.room);
      if (lacking > 0 && k.per_slab == 0) return false;
      slabs[kind] = lacking == 0 ? 0 : (lacking + k.per_slab - 1) / k.per_slab;
    }
    const auto [global, window] = slabs.values;
    const int64_t idle_global = std::ssize(kinds_[BlockKind::kGlobal].idle),
                  idle_window = std::ssize(kinds_[BlockKind::kWindow].idle),
                  empty_global = std::ssize(empty_slabs(BlockKind::kGlobal));
    if (shared_) return global + window <= empty_global + idle_global + idle_window;
    return global <= empty_global + idle_global && window <= std::ssize(empty_slabs(BlockKind::kWindow)) + idle_window;
  }
  // Returns whether the blocks of `need` would fit into this pool if all blocks were free.
  bool could_ever_hold(const BlockNeed& need) const {
    int64_t slabs = 0;
    for (const BlockKind kind : kBothKinds) {
      const int32_t count = need.count[kind];
      if (count > total(kind)) return false;
      slabs += (count + per_slab(kind) - 1) / per_slab(kind);
    }
    return !shared_ || slabs <= slab_count();
  }

  // Returns whether the blocks of `need` would fit if all blocks that are not pinned were free. Visits every block.
  bool could_hold_beside_pinned(const BlockNeed& need) const {
    if (!could_ever_hold(need)) return false;
    std::vector<int32_t> pinned(slabs_.size());
    PerKind<int64_t> slabs, lacking;  // with pinned blocks; blocks that such slabs have no room for
    for (const BlockKind kind : kBothKinds) {
      const Kind& k = kinds_[kind];
      lacking[kind] = need.count[kind];
      for (BlockId block = 0; block < k.total; ++block)
        if (k.states[static_cast<size_t>(block)] == BlockState::kPinned)
          if (pinned[static_cast<size_t>(slab_of(kind, block))]++ == 0) {
            ++slabs[kind];
            lacking[kind] -= k.per_slab;
          }
      lacking[kind] += k.of(BlockState::kPinned);
      lacking[kind] = std::max<int64_t>(lacking[kind], 0);
      if (lacking[kind] > 0) slabs[kind] += (lacking[kind] + k.per_slab - 1) / k.per_slab;
    }
    if (shared_) return slabs[0] + slabs[1] <= slab_count();
    return std::all_of(std::begin(kBothKinds), std::end(kBothKinds), [&](BlockKind kind) {
      const Kind& k = kinds_[kind];
      return slabs[kind] == 0 || slabs[kind] * k.per_slab <= k.total;
    });
  }

  // -- slabs, for the code that decides what to evict --
  bool shared() const { return shared_; }  // both kinds of block share one memory
  int32_t slab_of(BlockKind kind, BlockId block) const { return kinds_[kind].base + block / kinds_[kind].per_slab; }
  // Returns whether the slab has no live, pinned or arriving block.
  bool is_idle(int32_t slab) const { return slabs_[static_cast<size_t>(slab)].busy == 0; }
  const std::vector<int32_t>& idle_slabs(BlockKind kind) const { return kinds_[kind].idle; }
  // Returns a slab of this kind that has both busy blocks and blocks that are not busy, or -1 if there is none.
  // slab_with_room() searches all slabs, so the cache calls it only when few blocks are left.
  int32_t slab_with_room(BlockKind kind) const {
    for (size_t slab = 0; slab < slabs_.size(); ++slab)
      if (slabs_[slab].kind == kind && slabs_[slab].used > 0 && slabs_[slab].busy > 0 &&
          slabs_[slab].busy < kinds_[kind].per_slab)
        return static_cast<int32_t>(slab);
    return -1;
  }
  BlockId first_block(BlockKind kind, int32_t slab) const { return (slab - kinds_[kind].base) * kinds_[kind].per_slab; }
  // States whether no resume point needs a used block. A slab is spare while that is so of all its used blocks.
  void set_spare(BlockKind kind, BlockId block, bool spare) {
    change_wanted(kind, slab_of(kind, block), spare ? -1 : 1);
  }
  // Returns the number of a slab's used blocks that were not set spare.
  int32_t wanted_count(int32_t slab) const { return slabs_[static_cast<size_t>(slab)].wanted; }
  // Returns the slab of this kind that has been spare for longest, or -1 if none is spare.
  int32_t oldest_spare(BlockKind kind) const { return kinds_[kind].spare.oldest; }
  // Returns the slab of the same kind that has been spare for longest after a spare one, or -1.
  int32_t newer_spare(int32_t slab) const { return slabs_[static_cast<size_t>(slab)].newer; }
  // Takes a free block of this slab. Returns kNoBlock if the slab has no free block.
  BlockId take_in(BlockKind kind, int32_t slab) {
    return slabs_[static_cast<size_t>(slab)].first_free == kNoBlock ? kNoBlock : take_from(kind, slab);
  }

 private:
  friend Status check_blocks(const BlockPool& pool);

  struct Slab {
    BlockKind kind = BlockKind::kGlobal;  // valid while used > 0
    int32_t used = 0;                     // number of blocks that are not free
    int32_t busy = 0;                     // number of blocks that are live, pinned or arriving
    BlockId first_free = kNoBlock;
    int32_t wanted = 0;                        // number of used blocks that were not set spare
    int32_t open_place = -1, idle_place = -1;  // indices in the lists of its kind; -1: not listed
    int32_t older = -1, newer = -1;            // neighbours in the list of spare slabs
    bool spare = false;                        // it is in that list
  };
  struct SpareList {
    int32_t oldest = -1, newest = -1;
  };
  struct Kind {
    int32_t total = 0, per_slab = 1;
    int64_t block_bytes = 0;
    int32_t base = 0;  // first slab of this kind
    int32_t room = 0;  // blocks that are not busy, in slabs that have busy blocks
    // Number of blocks in each state. kFree is not counted, because free blocks of an empty slab belong to neither
    // kind.
    int32_t count[kBlockStates] = {};
    std::vector<BlockState> states;
    std::vector<BlockId> next_free;
    std::vector<int32_t> open;  // slabs in use with a free block
    std::vector<int32_t> idle;  // slabs in use without a busy block
    SpareList spare;            // slabs in use of which no resume point needs a block, oldest first

    int32_t& of(BlockState state) { return count[static_cast<size_t>(state)]; }
    int32_t of(BlockState state) const { return count[static_cast<size_t>(state)]; }
  };

  static bool is_busy(BlockState state) { return state >= BlockState::kLive; }
  std::vector<int32_t>& empty_of(int32_t slab) {
    return empty_slabs(slab < kinds_[BlockKind::kWindow].base ? BlockKind::kGlobal : BlockKind::kWindow);
  }
  std::vector<int32_t>& empty_slabs(BlockKind kind) { return empty_[shared_ ? BlockKind::kGlobal : kind]; }
  const std::vector<int32_t>& empty_slabs(BlockKind kind) const { return empty_[shared_ ? BlockKind::kGlobal : kind]; }

  void add(std::vector<int32_t>& list, int32_t slab, int32_t Slab::* place) {
    slabs_[static_cast<size_t>(slab)].*place = static_cast<int32_t>(list.size());
    list.push_back(slab);
  }
  void remove(std::vector<int32_t>& list, int32_t slab, int32_t Slab::* place) {
    int32_t& hole = slabs_[static_cast<size_t>(slab)].*place;
    list[static_cast<size_t>(hole)] = list.back();
    slabs_[static_cast<size_t>(list.back())].*place = hole;
    list.pop_back();
    hole = -1;
  }

  bool assign_slab(BlockKind kind) {
    std::vector<int32_t>& empty = empty_slabs(kind);
    if (empty.empty()) return false;
    const int32_t number = empty.back();
    empty.pop_back();
    Kind& k = kinds_[kind];
    Slab& slab = slabs_[static_cast<size_t>(number)];
    slab.kind = kind;
    slab.first_free = kNoBlock;
    for (int32_t i = k.per_slab - 1; i >= 0; --i) {
      const BlockId block = first_block(kind, number) + i;
      k.next_free[static_cast<size_t>(block)] = slab.first_free;
      slab.first_free = block;
    }
    add(k.open, number, &Slab::open_place);
    add(k.idle, number, &Slab::idle_place);
    return true;
  }
  void release_slab(BlockKind kind, int32_t number) {
    remove(kinds_[kind].open, number, &Slab::open_place);
    remove(kinds_[kind].idle, number, &Slab::idle_place);
    empty_of(number).push_back(number);
  }
  BlockId take_from(BlockKind kind, int32_t number) {
    Kind& k = kinds_[kind];
    Slab& slab = slabs_[static_cast<size_t>(number)];
    const BlockId block = slab.first_free;
    slab.first_free = k.next_free[static_cast<size_t>(block)];
    if (slab.first_free == kNoBlock) remove(k.open, number, &Slab::open_place);
    ++slab.used;
    change_wanted(kind, number, 1);
    k.states[static_cast<size_t>(block)] = BlockState::kLive;
    ++k.of(BlockState::kLive);
    change_busy(kind, number, 1);
    return block;
  }
  void change_busy(BlockKind kind, int32_t number, int delta) {
    Kind& k = kinds_[kind];
    Slab& slab = slabs_[static_cast<size_t>(number)];
    if (slab.busy > 0) k.room -= k.per_slab - slab.busy;
    if (slab.busy == 0) remove(k.idle, number, &Slab::idle_place);
    slab.busy += delta;
    if (slab.busy > 0) k.room += k.per_slab - slab.busy;
    if (slab.busy == 0) add(k.idle, number, &Slab::idle_place);
  }
  void change_wanted(BlockKind kind, int32_t number, int delta) {
    SpareList& list = kinds_[kind].spare;
    Slab& slab = slabs_[static_cast<size_t>(number)];
    slab.wanted += delta;
    const bool spare = slab.wanted == 0 && slab.used > 0;
    if (spare == slab.spare) return;
    slab.spare = spare;
    if (spare) {
      slab.older = std::exchange(list.newest, number);
      slab.newer = -1;
      (slab.older < 0 ? list.oldest : slabs_[static_cast<size_t>(slab.older)].newer) = number;
    } else {
      (slab.older < 0 ? list.oldest : slabs_[static_cast<size_t>(slab.older)].newer) = slab.newer;
      (slab.newer < 0 ? list.newest : slabs_[static_cast<size_t>(slab.newer)].older) = slab.older;
    }
  }

  bool shared_;
  PerKind<Kind> kinds_;
  std::vector<Slab> slabs_;
  PerKind<std::vector<int32_t>> empty_;  // empty slabs; if the kinds share memory, all are listed under kGlobal
};

}  // namespace kaiju
