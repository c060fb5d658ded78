// BlockName: 128 bits that chain over everything a block's KV depends on. Names find blocks in the tree and name them
// outside (events, lower tiers, saved state); whether two blocks are the same is always decided by comparing tokens.
#pragma once

#include <cstdint>

namespace kaiju {

struct BlockName {
  uint64_t low = 0, high = 0;
  friend bool operator==(const BlockName&, const BlockName&) = default;
};

}  // namespace kaiju
