// BlockName: a 128-bit hash, chained over everything that a block's KV depends on. Names find blocks in the prefix tree
// and identify them in events, lower tiers and saved sessions. Whether two blocks are equal is always decided by
// comparing their tokens.
#pragma once

#include <cstdint>

namespace kaiju {

struct BlockName {
  uint64_t low = 0, high = 0;
  friend bool operator==(const BlockName&, const BlockName&) = default;
};

}  // namespace kaiju
