// Tiers: the blocks behind the device's: host memory, and a file behind that. What the tree gives up goes down, what a
// prompt wants comes up again (fetch.hpp); a block is in one tier at a time. Found as in the tree: by name, then
// compared by parent, domain and all tokens. Device and host memory are copied by the executor, as the plan says; host
// memory and file by the BlockFile, at once. No byte is looked at here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kaiju/base/buffer.hpp"
#include "kaiju/cache/domain.hpp"
#include "kaiju/cache/events.hpp"
#include "kaiju/cache/options.hpp"
#include "kaiju/cache/shelf.hpp"
#include "kaiju/step/plan.hpp"

namespace kaiju {

// 64 positions, or the fewer of a tail, as the tree knows them. `path` is a number that no other tokens in no other
// domain behind no other parent ever had; the parent's says the same of all that comes before. So comparing one block
// compares the whole path.
struct BlockKey {
  BlockName name, parent_name;
  uint64_t path = 0, parent = 0;
  uint64_t owner = 0;  // the session that computed it
  DomainId domain = kNoDomain;
  const int32_t* tokens = nullptr;
  int32_t count = 0;
  bool junction = false;
};

// One thread at a time. Costs do not depend on the number of blocks, but for check and purge of what they count.
class Tiers {
 public:
  struct Stored {
    int32_t tokens[kBlockTokens];
    BlockName name, parent_name;
    BlockName digest[kBlockKinds];  // of what is in the file
    uint64_t path, parent, owner;
    DomainId domain;
    int32_t count;
    StoredId bucket_next, domain_next, domain_previous;
    StoredId sibling_next, sibling_previous;  // newest first, among those whose parents share a bucket
    CacheTier tier[kBlockKinds];              // kDevice: not here
    BlockId place[kBlockKinds];
    bool junction;
    bool gone;  // nobody may find it any more; a transfer still uses its place

    bool has(BlockKind kind) const { return tier[static_cast<size_t>(kind)] != CacheTier::kDevice; }
  };

  // Gives host memory: Executor::host_memory.
  using HostSource = std::function<Result<HostMemory>(size_t bytes, const char* what)>;
  // Takes all memory here. kOutOfMemory, kInvalidArgument, and kUnsupported for an executor without transfers. The tree
  // outlives it.
  static Result<std::unique_ptr<Tiers>> make(const Facts& facts, const CacheOptions& options, Domains& domains,
                                             CacheEvents& events, const HostSource& host) {
    if (facts.kv_layout.empty())
      return Status(StatusCode::kUnsupported, "this executor moves no blocks to host memory: host_bytes must be 0");
    // The bytes first: whoever asks for more than there is learns it before books are made for them.
    const int64_t least = std::max(facts.block_bytes[0], facts.block_bytes[1]);
    if (least <= 0 || options.host_bytes < least)
      return invalid_argument("host_bytes is " + std::to_string(options.host_bytes) + "; a block has " +
                              std::to_string(least) + " bytes");
    if (options.file && options.file_bytes < least)
      return invalid_argument("file_bytes is " + std::to_string(options.file_bytes) + "; a block has " +
                              std::to_string(least) + " bytes");
    Result<HostMemory> bytes = host(static_cast<size_t>(options.host_bytes), "the cache's host memory");
    if (!bytes.ok()) return bytes.status();
    std::unique_ptr<Tiers> tiers(new Tiers(facts, options, domains, events));
    tiers->host_bytes_ = std::move(bytes).value();
    KAIJU_TRY(tiers->make_books());
    return tiers;
  }
  Tiers(const Tiers&) = delete;
  Tiers& operator=(const Tiers&) = delete;

