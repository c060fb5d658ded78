// Shelf: places for blocks of both kinds in one lower tier, and which of them goes first. Knows numbers; never touches
// bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kaiju/cache/arena.hpp"

namespace kaiju {

using StoredId = int32_t;  // what lies in a place: see tiers.hpp
inline constexpr StoredId kNoStored = -1;

// A place is free, being filled (arriving), in use by a transfer (live), or at rest (cached); those at rest are given
// up when room is needed, the ones put there longest ago first, each kind after its own list. One thread at a time; no
// call but check depends on the number of places.
class Shelf {
 public:
  // As many places as `bytes` has room for, for blocks as large as the device's.
  Shelf(const Facts& device, int64_t bytes) : Shelf(lay_out(device, bytes)) {}

  const Arena& arena() const { return arena_; }
  // Most blocks that may lie here at once.
  int64_t most_blocks() const {
    const int64_t global = arena_.total(BlockKind::kGlobal), window = arena_.total(BlockKind::kWindow);
    return arena_.shared() ? std::max(global, window) : global + window;
  }
  int64_t bytes() const { return arena_.slab_count() * slab_bytes_; }
  int64_t block_bytes(BlockKind kind) const { return block_bytes_[index(kind)]; }
  // Where a place begins, from the shelf's first byte.
  int64_t offset(BlockKind kind, BlockId place) const {
    const int64_t per_slab = arena_.per_slab(kind);
    return arena_.shared() ? place / per_slab * slab_bytes_ + place % per_slab * block_bytes(kind)
                           : place * block_bytes(kind);
  }
  StoredId at(BlockKind kind, BlockId place) const { return spot(kind, place).stored; }

  // A place being filled. When room is needed, `drop(kind, place)` is called for those at rest that go, and must free
  // them. kNoBlock: none is at rest.
  template <class Drop>
  BlockId take(BlockKind kind, StoredId stored, Drop drop) {
    do {
      const BlockId place = arena_.take(kind);
      if (place == kNoBlock) continue;
      arena_.set(kind, place, BlockState::kArriving);
      spot(kind, place) = {stored, 0, kNoBlock, kNoBlock};
      return place;
    } while (make_room(kind, drop));
    return kNoBlock;
  }
  void assign(BlockKind kind, BlockId place, StoredId stored) { spot(kind, place).stored = stored; }
  // At rest, and the last to go.
  void rest(BlockKind kind, BlockId place) {
    arena_.set(kind, place, BlockState::kCached);
    List& list = lists_[index(kind)];
    Spot& s = spot(kind, place);
    s.used = ++clock_;
    s.older = list.newest;
    s.newer = kNoBlock;
    (list.newest == kNoBlock ? list.oldest : spot(kind, list.newest).newer) = place;
    list.newest = place;
  }
  // A transfer uses it: it stays until rest or free.
  void use(BlockKind kind, BlockId place) {
    if (arena_.state(kind, place) == BlockState::kCached) unlist(kind, place);
    arena_.set(kind, place, BlockState::kLive);
  }
  void free(BlockKind kind, BlockId place) {
    if (arena_.state(kind, place) == BlockState::kCached) unlist(kind, place);
    spot(kind, place).stored = kNoStored;
    arena_.give_back(kind, place);
  }

 private:
  struct Layout {
    Facts facts;
    int64_t slab_bytes = 0;
  };
  struct Spot {
    StoredId stored = kNoStored;
    uint64_t used = 0;
    BlockId older = kNoBlock, newer = kNoBlock;
  };
  struct List {
    BlockId oldest = kNoBlock, newest = kNoBlock;
  };

