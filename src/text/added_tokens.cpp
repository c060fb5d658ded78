// Finds added tokens: see added_tokens.hpp.
#include "added_tokens.hpp"

#include <algorithm>

#include "unicode.hpp"

namespace kaiju {
namespace {

size_t after_white_space(std::string_view text, size_t at) {
  for (Character next = character_at(text, at); next.is(kSpace); next = character_at(text, at)) at += next.bytes;
  return at;
}

// Not before `first`.
size_t before_white_space(std::string_view text, size_t first, size_t end) {
  for (Character last; end > first && (last = character_before(text, end)).is(kSpace);) end -= last.bytes;
  return end;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  if (tokens_.empty()) return;
  std::sort(tokens_.begin(), tokens_.end(), [](const Token& a, const Token& b) { return a.text < b.text; });
  starts_.assign(257, 0);
  for (const Token& token : tokens_) ++starts_[static_cast<uint8_t>(token.text[0]) + 1];
  for (size_t i = 1; i < starts_.size(); ++i) starts_[i] += starts_[i - 1];
}

// Narrows the sorted range to the tokens that begin like the text, byte by byte. The shortest of a range is its first.
const AddedTokens::Token* AddedTokens::at(std::string_view text, size_t begin) const {
  const auto byte = static_cast<uint8_t>(text[begin]);
  auto low = tokens_.begin() + starts_[byte], high = tokens_.begin() + starts_[byte + 1];
  const Token* longest = nullptr;
  for (size_t length = 1; low != high; ++length) {
    if (low->text.size() == length) {
      longest = &*low;
      if (++low == high) break;
    }
    if (begin + length == text.size()) break;
    const auto next = static_cast<uint8_t>(text[begin + length]);
    low = std::lower_bound(low, high, next, [&](const Token& token, uint8_t wanted) {
      return static_cast<uint8_t>(token.text[length]) < wanted;
    });
    high = std::upper_bound(low, high, next, [&](uint8_t wanted, const Token& token) {
      return wanted < static_cast<uint8_t>(token.text[length]);
    });
  }
  return longest;
}

AddedTokens::Found AddedTokens::next(std::string_view text, size_t from) const {
  for (size_t begin = from; !starts_.empty() && begin < text.size();) {
    const auto byte = static_cast<uint8_t>(text[begin]);
    const Token* token = starts_[byte] == starts_[byte + 1] ? nullptr : at(text, begin);
    const size_t end = begin + (token ? token->text.size() : 1);
    const bool inside_word = token && token->edges.single_word &&
                             (character_before(text, begin).is(kWordPart) || character_at(text, end).is(kWordPart));
    if (token && !inside_word)
      return {token->edges.left_strip ? before_white_space(text, from, begin) : begin,
              token->edges.right_strip ? after_white_space(text, end) : end, token->id};
    begin = end;
  }
  return {text.size(), text.size(), -1};
}

}  // namespace kaiju
