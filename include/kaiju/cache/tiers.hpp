// Tiers: the two lower tiers of the cache, host memory and a file. KV that the prefix tree evicts from the device moves
// to host memory, and from there to the file. KV that a later prompt can use is promoted, which means copied back to
// the device (promotion.hpp). The executor copies between device and host memory as the step plan says. The BlockFile
// copies between host memory and the file during the call that needs the copy. The tiers never interpret the bytes of
// KV. The index of stored blocks is in tiers_index.hpp, and the code for host memory and the file is in tiers_file.hpp.
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
#include "kaiju/cache/detail/stored_block.hpp"
#include "kaiju/cache/detail/tier_pool.hpp"
#include "kaiju/cache/domain.hpp"
#include "kaiju/cache/events.hpp"
#include "kaiju/cache/options.hpp"
#include "kaiju/step/plan.hpp"

namespace kaiju {

// The result of Tiers::stage: whether a block's bytes are in host memory, from where the executor can copy them to the
// device.
enum class Staged {
  kReady,   // the bytes are in host memory
  kNoRoom,  // the bytes are in the file, and host memory has no room for them
  kLost,    // the bytes could not be read from the file
};

// The result of a copy of a stored block to the device.
enum class TransferEnd {
  kUnused,  // the block was not copied and stays in its tier
  kMoved,   // the block is on the device now
  kLost,    // the block's bytes are damaged
};

// Invariants, which check_tiers (invariants.hpp) recounts, in addition to those of each tier's places (tier_pool.hpp):
// - The KV of a stored block is in one lower tier, in one place there. The same KV may also be on the device if it was
//   computed again.
// - A stored block (the entry for one node of the prefix tree in the lower tiers) has a global block, a window block or
//   both. A stored block's entry is removed when it has neither a global block nor a window block any more.
// - A stored block is looked up by its name (a 128-bit hash). Since two blocks may have the same hash, the lookup then
//   compares the parent block, the domain and the tokens. No two stored blocks have the same parent, domain and tokens.
//   If a request may not use a block in the prefix tree, it does not find that block in the lower tiers either.
// - While a block is being copied from the device to host memory, its place in host memory has the state kArriving. The
//   copy ends when the step plan that contains it has run, and the block can be promoted only after that. From keep()
//   to release(), the place of a block has the state kLive.
// - If the domain of a stored block was purged during a copy of the block, the stored block is `gone`: it is not in the
//   index any more, and its entry is removed when its last copy ends.
//
// One thread at a time may use a Tiers object. The cost of a call does not depend on the number of blocks, except for
// purge, which visits every block that it removes.
class Tiers {
 public:
  // A function that allocates host memory, usually Executor::host_memory.
  using HostSource = std::function<Result<HostMemory>(size_t bytes, const char* what)>;
  // Creates the tiers and allocates all their memory. Returns kOutOfMemory if the memory is not available,
  // kInvalidArgument if a tier's size is too small for a block, and kUnsupported if the executor cannot copy blocks to
  // host memory. The prefix tree must outlive the tiers.
  static Result<std::unique_ptr<Tiers>> make(const ExecutorInfo& info, const CacheOptions& options, Domains& domains,
                                             CacheEvents& events, const HostSource& host) {
    if (info.kv_layout.empty())
      return Status(StatusCode::kUnsupported, "this executor moves no blocks to host memory: host_bytes must be 0");
    // The memory for KV is allocated first, so that no bookkeeping was allocated if this allocation fails.
    const int64_t least = std::max(info.block_bytes[BlockKind::kGlobal], info.block_bytes[BlockKind::kWindow]);
    if (least <= 0 || options.host_bytes < least)
      return invalid_argument("host_bytes is " + std::to_string(options.host_bytes) + "; a block has " +
                              std::to_string(least) + " bytes");
    if (options.file && options.file_bytes < least)
      return invalid_argument("file_bytes is " + std::to_string(options.file_bytes) + "; a block has " +
                              std::to_string(least) + " bytes");
    Result<HostMemory> bytes = host(static_cast<size_t>(options.host_bytes), "the cache's host memory");
    if (!bytes.ok()) return bytes.status();
    std::unique_ptr<Tiers> tiers(new Tiers(info, options, domains, events));
    tiers->host_memory_ = std::move(bytes).value();
    KAIJU_TRY(tiers->make_books());
    return tiers;
  }
  Tiers(const Tiers&) = delete;
  Tiers& operator=(const Tiers&) = delete;

