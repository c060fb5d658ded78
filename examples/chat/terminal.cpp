// Implements Terminal with libedit.
#include "terminal.hpp"

#include <langinfo.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>

// NOLINTBEGIN(concurrency-mt-unsafe): environment, locale and keyboard are the main thread's alone.
namespace chat {
namespace {

// Obeys escape sequences.
bool steerable() {
  const char* kind = std::getenv("TERM");
  return kind && *kind && std::strcmp(kind, "dumb") != 0;
}

constexpr char kCtrlD = 4;

volatile std::sig_atomic_t interrupted = 0, resized = 0, suspended = 0;
struct sigaction before;

extern "C" void on_interrupt(int) { interrupted = 1; }
extern "C" void on_resize(int) { resized = 1; }
extern "C" void on_suspend(int) { suspended = 1; }

void handle(int signal, void (*handler)(int), struct sigaction* old) {
  struct sigaction action{};
  action.sa_handler = handler;  // no SA_RESTART: what waits is woken
  sigaction(signal, &action, old);
}

// While a line is read: Ctrl-C, Ctrl-Z and a new window size come only while the reader waits for a key, never between
// looking and waiting.
class SignalsForTheReader {
 public:
  SignalsForTheReader() {
    sigset_t held;
    sigemptyset(&held);
    for (const int signal : {SIGINT, SIGTSTP, SIGWINCH}) sigaddset(&held, signal);
    handle(SIGTSTP, on_suspend, &suspend_before_);
    handle(SIGWINCH, on_resize, &resize_before_);
    sigprocmask(SIG_BLOCK, &held, &open_);
  }
  ~SignalsForTheReader() {
    sigaction(SIGTSTP, &suspend_before_, nullptr);
    sigaction(SIGWINCH, &resize_before_, nullptr);
    sigprocmask(SIG_SETMASK, &open_, nullptr);
  }
  const sigset_t* open() const { return &open_; }

 private:
  sigset_t open_;
  struct sigaction suspend_before_, resize_before_;
};

// The terminal may have broken or joined lines by its own idea: the line is drawn anew from where the cursor's row
// begins.
void redraw(EditLine* line) {
  el_resize(line);
  std::fputs(steerable() ? "\r\033[J" : "\n", stdout);
  std::fflush(stdout);
  el_set(line, EL_REFRESH);
}

}  // namespace

void use_utf8_locale() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

bool on_terminal() { return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO); }

bool wants_colours() {
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) && !(no_colour && *no_colour) && steerable();
}

bool take_interrupt() {
  if (!interrupted) return false;
  interrupted = 0;
  return true;
}

CatchInterrupt::CatchInterrupt() {
  interrupted = 0;
  handle(SIGINT, on_interrupt, &before);
}

CatchInterrupt::~CatchInterrupt() { sigaction(SIGINT, &before, nullptr); }

LineReader::LineReader(const std::string& prompt, bool colours) : colours_(colours) {
  set_prompt(prompt);
  tcgetattr(STDIN_FILENO, &before_);
  line_ = el_init("kaiju-chat", stdin, stdout, stderr);
  history_ = history_init();
  HistEvent event;
  if (history_) history(history_, &event, H_SETSIZE, 1000);
  if (!line_) return;
  el_set(line_, EL_CLIENTDATA, this);
  // Colour codes stand between two \1 so that libedit does not count them.
  el_set(line_, EL_PROMPT_ESC, &LineReader::prompt_of, '\1');
  el_set(line_, EL_EDITOR, "emacs");
  el_set(line_, EL_SIGNAL, 0);  // read_key sees to them
  el_set(line_, EL_GETCFN, &LineReader::key_of);
  if (history_) el_set(line_, EL_HIST, history, history_);
  // What libedit puts back between two lines. It prints the prompt before it takes the terminal over again: in line
  // mode the system would make a Ctrl-D of that moment its own end of input, and nobody would see it.
  el_set(line_, EL_SETTY, "-x", "-icanon", "-echo", nullptr);
  el_source(line_, nullptr);
}

LineReader::~LineReader() {
  if (line_) el_end(line_);
  tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
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

int LineReader::key_of(EditLine* line, wchar_t* key) {
  LineReader* self = nullptr;
  el_get(line, EL_CLIENTDATA, &self);
  return self->read_key(key);
}

// A character of the locale's encoding: 1; at the end of input 0; after Ctrl-C -1.
int LineReader::read_key(wchar_t* key) {
  std::mbstate_t state{};
  while (true) {
    pollfd ready{STDIN_FILENO, POLLIN, 0};
    if (ppoll(&ready, 1, nullptr, open_signals_) < 0) {
      if (errno != EINTR || interrupted) return -1;
      if (suspended) suspend();
      if (resized) redraw(line_);
      suspended = 0;
      resized = 0;
      continue;
    }
    if (typed_early_ < 0 && ioctl(STDIN_FILENO, FIONREAD, &typed_early_) != 0) typed_early_ = 0;
    char byte = 0;
    const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
    if (count <= 0) return static_cast<int>(count);
    if (typed_early_ > 0 && typed_early_-- && byte == 0)
      byte = kCtrlD;  // so the system keeps one that came in line mode
    const size_t size = std::mbrtowc(key, &byte, 1, &state);
    if (size <= 1) return 1;                          // a character, zero among them
    if (size == static_cast<size_t>(-1)) state = {};  // not UTF-8: no key
  }
}

// Stops the program as the signal does that Ctrl-Z sends to any other. Not with SIGSTOP: where no shell would wake the
// program again, the system ignores this one.
void stop_for_the_shell() {
  struct sigaction ours{};
  handle(SIGTSTP, SIG_DFL, &ours);
  sigset_t stop, held;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  raise(SIGTSTP);
  sigprocmask(SIG_UNBLOCK, &stop, &held);
  sigprocmask(SIG_SETMASK, &held, nullptr);
  sigaction(SIGTSTP, &ours, nullptr);
}

// The shell finds the terminal as it left it.
void LineReader::suspend() {
  el_set(line_, EL_PREP_TERM, 0);
  tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  std::fputc('\n', stdout);
  std::fflush(stdout);
  stop_for_the_shell();
  el_set(line_, EL_PREP_TERM, 1);
  el_set(line_, EL_REFRESH);
}

std::optional<std::string> LineReader::read(std::string begun) {
  if (!line_) return std::nullopt;
  take_interrupt();  // one that came too late for the reply
  const SignalsForTheReader signals;
  open_signals_ = signals.open();
  el_resize(line_);
  std::replace_if(begun.begin(), begun.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  if (!begun.empty()) el_push(line_, begun.c_str());
  int count = 0;
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
// NOLINTEND(concurrency-mt-unsafe)
