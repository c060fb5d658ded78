// StepLimits: how much an engine computes in one step, and how many sequences it computes at once. EngineOptions
// contains these limits, and the scheduler reads them.
#pragma once

#include <cstdint>

namespace kaiju {

struct StepLimits {
  int32_t step_tokens = 0;     // most tokens a step computes; 0: as many as the executor allows
  int32_t chunk_tokens = 0;    // most prompt tokens of one sequence in a step; 0: step_tokens
  int32_t prefill_tokens = 0;  // most prompt tokens of a step in which sequences also decode; 0: all that step_tokens
                               // leaves. A smaller number makes tokens come more evenly, and replies begin later
  int32_t max_running = 0;     // sequences computed at once; 0: the executor's slot_count
  int32_t reserve_tokens = 0;  // memory is reserved for so many generated tokens at a time; 0: for all of max_tokens.
                               // A sequence that finds no memory for its next part is suspended; it resumes by itself
};

}  // namespace kaiju
