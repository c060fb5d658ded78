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
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <string_view>
#include <utility>

#include "utf8.hpp"

// NOLINTBEGIN(concurrency-mt-unsafe): environment, locale and keyboard are the main thread's alone.
namespace chat {
namespace {

// Obeys escape sequences.
bool steerable() {
  const char* kind = std::getenv("TERM");
  return kind && *kind && std::strcmp(kind, "dumb") != 0 && std::strcmp(kind, "emacs") != 0;
}

// libedit allocates memory for every cell of the window: 8 bytes each.
bool window_fits() {
  constexpr int64_t kMostCells = int64_t{1} << 22;
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || int64_t{size.ws_row} * size.ws_col <= kMostCells;
}

// A byte that is no part of a UTF-8 character is the wide character kRawByte + byte for libedit: half of a surrogate
// pair, which no text in UTF-8 has.
constexpr wchar_t kRawByte = 0xDC00;
bool is_raw_byte(wchar_t c) { return c >= kRawByte + 0x80 && c <= kRawByte + 0xFF; }

// The bytes as they were typed.
std::string bytes_of(std::wstring_view text) {
  std::string bytes;
  for (const wchar_t c : text) {
    const auto code = static_cast<uint32_t>(c);
    const auto put = [&](uint32_t byte) { bytes += static_cast<char>(byte); };
    const auto tail = [&](int shift) { put(0x80 | (code >> shift & 0x3F)); };
    if (is_raw_byte(c)) {
      put(code - kRawByte);
    } else if (code < 0x80) {
      put(code);
    } else if (code < 0x800) {
      put(0xC0 | code >> 6), tail(0);
    } else if (code < 0x10000) {
      put(0xE0 | code >> 12), tail(6), tail(0);
    } else {
      put(0xF0 | code >> 18), tail(12), tail(6), tail(0);
    }
  }
  return bytes;
}

// The characters of a text as libedit has them.
std::wstring wide(std::string_view text) {
  std::wstring out;
  uint32_t code = 0;
  for (size_t size = 0; !text.empty(); text.remove_prefix(size)) {
    size = utf8_next(text, code);
    out += size > 0 ? static_cast<wchar_t>(code) : kRawByte + static_cast<unsigned char>(text[0]);
    size = std::max<size_t>(size, 1);
  }
  return out;
}

// A text to be put into a line: lines end with '\n', no other control character is left but tabs.
std::string pasteable(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '\r')  // what most terminals send for the end of a line
      out += i + 1 < text.size() && text[i + 1] == '\n' ? "" : "\n";
    else if (byte == '\n' || byte == '\t' || (byte >= 0x20 && byte != 0x7F))
      out += text[i];
  }
  while (out.ends_with('\n')) out.pop_back();
  return out;
}

// What a terminal sends around a paste, once it was asked to.
constexpr const char* kPasteBegins = "\033[200~";
constexpr std::string_view kPasteEnds = "\033[201~";
constexpr size_t kMostPasteBytes = size_t{1} << 20;  // far beyond any model's context

constexpr char kCtrlD = 4;

volatile std::sig_atomic_t interrupted = 0, resized = 0, suspended = 0;
struct sigaction before;

extern "C" void on_interrupt(int) { interrupted = 1; }
extern "C" void on_resize(int) { resized = 1; }
extern "C" void on_suspend(int) { suspended = 1; }

void handle(int signal, void (*handler)(int), struct sigaction* old) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // a write goes on; ppoll is woken all the same
  sigaction(signal, &action, old);
}

// While a line is read: Ctrl-C, and for an editor Ctrl-Z and a new window size too, come only while the reader waits
// for a key, never between looking and waiting.
class SignalsForTheReader {
 public:
  explicit SignalsForTheReader(bool edits) : edits_(edits) {
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    if (edits) {
      for (const int signal : {SIGTSTP, SIGWINCH}) sigaddset(&held, signal);
      handle(SIGTSTP, on_suspend, &suspend_before_);
      handle(SIGWINCH, on_resize, &resize_before_);
    }
    sigprocmask(SIG_BLOCK, &held, &open_);
  }
  ~SignalsForTheReader() {
    if (edits_) {
      sigaction(SIGTSTP, &suspend_before_, nullptr);
      sigaction(SIGWINCH, &resize_before_, nullptr);
    }
    sigprocmask(SIG_SETMASK, &open_, nullptr);
  }
  const sigset_t* open() const { return &open_; }

