// AddedTokens: finds tokens that stand in a text as they are written, such as "<|im_start|>".
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace kaiju {

// What a token asks of the text around it.
struct TokenEdges {
  bool left_strip = false;   // it takes the white space to its left
  bool right_strip = false;  // and to its right
  bool single_word = false;  // it is not found beside a letter, a digit or another character of a word (\w)
};

// Immutable, safe from any thread.
class AddedTokens {
 public:
  struct Token {
    std::string_view text;  // 1 to 512 bytes, borrowed; no two tokens are alike
    int32_t id;
    TokenEdges edges;
  };
  struct Found {
    size_t begin, end;  // with the white space that it takes
    int32_t id;
  };

  AddedTokens() = default;
  explicit AddedTokens(std::vector<Token> tokens);

  // The first token at or after `from`, the longest of those that begin there; {size, size, -1} if there is none. The
  // text before `from` counts for single_word alone.
  Found next(std::string_view text, size_t from) const;

 private:
  const Token* at(std::string_view text, size_t begin) const;

  std::vector<Token> tokens_;     // sorted by text
  std::vector<uint32_t> starts_;  // of each first byte the first token, then the end; empty if there are no tokens
};

}  // namespace kaiju
