// Machine: bytes of KV and seconds of a step for a model that is not run. The seconds are modelled
// (docs/performance.md, "Replay").
#pragma once

#include <algorithm>
#include <numeric>

#include "bench/replay/bounds.hpp"
#include "kaiju/format/config.hpp"
#include "kaiju/run/slots.hpp"

namespace kaiju::replay {

// A step takes the longer of reading the weights and multiplying with them, and then reads the KV that its decode rows
// see.
struct StepCost {
  double weights_seconds = 3.55e-3;  // the design's figures for preset `small` on one H200
  double row_seconds = 1 / 42e3;     // a prefilled token, or a decoded one
  double kv_bytes_per_second = 3.3e12;
  double transfer_bytes_per_second = 25e9;  // between device and host memory, both ways together: PCIe 4, 16 lanes
  double global_read_bytes = 0;  // a visible token, all global layers: a KV slot is read by every layer that shares it
  double window_read_bytes = 0;  // a token in the window, all layers with one
  int32_t window = 0;

  double seconds(int32_t rows, int64_t global_tokens, int64_t window_tokens, int64_t transfer_bytes) const {
    return static_cast<double>(transfer_bytes) / transfer_bytes_per_second +
           (rows > 0 ? seconds(rows, global_tokens, window_tokens) : 0);
  }
  double seconds(int32_t rows, int64_t global_tokens, int64_t window_tokens) const {
    return std::max(weights_seconds, rows * row_seconds) + (static_cast<double>(global_tokens) * global_read_bytes +
                                                            static_cast<double>(window_tokens) * window_read_bytes) /
                                                               kv_bytes_per_second;
  }
};

inline StepCost step_cost(const ModelConfig& config) {
  StepCost cost;
  const double bytes = 2.0 * config.kv_width();
  for (const LayerConfig& layer : config.layers) {
    (layer.kind == LayerKind::kGlobal ? cost.global_read_bytes : cost.window_read_bytes) += bytes;
    cost.window = std::max(cost.window, layer.window);
  }
  return cost;
}

inline ExecutorInfo facts_without_memory(const ModelConfig& config, int32_t slot_count, int32_t step_tokens) {
  ExecutorSizes sizes;
  sizes.slot_count = slot_count, sizes.step_tokens = step_tokens, sizes.kv_layout = "replay";
  Slots slots;
  slots.create(config, sizes);
  return slots.info();
}

// Gives the kinds one memory for KV, in slabs of whole blocks of either kind.
inline void give_memory(ExecutorInfo& info, double bytes) {
  const auto [global, window] = info.block_bytes.values;
  const int64_t slab = global > 0 && window > 0 ? std::lcm(global, window) : std::max(global, window);
  for (const BlockKind kind : kBothKinds) {
    if (info.block_bytes[kind] == 0) continue;
    const int64_t per_slab = slab / info.block_bytes[kind];
    info.block_count[kind] = static_cast<int32_t>(static_cast<int64_t>(bytes) / slab * per_slab);
    if (global > 0 && window > 0) info.slab_blocks[kind] = static_cast<int32_t>(per_slab);
  }
}

inline KvSizes kv_sizes(const ExecutorInfo& info) {
  return {static_cast<double>(info.block_bytes[BlockKind::kGlobal]) / kBlockTokens,
          static_cast<double>(info.block_bytes[BlockKind::kWindow]) / kBlockTokens, info.window};
}

}  // namespace kaiju::replay
