// Namer: computes the names of blocks (block_name.hpp).
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "kaiju/cache/block_name.hpp"
#include "kaiju/step/executor_info.hpp"

namespace kaiju {

// Names are keyed hashes: without the key nobody can compute a block's name from its tokens. The hash is XXH3-128 with
// a secret derived from the key. It distinguishes blocks; it does not authenticate them.
class Namer {
 public:
  // `identity`: everything that all KV depends on, such as checkpoint digest, scale epoch and arithmetic version.
  Namer(std::string_view key, std::string_view identity) {
    XXH3_generateSecret(secret_.data(), secret_.size(), key.data(), key.size());
    root_ = of(identity);
  }
  const BlockName& root() const { return root_; }
  BlockName of(std::string_view text) const { return hash(text.data(), text.size()); }
  // Name of the block with these `count` tokens that follows block `parent`, in the domain named `domain`.
  BlockName of(const BlockName& parent, const BlockName& domain, const int32_t* tokens, int32_t count) const {
    struct {
      BlockName parent, domain;
      int32_t tokens[kBlockTokens];
    } text;
    text.parent = parent;
    text.domain = domain;
    std::memcpy(text.tokens, tokens, static_cast<size_t>(count) * sizeof(int32_t));
    return hash(&text, 2 * sizeof(BlockName) + static_cast<size_t>(count) * sizeof(int32_t));
  }

 private:
  BlockName hash(const void* bytes, size_t size) const {
    const XXH128_hash_t out = XXH3_128bits_withSecret(bytes, size, secret_.data(), secret_.size());
    return {out.low64, out.high64};
  }
  std::array<unsigned char, XXH3_SECRET_SIZE_MIN + 56> secret_{};
  BlockName root_;
};

}  // namespace kaiju
