// NFC with utf8proc's tables: see nfc.hpp. utf8proc's own function sorts combining marks by exchanging neighbours,
// which takes minutes for a megabyte of marks; so decomposing and sorting are done here, composing there.
#include "nfc.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace kaiju {
namespace {

constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

uint8_t combining_class(int32_t code) { return static_cast<uint8_t>(utf8proc_get_property(code)->combining_class); }

void decompose(std::string_view text, std::vector<int32_t>& codes) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t at = 0; at < text.size();) {
    int32_t code = 0;
    const auto used = utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &code);
    if (used <= 0) throw std::invalid_argument("NFC of a text that is not UTF-8");
    at += static_cast<size_t>(used);
    int32_t parts[32];
    const auto count = utf8proc_decompose_char(code, parts, 32, kOptions, nullptr);
    if (count < 0 || count > 32) throw std::length_error("NFC: a character of more than 32 parts");
    codes.insert(codes.end(), parts, parts + count);
  }
}

// Canonical ordering: each run of characters with a combining class other than 0 in the order of the classes.
void order_marks(std::vector<int32_t>& codes) {
  for (size_t at = 0; at < codes.size(); ++at) {
    const size_t begin = at;
    while (at < codes.size() && combining_class(codes[at]) != 0) ++at;
    if (at - begin > 1)
      std::stable_sort(codes.begin() + static_cast<ptrdiff_t>(begin), codes.begin() + static_cast<ptrdiff_t>(at),
                       [](int32_t a, int32_t b) { return combining_class(a) < combining_class(b); });
  }
}

}  // namespace

bool is_plainly_nfc(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0xCC; });
}

std::string nfc(std::string_view text) {
  if (is_plainly_nfc(text)) return std::string(text);
  std::vector<int32_t> codes;
  codes.reserve(text.size());
  decompose(text, codes);
  order_marks(codes);
  const auto count = utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()), kOptions);
  if (count < 0) throw std::length_error("NFC: utf8proc refuses the text");
  std::string out;
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    utf8proc_uint8_t bytes[4];
    out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(utf8proc_encode_char(codes[i], bytes)));
  }
  return out;
}

}  // namespace kaiju
