// Scope: what a request says about who may share its KV.
#pragma once

#include <cstdint>
#include <string>

namespace kaiju {

struct Scope {
  std::string character;      // names the shared region: character id and version; may be empty
  int32_t shared_tokens = 0;  // length of the shared region, from the prompt's first token; may end within a block
  std::string salt;           // the secret of what follows; empty: this session's own, which only its forks share
};

}  // namespace kaiju
