// KvCounts: how often the bytes of keys and values had which magnitude, channel by channel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kaiju/step/kinds.hpp"

namespace kaiju {

struct KvCounts {
  // Bin b below 32 counts magnitudes from 4b to 4b + 3; the last bin counts 127, which stands for the clip and all that
  // is beyond it (so bin 31 has 124 to 126).
  static constexpr int32_t kBins = 33;
  static constexpr int32_t bin_of(int32_t byte) {
    const int32_t magnitude = byte < 0 ? -byte : byte;
    return magnitude >= 127 ? kBins - 1 : magnitude / 4;
  }

  struct Slot {
    BlockKind kind = BlockKind::kGlobal;
    std::vector<uint32_t> keys, values;  // [kv_width, kBins]
  };
  std::vector<Slot> slots;  // by KV slot

  void add_slot(BlockKind kind, int32_t kv_width) {
    const size_t bins = static_cast<size_t>(kv_width) * kBins;
    slots.push_back({kind, std::vector<uint32_t>(bins), std::vector<uint32_t>(bins)});
  }
  void add(const KvCounts& other) {
    for (size_t s = 0; s < slots.size(); ++s) {
      add(other.slots[s].keys, slots[s].keys);
      add(other.slots[s].values, slots[s].values);
    }
  }
  void clear() {
    for (Slot& slot : slots) {
      std::fill(slot.keys.begin(), slot.keys.end(), 0);
      std::fill(slot.values.begin(), slot.values.end(), 0);
    }
  }

 private:
  static void add(std::span<const uint32_t> from, std::span<uint32_t> to) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  }
};

}  // namespace kaiju
