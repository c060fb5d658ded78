// How a session is saved and restored: the callbacks that write and read its bytes, the seal, and the scope in which
// the restored KV is shared.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include "kaiju/base/function.hpp"
#include "kaiju/base/status.hpp"
#include "kaiju/cache/scope.hpp"

namespace kaiju {

using SealTag = std::array<std::byte, 32>;
// Computes a seal (a checksum or a MAC) over bytes, and returns false if it cannot. make_sealer() in kaiju.hpp makes a
// Sealer from a key.
using Sealer = Function<bool(std::span<const std::byte> bytes, SealTag& tag)>;

// Receives the next bytes of a saved session, and writes all of them or returns an error.
using SessionSink = Function<Status(std::span<const std::byte> bytes)>;
// Reads the next bytes of a saved session into the beginning of `bytes` and returns how many bytes it read. The number
// of bytes read may be less than the size of `bytes` only at the end of the saved session.
using SessionSource = Function<Result<size_t>(std::span<std::byte> bytes)>;

struct SaveOptions {
  Sealer key;      // empty: the seal is XXH3-128, which detects damage but not forgery
  bool kv = true;  // save the KV too, so that the restored session need not compute its history again
  // The seal of what comes before the session in the same bytes, to which the session's own seals are bound (a saved
  // conversation's turns); zeros: nothing.
  SealTag before{};
  // The scope whose KV of these tokens is saved; nullopt: that of the session's last request.
  std::optional<Scope> scope = std::nullopt;
};

struct RestoreOptions {
  Sealer key;  // the same as in SaveOptions
  // Says which requests may share the restored KV. If the session was saved with a key, restored KV may enter the
  // shared region of the character. Without a key, restored KV never enters the shared region, because anyone who can
  // write the file could put another text into it. A session that was restored without a key uses the KV of the shared
  // region only if that KV is already in the cache.
  Scope scope;
  SealTag before{};  // the same as in SaveOptions
};

}  // namespace kaiju
