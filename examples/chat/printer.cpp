// Wraps words: a word is held back until it is complete or as long as the line.
#include "printer.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cwchar>

#include "utf8.hpp"

namespace chat {
namespace {

int terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

const char* code_of(Colour colour) {
  switch (colour) {
    case Colour::kCharacter:
      return "\033[36m";
    case Colour::kDim:
      return "\033[2m";
    default:
      return "\033[0m";
  }
}

bool is_control(uint32_t code) {
  const bool steers_direction = (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || steers_direction;
}

// Joins emoji into one: the zero-width joiner. A skin tone is joined to what stands before it.
constexpr uint32_t kJoiner = 0x200D;
bool is_skin_tone(uint32_t code) { return code >= 0x1F3FB && code <= 0x1F3FF; }

}  // namespace

void Printer::colour(Colour colour) {
  flush_word();
  if (colours_) std::fputs(code_of(colour), stdout);
}

void Printer::print(std::string_view text) {
  if (wrap_) width_ = terminal_width();
  uint32_t code = 0;
  for (size_t size = 0; !text.empty(); text.remove_prefix(size)) {
    size = utf8_next(text, code);
    if (size == 0) {  // never from the library, which hands out whole UTF-8
      size = 1;
    } else if (code == '\n') {
      flush_word();
      std::fputc('\n', stdout);
      column_ = spaces_ = 0;
    } else if (code == ' ' || code == '\t') {
      flush_word();
      ++spaces_;
    } else if (!is_control(code)) {
      const int width = wcwidth(static_cast<wchar_t>(code));
      // Chinese and Japanese have no spaces: a line may break before any wide character.
      if (width == 2 && !joined_ && !is_skin_tone(code)) flush_word();
      put(text.substr(0, size), width < 0 ? 1 : width);
      joined_ = code == kJoiner;
    }
  }
  if (!wrap_) flush_word();
  std::fflush(stdout);
}

void Printer::put(std::string_view character, int width) {
  if (wrap_ && word_width_ + width >= width_) flush_word();
  word_ += character;
  word_width_ += width;
}

void Printer::flush_word() {
  if (word_.empty()) return;
  if (wrap_ && column_ > 0 && column_ + spaces_ + word_width_ >= width_) new_line();
  std::fprintf(stdout, "%*s", spaces_, "");
  std::fwrite(word_.data(), 1, word_.size(), stdout);
  column_ += spaces_ + word_width_;
  word_.clear();
  word_width_ = spaces_ = 0;
}

void Printer::new_line() {
  std::fputc('\n', stdout);
  spaces_ = 0;
  column_ = hang_ < width_ / 2 ? hang_ : width_ / 10;
  std::fprintf(stdout, "%*s", column_, "");
}

void Printer::end_line() {
  flush_word();
  if (column_ > 0) std::fputc('\n', stdout);
  column_ = spaces_ = 0;
  std::fflush(stdout);
}

}  // namespace chat
