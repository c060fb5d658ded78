// How a session is saved and restored: the callbacks that carry its bytes, and who may read them.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "kaiju/base/function.hpp"
#include "kaiju/base/status.hpp"
#include "kaiju/cache/scope.hpp"

namespace kaiju {

using SealTag = std::array<std::byte, 32>;
// Computes a seal (a checksum or a MAC) over bytes; false if it cannot. make_sealer() in kaiju.hpp makes one from a
// key.
using Sealer = Function<bool(std::span<const std::byte> bytes, SealTag& tag)>;

// Writes all the bytes, or returns an error.
using SessionSink = Function<Status(std::span<const std::byte> bytes)>;
// Fills the beginning of `bytes` and returns how many it filled: fewer than all only at the end of what was saved.
using SessionSource = Function<Result<size_t>(std::span<std::byte> bytes)>;

struct SaveOptions {
  Sealer key;      // empty: the seal is XXH3-128, which detects damage but not forgery
  bool kv = true;  // save the KV too, so that the restored session need not compute its history again
};

struct RestoreOptions {
  Sealer key;  // the same as in SaveOptions
  // Who may share the KV. With a key, restored KV may enter the character's shared region. Without one it may not,
  // since anyone who can write the file could put other text there; the region is then used only if the cache has it
  // already.
  Scope scope;
};

}  // namespace kaiju