  // -- finding --

  // Returns the stored block with exactly this parent, domain and tokens, or kNoStored if there is none. The copy of
  // the stored block's KV from the device may not have ended yet.
  StoredId find(uint64_t parent, DomainId domain, std::span<const int32_t> tokens, const BlockName& name) const {
    for (StoredId id = bucket(name); id != kNoStored; id = at(id).bucket_next) {
      const StoredBlock& stored = at(id);
      if (stored.parent == parent && stored.domain == domain && stored.count == std::ssize(tokens) &&
          std::memcmp(stored.tokens, tokens.data(), tokens.size_bytes()) == 0)
        return id;
    }
    return kNoStored;
  }
  // Returns the stored block of the tree node with this name and path number, or kNoStored if there is none.
  StoredId find(const BlockName& name, uint64_t path) const {
    StoredId id = bucket(name);
    while (id != kNoStored && at(id).path != path) id = at(id).bucket_next;
    return id;
  }
  // Returns the stored block after `parent` that has the longest common prefix with `tokens`. `count` receives the
  // length of the common prefix, at most 63 tokens. Only the newest few stored blocks after `parent` are compared.
  // `index` is the index of the block in the prompt.
  StoredId find_partial(uint64_t parent, const Regions& regions, int32_t index, std::span<const int32_t> tokens,
                        int32_t& count) const {
    StoredId best = kNoStored;
    count = 0;
    int32_t looked = 0;
    for (StoredId id = siblings(parent); id != kNoStored && looked < kSiblingsLooked;
         id = at(id).sibling_next, ++looked) {
      const StoredBlock& stored = at(id);
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
  // Returns the path number for a node that is added to the prefix tree. If the node's block is stored in a lower tier,
  // path_of() returns the stored path number; otherwise it returns a new number.
  uint64_t path_of(uint64_t parent, DomainId domain, std::span<const int32_t> tokens, const BlockName& name) {
    const StoredId id = find(parent, domain, tokens, name);
    return id == kNoStored ? ++last_path_ : at(id).path;
  }
  const StoredBlock& at(StoredId id) const { return const_cast<Tiers*>(this)->entry(id); }
  // Returns whether the stored block has a block of this kind that could be copied to the device now.
  bool ready(StoredId id, BlockKind kind) const { return id != kNoStored && at(id).has(kind) && at_rest(id, kind); }

  // -- down --

  // Stores a device block that the prefix tree evicts, if host memory has room for it. The next step plan that runs
  // copies the block's bytes to host memory before it writes any KV.
  void put(BlockKind kind, BlockId block, const BlockKey& key) {
    const StoredId known = find(key.name, key.path);
    if (known != kNoStored && at(known).has(kind)) return;
    const BlockId place = host_pool_.take(kind, kNoStored, [&](BlockKind k, BlockId p) { leave_host(k, p); });
    if (place == kNoBlock) return;
    StoredId id = find(key.name, key.path);  // making room may have removed it
    if (id == kNoStored) id = insert(key);
    if (id == kNoStored) return host_pool_.free(kind, place);
    host_pool_.assign(kind, place, id);
    StoredBlock& stored = entry(id);
    stored.tier[kind] = CacheTier::kHost;
    stored.place[kind] = place;
    stored.branch_point = stored.branch_point || key.branch_point;
    downs_.push_back({id, kind, block});
  }
  // Appends all pending copies from device to host memory to a step plan that has no transfers yet.
  void write_downs(StepPlan& plan) {
    planned_ = downs_.size();
    for (const Down& down : downs_)
      plan.transfers.push_back(
          {BlockTransfer::Way::kDown, down.kind, down.block, host(down.kind, at(down.id).place[down.kind])});
  }
  // Ends the copies from device to host memory that write_downs() has planned. downs_ran() must be called after the
  // plan has run; failed(i) tells whether transfer i of that plan failed.
  template <class Failed>
  void downs_ran(Failed failed) {
    for (size_t i = 0; i < planned_; ++i) {
      const Down down = downs_[i];
      const StoredBlock& stored = at(down.id);
      if (stored.gone || failed(i)) {
        host_stats_.blocks_lost += stored.gone ? 0 : 1;
        forget(down.id, down.kind);
        continue;
      }
      host_pool_.rest(down.kind, stored.place[down.kind]);
      count_move(host_stats_.blocks_in, host_stats_.bytes_in, down.kind);
      publish(CacheEventKind::kStored, stored, down.kind, CacheTier::kHost);
    }
    downs_.erase(downs_.begin(), downs_.begin() + static_cast<std::ptrdiff_t>(planned_));
    planned_ = 0;
  }
  // Returns whether this device block was evicted and its bytes were not copied to host memory yet.
  bool awaited(BlockKind kind, BlockId block) const {
    return std::any_of(downs_.begin(), downs_.end(),
                       [&](const Down& down) { return down.kind == kind && down.block == block; });
  }

  // -- up --

  // Keeps a stored block from being moved or removed until release() is called. ready() must be true for the block.
  void keep(StoredId id, BlockKind kind) { pool(tier(id, kind)).use(kind, at(id).place[kind]); }
  // Makes the bytes of a block available in host memory, and reads them from the file if they are there. keep() must
  // have been called for the block.
  Staged stage(StoredId id, BlockKind kind) {
    return tier(id, kind) == CacheTier::kFile ? read_file(id, kind) : Staged::kReady;
  }
  // Returns the address of a block's bytes in host memory. stage() must have returned kReady for the block.
  std::byte* host_bytes(StoredId id, BlockKind kind) { return host(kind, at(id).place[kind]); }
  // Ends the effect of keep(): the block may be moved or removed again. `end` states the result of the copy to the
  // device.
  void release(StoredId id, BlockKind kind, TransferEnd end) {
    if (end == TransferEnd::kMoved) count_move(host_stats_.blocks_out, host_stats_.bytes_out, kind);
    const bool in_file = tier(id, kind) == CacheTier::kFile, lost = end == TransferEnd::kLost || (in_file && !file_);
    if (lost) ++(in_file ? file_stats_ : host_stats_).blocks_lost;
    if (end == TransferEnd::kMoved || lost || at(id).gone)
      forget(id, kind);
    else
      pool(tier(id, kind)).rest(kind, at(id).place[kind]);
  }

  // Removes all stored blocks of this domain from the lower tiers.
  void purge(DomainId domain);

  // Appends stored events for blocks of which stored events are told, each after its parent where that is here, too.
  void list_cached(std::vector<CacheEvent>& events) const;

  // -- figures --
  TierStats stats(CacheTier which) const {
    const bool file = which == CacheTier::kFile;
    if (file && !file_) return file_stats_;
    const TierPool& pool = file ? file_pool_ : host_pool_;
    TierStats stats = file ? file_stats_ : host_stats_;
    stats.bytes = pool.bytes();
    for (const BlockKind kind : kBothKinds) stats.blocks_held[kind] = pool.places().used_count(kind);
    return stats;
  }
  // Returns an error if the file is not used any more, and the error says why. The cache then continues without the
  // file.
  const Status& file_status() const { return file_status_; }
  int32_t stored_count() const { return stored_count_; }
  size_t bookkeeping_bytes() const { return stored_.bytes() + 2 * buckets_.bytes(); }

 private:
  friend Status check_tiers(const Tiers& tiers);

  static constexpr int32_t kSiblingsLooked = 32;

  struct Down {
    StoredId id;
    BlockKind kind;
    BlockId block;
  };

  Tiers(const ExecutorInfo& info, const CacheOptions& options, Domains& domains, CacheEvents& events)
      : domains_(domains),
        events_(events),
        has_global_(info.has_global),
        file_(options.file),
        host_pool_(info, options.host_bytes),
        file_pool_(info, options.file ? options.file_bytes : 0) {}

  StoredBlock& entry(StoredId id) { return stored_.data()[id]; }
  CacheTier tier(StoredId id, BlockKind kind) const { return at(id).tier[kind]; }
  BlockState state(StoredId id, BlockKind kind) const {
    return pool(tier(id, kind)).places().state(kind, at(id).place[kind]);
  }
  bool at_rest(StoredId id, BlockKind kind) const { return state(id, kind) == BlockState::kCached; }
  TierPool& pool(CacheTier tier) { return tier == CacheTier::kFile ? file_pool_ : host_pool_; }
  const TierPool& pool(CacheTier tier) const { return tier == CacheTier::kFile ? file_pool_ : host_pool_; }
  std::byte* host(BlockKind kind, BlockId place) { return host_memory_.get() + host_pool_.offset(kind, place); }
  std::span<std::byte> host_span(BlockKind kind, BlockId place) {
    return {host(kind, place), static_cast<size_t>(host_pool_.block_bytes(kind))};
  }
  StoredId bucket(const BlockName& name) const { return const_cast<Tiers*>(this)->bucket_of(name); }
  StoredId siblings(uint64_t parent) const { return const_cast<Tiers*>(this)->siblings_of(parent); }
  StoredId& siblings_of(uint64_t parent) { return siblings_.data()[parent & (siblings_.size() - 1)]; }
  StoredId& bucket_of(const BlockName& name) { return buckets_.data()[name.low & (buckets_.size() - 1)]; }
  void count_move(uint64_t& blocks, uint64_t& bytes, BlockKind kind) const {
    ++blocks;
    bytes += static_cast<uint64_t>(host_pool_.block_bytes(kind));
  }
  // Publishes one event for a stored block when its global block moves. If the model has no global layers, the event is
  // published when the window block moves.
  void publish(CacheEventKind what, const StoredBlock& stored, BlockKind kind, CacheTier where) {
    if (kind != (has_global_ ? BlockKind::kGlobal : BlockKind::kWindow)) return;
    const bool is_private = domains_.at(stored.domain).kind != DomainKind::kShared;
    if (what == CacheEventKind::kStored)
      events_.push_stored(stored.name, parent_name(stored), stored.known_tokens(), where, is_private);
    else
      events_.push_removed(stored.name, parent_name(stored), stored.count, where, is_private);
  }
  static BlockName parent_name(const StoredBlock& stored) {
    return stored.parent == 0 ? BlockName() : stored.parent_name;
  }

  // -- the index: tiers_index.hpp --
  Status make_books();
  StoredId insert(const BlockKey& key);
  void unlink(StoredId id);
  void release_place(StoredId id);
  void drop_place(StoredId id, BlockKind kind);
  void forget(StoredId id, BlockKind kind);

  // -- host memory and the file: tiers_file.hpp --
  void leave_host(BlockKind kind, BlockId place);
  bool write_file(StoredId id, BlockKind kind, BlockId from);
  Staged read_file(StoredId id, BlockKind kind);
  void end_file(const Status& why);

  Domains& domains_;
  CacheEvents& events_;
  bool has_global_;
  std::shared_ptr<BlockFile> file_;
  Status file_status_;
  TierPool host_pool_, file_pool_;
  HostMemory host_memory_;
  Buffer<StoredBlock> stored_;
  Buffer<StoredId> buckets_;
  std::vector<StoredId> siblings_;
  StoredId free_ = kNoStored, used_ = 0, capacity_ = 0;
  int32_t stored_count_ = 0;
  uint64_t last_path_ = 0;  // 0 is the number of the root
  std::vector<Down> downs_;
  size_t planned_ = 0;  // how many of `downs_` are in the plan that was written last
  TierStats host_stats_, file_stats_;
};

}  // namespace kaiju

#include "kaiju/cache/detail/tiers_file.hpp"
#include "kaiju/cache/detail/tiers_index.hpp"
