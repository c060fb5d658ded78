// ReuseReport: how much of one request's prompt was found in the cache, and why it was not more. A report says nothing
// about KV that the request may not share: what other scopes hold looks like text that nobody has computed.
#pragma once

#include <cstdint>

namespace kaiju {

// Why the cached part of a prompt ends where it ends. The enumerators have the same values as in the C header.
enum class ReuseEnd : int32_t {
  kNone = 0,        // the request has not started
  kWhole = 1,       // only the last token is left, which is always computed
  kDifferent = 2,   // the cached text goes on with another token
  kNew = 3,         // the prompt goes on where the cached text ends
  kEvicted = 4,     // the next KV was here and was evicted
  kNoWindow = 5,    // the global KV goes on, but the window KV here is not in the cache
  kOtherScope = 6,  // the session's request before named another character, salt or length of the shared region
  kNoRoom = 7,      // memory was so short that cached KV of the prompt had to be evicted
};

// RequestCounts::cached_tokens says how many tokens were found and used.
struct ReuseReport {
  ReuseEnd end = ReuseEnd::kNone;  // why cached_tokens is no larger
  // The first tokens of the prompt that agree with the cache, usable or not. What another request was computing at the
  // start counts; if that request then left, cached_tokens is smaller.
  int32_t known_tokens = 0;
  ReuseEnd known_end = ReuseEnd::kNone;  // why known_tokens is no larger; never kNoWindow
};

}  // namespace kaiju
