// LoopGuard: ends a streamed text that goes in circles: its end repeats one short piece ("apples apples apples
// apples"). Text from a second piece on is held back until it is no circle, so that of a circle little more than its
// first piece comes out. The text comes in the pieces of tokens, as whole UTF-8.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace kaiju {

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

// One thread at a time.
class LoopGuard {
 public:
  static constexpr size_t kTimes = 4, kBytes = 24;  // what is a circle; less is held back, and may become one

  bool stopped() const { return stopped_; }
  // As before the first text.
  void begin_again() { *this = LoopGuard(); }

  // Appends to `out` what is certainly not part of a circle. True once there is a circle; further text is swallowed.
  bool push(std::string_view text, std::string& out) {
    if (stopped_) return true;
    text_ += text;
    if (const size_t end = repeats_from(text_, kTimes, kBytes); end != std::string::npos) {
      tell(end, out);
      return stopped_ = true;
    }
    tell(std::min(repeats_from(text_, 2, 0), text_.size()), out);
    return false;
  }
  // The end of the text: what was held back comes out after all.
  void finish(std::string& out) { tell(text_.size(), out); }

 private:
  void tell(size_t end, std::string& out) {
    if (end <= told_) return;
    out.append(text_, told_, end - told_);
    told_ = end;
  }

  std::string text_;
  size_t told_ = 0;
  bool stopped_ = false;
};

}  // namespace kaiju
