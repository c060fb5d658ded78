// Strict JSON: text nobody vouches for, turned into values under limits, without exceptions. Knows nothing of checkpoints.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "kaiju/base/status.hpp"

namespace kaiju::format {

// What a text may ask for, so that a small hostile one cannot take much memory or time.
struct JsonLimits {
  size_t depth;         // nested objects and arrays
  size_t values;        // all values together, containers included
  size_t string_bytes;  // the longest string, as written
};

// Parses an object. Refuses, with kBadModel and `what` at the front of the message: anything that is not JSON, a duplicate key at any
// level, more than `limits`, and anything but white space after the object.
Status parse_json(std::string_view text, std::string_view what, const JsonLimits& limits, nlohmann::json& out);

// `text` in double quotes for a message: control and non-ASCII bytes escaped, long ones cut.
std::string in_quotes(std::string_view text);

}  // namespace kaiju::format
