// Blocked: which limit a message or a reply has reached, and a log of them.
#pragma once

#include <string>

#include "http.hpp"
#include "log_file.hpp"

namespace kaiju::server {

struct Blocked {
  const char* by = "";  // "gate", or "head": the model's classifier
  std::string label;
  double probability = 0, limit = 0;
};

// A line of JSON for each message that a gate blocked and each reply that a verdict ended. It has what people wrote, so
// its file is its owner's alone.
class BlockedLog {
 public:
  // As LogFile. Throws std::runtime_error.
  explicit BlockedLog(std::string file) : file_(std::move(file), 0600) {}
  bool writes() const { return file_.writes(); }
  void reopen() { file_.reopen(); }
  // `messages`: those of the request, with roles as OpenAI has them. `reply`: what was written until the verdict.
  void write(const Exchange& exchange, const std::string& key, const std::string& tier, const Blocked& blocked,
             const nlohmann::ordered_json& messages, const std::string& reply);

 private:
  LogFile file_;
};

}  // namespace kaiju::server
