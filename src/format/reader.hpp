// Reader: reads the fields of a JSON object of the config, and refuses what it does not know.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "json.hpp"

namespace kaiju::format {

// Reads the fields of one object; whatever is left at the end has a name we do not know, and may mean what we must not
// ignore.
class Reader {
 public:
  Reader(const JsonObject& object, std::string path) : object_(object), path_(std::move(path)) {}

  bool has(const char* key) const { return object_.find(key); }
  Status find(const char* key, const Json** out) {
    *out = object_.find(key);
    if (!*out) return bad_model(fmt::format("{}.{} is missing", path_, key));
    known_.emplace_back(key);
    return {};
  }
  // Whole and not negative, in plain digits: 1.0, 1e3 and -0 are refused, as are numbers beyond int32.
  Status number(const char* key, int32_t& out) {
    const Json* value = nullptr;
    KAIJU_TRY(find(key, &value));
    if (!value->whole() || *value->whole() > INT32_MAX)
      return bad_model(fmt::format("{}.{} must be a whole number from 0 to {}", path_, key, INT32_MAX));
    out = static_cast<int32_t>(*value->whole());
    return {};
  }
  // Any number.
  Status number(const char* key, float& out) {
    const Json* value = nullptr;
    KAIJU_TRY(find(key, &value));
    if (const auto* fraction = std::get_if<double>(&value->value)) return out = static_cast<float>(*fraction), Status();
    if (value->whole()) return out = static_cast<float>(*value->whole()), Status();
    if (const auto* negative = std::get_if<int64_t>(&value->value))
      return out = static_cast<float>(*negative), Status();
    return bad_model(fmt::format("{}.{} must be a number", path_, key));
  }
  Status string(const char* key, std::string& out) {
    const Json* value = nullptr;
    KAIJU_TRY(find(key, &value));
    if (!value->text()) return bad_model(fmt::format("{}.{} must be a string", path_, key));
    out = *value->text();
    return {};
  }
  Status flag(const char* key, bool& out) {
    const Json* value = nullptr;
    KAIJU_TRY(find(key, &value));
    const bool* found = std::get_if<bool>(&value->value);
    if (!found) return bad_model(fmt::format("{}.{} must be true or false", path_, key));
    out = *found;
    return {};
  }
  // One of the names of an enum.
  template <class Enum, size_t kCount>
  Status name(const char* key, const std::string_view (&names)[kCount], Enum& out) {
    std::string found;
    KAIJU_TRY(string(key, found));
    const auto at = std::find(std::begin(names), std::end(names), found);
    if (at == std::end(names))
      return bad_model(
          fmt::format("{}.{} is {}: must be one of {}", path_, key, in_quotes(found), fmt::join(names, ", ")));
    out = static_cast<Enum>(at - std::begin(names));
    return {};
  }
  Status end() const {
    for (const auto& [key, value] : object_.members)
      if (std::find(known_.begin(), known_.end(), key) == known_.end())
        return bad_model(fmt::format("{}.{} is not a field this build knows", path_, in_quotes(key)));
    return {};
  }

 private:
  const JsonObject& object_;
  std::string path_;
  std::vector<std::string_view> known_;
};

}  // namespace kaiju::format
