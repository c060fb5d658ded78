// Finds added tokens: see added_tokens.hpp.
#include "added_tokens.hpp"

#include <algorithm>

namespace kaiju {

AddedTokens::AddedTokens(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  if (tokens_.empty()) return;
  std::sort(tokens_.begin(), tokens_.end(), [](const Token& a, const Token& b) { return a.text < b.text; });
  starts_.assign(257, 0);
  for (const Token& token : tokens_) ++starts_[static_cast<uint8_t>(token.text[0]) + 1];
  for (size_t i = 1; i < starts_.size(); ++i) starts_[i] += starts_[i - 1];
}

// Narrows the sorted range to the tokens that begin like the text, byte by byte. The shortest of a range is its first.
AddedTokens::Found AddedTokens::at(std::string_view text, size_t begin) const {
  const auto byte = static_cast<uint8_t>(text[begin]);
  auto low = tokens_.begin() + starts_[byte], high = tokens_.begin() + starts_[byte + 1];
  Found longest{begin, begin, -1};
  for (size_t length = 1; low != high; ++length) {
    if (low->text.size() == length) {
      longest = {begin, begin + length, low->id};
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
  if (!starts_.empty())
    for (size_t begin = from; begin < text.size(); ++begin) {
      const auto byte = static_cast<uint8_t>(text[begin]);
      if (starts_[byte] == starts_[byte + 1]) continue;
      if (const Found found = at(text, begin); found.id >= 0) return found;
    }
  return {text.size(), text.size(), -1};
}

}  // namespace kaiju
