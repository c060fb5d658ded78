// Strict JSON: parses untrusted text into values, with limits. Knows nothing of checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kaiju/base/status.hpp"

namespace kaiju::format {

struct JsonObject;

// A parsed value. Destroying one takes no memory; destroying a nlohmann::json does, and ends the process where there is
// none.
struct Json {
  Json();  // null
  explicit Json(bool value);
  explicit Json(uint64_t value);
  explicit Json(int64_t value);
  explicit Json(double value);
  explicit Json(std::string value);
  explicit Json(std::vector<Json> items);
  explicit Json(std::unique_ptr<JsonObject> object);
  Json(Json&& other) noexcept;
  Json& operator=(Json&& other) noexcept;
  ~Json();

  // NULL when the value is of another kind.
  const std::string* text() const { return std::get_if<std::string>(&value); }
  const std::vector<Json>* array() const { return std::get_if<std::vector<Json>>(&value); }
  const JsonObject* object() const;
  const uint64_t* whole() const {
    return std::get_if<uint64_t>(&value);
  }  // in plain digits, below 2^64, not negative: 1.0, 1e3 and -0 are not

  std::variant<std::monostate, bool, uint64_t, int64_t, double, std::string, std::vector<Json>,
               std::unique_ptr<JsonObject>>
      value;
};

struct JsonObject {
  std::map<std::string, Json, std::less<>> members;

  // NULL when there is none.
  const Json* find(std::string_view key) const {
    const auto found = members.find(key);
    return found == members.end() ? nullptr : &found->second;
  }
};

// What a text may ask for, so that a small hostile one cannot take much memory or time.
struct JsonLimits {
  size_t depth;         // nested objects and arrays
  size_t values;        // all values together, containers included
  size_t string_bytes;  // the longest string, as written
};

// Parses an object. Refuses, with kBadModel and `what` at the front of the message: anything that is not JSON, a
// duplicate key at any level, more than `limits`, and anything but white space after the object.
Status parse_json(std::string_view text, std::string_view what, const JsonLimits& limits, JsonObject& out);

// `text` as a JSON string, quotes included; what is not UTF-8 becomes U+FFFD.
std::string json_string(std::string_view text);
std::string json_number(double value);
bool is_utf8(std::string_view text);

// `text` in double quotes for a message: control and non-ASCII bytes escaped, long ones cut.
std::string in_quotes(std::string_view text);

}  // namespace kaiju::format
