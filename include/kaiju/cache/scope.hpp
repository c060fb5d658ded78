// Scope: which other requests may share a request's KV.
#pragma once

#include <cstdint>
#include <string>

namespace kaiju {

struct Scope {
  std::string character;      // names the shared region: character id and version; may be empty
  int32_t shared_tokens = 0;  // length of the shared region, from the prompt's first token; may end within a block
  // A secret: requests with the same salt share the KV after the shared region; empty: only this session and its forks.
  std::string salt;
};

}  // namespace kaiju
