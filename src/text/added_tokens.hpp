// AddedTokens: finds tokens that stand in a text as they are written, such as "<|im_start|>".
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace kaiju {

// Immutable, safe from any thread.
class AddedTokens {
 public:
  struct Token {
    std::string_view text;  // 1 to 512 bytes, borrowed; no two tokens are alike
    int32_t id;
  };
  struct Found {
    size_t begin, end;
    int32_t id;
  };

  AddedTokens() = default;
  explicit AddedTokens(std::vector<Token> tokens);

  // The first token at or after `from`, the longest of those that begin there; {size, size, -1} if there is none.
  Found next(std::string_view text, size_t from) const;

 private:
  Found at(std::string_view text, size_t begin) const;

  std::vector<Token> tokens_;     // sorted by text
  std::vector<uint32_t> starts_;  // of each first byte the first token, then the end; empty if there are no tokens
};

}  // namespace kaiju
