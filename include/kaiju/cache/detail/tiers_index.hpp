// Tiers: the index of stored blocks. Adds blocks to it and removes them. Part of tiers.hpp, which states the contract.
#pragma once

#include <algorithm>
#include <vector>

#include "kaiju/cache/tiers.hpp"

namespace kaiju {

inline Status Tiers::make_books() {
  capacity_ =
      static_cast<StoredId>(std::min<int64_t>(host_pool_.most_blocks() + file_pool_.most_blocks(), INT32_MAX / 2));
  size_t buckets = 16;
  while (buckets < static_cast<size_t>(capacity_)) buckets *= 2;
  Result<Buffer<StoredBlock>> stored =
      Buffer<StoredBlock>::make(static_cast<size_t>(capacity_), "the index of the cache's tiers");
  if (!stored.ok()) return stored.status();
  stored_ = std::move(stored).value();
  Result<Buffer<StoredId>> index = Buffer<StoredId>::make(buckets, "the index of the cache's tiers");
  if (!index.ok()) return index.status();
  buckets_ = std::move(index).value();
  std::fill_n(buckets_.data(), buckets_.size(), kNoStored);
  siblings_.assign(buckets, kNoStored);
  return {};
}

inline void Tiers::purge(DomainId domain) {
  while (domains_.at(domain).first_stored != kNoStored) {
    const StoredId id = domains_.at(domain).first_stored;
    unlink(id);
    entry(id).gone = true;
    bool any = false;
    for (const BlockKind kind : kBothKinds) {
      if (!at(id).has(kind)) continue;
      if (state(id, kind) != BlockState::kArriving) publish(CacheEventKind::kRemoved, at(id), kind, tier(id, kind));
      if (at_rest(id, kind)) drop_place(id, kind);
      any = any || at(id).has(kind);
    }
    if (!any) release_place(id);
  }
}

inline StoredId Tiers::insert(const BlockKey& key) {
  if (free_ == kNoStored && used_ == capacity_) return kNoStored;
  const StoredId id = free_ == kNoStored ? used_++ : free_;
  if (id == free_) free_ = at(id).bucket_next;
  StoredBlock& stored = entry(id);
  stored = {};
  std::memcpy(stored.tokens, key.tokens.data(), key.tokens.size_bytes());
  stored.name = key.name;
  stored.parent_name = key.parent_name;
  stored.path = key.path;
  stored.parent = key.parent;
  stored.owner = key.owner;
  stored.domain = key.domain;
  stored.count = static_cast<int32_t>(key.tokens.size());
  stored.place = {kNoBlock, kNoBlock};
  stored.bucket_next = std::exchange(bucket_of(key.name), id);
  Domain& domain = domains_.at(key.domain);
  stored.domain_previous = kNoStored;
  stored.domain_next = std::exchange(domain.first_stored, id);
  if (stored.domain_next != kNoStored) entry(stored.domain_next).domain_previous = id;
  ++domain.stored;
  stored.sibling_previous = kNoStored;
  stored.sibling_next = std::exchange(siblings_of(key.parent), id);
  if (stored.sibling_next != kNoStored) entry(stored.sibling_next).sibling_previous = id;
  ++stored_count_;
  return id;
}

// Takes it out of the index, its domain and its siblings: it is found no more.
inline void Tiers::unlink(StoredId id) {
  StoredBlock& stored = entry(id);
  StoredId* link = &bucket_of(stored.name);
  while (*link != id) link = &entry(*link).bucket_next;
  *link = stored.bucket_next;
  Domain& domain = domains_.at(stored.domain);
  (stored.domain_previous == kNoStored ? domain.first_stored : entry(stored.domain_previous).domain_next) =
      stored.domain_next;
  if (stored.domain_next != kNoStored) entry(stored.domain_next).domain_previous = stored.domain_previous;
  --domain.stored;
  (stored.sibling_previous == kNoStored ? siblings_of(stored.parent) : entry(stored.sibling_previous).sibling_next) =
      stored.sibling_next;
  if (stored.sibling_next != kNoStored) entry(stored.sibling_next).sibling_previous = stored.sibling_previous;
}

inline void Tiers::release_place(StoredId id) {
  entry(id).bucket_next = free_;
  free_ = id;
  --stored_count_;
}

inline void Tiers::drop_place(StoredId id, BlockKind kind) {
  pool(tier(id, kind)).free(kind, at(id).place[kind]);
  entry(id).tier[kind] = CacheTier::kDevice;
  entry(id).place[kind] = kNoBlock;
}

// Drops one of its blocks; with the last one, all of it.
inline void Tiers::forget(StoredId id, BlockKind kind) {
  if (!at(id).gone && state(id, kind) != BlockState::kArriving)
    publish(CacheEventKind::kRemoved, at(id), kind, tier(id, kind));
  drop_place(id, kind);
  if (at(id).has(BlockKind::kGlobal) || at(id).has(BlockKind::kWindow)) return;
  if (!at(id).gone) {
    const DomainId domain = at(id).domain;
    unlink(id);
    domains_.forget_if_unused(domain);
  }
  release_place(id);
}

// A block's path has a number above that of its parent's, so the order of these numbers puts parents first.
inline void Tiers::list_cached(std::vector<CacheEvent>& events) const {
  const BlockKind kind = has_global_ ? BlockKind::kGlobal : BlockKind::kWindow;
  std::vector<StoredId> all;
  for (DomainId domain = 0; domain < static_cast<DomainId>(domains_.end()); ++domain) {
    if (domains_.at(domain).stored == 0 || !events_.records(domains_.at(domain).kind != DomainKind::kShared)) continue;
    for (StoredId id = domains_.at(domain).first_stored; id != kNoStored; id = at(id).domain_next)
      if (at(id).has(kind) && state(id, kind) != BlockState::kArriving) all.push_back(id);
  }
  std::sort(all.begin(), all.end(), [&](StoredId a, StoredId b) { return at(a).path < at(b).path; });
  for (const StoredId id : all) {
    const StoredBlock& stored = at(id);
    events.push_back(events_.stored(stored.name, parent_name(stored), stored.known_tokens(), tier(id, kind),
                                    domains_.at(stored.domain).kind != DomainKind::kShared));
  }
}

}  // namespace kaiju
