// Arena: the blocks of both kinds, what state each is in, and the slabs they are cut from. Knows numbers; never touches
// memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/step/facts.hpp"

namespace kaiju {

inline int32_t blocks_for(int32_t positions) { return (positions + kBlockTokens - 1) / kBlockTokens; }

// Every block is in exactly one.
enum class BlockState : uint8_t {
  kFree = 0,      // nobody's
  kCached = 1,    // holds KV that nobody uses now: may be given up
  kLive = 2,      // a running sequence uses it, or holds it ready
  kPinned = 3,    // cached, and the host said to keep it
  kArriving = 4,  // being filled from a lower tier
};
inline constexpr int32_t kBlockStates = 5;

struct BlockNeed {
  int32_t count[kBlockKinds] = {0, 0};
};

// One thread at a time. Every call is O(1) but the walks, feasible's inputs included; check is O(blocks).
class Arena {
 public:
  explicit Arena(const Facts& facts) : shared_(facts.shares_memory()) {
    int32_t slabs = 0;
    for (const BlockKind kind : kBothKinds) {
      Kind& k = at(kind);
      k.total = facts.block_count[index(kind)];
      k.per_slab = shared_ ? facts.slab_blocks[index(kind)] : 1;
      k.base = shared_ ? 0 : slabs;
      slabs = shared_ ? std::max(slabs, k.total / k.per_slab) : slabs + k.total;
      k.states.assign(static_cast<size_t>(k.total), BlockState::kFree);
      k.next_free.assign(static_cast<size_t>(k.total), kNoBlock);
    }
    slabs_.resize(static_cast<size_t>(slabs));
    for (const BlockKind kind : kBothKinds)
      at(kind).open.reserve(slabs_.size()), at(kind).idle.reserve(slabs_.size());      // taking must not fail
    for (int32_t slab = slabs - 1; slab >= 0; --slab) empty_of(slab).push_back(slab);  // low numbers first
  }

  int32_t total(BlockKind kind) const { return at(kind).total; }
  int32_t per_slab(BlockKind kind) const { return at(kind).per_slab; }
  int32_t slab_count() const { return static_cast<int32_t>(slabs_.size()); }
  int32_t count(BlockKind kind, BlockState state) const {
    return state == BlockState::kFree ? total(kind) - used_count(kind) : at(kind).count[static_cast<int>(state)];
  }
  int32_t used_count(BlockKind kind) const {
    const int32_t* n = at(kind).count;
    return n[1] + n[2] + n[3] + n[4];
  }
  int32_t busy_count(BlockKind kind) const {
    return used_count(kind) - at(kind).count[static_cast<int>(BlockState::kCached)];
  }
  BlockState state(BlockKind kind, BlockId block) const { return at(kind).states[static_cast<size_t>(block)]; }

  // A free block, from now on live: from a slab of its kind, else from an empty slab. kNoBlock when there is none.
  BlockId take(BlockKind kind) {
    Kind& k = at(kind);
    if (k.open.empty() && !assign_slab(kind)) return kNoBlock;
    return take_from(kind, k.open.back());
  }
  // Whether take would find one.
  bool has_free(BlockKind kind) const { return !at(kind).open.empty() || !empty(kind).empty(); }
  void give_back(BlockKind kind, BlockId block) {
    Kind& k = at(kind);
    set(kind, block, BlockState::kCached);  // out of the busy counts
    --k.count[static_cast<int>(BlockState::kCached)];
    k.states[static_cast<size_t>(block)] = BlockState::kFree;
    const int32_t number = slab_of(kind, block);
    Slab& slab = slabs_[static_cast<size_t>(number)];
    k.next_free[static_cast<size_t>(block)] = slab.first_free;
    if (slab.first_free == kNoBlock) add(k.open, number, &Slab::open_place);
    slab.first_free = block;
    if (--slab.used == 0) release_slab(kind, number);
  }
  // Between the states of a block in use.
  void set(BlockKind kind, BlockId block, BlockState state) {
    Kind& k = at(kind);
    BlockState& old = k.states[static_cast<size_t>(block)];
    if (old == state) return;
    --k.count[static_cast<int>(old)];
    ++k.count[static_cast<int>(state)];
    const int delta = (is_busy(state) ? 1 : 0) - (is_busy(old) ? 1 : 0);
    old = state;
    if (delta != 0) change_busy(kind, slab_of(kind, block), delta);
  }

