// Code that the subcommands of kaiju-bench share: the machine's ceilings, the name of its backend, timing, and a table
// of results.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kaiju/base/detail/thread_pool.hpp"
#include "kaiju/base/status.hpp"
#include "kaiju/run/executors.hpp"

namespace CLI {
class App;
}

namespace kaiju::bench {

// What ends a subcommand: main tells it on stderr, and the exit status is 1.
struct Failed : std::runtime_error {
  explicit Failed(const Status& status) : std::runtime_error(status.message()) {}
};
template <class T>
T value_of(Result<T> result) {
  if (!result.ok()) throw Failed{result.status()};
  return std::move(result).value();
}

// The backend that `name`, "auto" say, stands for.
inline std::string backend_called(const std::string& name) { return name == "auto" ? backend_names().front() : name; }

// What the machine gives with so many threads, measured now. 0 where it cannot be measured here.
struct Ceilings {
  int32_t threads = 0;
  double read_gb_per_s = 0;  // streaming reads of memory
  double cached_gb_per_s =
      0;  // streaming reads of 32 MiB: what a small model's weights see where the last-level cache holds them
  double int8_gops = 0;    // vpdpbusd from registers, or products of tiles, 2 operations a product
  double fp32_gflops = 0;  // fused multiply-add from registers
};
// `tiles`: bytes are multiplied by AMX, which the machine has.
Ceilings measure_ceilings(ThreadPool& pool, int64_t buffer_bytes, bool tiles);

// Calls `told` with the seconds of each of many runs, which take at least `least_seconds` altogether; not with those of
// the first one, unless it takes longer than that.
template <class Work, class Told>
void repeat(double least_seconds, Work&& work, Told&& told) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int runs = 0; runs < 5 || std::chrono::duration<double>(Clock::now() - start).count() < least_seconds; ++runs) {
    const auto before = Clock::now();
    work();
    const double seconds = std::chrono::duration<double>(Clock::now() - before).count();
    if (runs > 0 || seconds > least_seconds) told(seconds);
  }
}
// Seconds of the fastest of many runs: on a shared machine that is the machine, the rest are the neighbours.
template <class Work>
double best_seconds(double least_seconds, Work&& work) {
  double best = 1e30;
  repeat(least_seconds, work, [&](double seconds) { best = seconds < best ? seconds : best; });
  return best;
}
// The median: beside programs that tell a mean.
template <class Work>
double median_seconds(double least_seconds, Work&& work) {
  std::vector<double> all;
  repeat(least_seconds, work, [&](double seconds) { all.push_back(seconds); });
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
}

// One measured line.
struct Line {
  std::string group, operation, shape;
  int32_t rows = 0;
  double microseconds = 0;
  double amount = 0;  // GOP/s, GB/s or millions a second
  std::string unit;
  double share = 0;  // of the ceiling; 0: none applies
  std::string ceiling;
};
// Of a GPU, in bytes, while a model is on it.
struct GpuMemory {
  int64_t weights = 0, cache = 0, others = 0, free = 0;
  int64_t conversation = 0;  // KV of one of `context` tokens
  int32_t context = 0;
};
void print_table(const Ceilings& ceilings, const std::vector<Line>& lines);
void print_memory(const GpuMemory& memory);
std::string to_json(const Ceilings& ceilings, const std::vector<Line>& lines, const GpuMemory& memory = {});

// Subcommands. `status` becomes the exit status: 1 when an answer is wrong. Each has a namespace of its own, so that
// quick builds can compile them together.
void add_ops(CLI::App& app, int& status);
void add_step(CLI::App& app, int& status);      // bench/step.cpp
void add_cache(CLI::App& app, int& status);     // bench/cache.cpp
void add_replay(CLI::App& app, int& status);    // bench/replay.cpp
void add_serve(CLI::App& app, int& status);     // bench/serve.cpp
void add_hour(CLI::App& app, int& status);      // bench/hour.cpp
void add_policies(CLI::App& app, int& status);  // bench/policies.cpp
void add_fleet(CLI::App& app, int& status);     // bench/fleet.cpp
void add_chains(CLI::App& app, int& status);    // bench/chains.cpp
void add_peers(CLI::App& app, int& status);     // bench/peers.cpp

}  // namespace kaiju::bench