  // -- finding --
  // What lies here of these tokens behind `parent`; kNoStored. It may still be on its way down.
  StoredId find(uint64_t parent, DomainId domain, const int32_t* tokens, int32_t count, const BlockName& name) const {
    for (StoredId id = bucket(name); id != kNoStored; id = at(id).bucket_next) {
      const Stored& stored = at(id);
      if (stored.parent == parent && stored.domain == domain && stored.count == count &&
          std::memcmp(stored.tokens, tokens, static_cast<size_t>(count) * sizeof(int32_t)) == 0)
        return id;
    }
    return kNoStored;
  }
  // The same of a block that the tree has as well.
  StoredId find(const BlockName& name, uint64_t path) const {
    StoredId id = bucket(name);
    while (id != kNoStored && at(id).path != path) id = at(id).bucket_next;
    return id;
  }
  // What lies here behind `parent` and begins like `tokens` for longest, and for how long. Looks at the newest few
  // only.
  StoredId find_partial(uint64_t parent, const Regions& regions, int32_t index, std::span<const int32_t> tokens,
                        int32_t& count) const {
    StoredId best = kNoStored;
    count = 0;
    int32_t looked = 0;
    for (StoredId id = siblings(parent); id != kNoStored && looked < kSiblingsLooked;
         id = at(id).sibling_next, ++looked) {
      const Stored& stored = at(id);
      const bool shared = stored.domain == regions.shared;
      if (stored.parent != parent || (!shared && stored.domain != regions.own)) continue;
      if (has_global_ && !ready(id, BlockKind::kGlobal)) continue;
      int32_t most = std::min({stored.count, static_cast<int32_t>(tokens.size()), kBlockTokens - 1});
      if (shared) most = std::min(most, regions.shared_tokens - index * kBlockTokens);
      int32_t same = 0;
      while (same < most && stored.tokens[same] == tokens[static_cast<size_t>(same)]) ++same;
      if (same > count) count = same, best = id;
    }
    return best;
  }
  // The number for a block that joins the tree: the one it had when it went down, else a new one.
  uint64_t path_of(uint64_t parent, DomainId domain, const int32_t* tokens, int32_t count, const BlockName& name) {
    const StoredId id = find(parent, domain, tokens, count, name);
    return id == kNoStored ? ++last_path_ : at(id).path;
  }
  const Stored& at(StoredId id) const { return const_cast<Tiers*>(this)->stored_.data()[id]; }
  // Whether a block of it could be brought up now.
  bool ready(StoredId id, BlockKind kind) const { return id != kNoStored && at(id).has(kind) && at_rest(id, kind); }

  // -- down --
  // The tree gives up this block of the device. Kept if there is room; its bytes are copied by the next plan that runs,
  // before all else it does.
  void put(BlockKind kind, BlockId block, const BlockKey& key) {
    const StoredId known = find(key.name, key.path);
    if (known != kNoStored && at(known).has(kind)) return;
    const BlockId place = host_.take(kind, kNoStored, [&](BlockKind k, BlockId p) { leave_host(k, p); });
    if (place == kNoBlock) return;
    StoredId id = find(key.name, key.path);  // making room may have ended it
    if (id == kNoStored) id = insert(key);
    if (id == kNoStored) return host_.free(kind, place);
    host_.assign(kind, place, id);
    at(id).tier[index(kind)] = CacheTier::kHost;
    at(id).place[index(kind)] = place;
    at(id).junction = at(id).junction || key.junction;
    downs_.push_back({id, kind, block});
  }
  // Writes all copies down into a plan that has no transfers yet.
  void write_downs(StepPlan& plan) {
    planned_ = downs_.size();
    for (const Down& down : downs_)
      plan.transfers.push_back(
          {BlockTransfer::Way::kDown, down.kind, down.block, host(down.kind, at(down.id).place[index(down.kind)])});
  }
  // The plan has run; failed(i) says which of its transfers did not.
  template <class Failed>
  void downs_ran(Failed failed) {
    for (size_t i = 0; i < planned_; ++i) {
      const Down down = downs_[i];
      Stored& stored = at(down.id);
      if (stored.gone || failed(i)) {
        host_stats_.blocks_lost += stored.gone ? 0 : 1;
        forget(down.id, down.kind);
        continue;
      }
      host_.rest(down.kind, stored.place[index(down.kind)]);
      count_move(host_stats_.blocks_in, host_stats_.bytes_in, down.kind);
      publish(CacheEventKind::kStored, stored, down.kind, CacheTier::kHost);
    }
    downs_.erase(downs_.begin(), downs_.begin() + static_cast<std::ptrdiff_t>(planned_));
    planned_ = 0;
  }
  // Whether a block that was given up still holds bytes that have to be copied.
  bool awaited(BlockKind kind, BlockId block) const {
    return std::any_of(downs_.begin(), downs_.end(),
                       [&](const Down& down) { return down.kind == kind && down.block == block; });
  }