  // Whether that many blocks could be taken if everything cached were given up. Exact.
  bool feasible(const BlockNeed& need) const {
    int64_t slabs[kBlockKinds];
    for (const BlockKind kind : kBothKinds) {
      const Kind& k = at(kind);
      const int32_t lacking = std::max(0, need.count[index(kind)] - k.room);
      if (lacking > 0 && k.per_slab == 0) return false;
      slabs[index(kind)] = lacking == 0 ? 0 : (lacking + k.per_slab - 1) / k.per_slab;
    }
    const auto idle = [&](BlockKind kind) { return std::ssize(at(kind).idle); };
    if (shared_)
      return slabs[0] + slabs[1] <= std::ssize(empty_[0]) + idle(BlockKind::kGlobal) + idle(BlockKind::kWindow);
    for (const BlockKind kind : kBothKinds)
      if (slabs[index(kind)] > std::ssize(empty(kind)) + idle(kind)) return false;
    return true;
  }
  // Same, of an engine that holds nothing.
  bool could_ever_hold(const BlockNeed& need) const {
    int64_t slabs = 0;
    for (const BlockKind kind : kBothKinds) {
      const int32_t count = need.count[index(kind)];
      if (count > total(kind)) return false;
      slabs += (count + per_slab(kind) - 1) / per_slab(kind);
    }
    return !shared_ || slabs <= slab_count();
  }

  // -- slabs, for who decides what to evict --
  bool shared() const { return shared_; }
  int32_t slab_of(BlockKind kind, BlockId block) const { return at(kind).base + block / at(kind).per_slab; }
  // No block of it is live, pinned or arriving.
  bool is_idle(int32_t slab) const { return slabs_[static_cast<size_t>(slab)].busy == 0; }
  const std::vector<int32_t>& idle_slabs(BlockKind kind) const { return at(kind).idle; }
  // A slab of the kind that holds busy blocks and others; -1: none. O(slabs), for an arena with nothing to spare.
  int32_t slab_with_room(BlockKind kind) const {
    for (size_t slab = 0; slab < slabs_.size(); ++slab)
      if (slabs_[slab].kind == kind && slabs_[slab].used > 0 && slabs_[slab].busy > 0 &&
          slabs_[slab].busy < at(kind).per_slab)
        return static_cast<int32_t>(slab);
    return -1;
  }
  BlockId first_block(BlockKind kind, int32_t slab) const { return (slab - at(kind).base) * at(kind).per_slab; }
  // A free block of this very slab; kNoBlock when it has none.
  BlockId take_in(BlockKind kind, int32_t slab) {
    return slabs_[static_cast<size_t>(slab)].first_free == kNoBlock ? kNoBlock : take_from(kind, slab);
  }

  // The counts against the states, block by block.
  Status check() const {
    std::vector<Slab> seen(slabs_.size());
    for (const BlockKind kind : kBothKinds) {
      const Kind& k = at(kind);
      int32_t count[kBlockStates] = {};
      for (BlockId block = 0; block < k.total; ++block) {
        const BlockState state = k.states[static_cast<size_t>(block)];
        ++count[static_cast<int>(state)];
        const auto slab = static_cast<size_t>(slab_of(kind, block));
        if (state == BlockState::kFree) continue;
        if (slabs_[slab].kind != kind)
          return broken(kind, "block " + std::to_string(block) + " is used in a slab of the other kind");
        ++seen[slab].used;
        seen[slab].busy += is_busy(state) ? 1 : 0;
      }
      for (int state = 1; state < kBlockStates; ++state)
        if (count[state] != k.count[state]) return broken(kind, "the states do not add up");
    }
    int32_t room[kBlockKinds] = {0, 0};
    for (size_t slab = 0; slab < slabs_.size(); ++slab) {
      const Slab& s = slabs_[slab];
      if (s.used != seen[slab].used || s.busy != seen[slab].busy)
        return broken(s.kind, "slab " + std::to_string(slab) + " is miscounted");
      if (s.used == 0) continue;
      int32_t free = 0;
      for (BlockId block = s.first_free; block != kNoBlock;
           block = at(s.kind).next_free[static_cast<size_t>(block)], ++free)
        if (state(s.kind, block) != BlockState::kFree || free > at(s.kind).per_slab)
          return broken(s.kind, "block " + std::to_string(block) + " is in a free list wrongly");
      if (free + s.used != at(s.kind).per_slab)
        return broken(s.kind, "slab " + std::to_string(slab) + " has lost a block");
      if (s.busy > 0) room[index(s.kind)] += at(s.kind).per_slab - s.busy;
    }
    for (const BlockKind kind : kBothKinds)
      if (room[index(kind)] != at(kind).room) return broken(kind, "the room in busy slabs is miscounted");
    return {};
  }
  Status broken(BlockKind kind, const std::string& what) const {
    return internal_error(std::string("cache ledger: ") + name_of(kind) + " blocks: " + what + " (total " +
                          std::to_string(total(kind)) + ", free " + std::to_string(count(kind, BlockState::kFree)) +
                          ", cached " + std::to_string(count(kind, BlockState::kCached)) + ", live " +
                          std::to_string(count(kind, BlockState::kLive)) + ", pinned " +
                          std::to_string(count(kind, BlockState::kPinned)) + ", arriving " +
                          std::to_string(count(kind, BlockState::kArriving)) + ")");
  }

