// The terminal, over libedit.
#include "terminal.hpp"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>

#include "utf8.hpp"

namespace chat {
namespace {

volatile std::sig_atomic_t interrupted = 0;
struct sigaction before;

extern "C" void on_interrupt(int) { interrupted = 1; }

int terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20 ? size.ws_col : 80;
}

const char* code_of(Colour colour) {
  switch (colour) {
    case Colour::kCharacter:
      return "\033[36m";
    case Colour::kUser:
      return "\033[1m";
    case Colour::kDim:
      return "\033[2m";
    default:
      return "\033[0m";
  }
}

}  // namespace

void use_utf8_locale() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

bool on_terminal() { return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO); }

bool wants_colours() {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* kind = std::getenv("TERM");
  return isatty(STDOUT_FILENO) && !(no_colour && *no_colour) && kind && *kind && std::strcmp(kind, "dumb") != 0;
}

bool take_interrupt() {
  if (!interrupted) return false;
  interrupted = 0;
  return true;
}

CatchInterrupt::CatchInterrupt() {
  interrupted = 0;
  struct sigaction action {};
  action.sa_handler = on_interrupt;  // no SA_RESTART: a waiting read returns
  sigaction(SIGINT, &action, &before);
}

CatchInterrupt::~CatchInterrupt() { sigaction(SIGINT, &before, nullptr); }

QuietInput::QuietInput() : active_(tcgetattr(STDIN_FILENO, &before_) == 0) {
  if (!active_) return;
  termios quiet = before_;
  quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
}

QuietInput::~QuietInput() {
  if (active_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

void Printer::colour(Colour colour) {
  flush_word();
  if (colours_) std::fputs(code_of(colour), stdout);
}

void Printer::print(std::string_view text) {
  uint32_t code = 0;
  while (!text.empty()) {
    const size_t size = utf8_next(text, code);
    if (size == 0) {  // never from the library, which hands out whole UTF-8
      text.remove_prefix(1);
      continue;
    }
    if (code == '\n') {
      flush_word();
      std::fputc('\n', stdout);
      column_ = spaces_ = 0;
    } else if (code == ' ' || code == '\t') {
      flush_word();
      ++spaces_;
    } else if (code >= 0x20 && !(code >= 0x7F && code < 0xA0)) {
      const int width = wcwidth(static_cast<wchar_t>(code));
      word_ += text.substr(0, size);
      word_width_ += width < 0 ? 1 : width;
    }
    text.remove_prefix(size);
  }
  if (!wrap_) flush_word();
  std::fflush(stdout);
}

void Printer::flush_word() {
  if (word_.empty()) return;
  if (wrap_ && column_ > 0 && column_ + spaces_ + word_width_ >= terminal_width()) {
    std::fputc('\n', stdout);
    column_ = spaces_ = 0;
  }
  std::fprintf(stdout, "%*s", spaces_, "");
  std::fwrite(word_.data(), 1, word_.size(), stdout);
  column_ += spaces_ + word_width_;
  word_.clear();
  word_width_ = spaces_ = 0;
}

void Printer::end_line() {
  flush_word();
  if (column_ > 0) std::fputc('\n', stdout);
  column_ = spaces_ = 0;
  std::fflush(stdout);
}

LineReader::LineReader(std::string prompt, bool colours) : colours_(colours) {
  set_prompt(prompt);
  line_ = el_init("kaiju-chat", stdin, stdout, stderr);
  history_ = history_init();
  HistEvent event;
  if (history_) history(history_, &event, H_SETSIZE, 1000);
  if (!line_) return;
  el_set(line_, EL_CLIENTDATA, this);
  // Colour codes stand between two \1 so that libedit does not count them.
  el_set(line_, EL_PROMPT_ESC, &LineReader::prompt_of, '\1');
  el_set(line_, EL_EDITOR, "emacs");
  el_set(line_, EL_SIGNAL, 0);
  if (history_) el_set(line_, EL_HIST, history, history_);
  el_source(line_, nullptr);
}

LineReader::~LineReader() {
  if (line_) el_end(line_);
  if (history_) history_end(history_);
}

void LineReader::set_prompt(const std::string& prompt) {
  // The space comes last: libedit prints an invisible part only together with what follows it.
  prompt_ = (colours_ ? "\1\033[1m\1" + prompt + "\1\033[0m\1" : prompt) + " ";
}

char* LineReader::prompt_of(EditLine* line) {
  LineReader* self = nullptr;
  el_get(line, EL_CLIENTDATA, &self);
  return self->prompt_.data();
}

std::optional<std::string> LineReader::read() {
  if (!line_) return std::nullopt;
  int count = 0;
  errno = 0;
  const char* text = el_gets(line_, &count);
  if (!text || count <= 0) {
    if (!take_interrupt()) return std::nullopt;
    el_reset(line_);
    std::fputs("\n", stdout);
    return std::string();
  }
  std::string line(text, static_cast<size_t>(count));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  HistEvent event;
  if (history_ && line.find_first_not_of(" \t") != std::string::npos) history(history_, &event, H_ENTER, line.c_str());
  return line;
}

}  // namespace chat
