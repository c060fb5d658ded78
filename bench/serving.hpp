// Code that kaiju-bench serve and hour share: an engine, statistics of times, and replies that are computed again
// alone.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench.hpp"
#include "bench/replay/drive.hpp"
#include "examples/tools/standard_streams.hpp"
#include "kaiju/step/executor.hpp"

namespace kaiju::bench {

// Numbers of one kind.
struct Quantiles {
  std::vector<double> values;
  double at(double quantile) {
    if (values.empty()) return 0;
    const auto place =
        values.begin() + static_cast<std::ptrdiff_t>(std::min(
                             values.size() - 1, static_cast<size_t>(quantile * static_cast<double>(values.size()))));
    std::nth_element(values.begin(), place, values.end());
    return *place;
  }
};

inline std::unique_ptr<Engine> make_engine(std::unique_ptr<Executor> executor, int64_t host_bytes,
                                           int32_t prefill_tokens = 0) {
  EngineOptions settings;
  settings.max_waiting = settings.max_sessions = 1 << 20;
  settings.cache.host_bytes = host_bytes;
  settings.prefill_tokens = prefill_tokens;
  return value_of(Engine::create(std::move(executor), nullptr, settings));
}
inline std::unique_ptr<Engine> make_engine(const std::shared_ptr<const Checkpoint>& checkpoint,
                                           const ExecutorOptions& making, int64_t host_bytes,
                                           int32_t prefill_tokens = 0) {
  return make_engine(value_of(make_executor(checkpoint, making)), host_bytes, prefill_tokens);
}

// Fails unless an engine made the same way, but with one slot and no cache, gives the same replies.
inline void check_alone(const std::vector<replay::Sample>& samples, const std::shared_ptr<const Checkpoint>& checkpoint,
                        ExecutorOptions making) {
  making.slot_count = 1;
  making.cache_bytes = 0;
  const std::unique_ptr<Engine> alone = make_engine(checkpoint, making, 0);
  if (const int32_t differing = value_of(replay::count_differing(samples, *alone)); differing > 0)
    throw Failed{internal_error(
        fmt::format("{} of {} replies differ from those of each conversation alone, so no times are reported",
                    differing, samples.size()))};
}

inline void print(const std::string& name, const std::string& value) { tools::print("  {:<34}{:>40}\n", name, value); }

inline std::string describe(const replay::Steps& steps) {
  if (steps.count == 0) return "none";
  const auto count = static_cast<double>(steps.count);
  return fmt::format("{} of {:.2f} ms, {:.1f} + {:.1f} tokens", steps.count, 1e3 * steps.seconds / count,
                     static_cast<double>(steps.decoded) / count, static_cast<double>(steps.prefilled) / count);
}
inline nlohmann::ordered_json json_of(const replay::Steps& steps) {
  return {
      {"count", steps.count}, {"generated", steps.decoded}, {"prefilled", steps.prefilled}, {"seconds", steps.seconds}};
}

}  // namespace kaiju::bench