 private:
  struct Slab {
    BlockKind kind = BlockKind::kGlobal;  // while used > 0
    int32_t used = 0;                     // blocks not free
    int32_t busy = 0;                     // of these, live, pinned or arriving
    BlockId first_free = kNoBlock;
    int32_t open_place = -1, idle_place = -1;  // in the lists of its kind
  };
  struct Kind {
    int32_t total = 0, per_slab = 1;
    int32_t base = 0;                  // its first slab
    int32_t room = 0;                  // blocks not busy in slabs that have busy ones
    int32_t count[kBlockStates] = {};  // kFree is not kept: the free blocks of an empty slab are of neither kind
    std::vector<BlockState> states;
    std::vector<BlockId> next_free;
    std::vector<int32_t> open;  // slabs in use with a free block
    std::vector<int32_t> idle;  // slabs in use without a busy block
  };

  static size_t index(BlockKind kind) { return static_cast<size_t>(kind); }
  static bool is_busy(BlockState state) { return state >= BlockState::kLive; }
  Kind& at(BlockKind kind) { return kinds_[index(kind)]; }
  const Kind& at(BlockKind kind) const { return kinds_[index(kind)]; }
  std::vector<int32_t>& empty_of(int32_t slab) { return empty_[shared_ || slab < kinds_[1].base ? 0 : 1]; }
  const std::vector<int32_t>& empty(BlockKind kind) const { return empty_[shared_ ? 0 : index(kind)]; }

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
    std::vector<int32_t>& empty = empty_[shared_ ? 0 : index(kind)];
    if (empty.empty()) return false;
    const int32_t number = empty.back();
    empty.pop_back();
    Kind& k = at(kind);
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
    remove(at(kind).open, number, &Slab::open_place);
    remove(at(kind).idle, number, &Slab::idle_place);
    empty_of(number).push_back(number);
  }
  BlockId take_from(BlockKind kind, int32_t number) {
    Kind& k = at(kind);
    Slab& slab = slabs_[static_cast<size_t>(number)];
    const BlockId block = slab.first_free;
    slab.first_free = k.next_free[static_cast<size_t>(block)];
    if (slab.first_free == kNoBlock) remove(k.open, number, &Slab::open_place);
    ++slab.used;
    k.states[static_cast<size_t>(block)] = BlockState::kLive;
    ++k.count[static_cast<int>(BlockState::kLive)];
    change_busy(kind, number, 1);
    return block;
  }
  void change_busy(BlockKind kind, int32_t number, int delta) {
    Kind& k = at(kind);
    Slab& slab = slabs_[static_cast<size_t>(number)];
    if (slab.busy > 0) k.room -= k.per_slab - slab.busy;
    if (slab.busy == 0) remove(k.idle, number, &Slab::idle_place);
    slab.busy += delta;
    if (slab.busy > 0) k.room += k.per_slab - slab.busy;
    if (slab.busy == 0) add(k.idle, number, &Slab::idle_place);
  }

  bool shared_;
  Kind kinds_[kBlockKinds];
  std::vector<Slab> slabs_;
  std::vector<int32_t> empty_[kBlockKinds];  // both kinds' in the first while the arena is shared
};

}  // namespace kaiju
