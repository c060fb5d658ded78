// Records of replies as bytes. See records.hpp.
#include "kaiju/records.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <limits>
#include <set>
#include <type_traits>

#include "format/json.hpp"
#include "record_fields.hpp"

namespace kaiju {
namespace {
namespace record_bytes {  // its names are others' too, in a build of several files at once

using format::Json;

constexpr std::string_view kMagic = "KREC";
constexpr size_t kHead = 8;  // the magic and the size of the object
constexpr size_t kMostTokens = size_t{1} << 26;
constexpr format::JsonLimits kLimits = {4, 300'000, size_t{1} << 20};
// Of the object beside the fields.
constexpr std::string_view kVersion = "kaiju_record", kSalt = "salt_digest", kTokens = "tokens";

std::string in_hexadecimal(const unsigned char* bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

// Half of SHA-256; empty where there is no salt.
std::string salt_digest(const std::string& salt) {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (salt.empty() || EVP_Digest(salt.data(), salt.size(), bytes, &size, EVP_sha256(), nullptr) != 1) return {};
  return in_hexadecimal(bytes, size / 2);
}

// -- writing --

std::string written(const std::string& value) { return format::json_string(value); }
std::string written(bool value) { return value ? "true" : "false"; }
std::string written(double value) { return format::json_number(value); }
std::string written(float value) { return format::json_number(static_cast<double>(value)); }
template <class T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>)
std::string written(T value) {
  if constexpr (std::is_enum_v<T>)
    return fmt::format("{}", static_cast<int32_t>(value));
  else
    return fmt::format("{}", value);
}
template <class A, class B>
std::string written(const std::pair<A, B>& value) {
  return "[" + written(value.first) + "," + written(value.second) + "]";
}
std::string written(const Sampler& value) {
  std::string text = fmt::format("[{}", static_cast<int32_t>(value.kind));
  for (const double each : value.values) text += "," + written(each);
  return text + "]";
}
template <class T>
std::string written(const std::vector<T>& values) {
  std::string text = "[";
  for (const T& value : values) text += (text.size() > 1 ? "," : "") + written(value);
  return text + "]";
}
template <class T>
std::string written(const std::optional<T>& value) {
  return value ? written(*value) : "null";
}

void put_number(std::string& bytes, uint32_t number) {
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(number | 0x80);
  bytes += static_cast<char>(number);
}

// -- reading: false where the value is none of this kind --

bool read(const Json& json, std::string& value) {
  const std::string* text = json.text();
  if (text) value = *text;
  return text;
}
bool read(const Json& json, bool& value) {
  const bool* given = std::get_if<bool>(&json.value);
  if (given) value = *given;
  return given;
}
bool read(const Json& json, double& value) {
  if (const double* real = std::get_if<double>(&json.value))
    value = *real;
  else if (const uint64_t* whole = json.whole())
    value = static_cast<double>(*whole);
  else if (const int64_t* negative = std::get_if<int64_t>(&json.value))
    value = static_cast<double>(*negative);
  else
    return false;
  return true;
}
bool read(const Json& json, float& value) {
  double wide = 0;
  if (!read(json, wide)) return false;
  value = static_cast<float>(wide);
  return true;
}
template <class T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>)
bool read(const Json& json, T& value) {
  if constexpr (std::is_enum_v<T>) {
    int32_t number = 0;
    if (!read(json, number)) return false;
    value = static_cast<T>(number);
    return true;
  } else {
    const uint64_t* whole = json.whole();
    const int64_t* negative = std::get_if<int64_t>(&json.value);
    if (whole ? !std::in_range<T>(*whole) : !negative || !std::in_range<T>(*negative)) return false;
    value = whole ? static_cast<T>(*whole) : static_cast<T>(*negative);
    return true;
  }
}
template <class A, class B>
bool read(const Json& json, std::pair<A, B>& value) {
  const std::vector<Json>* both = json.array();
  return both && both->size() == 2 && read((*both)[0], value.first) && read((*both)[1], value.second);
}
bool read(const Json& json, Sampler& value) {
  const std::vector<Json>* items = json.array();
  if (!items || items->size() != 1 + value.values.size() || !read((*items)[0], value.kind)) return false;
  for (size_t i = 0; i < value.values.size(); ++i)
    if (!read((*items)[i + 1], value.values[i])) return false;
  return true;
}
template <class T>
bool read(const Json& json, std::vector<T>& values) {
  const std::vector<Json>* items = json.array();
  if (!items) return false;
  for (const Json& item : *items)
    if (!read(item, values.emplace_back())) return false;
  return true;
}
template <class T>
bool read(const Json& json, std::optional<T>& value) {
  return read(json, value.emplace());
}

Status damaged(const std::string& what) { return bad_model("the record is damaged: " + what); }

// The bytes of the object. What is behind them are the tokens.
Result<std::string_view> object_of(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) return bad_model("these bytes are no record of a reply");
  if (bytes.size() < kHead) return damaged("it is cut off");
  uint32_t size = 0;
  for (size_t i = 0; i < 4; ++i)
    size |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[kMagic.size() + i])) << (8 * i);
  if (size > bytes.size() - kHead) return damaged("it is cut off");
  return bytes.substr(kHead, size);
}

