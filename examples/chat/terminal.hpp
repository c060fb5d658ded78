// Terminal: what stands between the chat and the screen: colours where they are wanted, words wrapped as they stream, line editing, Ctrl-C.
#pragma once

#include <histedit.h>
#include <termios.h>

#include <optional>
#include <string>
#include <string_view>

namespace chat {

enum class Colour { kNone, kCharacter, kUser, kDim };

// Makes the locale UTF-8 so that editing counts characters, not bytes.
void use_utf8_locale();
bool on_terminal();    // both ends
bool wants_colours();  // stdout is a terminal that is not "dumb", and NO_COLOR is empty

// True once after each Ctrl-C while a CatchInterrupt lives.
bool take_interrupt();
class CatchInterrupt {
 public:
  CatchInterrupt();
  ~CatchInterrupt();
};

// While it lives, what is typed does not show in the middle of a reply; it waits for the next prompt.
class QuietInput {
 public:
  QuietInput();
  ~QuietInput();
  QuietInput(const QuietInput&) = delete;

 private:
  termios before_{};
  bool active_;
};

// Prints streamed text with words wrapped at the terminal's width, and no control characters: a model must not steer the terminal.
class Printer {
 public:
  explicit Printer(bool colours, bool wrap) : colours_(colours), wrap_(wrap) {}
  void colour(Colour colour);
  void print(std::string_view text);
  void end_line();  // what is held back, then a new line unless the cursor is at the beginning of one

 private:
  void flush_word();
  bool colours_, wrap_;
  std::string word_;
  int word_width_ = 0;
  int column_ = 0;
  int spaces_ = 0;  // before the word, dropped where a line breaks
};

// One line with editing and history.
class LineReader {
 public:
  LineReader(std::string prompt, bool colours);
  ~LineReader();
  LineReader(const LineReader&) = delete;

  // Without its end; nullopt at the end of input. Ctrl-C gives an empty line.
  std::optional<std::string> read();
  void set_prompt(const std::string& prompt);

 private:
  static char* prompt_of(EditLine* line);
  std::string prompt_;
  bool colours_;
  EditLine* line_ = nullptr;
  History* history_ = nullptr;
};

}  // namespace chat
