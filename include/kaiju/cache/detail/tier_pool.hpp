// TierPool: the places for blocks of both kinds in one lower tier, and the order of eviction. It knows block numbers
// and never touches bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kaiju/cache/block_pool.hpp"
#include "kaiju/cache/detail/stored_block.hpp"

namespace kaiju {

// Invariants:
// - A place is free, arriving (its bytes are being copied in), live (a transfer uses it) or cached (at rest).
// - Only places at rest are given up when room is needed; the one that came to rest longest ago goes first. Each kind
//   has a list of its places at rest, oldest first.
// - Every used place names the stored block that lies there; an arriving one may name it a moment later (assign).
// One thread at a time. No cost depends on the number of places.
class TierPool {
 public:
  // As many places as `bytes` has room for, for blocks as large as the device's.
  TierPool(const ExecutorInfo& device, int64_t bytes) : TierPool(lay_out(device, bytes)) {}

  const BlockPool& places() const { return places_; }
  // Most blocks that may lie here at once.
  int64_t most_blocks() const {
    const int64_t global = places_.total(BlockKind::kGlobal), window = places_.total(BlockKind::kWindow);
    return places_.shared() ? std::max(global, window) : global + window;
  }
  int64_t bytes() const { return places_.slab_count() * slab_bytes_; }
  int64_t block_bytes(BlockKind kind) const { return block_bytes_[kind]; }
  // Where a place begins, from the tier's first byte.
  int64_t offset(BlockKind kind, BlockId place) const {
    const int64_t per_slab = places_.per_slab(kind);
    return places_.shared() ? place / per_slab * slab_bytes_ + place % per_slab * block_bytes(kind)
                            : place * block_bytes(kind);
  }
  StoredId at(BlockKind kind, BlockId place) const { return spot(kind, place).stored; }

  // An arriving place for a stored block. When room is needed, `drop(kind, place)` is called for each place at rest
  // that goes, and must free it. kNoBlock: nothing is at rest.
  template <class Drop>
  BlockId take(BlockKind kind, StoredId stored, Drop drop) {
    do {
      const BlockId place = places_.take(kind);
      if (place == kNoBlock) continue;
      places_.set(kind, place, BlockState::kArriving);
      spot(kind, place) = {stored, 0, kNoBlock, kNoBlock};
      return place;
    } while (make_room(kind, drop));
    return kNoBlock;
  }
  void assign(BlockKind kind, BlockId place, StoredId stored) { spot(kind, place).stored = stored; }
  // Puts a place to rest: it is the last to go.
  void rest(BlockKind kind, BlockId place) {
    places_.set(kind, place, BlockState::kCached);
    List& list = lists_[kind];
    Spot& s = spot(kind, place);
    s.used = ++clock_;
    s.older = list.newest;
    s.newer = kNoBlock;
    (list.newest == kNoBlock ? list.oldest : spot(kind, list.newest).newer) = place;
    list.newest = place;
  }
  // A transfer uses the place: it stays until rest or free.
  void use(BlockKind kind, BlockId place) {
    if (places_.state(kind, place) == BlockState::kCached) unlist(kind, place);
    places_.set(kind, place, BlockState::kLive);
  }
  void free(BlockKind kind, BlockId place) {
    if (places_.state(kind, place) == BlockState::kCached) unlist(kind, place);
    spot(kind, place).stored = kNoStored;
    places_.release_block(kind, place);
  }

 private:
  struct Layout {
    ExecutorInfo info;
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

  explicit TierPool(const Layout& layout)
      : places_(layout.info), slab_bytes_(layout.slab_bytes), block_bytes_(layout.info.block_bytes) {
    for (const BlockKind kind : kBothKinds) spots_[kind].resize(static_cast<size_t>(places_.total(kind)));
  }
  // Slabs of a few blocks of the larger kind: as many as waste least when the smaller kind fills them.
  static Layout lay_out(const ExecutorInfo& device, int64_t bytes) {
    Layout out;
    for (const BlockKind kind : kBothKinds)
      if (device.block_count[kind] > 0) out.info.block_bytes[kind] = device.block_bytes[kind];
    const auto [small, large] =
        std::minmax(out.info.block_bytes[BlockKind::kGlobal], out.info.block_bytes[BlockKind::kWindow]);
    out.slab_bytes = std::max<int64_t>(1, large);
    if (small > 0)
      for (int64_t blocks = 2; blocks <= 16 && blocks * large * 16 <= bytes; ++blocks)
        if ((blocks * large % small) * out.slab_bytes < (out.slab_bytes % small) * blocks * large)
          out.slab_bytes = blocks * large;
    for (const BlockKind kind : kBothKinds) {
      if (out.info.block_bytes[kind] == 0) continue;
      const int64_t per_slab = out.slab_bytes / out.info.block_bytes[kind];
      const int64_t slabs = std::min(bytes / out.slab_bytes, int64_t{INT32_MAX} / 2 / per_slab);
      out.info.block_count[kind] = static_cast<int32_t>(slabs * per_slab);
      if (small > 0) out.info.slab_blocks[kind] = static_cast<int32_t>(per_slab);
    }
    return out;
  }

  Spot& spot(BlockKind kind, BlockId place) { return spots_[kind][static_cast<size_t>(place)]; }
  const Spot& spot(BlockKind kind, BlockId place) const { return spots_[kind][static_cast<size_t>(place)]; }
  void unlist(BlockKind kind, BlockId place) {
    List& list = lists_[kind];
    const Spot& s = spot(kind, place);
    (s.older == kNoBlock ? list.oldest : spot(kind, s.older).newer) = s.newer;
    (s.newer == kNoBlock ? list.newest : spot(kind, s.newer).older) = s.older;
  }

  // As the tree does (PrefixTree::evict_for): a slab of the other kind changes hands when all of it has lain longer
  // than the oldest of this kind; else that one goes.
  template <class Drop>
  bool make_room(BlockKind kind, Drop& drop) {
    const BlockKind other = other_kind(kind);
    const BlockId own = lists_[kind].oldest;
    if (places_.shared()) {
      const uint64_t then = own == kNoBlock ? UINT64_MAX : spot(kind, own).used;
      if (const BlockId theirs = lists_[other].oldest; theirs != kNoBlock && spot(other, theirs).used < then) {
        const int32_t slab = places_.slab_of(other, theirs);
        if (places_.is_idle(slab) && lain_before(other, slab, then)) return clear(other, slab, drop), true;
      }
      if (own == kNoBlock && !places_.idle_slabs(other).empty())
        return clear(other, places_.idle_slabs(other).back(), drop), true;
    }
    if (own == kNoBlock) return false;
    drop(kind, own);
    return true;
  }
  bool lain_before(BlockKind kind, int32_t slab, uint64_t then) const {
    const BlockId first = places_.first_block(kind, slab);
    for (BlockId place = first; place < first + places_.per_slab(kind); ++place)
      if (places_.state(kind, place) == BlockState::kCached && spot(kind, place).used >= then) return false;
    return true;
  }
  template <class Drop>
  void clear(BlockKind kind, int32_t slab, Drop& drop) {
    const BlockId first = places_.first_block(kind, slab);
    for (BlockId place = first; place < first + places_.per_slab(kind); ++place)
      if (places_.state(kind, place) == BlockState::kCached) drop(kind, place);
  }

  BlockPool places_;
  int64_t slab_bytes_;
  PerKind<int64_t> block_bytes_;
  PerKind<std::vector<Spot>> spots_;
  PerKind<List> lists_;  // of the places at rest
  uint64_t clock_ = 0;
};

}  // namespace kaiju
