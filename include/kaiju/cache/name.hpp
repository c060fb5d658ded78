// Namer: computes the names of cache blocks (block_name.hpp).
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

// A block's name is a keyed hash: without the key nobody can compute the name from the block's tokens. The hash is
// XXH3-128 with a secret derived from the key. The name distinguishes blocks; it does not authenticate them.
class Namer {
 public:
  // `identity` is a text that states everything that all KV depends on, such as the checkpoint's digest, the version of
  // its scales and the version of the arithmetic.
  Namer(std::string_view key, std::string_view identity) {
    XXH3_generateSecret(secret_.data(), secret_.size(), key.data(), key.size());
    root_ = of(identity);
  }
  const BlockName& root() const { return root_; }
  BlockName of(std::string_view text) const { return hash(text.data(), text.size()); }
  // Returns the name of the block that has these `count` tokens, follows the block named `parent`, and belongs to the
  // domain named `domain`.
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
