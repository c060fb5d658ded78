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

// Keyed: without the key nobody can tell from tokens what a block is called. XXH3-128 with a secret derived from the
// key; it tells names apart, it is not meant to authenticate.
class Namer {
 public:
  // `identity`: checkpoint digest, scale epoch, arithmetic version, whatever else all KV depends on.
  Namer(std::string_view key, std::string_view identity) {
    XXH3_generateSecret(secret_.data(), secret_.size(), key.data(), key.size());
    root_ = of(identity);
  }
  const BlockName& root() const { return root_; }
  BlockName of(std::string_view text) const { return hash(text.data(), text.size()); }
  // The block of `count` tokens that follows `parent`, in the domain called `domain`.
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