  explicit Shelf(const Layout& layout) : arena_(layout.facts), slab_bytes_(layout.slab_bytes) {
    for (const BlockKind kind : kBothKinds) {
      block_bytes_[index(kind)] = layout.facts.block_bytes[index(kind)];
      spots_[index(kind)].resize(static_cast<size_t>(arena_.total(kind)));
    }
  }
  // Slabs of a few blocks of the larger kind: as many as waste least when the smaller kind fills them.
  static Layout lay_out(const Facts& device, int64_t bytes) {
    Layout out;
    for (int kind = 0; kind < kBlockKinds; ++kind)
      if (device.block_count[kind] > 0) out.facts.block_bytes[kind] = device.block_bytes[kind];
    const auto [small, large] = std::minmax(out.facts.block_bytes[0], out.facts.block_bytes[1]);
    out.slab_bytes = std::max<int64_t>(1, large);
    if (small > 0)
      for (int64_t blocks = 2; blocks <= 16 && blocks * large * 16 <= bytes; ++blocks)
        if ((blocks * large % small) * out.slab_bytes < (out.slab_bytes % small) * blocks * large)
          out.slab_bytes = blocks * large;
    for (int kind = 0; kind < kBlockKinds; ++kind) {
      if (out.facts.block_bytes[kind] == 0) continue;
      const int64_t per_slab = out.slab_bytes / out.facts.block_bytes[kind];
      const int64_t slabs = std::min(bytes / out.slab_bytes, int64_t{INT32_MAX} / 2 / per_slab);
      out.facts.block_count[kind] = static_cast<int32_t>(slabs * per_slab);
      if (small > 0) out.facts.slab_blocks[kind] = static_cast<int32_t>(per_slab);
    }
    return out;
  }

  static size_t index(BlockKind kind) { return static_cast<size_t>(kind); }
  Spot& spot(BlockKind kind, BlockId place) { return spots_[index(kind)][static_cast<size_t>(place)]; }
  const Spot& spot(BlockKind kind, BlockId place) const { return spots_[index(kind)][static_cast<size_t>(place)]; }
  void unlist(BlockKind kind, BlockId place) {
    List& list = lists_[index(kind)];
    const Spot& s = spot(kind, place);
    (s.older == kNoBlock ? list.oldest : spot(kind, s.older).newer) = s.newer;
    (s.newer == kNoBlock ? list.newest : spot(kind, s.newer).older) = s.older;
  }

  // As the tree does: a slab changes hands when all in it has lain longer than the own kind's oldest; else that one
  // goes.
  template <class Drop>
  bool make_room(BlockKind kind, Drop& drop) {
    const BlockKind other = kind == BlockKind::kGlobal ? BlockKind::kWindow : BlockKind::kGlobal;
    const BlockId own = lists_[index(kind)].oldest;
    if (arena_.shared()) {
      const uint64_t then = own == kNoBlock ? UINT64_MAX : spot(kind, own).used;
      if (const BlockId theirs = lists_[index(other)].oldest; theirs != kNoBlock && spot(other, theirs).used < then) {
        const int32_t slab = arena_.slab_of(other, theirs);
        if (arena_.is_idle(slab) && lain_before(other, slab, then)) return clear(other, slab, drop), true;
      }
      if (own == kNoBlock && !arena_.idle_slabs(other).empty())
        return clear(other, arena_.idle_slabs(other).back(), drop), true;
    }
    if (own == kNoBlock) return false;
    drop(kind, own);
    return true;
  }
  bool lain_before(BlockKind kind, int32_t slab, uint64_t then) const {
    const BlockId first = arena_.first_block(kind, slab);
    for (BlockId place = first; place < first + arena_.per_slab(kind); ++place)
      if (arena_.state(kind, place) == BlockState::kCached && spot(kind, place).used >= then) return false;
    return true;
  }
  template <class Drop>
  void clear(BlockKind kind, int32_t slab, Drop& drop) {
    const BlockId first = arena_.first_block(kind, slab);
    for (BlockId place = first; place < first + arena_.per_slab(kind); ++place)
      if (arena_.state(kind, place) == BlockState::kCached) drop(kind, place);
  }

  Arena arena_;
  int64_t slab_bytes_;
  int64_t block_bytes_[kBlockKinds] = {0, 0};
  std::vector<Spot> spots_[kBlockKinds];
  List lists_[kBlockKinds];
  uint64_t clock_ = 0;
};

}  // namespace kaiju
