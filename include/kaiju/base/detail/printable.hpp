// printable: text of unknown origin, for a message: no byte of it can move a terminal's cursor or break a log's line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kaiju {

// At most the first 128 bytes; those that are not printable ASCII as \xNN.
inline std::string printable(std::string_view text) {
  constexpr size_t kMost = 128;
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F)
      out += c;
    else
      out.append("\\x").append(1, kDigits[byte / 16]).append(1, kDigits[byte % 16]);
  }
  if (text.size() > kMost) out += "...";
  return out;
}

}  // namespace kaiju