 private:
  bool edits_;
  sigset_t open_;
  struct sigaction suspend_before_, resize_before_;
};

// The terminal may have broken or joined lines by its own idea: the line is drawn anew from where the cursor's row
// begins.
void redraw(EditLine* line) {
  if (window_fits()) el_resize(line);
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
  name_ = prompt;
  tcgetattr(STDIN_FILENO, &before_);
  history_ = history_init();
  HistEvent event;
  if (history_) history(history_, &event, H_SETSIZE, 1000);
  if (window_fits()) line_ = el_init("kaiju-chat", stdin, stdout, stderr);
  if (!line_) return;
  set_up_editing();
  int edits = 0;
  if (el_get(line_, EL_EDITMODE, &edits) != 0 || edits == 0)
    stop_editing();
  else
    bracketed_paste(true);
}

void LineReader::bracketed_paste(bool on) const {
  if (!steerable()) return;
  std::fputs(on ? "\033[?2004h" : "\033[?2004l", stdout);
  std::fflush(stdout);
}

void LineReader::set_up_editing() {
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
  // After ~/.editrc, which may have chosen other keys. A terminal sends Escape before the key for Alt.
  el_set(line_, EL_ADDFN, "kaiju-paste", "Put a paste into the line", &LineReader::paste);
  el_set(line_, EL_ADDFN, "kaiju-break", "Break the line", &LineReader::break_line);
  el_set(line_, EL_BIND, kPasteBegins, "kaiju-paste", nullptr);
  el_set(line_, EL_BIND, "\\e\\r", "kaiju-break", nullptr);
  el_set(line_, EL_BIND, "\\e\\n", "kaiju-break", nullptr);
}

// Also puts the text into the line with which read() was called: a line cannot be filled before it is read.
unsigned char LineReader::paste(EditLine* line, int) {
  LineReader* self = nullptr;
  el_get(line, EL_CLIENTDATA, &self);
  const std::string text = self->begun_.empty() ? self->read_paste() : std::exchange(self->begun_, "");
  el_winsertstr(line, wide(pasteable(text)).c_str());
  return CC_REFRESH;
}

unsigned char LineReader::break_line(EditLine* line, int) {
  el_winsertstr(line, L"\n");
  return CC_REFRESH;
}

std::string LineReader::read_paste() {
  std::string text;
  char byte = 0;
  while (!text.ends_with(kPasteEnds) && read_byte(&byte) == 1)
    if (text.size() < kMostPasteBytes || text.ends_with('\033') || byte == '\033') text += byte;
  if (text.ends_with(kPasteEnds)) text.resize(text.size() - kPasteEnds.size());
  return text;
}

LineReader::~LineReader() {
  stop_editing();
  if (history_) history_end(history_);
}

