// Metrics: counters of an engine since its creation, and how full it is now. Plain data.
#pragma once

#include <cstdint>

#include "kaiju/step/facts.hpp"

namespace kaiju {

struct BlockMetrics {
  int32_t total = 0;
  int32_t free = 0;
  int32_t reserved = 0;  // of the free ones, promised to running requests
};

struct Metrics {
  uint64_t steps = 0;
  uint64_t step_ns = 0;            // inside Executor::run
  uint64_t tokens_prefilled = 0;   // computed for prompts
  uint64_t tokens_decoded = 0;     // generated
  uint64_t tokens_from_cache = 0;  // of prompts, not computed
  uint64_t requests_waiting = 0;
  uint64_t requests_running = 0;
  uint64_t requests_done = 0;
  uint64_t requests_failed = 0;
  uint64_t sessions = 0;
  uint64_t sessions_dropped = 0;  // times an idle session's KV made room for others
  BlockMetrics blocks[kBlockKinds];
};

}  // namespace kaiju
