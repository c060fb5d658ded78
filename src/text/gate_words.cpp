// See gate_words.hpp.
#include "gate_words.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace kaiju {
namespace {

constexpr size_t kSpelled = 3;     // so many runs of one letter make one word
constexpr size_t kSpelledGap = 2;  // most characters between two of them

struct Alike {
  char32_t from;
  char to;  // 0: nothing
};

// Letters that look like one of ASCII's, of the Latin, the Greek and the Cyrillic script; Hangul's fillers, which show
// nothing.
constexpr Alike kAlike[] = {
    {0x00F8, 'o'}, {0x0111, 'd'}, {0x0131, 'i'}, {0x0142, 'l'},                                //
    {0x03B1, 'a'}, {0x03B2, 'b'}, {0x03B3, 'y'}, {0x03B5, 'e'}, {0x03B7, 'n'}, {0x03B9, 'i'},  //
    {0x03BA, 'k'}, {0x03BD, 'v'}, {0x03BF, 'o'}, {0x03C1, 'p'}, {0x03C4, 't'}, {0x03C5, 'u'},  //
    {0x03C7, 'x'}, {0x03C9, 'w'},                                                              //
    {0x0430, 'a'}, {0x0432, 'b'}, {0x0435, 'e'}, {0x043A, 'k'}, {0x043C, 'm'}, {0x043D, 'h'},  //
    {0x043E, 'o'}, {0x0440, 'p'}, {0x0441, 'c'}, {0x0442, 't'}, {0x0443, 'y'}, {0x0445, 'x'},  //
    {0x0455, 's'}, {0x0456, 'i'}, {0x0458, 'j'}, {0x04BB, 'h'},                                //
    {0x115F, 0},   {0x1160, 0},
};

char32_t alike(char32_t code) {
  const auto found =
      std::find_if(std::begin(kAlike), std::end(kAlike), [code](Alike each) { return each.from == code; });
  return found == std::end(kAlike) ? code : static_cast<char32_t>(found->to);
}

// Numbers and signs that look like a letter.
char32_t letter_of(char32_t code) {
  switch (code) {
    case '0':
      return 'o';
    case '1':
    case '!':
      return 'i';
    case '3':
      return 'e';
    case '4':
    case '@':
      return 'a';
    case '5':
    case '$':
      return 's';
    case '7':
      return 't';
    case '8':
      return 'b';
    default:
      return code;
  }
}

// Marks and format characters, such as those of no width.
bool is_left_out(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
      return true;
    default:
      return false;
  }
}

}  // namespace

GateWords::Kind GateWords::kind_of(char32_t code) {
  if (code < 0x80) {
    const auto c = static_cast<unsigned char>(code);
    if (c >= 'a' && c <= 'z') return Kind::kLetter;  // there are no capitals any more
    if (c >= '0' && c <= '9') return Kind::kNumber;
    if (c == '@' || c == '$' || c == '!') return Kind::kSign;
    return c == '\'' ? Kind::kApostrophe : Kind::kSpace;
  }
  if (code == 0x2019) return Kind::kApostrophe;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return Kind::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return Kind::kNumber;
    default:
      return Kind::kSpace;
  }
}

void GateWords::read(std::string_view text) {
  const auto* const bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t at = 0; at < text.size();) {
    if (const auto c = static_cast<unsigned char>(text[at]); c < 0x80) {
      push(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
      ++at;
      continue;
    }
    utf8proc_int32_t code = 0;
    const auto used = utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &code);
    if (used > 0)
      fold(static_cast<char32_t>(code));
    else
      push(' ');  // a byte that is not UTF-8
    at += used > 0 ? static_cast<size_t>(used) : 1;
  }
  step(Kind::kSpace);
  held_ = ' ', held_kind_ = Kind::kSpace;
  if (run_size_ > 0) end_run();
  end_spelled();
  gap_ = 0;
}

// Pushes the characters that a character becomes without case, marks and form (NFKD).
void GateWords::fold(char32_t code) {
  constexpr auto kOptions =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT | UTF8PROC_CASEFOLD);
  constexpr utf8proc_ssize_t kMost = 32;  // the longest decomposition has 18
  utf8proc_int32_t parts[kMost];
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts, kMost, kOptions, nullptr);
  if (count < 0 || count > kMost) return push(' ');
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    const auto part = static_cast<char32_t>(parts[i]);
    if (is_left_out(part)) continue;
    if (const char32_t shown = alike(part); shown != 0) push(shown);
  }
}

void GateWords::push(char32_t code) {
  const Kind kind = kind_of(code);
  step(kind);
  held_ = code;
  held_kind_ = kind;
}

// Takes the character that was held, whose next one is of this kind.
void GateWords::step(Kind next) {
  const auto makes_words = [](Kind kind) { return kind == Kind::kLetter || kind == Kind::kNumber; };
  if (makes_words(held_kind_) || (held_kind_ == Kind::kSign && makes_words(next))) {
    if (run_size_ == kMostLetters) end_run();
    run_[run_size_++] = held_;
  } else if (run_size_ == 0 || held_kind_ != Kind::kApostrophe || next != Kind::kLetter) {
    if (run_size_ > 0) end_run();
    ++gap_;
  }
}

void GateWords::end_run() {
  if (run_size_ > 1 || gap_ > kSpelledGap || spelled_size_ == kMostLetters) end_spelled();
  if (run_size_ == 1)
    spelled_[spelled_size_++] = run_[0];
  else
    tell(run_.data(), run_size_);
  run_size_ = gap_ = 0;
}

void GateWords::end_spelled() {
  if (spelled_size_ >= kSpelled)
    tell(spelled_.data(), spelled_size_);
  else
    for (size_t i = 0; i < spelled_size_; ++i) tell(&spelled_[i], 1);
  spelled_size_ = 0;
}

// In a word with a letter, numbers and signs become the letters that they look like. Of a letter that is repeated, two
// are left.
void GateWords::tell(const char32_t* letters, size_t size) {
  const bool has_letter = std::any_of(letters, letters + size, [](char32_t c) { return kind_of(c) == Kind::kLetter; });
  std::array<char, kMostWordBytes> word;
  size_t bytes = 0;
  char32_t before = 0, earlier = 0;
  for (size_t i = 0; i < size; ++i) {
    const char32_t code = has_letter ? letter_of(letters[i]) : letters[i];
    if (code != before || code != earlier)
      bytes += static_cast<size_t>(
          utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), reinterpret_cast<utf8proc_uint8_t*>(&word[bytes])));
    earlier = before, before = code;
  }
  take({word.data(), bytes});
}

}  // namespace kaiju
