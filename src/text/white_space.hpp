// White space at the ends of a text: what Python's str.strip() removes, which templates of chats do.
#pragma once

#include <cstddef>
#include <string_view>

namespace kaiju {

// Bytes of the white space with which a text begins or ends, 0 for none.
inline size_t space_at(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned a = byte(0), b = byte(1), c = byte(2);
  if ((a >= 0x09 && a <= 0x0D) || (a >= 0x1C && a <= 0x20)) return 1;
  if (a == 0xC2 && (b == 0x85 || b == 0xA0)) return 2;
  if (a == 0xE1 && b == 0x9A && c == 0x80) return 3;                                                // U+1680
  if (a == 0xE2 && b == 0x80 && ((c >= 0x80 && c <= 0x8A) || c == 0xA8 || c == 0xA9 || c == 0xAF))  // U+2000 ...
    return 3;
  if (a == 0xE2 && b == 0x81 && c == 0x9F) return 3;  // U+205F
  if (a == 0xE3 && b == 0x80 && c == 0x80) return 3;  // U+3000
  return 0;
}

// `text` is UTF-8.
inline std::string_view without_leading_space(std::string_view text) {
  while (const size_t size = space_at(text)) text.remove_prefix(size);
  return text;
}

inline std::string_view without_trailing_space(std::string_view text) {
  while (!text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;  // to the character's start
    if (space_at(text.substr(begin)) == 0) break;
    text = text.substr(0, begin);
  }
  return text;
}

}  // namespace kaiju
