// ShareLimits: what a tenant or a character is promised of an engine, and the most that it may take.
#pragma once

#include <cstdint>

namespace kaiju {

// Whose share it is: that of a tenant (Scope::tenant) or of a character's shared region (Scope::character).
enum class ShareOf : int32_t { kTenant = 1, kCharacter = 2 };

// Memory is bytes of cache blocks on the device: those of a tenant's own KV, behind shared regions, or those of a
// character's shared region. Steps are tokens computed in each step, and places among the sequences that run.
struct ShareLimits {
  // While the share has so many bytes or fewer, no request of another share evicts any of its KV. 0: no floor.
  int64_t cache_floor_bytes = 0;
  // What is above goes first, and a request of the share makes room for itself by evicting KV of the share. Blocks that
  // running requests use may exceed it. 0: no ceiling.
  int64_t cache_ceiling_bytes = 0;
  // The part, from 0 to 1, of each step's tokens and of all running sequences' places that the share gets if it asks
  // for so much. Places are kept free for it. 0: no floor.
  double step_floor = 0;
  // The most that it gets, whether others ask or not; at least one token and one place. 0: no ceiling.
  double step_ceiling = 0;

  bool operator==(const ShareLimits&) const = default;
  bool any() const { return cache_floor_bytes > 0 || cache_ceiling_bytes > 0 || step_floor > 0 || step_ceiling > 0; }
};

// What a share has now, and has taken.
struct ShareUsage {
  int64_t cache_bytes = 0;       // of blocks on the device that hold its KV
  int32_t running = 0;           // sequences
  uint64_t tokens_computed = 0;  // in steps, since the share was set
};

}  // namespace kaiju
