// AccessLog: a line of JSON for each answer.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "../tools/standard_streams.hpp"
#include "http.hpp"
#include "openai.hpp"

namespace kaiju::server {

class AccessLog {
 public:
  // A file, "-" for standard error, or "none". Throws std::runtime_error.
  explicit AccessLog(std::string file) : file_(std::move(file)) {
    if (file_ == "-")
      to_ = stderr;
    else if (is_file() && !(to_ = std::fopen(file_.c_str(), "a")))
      throw std::runtime_error(file_ + ": cannot open for writing");
  }
  ~AccessLog() { close(); }
  AccessLog(const AccessLog&) = delete;

  // Goes on in a new file of the same name, where the old one was renamed.
  void reopen() {
    if (!is_file()) return;
    std::FILE* const again = std::fopen(file_.c_str(), "a");
    if (!again) return tools::print(stderr, "kaiju-server: {}: cannot open for writing; the log goes on\n", file_);
    close();
    to_ = again;
  }

  void write(const Exchange& exchange, const std::string& tenant, double seconds) {
    if (!to_) return;
    nlohmann::ordered_json line = {{"time", unix_time()},       {"id", exchange.id},
                                   {"peer", exchange.peer},     {"key", tenant},
                                   {"method", exchange.method}, {"path", exchange.path},
                                   {"status", exchange.status}, {"milliseconds", std::round(seconds * 1e5) / 100}};
    if (const std::string trace = exchange.header("traceparent"); !trace.empty()) line["traceparent"] = trace;
    line.update(exchange.log);
    const std::string text = dump(line) + "\n";
    std::fwrite(text.data(), 1, text.size(), to_);
    std::fflush(to_);
  }

 private:
  bool is_file() const { return file_ != "-" && file_ != "none"; }
  void close() {
    if (to_ && to_ != stderr) std::fclose(to_);
  }

  const std::string file_;
  std::FILE* to_ = nullptr;
};

}  // namespace kaiju::server