  // -- up --
  // Keeps a block that is ready where it is, until release.
  void keep(StoredId id, BlockKind kind) { shelf(tier(id, kind)).use(kind, at(id).place[index(kind)]); }
  // Where the bytes of a kept block are, in host memory; null: there is no room for them, or they are lost.
  std::byte* bytes(StoredId id, BlockKind kind, bool& lost) {
    if (tier(id, kind) == CacheTier::kFile && !read_file(id, kind, lost)) return nullptr;
    return host(kind, at(id).place[index(kind)]);
  }
  enum class End { kUnused, kMoved, kLost };  // it stays; it is on the device now; its bytes are no good
  void release(StoredId id, BlockKind kind, End end) {
    if (end == End::kMoved) count_move(host_stats_.blocks_out, host_stats_.bytes_out, kind);
    const bool in_file = tier(id, kind) == CacheTier::kFile, lost = end == End::kLost || (in_file && !file_);
    if (lost) ++(in_file ? file_stats_ : host_stats_).blocks_lost;
    if (end == End::kMoved || lost || at(id).gone)
      forget(id, kind);
    else
      shelf(tier(id, kind)).rest(kind, at(id).place[index(kind)]);
  }

  // -- ends --
  // All blocks of a domain: nobody may find them any more.
  void purge(DomainId domain) {
    while (domains_.at(domain).first_stored != kNoStored) {
      const StoredId id = domains_.at(domain).first_stored;
      unlink(id);
      at(id).gone = true;
      bool any = false;
      for (const BlockKind kind : kBothKinds) {
        if (!at(id).has(kind)) continue;
        if (state(id, kind) != BlockState::kArriving) publish(CacheEventKind::kRemoved, at(id), kind, tier(id, kind));
        if (at_rest(id, kind)) drop_place(id, kind);
        any = any || at(id).has(kind);
      }
      if (!any) give_back(id);
    }
  }

  // -- figures --
  TierStats stats(CacheTier which) const {
    const bool file = which == CacheTier::kFile;
    if (file && !file_) return file_stats_;
    const Shelf& shelf = file ? file_shelf_ : host_;
    TierStats stats = file ? file_stats_ : host_stats_;
    stats.bytes = shelf.bytes();
    for (const BlockKind kind : kBothKinds) stats.blocks_held[index(kind)] = shelf.arena().used_count(kind);
    return stats;
  }
  // Not ok: why the file is not used any more. Nothing else depends on it.
  const Status& file_status() const { return file_status_; }
  int32_t stored_count() const { return stored_count_; }
  size_t bookkeeping_bytes() const { return stored_.bytes() + 2 * buckets_.bytes(); }

  // Every place against what is in it. O(places).
  Status check() const;

 private:
  static constexpr int32_t kSiblingsLooked = 32;

  struct Down {
    StoredId id;
    BlockKind kind;
    BlockId block;
  };

  Tiers(const Facts& facts, const CacheOptions& options, Domains& domains, CacheEvents& events)
      : domains_(domains),
        events_(events),
        publish_private_(options.publish_private),
        has_global_(facts.has_global),
        file_(options.file),
        host_(facts, options.host_bytes),
        file_shelf_(facts, options.file ? options.file_bytes : 0) {}

