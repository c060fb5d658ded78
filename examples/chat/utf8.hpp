// UTF-8 functions of the chat.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace chat {

// Bytes of the character that begins `text`, 0 when it is not UTF-8; its code point in `code`.
inline size_t utf8_next(std::string_view text, uint32_t& code) {
  if (text.empty()) return 0;
  const auto first = static_cast<uint8_t>(text[0]);
  const size_t size = first < 0x80                    ? 1
                      : first >= 0xC2 && first < 0xE0 ? 2
                      : first >= 0xE0 && first < 0xF0 ? 3
                      : first >= 0xF0 && first < 0xF5 ? 4
                                                      : 0;
  if (size == 0 || text.size() < size) return 0;
  code = size == 1 ? first : first & (0xFFu >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if ((byte & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte & 0x3F);
  }
  const bool overlong = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
  return overlong || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? 0 : size;
}

// More bytes would make one character of it.
inline bool utf8_begins(std::string_view text) {
  constexpr std::string_view kRest = "\x80\x80\x80", kLongRest = "\xBF\xBF\xBF";
  uint32_t code = 0;
  if (text.empty() || text.size() > 3 || utf8_next(text, code) > 0) return false;
  for (size_t more = 1; more <= 3; ++more)
    for (const std::string_view rest : {kRest, kLongRest})
      if (utf8_next(std::string(text).append(rest.substr(0, more)), code) == text.size() + more) return true;
  return false;
}

// Offset of the first byte that is not UTF-8; npos when all is well.
inline size_t utf8_error(std::string_view text) {
  uint32_t code = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t size = utf8_next(text.substr(at), code);
    if (size == 0) return at;
    at += size;
  }
  return std::string_view::npos;
}

// Empty, or why nobody can say it.
inline std::string not_utf8(std::string_view text) {
  const size_t bad = utf8_error(text);
  return bad == std::string_view::npos ? "" : "the text is not UTF-8 at byte " + std::to_string(bad + 1);
}

}  // namespace chat
