#include "fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "card.hpp"

namespace kaiju::server {
namespace {

using nlohmann::json;

std::string type_words(const json& value) {
  switch (value.type()) {
    case json::value_t::object:
      return "an object";
    case json::value_t::array:
      return "a list";
    case json::value_t::string:
      return "a text";
    case json::value_t::boolean:
      return "true or false";
    case json::value_t::null:
      return "null";
    default:
      return "a number";
  }
}

[[noreturn]] void refuse_type(const std::string& path, const char* wanted, const json& value) {
  throw Refusal(fmt::format("{} must be {} and is {}", path, wanted, type_words(value)));
}

// Counts and measures without building anything; the parser that calls it keeps its own stack, of bits.
class Measure : public nlohmann::json_sax<json> {
 public:
  explicit Measure(std::string_view what) : what_(what) {}
  std::string problem;

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool start_object(size_t) override { return value() && deeper(); }
  bool start_array(size_t) override { return value() && deeper(); }
  bool key(string_t&) override { return true; }
  bool end_object() override { return --depth_, true; }
  bool end_array() override { return --depth_, true; }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    at = position;
    return false;
  }
  size_t at = 0;  // byte, from 1, at which the text is no JSON

 private:
  bool value() {
    if (++values_ <= kMaxJsonValues) return true;
    problem = fmt::format("{} has more than {} values", what_, kMaxJsonValues);
    return false;
  }
  bool deeper() {
    if (++depth_ <= kMaxJsonDepth) return true;
    problem = fmt::format("{} has objects and lists more than {} levels deep", what_, kMaxJsonDepth);
    return false;
  }
  std::string what_;
  size_t values_ = 0, depth_ = 0;
};

}  // namespace

json checked_json(std::string_view bytes, std::string_view what) {
  if (bytes.size() > kMaxCardJsonBytes)
    throw Refusal(fmt::format("{} has {} bytes; at most {}", what, bytes.size(), kMaxCardJsonBytes));
  Measure measure(what);
  if (!json::sax_parse(bytes, &measure)) {
    if (!measure.problem.empty()) throw Refusal(measure.problem);
    const std::string_view before = bytes.substr(0, measure.at > 0 ? measure.at - 1 : 0);
    const auto lines = std::count(before.begin(), before.end(), '\n');
    throw Refusal(fmt::format("{} is no JSON in UTF-8: wrong at line {}, byte {} of the line", what, lines + 1,
                              before.size() - (before.rfind('\n') + 1) + 1));
  }
  json parsed = json::parse(bytes, nullptr, false);
  if (parsed.is_discarded()) throw Refusal(fmt::format("{} is no JSON", what));
  return parsed;
}

CardFields::CardFields(const json& object, std::string path, std::vector<std::string>& notes)
    : object_(&object), path_(std::move(path)), notes_(&notes) {
  if (!object.is_object()) refuse_type(path_.empty() ? "the card" : path_, "an object", object);
}

const json* CardFields::find(const char* key) const {
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool CardFields::has(const char* key) const { return find(key) != nullptr; }

std::string CardFields::path_of(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }

std::string CardFields::settled(const json& value, const std::string& path, size_t most, bool one_line) const {
  if (!value.is_string()) refuse_type(path, "a text", value);
  const std::string& written = value.get_ref<const std::string&>();
  if (written.size() > most) throw Refusal(fmt::format("{} has {} bytes; at most {}", path, written.size(), most));
  size_t removed = 0;
  Settled result;
  try {
    result = settle_macros(tidied(written, &removed));
  } catch (const Refusal& refusal) {
    throw Refusal(path + " " + refusal.what());
  }
  if (result.text.size() > most)  // <BOT> becomes {{char}}
    throw Refusal(fmt::format("{} has {} bytes with its macros in order; at most {}", path, result.text.size(), most));
  if (removed > 0) note(fmt::format("{} control characters of {} were removed.", removed, path));
  if (result.chose) note(fmt::format("Of random choices in {} the first is taken, always.", path));
  if (result.unknown) note(fmt::format("A macro in {} is not known and stays as it is written.", path));
  return one_line ? tidied_line(result.text) : std::move(result.text);
}

std::string CardFields::text(const char* key, size_t most) const {
  const json* value = find(key);
  return value ? settled(*value, path_of(key), most, false) : "";
}

std::string CardFields::line(const char* key, size_t most) const {
  const json* value = find(key);
  return value ? settled(*value, path_of(key), most, true) : "";
}

const json* CardFields::list(const char* key, size_t most_count) const {
  const json* value = find(key);
  if (!value) return nullptr;
  if (!value->is_array()) refuse_type(path_of(key), "a list", *value);
  if (value->size() > most_count)
    throw Refusal(fmt::format("{} has {} values; at most {}", path_of(key), value->size(), most_count));
  return value;
}

std::vector<std::string> CardFields::all(const char* key, size_t most_count, size_t most, bool one_line) const {
  std::vector<std::string> found;
  if (const json* values = list(key, most_count))
    for (size_t i = 0; i < values->size(); ++i) {
      std::string text = settled((*values)[i], fmt::format("{}[{}]", path_of(key), i), most, one_line);
      if (!text.empty()) found.push_back(std::move(text));
    }
  return found;
}

std::vector<std::string> CardFields::lines(const char* key, size_t most_count, size_t most) const {
  return all(key, most_count, most, true);
}
std::vector<std::string> CardFields::texts(const char* key, size_t most_count, size_t most) const {
  return all(key, most_count, most, false);
}

bool CardFields::flag(const char* key, bool absent) const {
  const json* value = find(key);
  if (!value) return absent;
  if (!value->is_boolean()) refuse_type(path_of(key), "true or false", *value);
  return value->get<bool>();
}

std::optional<int64_t> CardFields::number(const char* key, int64_t least, int64_t most) const {
  const json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_number()) refuse_type(path_of(key), "a number", *value);
  const double number = value->get<double>();
  if (!(number >= static_cast<double>(least) && number <= static_cast<double>(most)))
    throw Refusal(fmt::format("{} must be from {} to {}", path_of(key), least, most));
  return static_cast<int64_t>(number);  // Tavern writes 100 and 100.0 alike
}

std::optional<CardFields> CardFields::object(const char* key) const {
  const json* value = find(key);
  if (!value) return std::nullopt;
  return CardFields(*value, path_of(key), *notes_);
}

std::vector<CardFields> CardFields::objects(const char* key, size_t most_count) const {
  std::vector<CardFields> found;
  if (const json* values = list(key, most_count))
    for (size_t i = 0; i < values->size(); ++i)
      found.emplace_back((*values)[i], fmt::format("{}[{}]", path_of(key), i), *notes_);
  return found;
}

}  // namespace kaiju::server
