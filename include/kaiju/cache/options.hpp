// CacheOptions: the settings of the prefix cache. CacheStats: which prompt tokens were found in the cache, and why
// others were not. TierStats: what a lower tier stores and how much was moved.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kaiju/cache/detail/block_file.hpp"
#include "kaiju/step/kinds.hpp"

namespace kaiju {

// At which positions window blocks are kept. A prompt can resume only where they are kept, so this decides the hit
// rate. Kept blocks are not pinned: when room is needed, other window blocks are evicted first, then the least recently
// used kept ones.
struct Retention {
  // For this many newest turns of each session: where the prompt ended (for another reply) and where the reply ended
  // (for the next turn).
  int32_t turns = 2;
  bool branch_points = true;  // at the end of a shared region, and where sequences have branched
  int32_t every_tokens = 0;   // also at every multiple of this many positions; 0: off
};

struct CacheOptions {
  std::string identity;  // everything that all KV depends on: checkpoint digest, arithmetic version
  std::string key;       // key of the block names; the same key gives the same names in another process
  Retention retention;
  // How many names of evicted blocks to remember, so that misses of evicted blocks can be told from new ones. 8 bytes
  // each; 0: four for each block.
  int64_t evicted_names = 0;
  size_t event_capacity = 0;     // 0: no events
  bool publish_private = false;  // also report events for blocks outside shared regions

  // Lower tiers: KV that is evicted from the executor's blocks moves to host memory, and from there to a file.
  int64_t host_bytes = 0;           // size of the host memory, allocated at creation; 0: no lower tiers
  std::shared_ptr<BlockFile> file;  // the file; needs host_bytes; null: no file
  int64_t file_bytes = 0;           // most bytes of KV in the file
};

// Counts of prompt tokens by where their KV was found or why not. They add up to prompt_tokens, except for prompts that
// are not computed yet or were abandoned.
struct CacheStats {
  uint64_t prompt_tokens = 0;
  uint64_t hit_shared = 0;    // found in a shared region (a character's prompt)
  uint64_t hit_own = 0;       // found; the same session had computed the KV
  uint64_t hit_other = 0;     // found; another session with the same salt had computed the KV
  uint64_t miss_new = 0;      // never seen, as far as the remembered names tell
  uint64_t miss_evicted = 0;  // was cached and was evicted
  // Global KV is cached, but no resume point is near: computed again, without writing global KV again.
  uint64_t miss_window = 0;
  uint64_t miss_last = 0;  // the last token of a prompt that was found whole; it is always computed again
  uint64_t hit_host = 0;   // the hits that were promoted from host memory
  uint64_t hit_file = 0;   // the hits that were promoted from the file
  PerKind<uint64_t> blocks_evicted;

  uint64_t hits() const { return hit_shared + hit_own + hit_other; }
};

// Statistics of one lower tier. Counts are of both kinds of block together, except blocks_held.
struct TierStats {
  int64_t bytes = 0;  // size of the tier; 0: there is no such tier
  PerKind<int32_t> blocks_held;
  uint64_t blocks_in = 0, bytes_in = 0;    // moved into this tier from the tier above
  uint64_t blocks_out = 0, bytes_out = 0;  // promoted from this tier
  uint64_t blocks_dropped = 0;             // removed to make room
  uint64_t blocks_lost = 0;                // lost to failed transfers and to damage
};

}  // namespace kaiju
