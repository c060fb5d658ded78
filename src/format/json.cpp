// Parses strict JSON: see json.hpp.
#include "json.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace kaiju::format {
namespace {

using nlohmann::json;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// One look at the bytes before the parser sees them: the parser keeps whole strings, so their length is bounded here;
// and it takes a NUL for the end of the text, so what follows the object is checked here.
Status scan(std::string_view text, std::string_view what, const JsonLimits& limits) {
  if (text.empty() || text[0] != '{') return bad_model(fmt::format("{} does not begin with '{{'", what));
  size_t depth = 0;
  size_t at = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      const size_t begin = ++at;
      while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
      if (at - begin > limits.string_bytes)
        return bad_model(fmt::format("{} holds a string longer than {} bytes", what, limits.string_bytes));
    } else if (c == '{' || c == '[') {
      if (++depth > limits.depth)
        return bad_model(fmt::format("{} is nested deeper than {} levels", what, limits.depth));
    } else if (c == '}' || c == ']') {
      if (--depth == 0) break;
    }
  }
  if (at >= text.size()) return bad_model(fmt::format("{} is not valid JSON: it ends early", what));
  while (++at < text.size())
    if (!is_space(text[at]))
      return bad_model(fmt::format("{} has something after its closing brace, at byte {}", what, at));
  return {};
}

// Builds the values; stops at the first duplicate key or limit.
class Builder final : public nlohmann::json_sax<json> {
 public:
  Builder(std::string_view what, const JsonLimits& limits, JsonObject& root)
      : what_(what), limits_(limits), root_(root) {}

  const std::string& error() const { return error_; }

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override { return add(Json(uint64_t{value})); }
  bool number_float(number_float_t value, const string_t&) override { return add(Json(value)); }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t&) override { return fail("{} holds binary data", what_); }
  bool start_object(size_t) override {
    if (!count(2)) return false;  // an object's map costs as much again
    if (open_.empty()) return open_.push_back({&root_, nullptr}), true;
    Json* const added = place(Json(std::make_unique<JsonObject>()));
    return open_.push_back({std::get<std::unique_ptr<JsonObject>>(added->value).get(), nullptr}), true;
  }
  bool start_array(size_t) override {
    if (!count(1)) return false;
    Json* const added = place(Json(std::vector<Json>()));
    return open_.push_back({nullptr, &std::get<std::vector<Json>>(added->value)}), true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& key) override {
    if (open_.back().object->find(key)) return fail("{} has the key {} twice", what_, in_quotes(key));
    key_ = std::move(key);
    return true;
  }
  // The parser's own message repeats the offending token, however long: the position says enough.
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    return fail("{} is not valid JSON at byte {}", what_, position);
  }

 private:
  // A container being filled: one of the two. A parent does not grow while a child is open, so the pointers hold.
  struct Open {
    JsonObject* object;
    std::vector<Json>* array;
  };

  template <class... Args>
  bool fail(fmt::format_string<Args...> format, Args&&... args) {
    error_ = fmt::format(format, std::forward<Args>(args)...);
    return false;
  }
  bool count(size_t values) {
    count_ += values;
    return count_ <= limits_.values || fail("{} holds more than {} values", what_, limits_.values);
  }
  Json* place(Json value) {
    const Open& parent = open_.back();  // the text begins with an object: see scan()
    return parent.array ? &parent.array->emplace_back(std::move(value))
                        : &(parent.object->members[std::move(key_)] = std::move(value));
  }
  bool add(Json value) { return count(1) && place(std::move(value)); }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view what_;
  const JsonLimits& limits_;
  JsonObject& root_;
  std::vector<Open> open_;
  std::string key_;
  size_t count_ = 0;
  std::string error_;
};

}  // namespace

Json::Json() = default;
Json::Json(bool value) : value(value) {}
Json::Json(uint64_t value) : value(value) {}
Json::Json(int64_t value) : value(value) {}
Json::Json(double value) : value(value) {}
Json::Json(std::string value) : value(std::move(value)) {}
Json::Json(std::vector<Json> items) : value(std::move(items)) {}
Json::Json(std::unique_ptr<JsonObject> object) : value(std::move(object)) {}
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

const JsonObject* Json::object() const {
  const auto* object = std::get_if<std::unique_ptr<JsonObject>>(&value);
  return object ? object->get() : nullptr;
}

Status parse_json(std::string_view text, std::string_view what, const JsonLimits& limits, JsonObject& out) {
  KAIJU_TRY(scan(text, what, limits));
  Builder builder(what, limits, out);
  if (!json::sax_parse(text.begin(), text.end(), &builder)) return bad_model(builder.error());
  return {};
}

std::string json_string(std::string_view text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

bool is_utf8(std::string_view text) {
  return json_string(text) == json(text).dump(-1, ' ', false, json::error_handler_t::ignore);
}

std::string json_number(double value) { return json(value).dump(); }

std::string in_quotes(std::string_view text) {
  constexpr size_t kShown = 120;
  std::string out = "\"";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte > 0x7E)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out + (text.size() > kShown ? "...\"" : "\"");
}

}  // namespace kaiju::format
