// StoredBlock: a block of KV in a lower tier, with its tokens. BlockKey: identifies a block there. Plain data.
#pragma once

#include <cstdint>
#include <span>

#include "kaiju/cache/domain.hpp"
#include "kaiju/cache/events.hpp"
#include "kaiju/cache/name.hpp"
#include "kaiju/step/executor_info.hpp"

namespace kaiju {

using StoredId = int32_t;
inline constexpr StoredId kNoStored = -1;

// A node of the tree as the tiers know it: 64 tokens, or the fewer of a tail. `path` is a number that no other tokens,
// in no other domain, behind no other parent ever had; `parent` is its parent's number and says the same of all that
// comes before. So comparing one block compares the whole path.
struct BlockKey {
  BlockName name, parent_name;
  uint64_t path = 0, parent = 0;
  uint64_t owner = 0;  // the session that computed it
  DomainId domain = kNoDomain;
  std::span<const int32_t> tokens;
  bool branch_point = false;  // as of the node (node.hpp)
};

// Its global block, its window block, or both: each lies in one tier or, with kDevice, in none of these.
struct StoredBlock {
  int32_t tokens[kBlockTokens];
  BlockName name, parent_name;
  PerKind<BlockName> digest;  // of the bytes in the file
  uint64_t path, parent, owner;
  DomainId domain;
  int32_t count;  // tokens
  StoredId bucket_next, domain_next, domain_previous;
  StoredId sibling_next, sibling_previous;  // newest first, among those whose parents share a bucket
  PerKind<CacheTier> tier;
  PerKind<BlockId> place;
  bool branch_point;
  bool gone;  // nobody may find it any more; a transfer still uses its place

  bool has(BlockKind kind) const { return tier[kind] != CacheTier::kDevice; }
  std::span<const int32_t> known_tokens() const { return {tokens, static_cast<size_t>(count)}; }
};

}  // namespace kaiju
