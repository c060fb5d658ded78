// Terminal: line editing, Ctrl-C, and the capabilities of the terminal.
#pragma once

#include <histedit.h>
#include <signal.h>
#include <termios.h>

#include <optional>
#include <string>
#include <string_view>

namespace chat {

// Makes the locale UTF-8 so that editing counts characters, not bytes.
void use_utf8_locale();
bool on_terminal();    // both ends
bool wants_colours();  // stdout is a terminal that is not "dumb", and NO_COLOR is empty

// True once after a Ctrl-C while a CatchInterrupt lives.
bool take_interrupt();
class CatchInterrupt {
 public:
  CatchInterrupt();
  ~CatchInterrupt();
};

// What the user says, with editing and history: one line, or several where a line ends with a backslash, at Alt-Enter,
// and in a paste (bracketed paste). The terminal is its own from beginning to end: what is typed between two lines,
// Ctrl-D too, does not show and waits for the next one. Where libedit edits nothing (`edit off` in ~/.editrc,
// TERM=emacs) and in a window too large for it, lines are read as the terminal's own line mode gives them.
class LineReader {
 public:
  LineReader(const std::string& prompt, bool colours);
  ~LineReader();
  LineReader(const LineReader&) = delete;

  bool edits() const { return line_ != nullptr; }
  // Lines joined by '\n', without the last end; nullopt at the end of input. Ctrl-C gives an empty text. `begun` is
  // there already, to be edited, if this reader edits. Bytes that are not UTF-8 are in the text as they were typed.
  std::optional<std::string> read(const std::string& begun = "");
  // One line that no history keeps. nullopt at the end of input; Ctrl-C gives no line but `interrupted`.
  std::optional<std::string> ask(const std::string& question, bool& interrupted);

 private:
  struct Line {
    std::string text;
    enum { kWhole, kInterrupted, kEnd } how = kWhole;
  };
  Line read_line(const std::string& prompt, const std::string& begun);
  static unsigned char paste(EditLine* line, int);
  static unsigned char break_line(EditLine* line, int);
  void bracketed_paste(bool on) const;
  std::string read_paste();
  static char* prompt_of(EditLine* line);
  static int key_of(EditLine* line, wchar_t* key);
  void set_up_editing();
  void stop_editing();
  Line read_edited(const std::string& begun);
  Line read_plain();
  void remember(const std::string& text);
  void set_prompt(const std::string& prompt);
  void suspend();
  bool wait_for_input();
  int read_key(wchar_t* key);
  int read_byte(char* byte);
  std::string name_, prompt_;
  bool colours_;
  termios before_{};
  const sigset_t* open_signals_ = nullptr;  // while a line is read
  int typed_early_ = -1;      // keys still to be read that came before the terminal was ours; -1: not looked yet
  std::string begun_;         // still to be put into the line
  std::string keys_;          // bytes read that are not a whole character yet
  EditLine* line_ = nullptr;  // null: reads plain lines
  History* history_ = nullptr;
};

}  // namespace chat
