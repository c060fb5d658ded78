// Checks of numbers that a host gives, and what a StepLimits stands for on an executor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "kaiju/base/status.hpp"
#include "kaiju/engine/step_limits.hpp"
#include "kaiju/step/executor_info.hpp"

namespace kaiju {

// kInvalidArgument names the number and its range.
inline Status check_in_range(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return invalid_argument(std::string(name) + " is " + std::to_string(value) + "; it must be from " +
                          std::to_string(low) + " to " + std::to_string(high));
}

// The limits with every 0 replaced by what it stands for. kInvalidArgument names the one that is out of range.
inline Result<StepLimits> resolve(const StepLimits& asked, const ExecutorInfo& info) {
  KAIJU_TRY(check_in_range("step_tokens", asked.step_tokens, 0, info.step_tokens));
  KAIJU_TRY(check_in_range("chunk_tokens", asked.chunk_tokens, 0, info.step_tokens));
  KAIJU_TRY(check_in_range("prefill_tokens", asked.prefill_tokens, 0, info.step_tokens));
  if (asked.max_running < 0 || asked.max_running > info.slot_count)
    return invalid_argument("max_running is " + std::to_string(asked.max_running) +
                            "; the executor has slots for 0 to " + std::to_string(info.slot_count) +
                            " (ExecutorOptions::slot_count)");
  KAIJU_TRY(check_in_range("reserve_tokens", asked.reserve_tokens, 0, INT32_MAX));
  KAIJU_TRY(check_in_range("prefetch_blocks", asked.prefetch_blocks, 0, INT32_MAX));
  StepLimits limits = asked;
  if (limits.step_tokens == 0) limits.step_tokens = info.step_tokens;
  limits.chunk_tokens =
      limits.chunk_tokens > 0 ? std::min(limits.chunk_tokens, limits.step_tokens) : limits.step_tokens;
  if (limits.prefill_tokens == 0) limits.prefill_tokens = limits.step_tokens;
  if (limits.max_running == 0) limits.max_running = info.slot_count;
  return limits;
}

}  // namespace kaiju
