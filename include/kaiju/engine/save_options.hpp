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
// Computes the seal of some bytes; false when it cannot. kaiju.hpp makes one from a key.
using Sealer = Function<bool(std::span<const std::byte> bytes, SealTag& tag)>;

// Takes all the bytes, or says why not.
using SessionSink = Function<Status(std::span<const std::byte> bytes)>;
// Fills the beginning of `bytes` and says how much; less than all only where what was saved ends.
using SessionSource = Function<Result<size_t>(std::span<std::byte> bytes)>;

struct SaveOptions {
  Sealer key;      // empty: damage is noticed (XXH3-128), forgery is not
  bool kv = true;  // the KV of what is computed, too: restored, the session goes on without computing its history again
};

struct RestoreOptions {
  Sealer key;  // the one it was saved with
  // Who may share the KV. With a key it may enter the character's shared region; without, that region is only used
  // where it is known already, for whoever can write the file could put any words behind it.
  Scope scope;
};

}  // namespace kaiju
