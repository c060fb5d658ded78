#include "grammar.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "failure.hpp"
#include "schema_check.hpp"

namespace kaiju::server {

using nlohmann::json;

namespace {

constexpr size_t kMostBytes = 256 << 10;

using OrderedJson = nlohmann::ordered_json;

Grammar of_schema(const OrderedJson& schema, const char* field) {
  if (!schema.is_object()) throw bad_request("a JSON schema must be an object", field);
  if (const std::string fault = not_followed_in(schema); !fault.empty())
    throw bad_request(fmt::format("the JSON schema at {}", fault), field);
  return {Grammar::Kind::kSchema, schema.dump(), field};
}

Grammar of_response_format(const Fields& fields, std::string_view body) {
  const char* const field = "response_format";
  const json& format = fields.at(field);
  if (!format.is_object()) throw bad_request("response_format must be an object", field);
  const Fields inner(format);
  const std::string type = inner.text("type");
  if (type == "text") return {};
  if (type == "json_object") return {Grammar::Kind::kJson, "", field};
  if (type != "json_schema")
    throw bad_request(
        fmt::format("response_format has the type \"{}\": text, json_object or json_schema are known", type), field);
  if (!inner.has("json_schema") || !inner.at("json_schema").is_object() ||
      !Fields(inner.at("json_schema")).has("schema"))
    throw bad_request(
        "response_format of the type json_schema needs the schema as {\"json_schema\": {\"schema\": {...}}}", field);
  return of_schema(OrderedJson::parse(body).at(field).at("json_schema").at("schema"), field);
}

Grammar of_choice(const json& choices, const char* field) {
  if (!choices.is_array() || choices.empty()) throw bad_request("choice must be a list of texts", field);
  std::string rules = "root ::= ";
  for (const json& choice : choices) {
    if (!choice.is_string() || choice.get<std::string>().empty())
      throw bad_request("choice must be a list of texts", field);
    if (&choice != &choices.front()) rules += " | ";
    rules += choice.dump();  // JSON's escapes are the grammar's
  }
  return {Grammar::Kind::kEbnf, rules, field};
}

Grammar of_structured_outputs(const Fields& fields, std::string_view body) {
  const char* const field = "structured_outputs";
  if (!fields.at(field).is_object()) throw bad_request("structured_outputs must be an object", field);
  const Fields inner(fields.at(field));
  const auto names = {"json", "json_object", "regex", "choice", "grammar"};
  if (std::ranges::count_if(names, [&](const char* name) { return inner.has(name); }) > 1)
    throw bad_request("structured_outputs takes one of json, json_object, regex, choice and grammar", field);
  if (inner.has("json")) {
    if (!inner.at("json").is_string()) return of_schema(OrderedJson::parse(body).at(field).at("json"), field);
    const OrderedJson parsed = OrderedJson::parse(inner.text("json"), nullptr, false);
    if (parsed.is_discarded()) throw bad_request("structured_outputs.json is no JSON", field);
    return of_schema(parsed, field);
  }
  if (inner.flag("json_object", false)) return {Grammar::Kind::kJson, "", field};
  if (inner.has("regex")) return {Grammar::Kind::kRegex, inner.text("regex"), field};
  if (inner.has("choice")) return of_choice(inner.at("choice"), field);
  if (inner.has("grammar")) return {Grammar::Kind::kEbnf, inner.text("grammar"), field};
  throw bad_request("structured_outputs needs json, json_object, regex, choice or grammar", field);
}

}  // namespace

Grammar read_grammar(const Fields& fields, std::string_view body, const Wanted& wanted) {
  for (const char* old : {"guided_json", "guided_regex", "guided_choice", "guided_grammar"})
    if (fields.has(old))
      throw bad_request(fmt::format("{} is not supported: use structured_outputs, or response_format", old), old);
  Grammar grammar;
  if (fields.has("response_format")) grammar = of_response_format(fields, body);
  if (fields.has("structured_outputs")) {
    if (grammar.kind != Grammar::Kind::kNone)
      throw bad_request("response_format and structured_outputs cannot both say what a reply has to follow",
                        "structured_outputs");
    grammar = of_structured_outputs(fields, body);
  }
  if (grammar.kind == Grammar::Kind::kNone) return grammar;
  if (grammar.text.size() > kMostBytes)
    throw bad_request(
        fmt::format("{} has {} bytes; at most {} are taken", grammar.field, grammar.text.size(), kMostBytes),
        grammar.field.c_str());
  // A reply ends where its grammar ends, by one of the model's stop tokens.
  if (wanted.options.stop_tokens)
    throw bad_request(fmt::format("{} does not go with ignore_eos or stop_token_ids", grammar.field),
                      grammar.field.c_str());
  if (wanted.min_tokens > 0)
    throw bad_request(fmt::format("min_tokens does not go with {}", grammar.field), "min_tokens");
  return grammar;
}

}  // namespace kaiju::server
