// StepLimits: how much an engine computes in one step, and how many sequences it computes at once. EngineOptions
// contains these limits, and the scheduler reads them.
#pragma once

#include <cstdint>

namespace kaiju {

struct StepLimits {
  int32_t step_tokens = 0;   // most tokens a step computes; 0: as many as the executor allows
  int32_t chunk_tokens = 0;  // most prompt tokens of one sequence in a step; 0: step_tokens
  // Most prompt tokens of a step in which sequences also decode; 0: as many as step_tokens leaves room for. With a
  // small limit, the tokens of running replies arrive at a steadier pace, and new replies begin later.
  int32_t prefill_tokens = 0;
  int32_t max_running = 0;  // most sequences computed at once; 0: the executor's slot_count
  // KV memory of a sequence is reserved for this many generated tokens at a time; 0: for all of max_tokens. If no
  // memory is free for a sequence's next tokens, the sequence is suspended and resumes by itself later.
  int32_t reserve_tokens = 0;
  // Most cache blocks that prefetches bring up from host memory in a step that also computes; 0: they wait for steps
  // that compute nothing, so that they never make a running request wait.
  int32_t prefetch_blocks = 0;
};

}  // namespace kaiju
