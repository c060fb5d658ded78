// Wraps words: a word is held back until it is complete or as long as the line.
#include "printer.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cwchar>
#include <utility>

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

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr uint32_t kReplacementCode = 0xFFFD;

// Joins emoji into one: the zero-width joiner. A skin tone is joined to what stands before it.
constexpr uint32_t kJoiner = 0x200D;
bool is_skin_tone(uint32_t code) { return code >= 0x1F3FB && code <= 0x1F3FF; }

}  // namespace

void Printer::colour(Colour colour) {
  flush_word();
  if (colours_) out_ += code_of(colour);
  write();
}

void Printer::print(std::string_view piece) {
  if (wrap_) width_ = terminal_width();
  const std::string joined = std::exchange(unfinished_, "") + std::string(piece);
  std::string_view text = joined;
  uint32_t code = 0;
  for (size_t size = 0; !text.empty(); text.remove_prefix(size)) {
    size = utf8_next(text, code);
    if (size > 0) {
      take(text.substr(0, size), code);
    } else if (utf8_begins(text)) {
      unfinished_ = text;
      break;
    } else {
      take(kReplacement, kReplacementCode);
      size = 1;
    }
  }
  if (!wrap_) flush_word();
  write();
}

void Printer::take(std::string_view character, uint32_t code) {
  if (code == '\n') {
    flush_word();
    out_ += '\n';
    column_ = spaces_ = 0;
  } else if (code == ' ' || code == '\t') {
    flush_word();
    ++spaces_;
  } else if (!is_control(code)) {
    const int width = wcwidth(static_cast<wchar_t>(code));
    // Chinese and Japanese have no spaces: a line may break before any wide character.
    if (width == 2 && !joined_ && !is_skin_tone(code)) flush_word();
    put(character, width < 0 ? 1 : width);
    joined_ = code == kJoiner;
  }
}

void Printer::put(std::string_view character, int width) {
  if (wrap_ && word_width_ + width >= width_) flush_word();
  word_ += character;
  word_width_ += width;
}

void Printer::flush_word() {
  if (word_.empty()) return;
  if (wrap_ && column_ > 0 && column_ + spaces_ + word_width_ >= width_) new_line();
  out_.append(static_cast<size_t>(spaces_), ' ');
  out_ += word_;
  column_ += spaces_ + word_width_;
  word_.clear();
  word_width_ = spaces_ = 0;
}

void Printer::new_line() {
  out_ += '\n';
  spaces_ = 0;
  column_ = hang_ < width_ / 2 ? hang_ : width_ / 10;
  out_.append(static_cast<size_t>(column_), ' ');
}

void Printer::end_line() {
  if (!std::exchange(unfinished_, "").empty()) take(kReplacement, kReplacementCode);
  flush_word();
  if (column_ > 0) out_ += '\n';
  column_ = spaces_ = 0;
  write();
}

// The stream's buffer is empty before each part, and no part is larger than it: none is split within a character.
void Printer::write() {
  constexpr size_t kMost = 1024;  // no system has a smaller BUFSIZ for a terminal
  std::fflush(stream_);
  for (std::string_view rest = out_; !rest.empty();) {
    size_t size = std::min(rest.size(), kMost);
    while (size < rest.size() && (static_cast<unsigned char>(rest[size]) & 0xC0) == 0x80) --size;
    std::fwrite(rest.data(), 1, size, stream_);
    std::fflush(stream_);
    rest.remove_prefix(size);
  }
  out_.clear();
}

}  // namespace chat
