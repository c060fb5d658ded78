// CacheOptions: the settings of the cache. CacheStats: what it found, and why it did not find the rest. TierStats: what
// a lower tier holds and has moved.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kaiju/cache/detail/block_file.hpp"
#include "kaiju/step/kinds.hpp"

namespace kaiju {

// Where window blocks are kept: this decides where prompts can be resumed, and so the hit rate. They are kept, not
// pinned: when room is needed, those that no setting asks for are evicted first, then the least recently used.
struct Retention {
  // Of a session's newest turns: where the prompt ended (for a swipe) and where the reply ended (for the next turn).
  int32_t turns = 2;
  bool branch_points = true;  // where a shared region ends, and where sequences were seen to branch
  int32_t every_tokens = 0;   // besides, every so many positions; 0: off
};

struct CacheOptions {
  std::string identity;  // what all KV depends on: checkpoint digest, arithmetic version
  std::string key;       // of the names; the same key gives the same names in another process
  Retention retention;
  // Names of evicted blocks that are remembered, to tell their misses from new ones: 8 bytes each; 0: four a block.
  int64_t evicted_names = 0;
  size_t event_capacity = 0;     // 0: no events
  bool publish_private = false;  // events for blocks behind a salt too

  // Tiers behind the executor's blocks: what is evicted there moves into host memory, and from there into a file.
  int64_t host_bytes = 0;           // taken at creation, never more; 0: no tiers
  std::shared_ptr<BlockFile> file;  // wants host memory before it; null: none
  int64_t file_bytes = 0;           // that the file may hold
};

// Prompt tokens, by what happened to them. Sums to prompt_tokens, but for prompts that are not yet computed or were
// given up.
struct CacheStats {
  uint64_t prompt_tokens = 0;
  uint64_t hit_shared = 0;    // found in a shared region (a character's prompt)
  uint64_t hit_own = 0;       // found, and this session had computed it
  uint64_t hit_other = 0;     // found, computed by another session under the same salt
  uint64_t miss_new = 0;      // never seen, as far as is remembered
  uint64_t miss_evicted = 0;  // was here and was evicted
  uint64_t miss_window = 0;   // global KV is here, but no resume point near: computed again behind the write mask
  uint64_t miss_last = 0;     // a prompt found whole computes its last token again
  uint64_t hit_host = 0;      // of the hits, those that had to come from host memory
  uint64_t hit_file = 0;      // and those for which the file had to be read
  PerKind<uint64_t> blocks_evicted;

  uint64_t hits() const { return hit_shared + hit_own + hit_other; }
};

// One lower tier. Counts of both kinds together, except what it holds.
struct TierStats {
  int64_t bytes = 0;  // of its places; 0: there is no such tier
  PerKind<int32_t> blocks_held;
  uint64_t blocks_in = 0, bytes_in = 0;    // from the tier above
  uint64_t blocks_out = 0, bytes_out = 0;  // back to it
  uint64_t blocks_dropped = 0;             // to make room
  uint64_t blocks_lost = 0;                // to transfers that failed and to damage
};

}  // namespace kaiju