  Status make_books() {
    capacity_ =
        static_cast<StoredId>(std::min<int64_t>(host_.most_blocks() + file_shelf_.most_blocks(), INT32_MAX / 2));
    size_t buckets = 16;
    while (buckets < static_cast<size_t>(capacity_)) buckets *= 2;
    Result<Buffer<Stored>> stored =
        Buffer<Stored>::make(static_cast<size_t>(capacity_), "the books of the cache's tiers");
    if (!stored.ok()) return stored.status();
    stored_ = std::move(stored).value();
    Result<Buffer<StoredId>> index = Buffer<StoredId>::make(buckets, "the books of the cache's tiers");
    if (!index.ok()) return index.status();
    buckets_ = std::move(index).value();
    std::fill_n(buckets_.data(), buckets_.size(), kNoStored);
    siblings_.assign(buckets, kNoStored);
    return {};
  }

  static size_t index(BlockKind kind) { return static_cast<size_t>(kind); }
  Stored& at(StoredId id) { return stored_.data()[id]; }
  CacheTier tier(StoredId id, BlockKind kind) const { return at(id).tier[index(kind)]; }
  BlockState state(StoredId id, BlockKind kind) const {
    return shelf(tier(id, kind)).arena().state(kind, at(id).place[index(kind)]);
  }
  bool at_rest(StoredId id, BlockKind kind) const { return state(id, kind) == BlockState::kCached; }
  Shelf& shelf(CacheTier tier) { return tier == CacheTier::kFile ? file_shelf_ : host_; }
  const Shelf& shelf(CacheTier tier) const { return tier == CacheTier::kFile ? file_shelf_ : host_; }
  std::byte* host(BlockKind kind, BlockId place) { return host_bytes_.get() + host_.offset(kind, place); }
  std::span<std::byte> host_span(BlockKind kind, BlockId place) {
    return {host(kind, place), static_cast<size_t>(host_.block_bytes(kind))};
  }
  StoredId bucket(const BlockName& name) const { return const_cast<Tiers*>(this)->bucket_of(name); }
  StoredId siblings(uint64_t parent) const { return const_cast<Tiers*>(this)->siblings_of(parent); }
  StoredId& siblings_of(uint64_t parent) { return siblings_.data()[parent & (siblings_.size() - 1)]; }
  StoredId& bucket_of(const BlockName& name) { return buckets_.data()[name.low & (buckets_.size() - 1)]; }
  void count_move(uint64_t& blocks, uint64_t& bytes, BlockKind kind) const {
    ++blocks;
    bytes += static_cast<uint64_t>(host_.block_bytes(kind));
  }
  // A block is told of when the KV that all need of it moves.
  void publish(CacheEventKind what, const Stored& stored, BlockKind kind, CacheTier where) {
    if (kind != (has_global_ ? BlockKind::kGlobal : BlockKind::kWindow)) return;
    if (domains_.at(stored.domain).kind == DomainKind::kShared || publish_private_)
      events_.push({what, stored.name, stored.parent_name, stored.count, where});
  }

