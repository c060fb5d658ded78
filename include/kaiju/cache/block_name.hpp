// BlockName: a 128-bit hash over everything that the KV of a cache block depends on: the block's tokens, the name of
// the block before it, and more (name.hpp). The prefix tree finds blocks by their names. Cache events, lower tiers and
// saved sessions identify blocks by their names. Whether two blocks are equal is always decided by comparing their
// tokens.
#pragma once

#include <cstdint>

namespace kaiju {

struct BlockName {
  uint64_t low = 0, high = 0;
  friend bool operator==(const BlockName&, const BlockName&) = default;
};

}  // namespace kaiju
