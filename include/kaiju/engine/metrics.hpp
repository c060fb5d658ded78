// Metrics: counters of an engine since its creation, and its current load. Metrics is plain data.
#pragma once

#include <cstdint>

#include "kaiju/base/status.hpp"
#include "kaiju/cache/options.hpp"
#include "kaiju/step/executor_info.hpp"

namespace kaiju {

struct BlockMetrics {
  int32_t total = 0;  // most blocks of this kind
  int32_t free = 0;   // blocks not in use; if the kinds share memory, the other kind may occupy their place
  int32_t cached = 0, live = 0, pinned = 0;
};

struct Metrics {
  uint64_t steps = 0;
  uint64_t step_ns = 0;            // time inside Executor::start and finish
  uint64_t tokens_prefilled = 0;   // prompt tokens that were computed
  uint64_t tokens_decoded = 0;     // tokens that were generated
  uint64_t tokens_from_cache = 0;  // prompt tokens whose KV was found in the cache
  uint64_t requests_waiting = 0;
  uint64_t requests_running = 0;
  uint64_t requests_suspended = 0;
  uint64_t requests_done = 0;
  uint64_t requests_failed = 0;
  uint64_t sessions = 0;
  CacheStats cache;  // where the KV of prompt tokens was found, or why it was not
  PerKind<BlockMetrics> blocks;
  TierStats host, file;  // the lower tiers
  Status file_status;    // if not ok: why the file is not used any more; the engine continues without it
};

}  // namespace kaiju
