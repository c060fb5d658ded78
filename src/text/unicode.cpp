// Classes of characters: see unicode.hpp.
#include "unicode.hpp"

#include <utf8proc.h>

#include <array>

namespace kaiju {
namespace {

// Symbols with the property Alphabetic: Latin letters in circles and squares.
bool is_alphabetic_symbol(int32_t code) {
  return (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
         (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
}

uint8_t classes_of(int32_t code) {
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      return kLetter | kUpper | kWordPart;
    case UTF8PROC_CATEGORY_LL:
      return kLetter | kLower | kWordPart;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kLetter | kUpper | kLower | kWordPart;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kUpper | kLower | kWordPart;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
      return kNumber | kWordPart;
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    case UTF8PROC_CATEGORY_PC:
      return kWordPart;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return kSpace;
    case UTF8PROC_CATEGORY_CC:
      if (code == '\r' || code == '\n') return kSpace | kNewline;
      return (code >= 0x09 && code <= 0x0D) || code == 0x85 ? kSpace : 0;
    case UTF8PROC_CATEGORY_CF:
      return code == 0x200C || code == 0x200D ? kWordPart : 0;
    case UTF8PROC_CATEGORY_SO:
      return is_alphabetic_symbol(code) ? kWordPart : 0;
    default:
      return 0;
  }
}

std::array<uint8_t, 128> ascii_classes() {
  std::array<uint8_t, 128> classes;
  for (int code = 0; code < 128; ++code) classes[code] = classes_of(code);
  return classes;
}

}  // namespace

Character character_at(std::string_view text, size_t at) {
  static const auto ascii = ascii_classes();
  if (at >= text.size()) return {};
  if (const auto byte = static_cast<uint8_t>(text[at]); byte < 0x80) return {1, ascii[byte]};
  int32_t code = 0;
  const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                      static_cast<utf8proc_ssize_t>(text.size() - at), &code);
  if (bytes <= 0) return {1, 0};  // never in UTF-8
  return {static_cast<uint8_t>(bytes), classes_of(code)};
}

Character character_before(std::string_view text, size_t end) {
  if (end == 0) return {};
  size_t at = end - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return character_at(text, at);
}

}  // namespace kaiju
