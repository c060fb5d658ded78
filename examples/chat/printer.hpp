// Printer: prints streamed text. It wraps words at the terminal's width and removes control characters, so that a model
// cannot control the terminal. What it writes at once are whole UTF-8 characters: one that comes in pieces waits for
// the rest, and bytes that are none become U+FFFD.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace chat {

enum class Colour { kNone, kCharacter, kDim };

class Printer {
 public:
  Printer(bool colours, bool wrap, std::FILE* stream = stdout) : stream_(stream), colours_(colours), wrap_(wrap) {}
  void colour(Colour colour);
  // Lines that wrap from here on begin this many columns to the right; fewer in a narrow window.
  void hang(int columns) { hang_ = columns; }
  void print(std::string_view text);
  void end_line();  // what is held back, then a new line unless the cursor is at the beginning of one

 private:
  void take(std::string_view character, uint32_t code);
  void put(std::string_view character, int width);
  void flush_word();
  void new_line();
  void write();

  std::FILE* stream_;
  bool colours_, wrap_;
  std::string unfinished_;  // the beginning of a character
  std::string word_;
  std::string out_;  // not written yet
  int word_width_ = 0;
  int column_ = 0;
  int spaces_ = 0;  // before the word, dropped where a line breaks
  int hang_ = 0;
  int width_ = 80;
  bool joined_ = false;  // the character before wants its successor on the same line
};

}  // namespace chat
