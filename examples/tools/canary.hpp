// Canaries: fixed prompts whose replies have known digests. The arithmetic is exact, so a digest that differs is a
// fault of the machine, of its driver or of the build.
//
// A prompt of a canary is of random tokens, a function of its number; the reply is greedy. The digest is of the reply's
// tokens and of the log-probabilities of the eight likeliest in each place, to the last bit.
#pragma once

#include <fmt/format.h>
#include <xxhash.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "kaiju/base/random.hpp"
#include "kaiju/kaiju.hpp"

namespace kaiju::tools {

struct Canary {
  uint32_t number = 0;
  int32_t prompt_tokens = 0, reply_tokens = 0;
  std::string digest;  // 16 hexadecimal digits
};

inline std::vector<int32_t> prompt_of(const Canary& canary, int32_t vocab_size) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < canary.prompt_tokens; ++i)
    prompt.push_back(static_cast<int32_t>(random_bits(17, canary.number, static_cast<uint64_t>(i)) %
                                          static_cast<uint64_t>(vocab_size)));
  return prompt;
}

inline RequestOptions options_of(const Canary& canary) {
  RequestOptions options;
  options.max_tokens = canary.reply_tokens;
  options.stop_tokens.emplace();
  options.logprobs = 8;
  options.priority = -1'000'000;  // after everybody else
  return options;
}

// The digest of a reply, event by event.
class CanaryDigest {
 public:
  void take(const Event& event) {
    if (event.kind != EventKind::kToken) return;
    put(&event.token, sizeof event.token);
    put(&event.logprob, sizeof event.logprob);
    for (const TokenLogprob& top : event.top) {
      put(&top.token, sizeof top.token);
      put(&top.logprob, sizeof top.logprob);
    }
  }
  std::string text() const { return fmt::format("{:016x}", XXH64(bytes_.data(), bytes_.size(), 0)); }

 private:
  void put(const void* from, size_t size) { bytes_.append(static_cast<const char*>(from), size); }
  std::string bytes_;
};

struct CanaryFile {
  std::string model;  // the checkpoint's digest
  std::vector<Canary> canaries;
};

// Throws std::runtime_error, which names the file.
inline CanaryFile read_canaries(const std::string& path) {
  std::ifstream file(path);
  const auto wrong = [&](const std::string& what) { return std::runtime_error(path + ": " + what); };
  if (!file) throw wrong("cannot be read");
  try {
    const auto json = nlohmann::json::parse(file);
    CanaryFile read{json.at("model").get<std::string>(), {}};
    for (const auto& each : json.at("canaries"))
      read.canaries.push_back({each.at("number").get<uint32_t>(), each.at("prompt_tokens").get<int32_t>(),
                               each.at("reply_tokens").get<int32_t>(), each.at("digest").get<std::string>()});
    if (read.canaries.empty()) throw wrong("has no canaries");
    return read;
  } catch (const nlohmann::json::exception&) {
    throw wrong("is no file of canaries: kaiju-canary MODEL --out FILE makes one");
  }
}

}  // namespace kaiju::tools
