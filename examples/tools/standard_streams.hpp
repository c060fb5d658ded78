// The standard streams of a program: opens them at the start, and prints to them in one way. Printing never ends a
// program, unlike fmt::print, which throws if a stream cannot be written, and a broken pipe, which raises a signal.
// Whether all output was written is checked once, at the end.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <utility>

namespace kaiju::tools {

// A program may be started with standard streams closed. The first files it opens would then take their numbers, and be
// read as its input or written over by its output. Such a stream is opened on nothing, the wrong way round, so that
// reading or writing it still fails.
inline void hold_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0)
      (void)open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the lowest number that is free
}

// The first thing a program does. From now on a write to a broken pipe, or past the limit for the size of files
// (ulimit -f), fails like any other and does not end the program.
inline void prepare_streams() {
  hold_closed_streams();
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
}

// The text without characters that a terminal would obey: those are written as bytes, \x1b. For names of files and
// messages that contain them.
inline std::string printable(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0u;
    if (byte < 0x20 || byte == 0x7F)
      out += fmt::format("\\x{:02x}", byte);
    else if (byte == 0xC2 && next >= 0x80 && next < 0xA0)  // U+0080 to U+009F
      out += fmt::format("\\x{:02x}\\x{:02x}", byte, next), ++i;
    else
      out += text[i];
  }
  return out;
}

// A failure is remembered by the stream, and ignored on stderr.
template <class... Arguments>
void print(std::FILE* stream, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  const std::string text = fmt::format(format, std::forward<Arguments>(arguments)...);
  std::fwrite(text.data(), 1, text.size(), stream);
}

template <class... Arguments>
void print(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  tools::print(stdout, format, std::forward<Arguments>(arguments)...);
}

// Nobody takes the output any more: what goes on for long may stop.
inline bool output_failed() { return std::ferror(stdout) != 0; }

}  // namespace kaiju::tools
