// Strict JSON: see json.hpp.
#include "json.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace kaiju::format {
namespace {

using nlohmann::json;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// One look at the bytes before the parser sees them: the parser keeps whole strings, so their length is bounded here; and it takes a NUL
// for the end of the text, so what follows the object is checked here.
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
      if (++depth > limits.depth) return bad_model(fmt::format("{} is nested deeper than {} levels", what, limits.depth));
    } else if (c == '}' || c == ']') {
      if (--depth == 0) break;
    }
  }
  if (at >= text.size()) return bad_model(fmt::format("{} is not valid JSON: it ends early", what));
  while (++at < text.size())
    if (!is_space(text[at])) return bad_model(fmt::format("{} has something after its closing brace, at byte {}", what, at));
  return {};
}

// Builds the values; stops at the first duplicate key or limit.
class Builder final : public nlohmann::json_sax<json> {
 public:
  Builder(std::string_view what, const JsonLimits& limits, json& root) : what_(what), limits_(limits), root_(root) {}

  const std::string& error() const { return error_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return fail("{} holds binary data", what_); }
  bool start_object(size_t) override { return open(json::object()); }
  bool start_array(size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& key) override {
    if (stack_.back()->contains(key)) return fail("{} has the key {} twice", what_, in_quotes(key));
    key_ = std::move(key);
    return true;
  }
  // The parser's own message repeats the offending token, however long: the position says enough.
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    return fail("{} is not valid JSON at byte {}", what_, position);
  }

 private:
  template <class... Args>
  bool fail(fmt::format_string<Args...> format, Args&&... args) {
    error_ = fmt::format(format, std::forward<Args>(args)...);
    return false;
  }
  bool add(json value) {
    count_ += value.is_object() ? 2 : 1;  // an object's map costs as much again
    if (count_ > limits_.values) return fail("{} holds more than {} values", what_, limits_.values);
    if (stack_.empty())
      last_ = &(root_ = std::move(value));
    else if (stack_.back()->is_array())
      last_ = &stack_.back()->emplace_back(std::move(value));
    else
      last_ = &((*stack_.back())[key_] = std::move(value));
    return true;
  }
  bool open(json container) {
    if (!add(std::move(container))) return false;
    stack_.push_back(last_);
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  std::string_view what_;
  const JsonLimits& limits_;
  json& root_;
  json* last_ = nullptr;
  std::vector<json*> stack_;  // open containers; a parent does not grow while a child is open, so the pointers hold
  std::string key_;
  size_t count_ = 0;
  std::string error_;
};

}  // namespace

Status parse_json(std::string_view text, std::string_view what, const JsonLimits& limits, json& out) {
  KAIJU_TRY(scan(text, what, limits));
  Builder builder(what, limits, out);
  if (!json::sax_parse(text.begin(), text.end(), &builder)) return bad_model(builder.error());
  return {};
}

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
