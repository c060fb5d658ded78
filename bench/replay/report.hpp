// Report: the results of a replay, as a table for readers and as JSON for programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/replay/drive.hpp"

namespace kaiju::replay {

// Shares are of the prompt tokens of measured requests.
struct Point {
  double memory_share = 0;  // of what all conversations hold at the end
  double memory_bytes = 0;
  double infinite = 0;           // a cache that forgets nothing
  double farthest_next_use = 0;  // bounds.hpp
  double priced = 0;
  double belady = 0;  // the smaller of these two
  Figures engine;
};

struct Report {
  std::string source;   // one line: what was replayed
  std::string machine;  // one line: on what
  PerKind<double> block_bytes;
  double footprint_bytes = 0;
  uint64_t requests = 0, prompt_tokens = 0;
  int32_t checked = 0, differing = 0;  // replies computed again alone
  std::vector<Point> points;
};

std::string to_table(const Report& report);
std::string to_json(const Report& report);

}  // namespace kaiju::replay
