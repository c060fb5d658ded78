// Metrics: counters of an engine since its creation, and how full it is now. Plain data.
#pragma once

#include <cstdint>

#include "kaiju/base/status.hpp"
#include "kaiju/cache/options.hpp"
#include "kaiju/step/executor_info.hpp"

namespace kaiju {

struct BlockMetrics {
  int32_t total = 0;  // that there could be of this kind
  int32_t free = 0;   // not in use; where the kinds share memory, the other kind may be in it
  int32_t cached = 0, live = 0, pinned = 0;
};

struct Metrics {
  uint64_t steps = 0;
  uint64_t step_ns = 0;            // inside Executor::start and finish
  uint64_t tokens_prefilled = 0;   // computed for prompts
  uint64_t tokens_decoded = 0;     // generated
  uint64_t tokens_from_cache = 0;  // of prompts, not computed
  uint64_t requests_waiting = 0;
  uint64_t requests_running = 0;
  uint64_t requests_suspended = 0;
  uint64_t requests_done = 0;
  uint64_t requests_failed = 0;
  uint64_t sessions = 0;
  CacheStats cache;  // where prompt tokens were found, and why not
  BlockMetrics blocks[kBlockKinds];
  TierStats host, file;  // the tiers behind them
  Status file_status;    // not ok: why the file is used no more; the engine goes on without
};

}  // namespace kaiju