  StoredId insert(const BlockKey& key) {
    if (free_ == kNoStored && used_ == capacity_) return kNoStored;
    const StoredId id = free_ == kNoStored ? used_++ : free_;
    if (id == free_) free_ = at(id).bucket_next;
    Stored& stored = at(id);
    stored = {};
    std::memcpy(stored.tokens, key.tokens, static_cast<size_t>(key.count) * sizeof(int32_t));
    stored.name = key.name;
    stored.parent_name = key.parent_name;
    stored.path = key.path;
    stored.parent = key.parent;
    stored.owner = key.owner;
    stored.domain = key.domain;
    stored.count = key.count;
    stored.place[0] = stored.place[1] = kNoBlock;
    stored.bucket_next = std::exchange(bucket_of(key.name), id);
    Domain& domain = domains_.at(key.domain);
    stored.domain_previous = kNoStored;
    stored.domain_next = std::exchange(domain.first_stored, id);
    if (stored.domain_next != kNoStored) at(stored.domain_next).domain_previous = id;
    ++domain.stored;
    stored.sibling_previous = kNoStored;
    stored.sibling_next = std::exchange(siblings_of(key.parent), id);
    if (stored.sibling_next != kNoStored) at(stored.sibling_next).sibling_previous = id;
    ++stored_count_;
    return id;
  }
  // Out of the index and its domain: found no more.
  void unlink(StoredId id) {
    Stored& stored = at(id);
    StoredId* link = &bucket_of(stored.name);
    while (*link != id) link = &at(*link).bucket_next;
    *link = stored.bucket_next;
    Domain& domain = domains_.at(stored.domain);
    (stored.domain_previous == kNoStored ? domain.first_stored : at(stored.domain_previous).domain_next) =
        stored.domain_next;
    if (stored.domain_next != kNoStored) at(stored.domain_next).domain_previous = stored.domain_previous;
    --domain.stored;
    (stored.sibling_previous == kNoStored ? siblings_of(stored.parent) : at(stored.sibling_previous).sibling_next) =
        stored.sibling_next;
    if (stored.sibling_next != kNoStored) at(stored.sibling_next).sibling_previous = stored.sibling_previous;
  }
  void give_back(StoredId id) {
    at(id).bucket_next = free_;
    free_ = id;
    --stored_count_;
  }
  void drop_place(StoredId id, BlockKind kind) {
    shelf(tier(id, kind)).free(kind, at(id).place[index(kind)]);
    at(id).tier[index(kind)] = CacheTier::kDevice;
    at(id).place[index(kind)] = kNoBlock;
  }
  // One block of it is here no more; with the last one, all of it.
  void forget(StoredId id, BlockKind kind) {
    if (!at(id).gone && state(id, kind) != BlockState::kArriving)
      publish(CacheEventKind::kRemoved, at(id), kind, tier(id, kind));
    drop_place(id, kind);
    if (at(id).has(BlockKind::kGlobal) || at(id).has(BlockKind::kWindow)) return;
    if (!at(id).gone) {
      const DomainId domain = at(id).domain;
      unlink(id);
      domains_.forget_if_unused(domain);
    }
    give_back(id);
  }

  // -- host memory and file --
  // A block at rest makes room in host memory: into the file, if there is one.
  void leave_host(BlockKind kind, BlockId place) {
    const StoredId id = host_.at(kind, place);
    if (write_file(id, kind, place)) return host_.free(kind, place);
    ++host_stats_.blocks_dropped;
    forget(id, kind);
  }
  bool write_file(StoredId id, BlockKind kind, BlockId from) {
    if (!file_) return false;
    const BlockId to = file_shelf_.take(kind, id, [&](BlockKind k, BlockId p) {
      ++file_stats_.blocks_dropped;
      forget(file_shelf_.at(k, p), k);
    });
    if (to == kNoBlock) return false;
    const Status written =
        file_->write(file_shelf_.offset(kind, to), host_span(kind, from), at(id).digest[index(kind)]);
    if (!written.ok()) {
      file_shelf_.free(kind, to);
      end_file(written);
      return false;
    }
    file_shelf_.rest(kind, to);
    count_move(file_stats_.blocks_in, file_stats_.bytes_in, kind);
    publish(CacheEventKind::kRemoved, at(id), kind, CacheTier::kHost);
    publish(CacheEventKind::kStored, at(id), kind, CacheTier::kFile);
    at(id).tier[index(kind)] = CacheTier::kFile;
    at(id).place[index(kind)] = to;
    return true;
  }
  // A kept block back into host memory, where it is kept. False: no room there, or its bytes are lost; it is kept where
  // it was.
  bool read_file(StoredId id, BlockKind kind, bool& lost) {
    const BlockId from = at(id).place[index(kind)];
    const BlockId to = host_.take(kind, id, [&](BlockKind k, BlockId p) { leave_host(k, p); });
    if (to == kNoBlock) return false;
    const Status read =
        file_ ? file_->read(file_shelf_.offset(kind, from), host_span(kind, to), at(id).digest[index(kind)])
              : file_status_;
    if (!read.ok()) {
      lost = true;
      host_.free(kind, to);
      if (file_ && read.code() != StatusCode::kBadModel) end_file(read);
      return false;
    }
    count_move(file_stats_.blocks_out, file_stats_.bytes_out, kind);
    publish(CacheEventKind::kRemoved, at(id), kind, CacheTier::kFile);
    publish(CacheEventKind::kStored, at(id), kind, CacheTier::kHost);
    file_shelf_.free(kind, from);
    at(id).tier[index(kind)] = CacheTier::kHost;
    at(id).place[index(kind)] = to;
    host_.use(kind, to);
    return true;
  }
  // The file is used no more; what lies in it is gone.
  void end_file(const Status& why) {
    file_status_ = why;
    file_.reset();
    for (const BlockKind kind : kBothKinds)
      for (BlockId place = 0; place < file_shelf_.arena().total(kind); ++place)
        if (file_shelf_.arena().state(kind, place) == BlockState::kCached) {
          ++file_stats_.blocks_lost;
          forget(file_shelf_.at(kind, place), kind);
        }
  }

