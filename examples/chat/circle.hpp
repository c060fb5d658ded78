// Detects a reply that goes in circles: its end repeats one short piece of text ("apples apples apples apples").
#pragma once

#include <algorithm>
#include <string_view>

namespace chat {

// Where the repeats at the end of `text` begin, of a piece of at most 80 bytes that stands there `times` times or more,
// `bytes` or more in all. What is before is worth keeping: it has the piece once. npos: the text does not end so.
// Characters stay whole, and words where the piece has a space.
inline size_t repeats_from(std::string_view text, size_t times, size_t bytes) {
  constexpr size_t kLongestPiece = 80;
  const auto within_character = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; };
  const auto is_space = [](char c) { return c == ' ' || c == '\n'; };
  size_t from = std::string_view::npos;
  for (size_t piece = 1; piece <= kLongestPiece && piece * times <= text.size(); ++piece) {
    size_t begin = text.size() - piece;  // all from here on comes again `piece` bytes later
    while (begin > 0 && text[begin - 1] == text[begin - 1 + piece]) --begin;
    if (text.size() - begin < std::max(piece * times, bytes)) continue;
    size_t end = begin + piece;
    while (end > begin && within_character(end)) --end;
    if (end > begin && text.substr(begin, piece).find_first_of(" \n") != std::string_view::npos) {
      // Within a word where the one before the piece ends alike: that word once more, whole.
      if (is_space(text[end - 1]))
        --end;
      else
        end = std::min(text.find_first_of(" \n", end), text.size());
    }
    from = std::min(from, end);
  }
  return from;
}

}  // namespace chat
