// AccessLog: a line of JSON for each answer.
#pragma once

#include <cmath>
#include <string>
#include <utility>

#include "http.hpp"
#include "log_file.hpp"
#include "openai.hpp"

namespace kaiju::server {

class AccessLog {
 public:
  // As LogFile. Throws std::runtime_error.
  explicit AccessLog(std::string file) : file_(std::move(file), 0666) {}
  void reopen() { file_.reopen(); }

  void write(const Exchange& exchange, const std::string& tenant, double seconds) {
    if (!file_.writes()) return;
    nlohmann::ordered_json line = {{"time", unix_time()},       {"id", exchange.id},
                                   {"peer", exchange.peer},     {"key", tenant},
                                   {"method", exchange.method}, {"path", exchange.path},
                                   {"status", exchange.status}, {"milliseconds", std::round(seconds * 1e5) / 100}};
    if (const std::string trace = exchange.header("traceparent"); !trace.empty()) line["traceparent"] = trace;
    line.update(exchange.log);
    file_.write(dump(line));
  }

 private:
  LogFile file_;
};

}  // namespace kaiju::server
