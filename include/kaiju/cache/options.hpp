// CacheOptions: the settings of the prefix cache. CacheStats: how many prompt tokens were found in the cache, and why
// the other prompt tokens were not found. TierStats: how many blocks a lower tier (host memory or a file) stores, and
// how many blocks were moved into and out of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kaiju/cache/detail/block_file.hpp"
#include "kaiju/step/kinds.hpp"

namespace kaiju {

// Retention: the positions before which the cache retains the window blocks (KV of sliding-window layers) of a
// sequence (resume points). A later prompt can reuse cached KV only up to such a position. Retained window blocks are
// not pinned. While memory is idle, every window block stays. If the cache needs room, it evicts window blocks that are
// not retained first, and then gives up the resume point that is worth least (detail/reuse_curves.hpp). The defaults
// suit all traffic that we know; other values are bounds.
struct Retention {
  // Resume points of at most this many newest turns of a session: at the end of the turn's prompt (so that another
  // reply can be generated), at the end of the reply (so that the next turn can begin), and at some distances before
  // them. kAllTurns: as many as memory has room for.
  static constexpr int32_t kAllTurns = INT32_MAX;
  int32_t turns = kAllTurns;
  bool branch_points = true;  // at the end of a shared region, and where sequences have branched
  int32_t every_tokens = 0;   // also at every multiple of this many positions; 0: off
};

struct CacheOptions {
  std::string identity;  // everything that all KV depends on: checkpoint digest, arithmetic version
  uint64_t epoch = 0;    // which scales of keys and values (Checkpoint::scale_epoch)
  std::string key;       // key of the block names; the same key gives the same names in another process
  Retention retention;
  // The number of names of evicted blocks that the cache remembers, so that it can tell misses of evicted blocks from
  // misses of new blocks, and learn what is used again. Each remembered name takes 8 bytes. If evicted_names is 0, the
  // cache remembers four names for each block.
  int64_t evicted_names = 0;
  // Cache events for routers (events.hpp): how many may wait to be polled; 0: none are recorded.
  size_t event_capacity = 0;
  bool event_tokens = false;     // stored events have the tokens of their block
  bool publish_private = false;  // also report events for blocks outside shared regions

  // Settings of the lower tiers: KV that is evicted from the executor's blocks moves to host memory, and KV that is
  // evicted from host memory moves to a file.
  int64_t host_bytes = 0;           // size of the host memory, allocated at creation; 0: no lower tiers
  std::shared_ptr<BlockFile> file;  // the file; needs host_bytes; null: no file
  int64_t file_bytes = 0;           // most bytes of KV in the file
};

// Counts of prompt tokens by where their KV was found or why it was not found. The hit_shared, hit_own, hit_other and
// miss counts add up to prompt_tokens, except for the tokens of prompts that are not completely computed yet or were
// abandoned.
struct CacheStats {
  uint64_t prompt_tokens = 0;
  uint64_t hit_shared = 0;    // found in a shared region (a character's prompt)
  uint64_t hit_own = 0;       // found; the same session had computed the KV
  uint64_t hit_other = 0;     // found; another session with the same salt had computed the KV
  uint64_t miss_new = 0;      // never seen, as far as the remembered names tell
  uint64_t miss_evicted = 0;  // was cached and was evicted
  // miss_window counts prompt tokens whose global KV is cached and whose window KV is not. These tokens are computed
  // again, but their global KV is not written again.
  uint64_t miss_window = 0;
  uint64_t miss_last = 0;  // the last token of a prompt that was found whole; it is always computed again
  uint64_t hit_host = 0;   // the hits that were promoted from host memory
  uint64_t hit_file = 0;   // the hits that were promoted from the file
  PerKind<uint64_t> blocks_evicted;
  uint64_t blocks_over_floors = 0;  // of these, evicted although a share was promised more (ShareLimits)

  uint64_t hits() const { return hit_shared + hit_own + hit_other; }
};

// The statistics of one lower tier. Each count is the sum over both kinds of block, except blocks_held, which is per
// kind.
struct TierStats {
  int64_t bytes = 0;  // size of the tier; 0: there is no such tier
  PerKind<int32_t> blocks_held;
  uint64_t blocks_in = 0, bytes_in = 0;    // moved into this tier from the tier above
  uint64_t blocks_out = 0, bytes_out = 0;  // promoted from this tier
  uint64_t blocks_dropped = 0;             // removed to make room
  uint64_t blocks_lost = 0;                // lost to failed transfers and to damage
};

}  // namespace kaiju