// Gives the terminal back as it was found.
void LineReader::stop_editing() {
  if (line_) {
    bracketed_paste(false);
    el_end(std::exchange(line_, nullptr));
  }
  tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
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

// False after Ctrl-C.
bool LineReader::wait_for_input() {
  pollfd ready{STDIN_FILENO, POLLIN, 0};
  while (ppoll(&ready, 1, nullptr, open_signals_) < 0) {
    if (errno != EINTR || interrupted) return false;
    if (suspended && edits()) suspend();
    if (resized && edits()) redraw(line_);
    suspended = 0;
    resized = 0;
  }
  return true;
}

// A character, or a byte that is no part of one: 1; at the end of input 0; after Ctrl-C -1.
int LineReader::read_key(wchar_t* key) {
  while (true) {
    if (!keys_.empty()) {
      std::mbstate_t state{};
      const size_t size = std::mbrtowc(key, keys_.data(), keys_.size(), &state);
      const bool is_bad = size == static_cast<size_t>(-1), is_cut = size == static_cast<size_t>(-2);
      if (is_bad) *key = kRawByte + static_cast<unsigned char>(keys_[0]);
      if (!is_cut) {
        keys_.erase(0, is_bad || size == 0 ? 1 : size);
        return 1;
      }
    }
    char byte = 0;
    if (const int count = read_byte(&byte); count <= 0) return count;
    keys_ += byte;
  }
}

// Returns as read_key.
int LineReader::read_byte(char* byte) {
  if (!wait_for_input()) return -1;
  if (typed_early_ < 0 && ioctl(STDIN_FILENO, FIONREAD, &typed_early_) != 0) typed_early_ = 0;
  const ssize_t count = ::read(STDIN_FILENO, byte, 1);
  if (count <= 0) return static_cast<int>(count);
  if (typed_early_ > 0 && typed_early_-- && *byte == 0)
    *byte = kCtrlD;  // so the system keeps one that came in line mode
  return 1;
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
  bracketed_paste(false);
  el_set(line_, EL_PREP_TERM, 0);
  tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  std::fputc('\n', stdout);
  std::fflush(stdout);
  stop_for_the_shell();
  el_set(line_, EL_PREP_TERM, 1);
  bracketed_paste(true);
  el_set(line_, EL_REFRESH);
}

LineReader::Line LineReader::read_line(const std::string& prompt, const std::string& begun) {
  take_interrupt();  // one that came too late for the reply
  if (edits() && !window_fits()) stop_editing();
  set_prompt(prompt);
  const SignalsForTheReader signals(edits());
  open_signals_ = signals.open();
  return edits() ? read_edited(begun) : read_plain();
}

std::optional<std::string> LineReader::read(const std::string& begun) {
  Line line = read_line(name_, begun);
  std::string text = line.text;
  while (line.how == Line::kWhole && text.ends_with('\\')) {
    text.back() = '\n';
    line = read_line(std::string(name_.size() - std::min<size_t>(name_.size(), 1), '.') + ":", "");
    text += line.text;
  }
  if (line.how == Line::kInterrupted) return std::string();
  if (line.how == Line::kEnd) return std::nullopt;
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  remember(text);
  return text;
}

std::optional<std::string> LineReader::ask(const std::string& question, bool& interrupted) {
  Line line = read_line(question, "");
  interrupted = line.how == Line::kInterrupted;
  if (line.how == Line::kEnd) return std::nullopt;
  return line.text;
}

void LineReader::remember(const std::string& text) {
  HistEvent event;
  if (edits() && history_ && text.find_first_not_of(" \t\n") != std::string::npos &&
      utf8_error(text) == std::string::npos)  // the history has UTF-8 alone
    history(history_, &event, H_ENTER, text.c_str());
}

LineReader::Line LineReader::read_edited(const std::string& begun) {
  keys_.clear();
  el_resize(line_);
  begun_ = begun;
  if (!begun.empty()) el_push(line_, kPasteBegins);
  int count = 0;
  const wchar_t* text = el_wgets(line_, &count);
  begun_.clear();
  if (!text || count <= 0) {
    if (!take_interrupt()) return {"", Line::kEnd};
    el_reset(line_);
    std::fputs("\n", stdout);
    return {"", Line::kInterrupted};
  }
  std::string line = bytes_of({text, static_cast<size_t>(count)});
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  return {line};
}

// In line mode the system itself shows and edits what is typed, and gives it out line by line.
LineReader::Line LineReader::read_plain() {
  std::string prompt = prompt_;
  std::erase(prompt, '\1');
  std::fputs(prompt.c_str(), stdout);
  std::fflush(stdout);
  std::string line;
  while (!line.ends_with('\n')) {
    if (!wait_for_input()) {
      if (!take_interrupt()) return {"", Line::kEnd};
      std::fputs("\n", stdout);
      return {"", Line::kInterrupted};
    }
    char piece[4096];
    const ssize_t count = ::read(STDIN_FILENO, piece, sizeof piece);
    if (count <= 0) return {line, line.empty() ? Line::kEnd : Line::kWhole};
    line.append(piece, static_cast<size_t>(count));
  }
  line.pop_back();
  return {line};
}

}  // namespace chat
// NOLINTEND(concurrency-mt-unsafe)
