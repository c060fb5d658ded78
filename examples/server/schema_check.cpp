#include "schema_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <vector>

#include "../tools/nearest.hpp"

namespace kaiju::server {

namespace {

using Json = nlohmann::ordered_json;
using Names = std::set<std::string, std::less<>>;

// They say nothing about a value.
const Names kWords = {"title",      "description", "default",          "examples",    "example",
                      "deprecated", "readOnly",    "writeOnly",        "$comment",    "$schema",
                      "$id",        "$defs",       "contentMediaType", "definitions", "contentEncoding"};
// One of these says everything, in this order: xgrammar does not look at what is beside it.
constexpr const char* kWhole[] = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};

struct OfType {
  const char* type;
  Names keywords;
};
const std::vector<OfType> kTypes = {
    {"string", {"pattern", "format", "minLength", "maxLength"}},
    {"integer", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
    {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}},
    {"array", {"items", "prefixItems", "minItems", "maxItems"}},
    {"object",
     {"properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties"}},
    {"boolean", {}},
    {"null", {}},
};
const Names kFormats = {
    "date", "date-time",    "duration", "email",         "hostname",     "ipv4", "ipv6",
    "time", "json-pointer", "uri",      "uri-reference", "uri-template", "uuid", "relative-json-pointer"};

// Carries the first fault out of the schemas in schemas.
struct Fault {
  std::string what;
};
[[noreturn]] void fault(const std::string& at, const std::string& what) { throw Fault{at + " " + what}; }

const Json* field(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

// The types that a schema names, or those that its keywords speak of where it names none.
std::vector<OfType> types_of(const Json& schema, const std::string& at) {
  const Json* const type = field(schema, "type");
  std::vector<OfType> types;
  for (const OfType& one : kTypes) {
    const bool named = type && (*type == one.type ||
                                (type->is_array() && std::find(type->begin(), type->end(), one.type) != type->end()));
    const bool meant = !type && ((std::string_view(one.type) == "object" && field(schema, "properties")) ||
                                 (std::string_view(one.type) == "object" && field(schema, "additionalProperties")) ||
                                 (std::string_view(one.type) == "array" && field(schema, "items")) ||
                                 (std::string_view(one.type) == "array" && field(schema, "prefixItems")));
    if (named || meant) types.push_back(one);
  }
  const size_t count = !type ? types.size() : type->is_array() ? type->size() : 1;
  if (types.size() != count) fault(at, fmt::format("has the type {}, which there is not", type->dump()));
  return types;
}

Names followed_by(const std::vector<OfType>& types) {
  Names known = {"type"};
  for (const OfType& one : types) known.insert(one.keywords.begin(), one.keywords.end());
  return known;
}

// A keyword of another type, as far as it is one.
std::string type_of(std::string_view keyword) {
  for (const OfType& one : kTypes)
    if (one.keywords.contains(keyword)) return one.type;
  return "";
}

void check_known(const Json& schema, const Names& known, const std::string& beside, const std::string& at) {
  for (const auto& [name, value] : schema.items()) {
    const bool off = name == "uniqueItems" && value == false;
    if (known.contains(name) || kWords.contains(name) || name.starts_with("x-") || off) continue;
    const std::string shown = name.substr(0, 60), type = type_of(name);
    if (!beside.empty()) fault(at, fmt::format("has {} beside {}, which would not be followed", shown, beside));
    if (!type.empty() && !schema.contains("type"))
      fault(at, fmt::format("has {} and no type: add \"type\": \"{}\"", shown, type));
    const std::vector<std::string> words(known.begin(), known.end());
    fault(at, fmt::format("has {}, which replies do not follow{}", shown, tools::did_you_mean(name, words)));
  }
}

void check(const Json& schema, const std::string& at);

void check_each(const Json* schemas, const std::string& at) {
  if (!schemas || !schemas->is_structured()) return;  // xgrammar says what it must be
  for (const auto& [name, one] : schemas->items()) check(one, at + "/" + name.substr(0, 60));
}

void check_reference(const Json& reference, const std::string& at) {
  const std::string to = reference.is_string() ? reference.get<std::string>() : "";
  if (to != "#" && !to.starts_with("#/"))
    fault(at, fmt::format("has the $ref {}: only references into this schema are followed, such as #/$defs/NAME",
                          reference.dump().substr(0, 80)));
}

bool is_of(const Json& value, std::string_view type) {
  if (type == "integer")
    return value.is_number_integer() || (value.is_number() && value.get<double>() == std::trunc(value.get<double>()));
  return (type == "string" && value.is_string()) || (type == "number" && value.is_number()) ||
         (type == "boolean" && value.is_boolean()) || (type == "null" && value.is_null()) ||
         (type == "array" && value.is_array()) || (type == "object" && value.is_object());
}

// The values of enum and const may have a type beside them, as long as they are of it.
void check_values(const Json& schema, const Json& values, const std::string& at) {
  if (!schema.contains("type")) return;
  const std::vector<OfType> types = types_of(schema, at);
  for (const Json& value : values)
    if (std::none_of(types.begin(), types.end(), [&](const OfType& one) { return is_of(value, one.type); }))
      fault(at, fmt::format("has the value {}, which is not of its type", value.dump().substr(0, 80)));
}

void check_whole(const Json& schema, const std::string& keyword, const std::string& at) {
  const bool values = keyword == "enum" || keyword == "const";
  check_known(schema, values ? Names{keyword, "type"} : Names{keyword}, keyword, at);
  const Json& whole = schema.at(keyword);
  if (keyword == "$ref") check_reference(whole, at);
  if (keyword == "enum") check_values(schema, whole, at);
  if (keyword == "const") check_values(schema, Json::array({whole}), at);
  if (keyword == "allOf" && whole.size() != 1) fault(at, "has allOf with more than one schema: make them one");
  if (!values && keyword != "$ref") check_each(&whole, at + "/" + keyword);
}

void check_string(const Json& schema, const std::string& at) {
  const Json* const format = field(schema, "format");
  if (format && !(format->is_string() && kFormats.contains(format->get<std::string>())))
    fault(at, fmt::format("has the format {}; known are {}", format->dump().substr(0, 80), fmt::join(kFormats, ", ")));
  const bool lengths = schema.contains("minLength") || schema.contains("maxLength");
  if (lengths + (format != nullptr) + schema.contains("pattern") > 1)
    fault(at, "has more than one of pattern, format and lengths: only one is followed");
}

void check_object(const Json& schema, const std::string& at) {
  const Json* const properties = field(schema, "properties");
  const Json* const required = field(schema, "required");
  const Json* const patterns = field(schema, "patternProperties");
  if (required && required->is_array())
    for (const Json& name : *required)
      if (!name.is_string() || !properties || !properties->contains(name.get<std::string>()))
        fault(at, fmt::format("requires {}, which is none of its properties", name.dump().substr(0, 80)));
  if (patterns && (properties || patterns->size() != 1 || schema.value("additionalProperties", Json(false)) != false))
    fault(at, "has patternProperties beside other properties: only a single pattern without others is followed");
  check_each(properties, at + "/properties");
  check_each(patterns, at + "/patternProperties");
  if (const Json* more = field(schema, "additionalProperties")) check(*more, at + "/additionalProperties");
}

void check_array(const Json& schema, const std::string& at) {
  check_each(field(schema, "prefixItems"), at + "/prefixItems");
  if (const Json* items = field(schema, "items")) check(*items, at + "/items");
}

void check(const Json& schema, const std::string& at) {
  if (!schema.is_object()) return;  // true and false; xgrammar refuses the rest
  check_each(field(schema, "$defs"), at + "/$defs");
  check_each(field(schema, "definitions"), at + "/definitions");
  for (const char* keyword : kWhole)
    if (schema.contains(keyword)) return check_whole(schema, keyword, at);
  const std::vector<OfType> types = types_of(schema, at);
  check_known(schema, followed_by(types), "", at);
  for (const OfType& one : types) {
    const std::string_view type = one.type;
    if (type == "string") check_string(schema, at);
    if (type == "object") check_object(schema, at);
    if (type == "array") check_array(schema, at);
  }
}

}  // namespace

std::string not_followed_in(const Json& schema) {
  try {
    check(schema, "#");
  } catch (const Fault& found) {
    return found.what;
  }
  return {};
}

}  // namespace kaiju::server