Status read_fields(const format::JsonObject& object, ReplyRecord& record) {
  std::set<std::string_view> known = {kVersion, kSalt, kTokens};
  Status status;
  for_fields([&](const char* name, const auto& at) {
    known.insert(name);
    const Json* const value = object.find(name);
    if (value && status.ok() && !read(*value, at(record))) status = damaged(fmt::format("{} is wrong", name));
  });
  KAIJU_TRY(status);
  for (const auto& [name, value] : object.members)
    if (!known.contains(name))
      return {StatusCode::kUnsupported, "the record has a field " + format::in_quotes(name) +
                                            ", which a later version of kaiju must have written"};
  return {};
}

Status read_tokens(std::string_view bytes, size_t count, std::vector<int32_t>& tokens) {
  if (count > bytes.size()) return damaged("it is cut off");
  tokens.reserve(count);
  size_t at = 0;
  while (tokens.size() < count) {
    uint32_t number = 0;
    for (uint32_t shift = 0;; shift += 7) {
      if (at == bytes.size() || shift > 28) return damaged("its tokens are wrong");
      const auto byte = static_cast<unsigned char>(bytes[at++]);
      number |= static_cast<uint32_t>(byte & 0x7F) << shift;
      if (byte < 0x80) break;
    }
    if (number > static_cast<uint32_t>(std::numeric_limits<int32_t>::max())) return damaged("its tokens are wrong");
    tokens.push_back(static_cast<int32_t>(number));
  }
  return at == bytes.size() ? Status() : damaged("there is something behind its end");
}

}  // namespace record_bytes
}  // namespace

std::string encode_record(const ReplyRecord& record) {
  const ReplyRecord plain;
  std::string object = fmt::format("{{\"{}\":1", record_bytes::kVersion);
  const auto add = [&](std::string_view name, const std::string& value) {
    object += "," + format::json_string(name) + ":" + value;
  };
  for_fields([&](const char* name, const auto& at) {
    if (at(record) != at(plain)) add(name, record_bytes::written(at(record)));
  });
  if (const std::string digest = record_bytes::salt_digest(record.options.scope.salt); !digest.empty())
    add(record_bytes::kSalt, record_bytes::written(digest));
  const size_t count = record.tokens ? record.tokens->size() : 0;
  add(record_bytes::kTokens, record_bytes::written(count));
  object += "}";

  std::string bytes(record_bytes::kMagic);
  for (size_t i = 0; i < 4; ++i) bytes += static_cast<char>(object.size() >> (8 * i));
  bytes += object;
  for (size_t i = 0; i < count; ++i) record_bytes::put_number(bytes, static_cast<uint32_t>((*record.tokens)[i]));
  return bytes;
}

Result<ReplyRecord> decode_record(std::string_view bytes) {
  Result<std::string_view> object = record_bytes::object_of(bytes);
  if (!object.ok()) return object.status();
  format::JsonObject parsed;
  KAIJU_TRY(format::parse_json(*object, "the record", record_bytes::kLimits, parsed));
  const auto number = [&](std::string_view name) -> uint64_t {
    const record_bytes::Json* const value = parsed.find(name);
    return value && value->whole() ? *value->whole() : std::numeric_limits<uint64_t>::max();
  };
  if (number(record_bytes::kVersion) != 1)
    return Status(StatusCode::kUnsupported, "a later version of kaiju wrote the record");
  if (number(record_bytes::kTokens) > record_bytes::kMostTokens)
    return record_bytes::damaged("its number of tokens is wrong");
  ReplyRecord record;
  KAIJU_TRY(record_bytes::read_fields(parsed, record));
  auto tokens = std::make_shared<std::vector<int32_t>>();
  KAIJU_TRY(record_bytes::read_tokens(bytes.substr(record_bytes::kHead + object->size()), number(record_bytes::kTokens),
                                      *tokens));
  if (record.prompt_tokens < 0 || static_cast<size_t>(record.prompt_tokens) > tokens->size())
    return record_bytes::damaged("its prompt is longer than all of its tokens");
  record.tokens = std::move(tokens);
  return record;
}

Result<std::string> describe_record(std::string_view bytes) {
  Result<ReplyRecord> record = decode_record(bytes);
  if (!record.ok()) return record.status();
  return std::string(record_bytes::object_of(bytes).value());
}

}  // namespace kaiju
