// The batch sizes for which decode steps are captured as CUDA graphs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kaiju/run/slots.hpp"

namespace kaiju::cuda {

inline constexpr int32_t kMostGraphRows = 256;

// Of the largest decode step that is recorded.
inline int32_t most_graph_rows(const ExecutorSizes& sizes) {
  return sizes.graphs ? std::min({sizes.slot_count, sizes.step_tokens, kMostGraphRows}) : 0;
}

// Ascending: 1 to 8, then four to each doubling, up to `most` itself; none where that is 0.
inline std::vector<int32_t> graph_row_counts(int32_t most) {
  std::vector<int32_t> counts;
  for (int32_t rows = 1, step = 1; rows <= most; rows = rows < most ? std::min(most, rows + step) : most + 1) {
    if (rows >= 8 * step) step *= 2;
    counts.push_back(rows);
  }
  return counts;
}

}  // namespace kaiju::cuda
