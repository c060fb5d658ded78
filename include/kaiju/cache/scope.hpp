// Scope: states which other requests may share the KV of a request.
#pragma once

#include <cstdint>
#include <string>

namespace kaiju {

struct Scope {
  std::string character;      // names the shared region: character id and version; may be empty
  int32_t shared_tokens = 0;  // length of the shared region, from the prompt's first token; may end within a block
  // A secret. Requests with the same salt share the KV of tokens after the shared region. If the salt is empty, only
  // this session and its forks share that KV.
  std::string salt;
  // Whose share of memory and steps the request takes (ShareLimits); empty: no share is counted.
  std::string tenant = {};
};

}  // namespace kaiju
