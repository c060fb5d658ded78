// What a request's body says: fields of known type and range, and how a reply is sampled.
//
// Every mistake is a Failure that names the field. Fields of samplers that the engine does not have are refused by name
// unless they have the value that changes nothing. Fields that nobody knows are left alone on the routes of OpenAI's
// API, as other servers do, and refused on our own.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kaiju/kaiju.hpp"

namespace kaiju::server {

// The fields of a JSON object. Absent and null are the same. Remembers which were asked for.
class Fields {
 public:
  explicit Fields(const nlohmann::json& object) : object_(object) {}

  bool has(const char* name) const;
  const nlohmann::json& at(const char* name) const { return object_.at(name); }
  double number(const char* name, double otherwise, double least, double most) const;
  int64_t integer(const char* name, int64_t otherwise, int64_t least, int64_t most) const;
  bool flag(const char* name, bool otherwise) const;
  std::string text(const char* name, const std::string& otherwise = {}) const;
  std::vector<std::string> texts(const char* name) const;  // a string, or a list of strings
  std::vector<int32_t> tokens(const char* name, int32_t vocabulary) const;
  // Throws Failure for a field that was not asked for until now.
  void refuse_others() const;

 private:
  const nlohmann::json& object_;
  mutable std::set<std::string> asked_;
};

// What is sampled where a request does not say.
struct Defaults {
  double temperature = 0.7;
  int32_t max_tokens = 512;
};

struct Wanted {
  RequestOptions options;
  int32_t n = 1;        // choices that are answered
  int32_t best_of = 1;  // sequences that are computed; the n likeliest are answered
  int32_t min_tokens = 0;
  bool stream = false;
  bool usage_in_stream = false;
  bool logprobs = false;
  bool token_ids = false;  // are answered, of prompts and replies
  bool max_tokens_given = false;
  bool echo = false;
  std::string user;         // of the client's own, by whom the journal files the reply; may be empty
  std::string tier;         // whose limits count (tiers.hpp); empty: none
  LabelValues gate_limits;  // of the gate's labels, without "gate."; once Tiers has been asked, those of the tier too
};

// What names a label of the gate among limits: "gate.violence" beside the classifier's "violence".
inline constexpr std::string_view kOfGate = "gate.";

// Reads everything but the prompt. `chat`: the fields of /v1/chat/completions, else of /v1/completions.
Wanted read_wanted(const Fields& fields, bool chat, const Defaults& defaults, const Model& model);

// Refuses by name what this server does not do: tools, audio, images, embeddings.
void refuse_unsupported(const Fields& fields);

}  // namespace kaiju::server