  Domains& domains_;
  CacheEvents& events_;
  bool publish_private_, has_global_;
  std::shared_ptr<BlockFile> file_;
  Status file_status_;
  Shelf host_, file_shelf_;
  HostMemory host_bytes_;
  Buffer<Stored> stored_;
  Buffer<StoredId> buckets_;
  std::vector<StoredId> siblings_;
  StoredId free_ = kNoStored, used_ = 0, capacity_ = 0;
  int32_t stored_count_ = 0;
  uint64_t last_path_ = 0;  // 0 is the root's
  std::vector<Down> downs_;
  size_t planned_ = 0;  // of these, in the plan that was written last
  TierStats host_stats_, file_stats_;
};

inline Status Tiers::check() const {
  const auto broken = [](const std::string& what) { return internal_error("cache ledger: lower tiers: " + what); };
  KAIJU_TRY(host_.arena().check());
  KAIJU_TRY(file_shelf_.arena().check());
  int32_t linked = 0, places[2][kBlockKinds] = {};
  for (size_t d = 0; d < domains_.end(); ++d) {
    const Domain& domain = domains_.at(static_cast<DomainId>(d));
    int32_t count = 0;
    for (StoredId id = domain.first_stored; id != kNoStored; id = at(id).domain_next, ++count) {
      if (at(id).domain != static_cast<DomainId>(d) || at(id).gone)
        return broken("block " + std::to_string(id) + " is in the wrong domain");
      if (find(at(id).name, at(id).path) != id) return broken("block " + std::to_string(id) + " cannot be found");
      if (!at(id).has(BlockKind::kGlobal) && !at(id).has(BlockKind::kWindow))
        return broken("block " + std::to_string(id) + " is nowhere");
    }
    if (count != domain.stored) return broken("a domain is miscounted");
    linked += count;
  }
  for (const CacheTier tier : {CacheTier::kHost, CacheTier::kFile})
    for (const BlockKind kind : kBothKinds)
      for (BlockId place = 0; place < shelf(tier).arena().total(kind); ++place) {
        const bool used = shelf(tier).arena().state(kind, place) != BlockState::kFree;
        const StoredId id = shelf(tier).at(kind, place);
        if (used != (id != kNoStored)) return broken("place " + std::to_string(place) + " is miscounted");
        if (!used) continue;
        if (at(id).tier[index(kind)] != tier || at(id).place[index(kind)] != place)
          return broken("place " + std::to_string(place) + " is another's");
        ++places[tier == CacheTier::kFile][index(kind)];
        linked += at(id).gone && (kind == BlockKind::kGlobal || !at(id).has(BlockKind::kGlobal)) ? 1 : 0;
      }
  for (const BlockKind kind : kBothKinds)
    if (host_.arena().count(kind, BlockState::kArriving) !=
        std::count_if(downs_.begin(), downs_.end(), [&](const Down& d) { return d.kind == kind; }))
      return broken("what is on its way down is miscounted");
  for (const BlockKind kind : kBothKinds)
    if (file_shelf_.arena().used_count(kind) != places[1][index(kind)] ||
        host_.arena().used_count(kind) != places[0][index(kind)])
      return broken("places are lost");
  return linked == stored_count_ ? Status() : broken("blocks are lost");
}

}  // namespace kaiju
