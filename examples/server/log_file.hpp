// LogFile: a file that grows by whole lines, and goes on in a new one of its name after it was renamed.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "../tools/standard_streams.hpp"

namespace kaiju::server {

class LogFile {
 public:
  // A file, "-" for standard error, or "none". `mode`: rights of the file; with those of its owner alone, one that was
  // there before gets them too. Throws std::runtime_error.
  LogFile(std::string file, mode_t mode) : file_(std::move(file)), mode_(mode) {
    if (file_ == "-")
      to_ = stderr;
    else if (is_file() && !(to_ = open()))
      throw std::runtime_error(file_ + ": cannot open for writing");
  }
  ~LogFile() { close(); }
  LogFile(const LogFile&) = delete;

  bool writes() const { return to_ != nullptr; }
  void reopen() {
    if (!is_file()) return;
    std::FILE* const again = open();
    if (!again) return tools::print(stderr, "kaiju-server: {}: cannot open for writing; the log goes on\n", file_);
    close();
    to_ = again;
  }
  void write(std::string_view line) {
    if (!to_) return;
    std::fwrite(line.data(), 1, line.size(), to_);
    std::fputc('\n', to_);
    const bool written = std::fflush(to_) == 0;
    if (!written && !failed_ && to_ != stderr)
      tools::print(stderr, "kaiju-server: {}: cannot write; lines of this log are lost\n", file_);
    failed_ = !written;
    if (failed_) std::clearerr(to_);
  }

 private:
  bool is_file() const { return file_ != "-" && file_ != "none"; }
  std::FILE* open() const {
    const int fd = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, mode_);
    if (fd < 0) return nullptr;
    std::FILE* const stream = (mode_ & 077) != 0 || ::fchmod(fd, mode_) == 0 ? ::fdopen(fd, "a") : nullptr;
    if (!stream) ::close(fd);
    return stream;
  }
  void close() {
    if (to_ && to_ != stderr) std::fclose(to_);
  }

  const std::string file_;
  const mode_t mode_;
  std::FILE* to_ = nullptr;
  bool failed_ = false;  // the newest line was lost
};

}  // namespace kaiju::server
