// The config's rules: each broken one is refused, and the message names the field.
#include <cfenv>
#include <clocale>
#include <cmath>

#include "catch.hpp"
#include "kaiju/format/presets.hpp"
#include "tiny.hpp"

using kaiju::LayerKind;
using kaiju::StatusCode;
using tiny::ordered_json;

namespace {

struct Case {
  const char* name;
  const char* field;  // what the message must hold
  std::function<void(ordered_json&)> edit;
};

// A chat format of the tokens 2 and 3.
ordered_json chat_format() {
  return ordered_json::parse(R"({"begin":[1],"system":{"before":[1,2,"system\n"],"after":[3]},)"
                             R"("user":{"before":[2,"user\n"],"after":[3,"\n"],"named":[2,null,"\n"],)"
                             R"("trim_left":"newlines","trim_right":"space"},)"
                             R"("assistant":{"before":[2,"assistant\n"],"after":[3,"\n"],"reasoning_end":"</think>"},)"
                             R"("reply":[2,"assistant "],"user_first":true,"stop":[3,1]})");
}

// The config with a changed chat format.
template <class Change>
auto in_format(const Change& change) {
  return [=](ordered_json& config) {
    config["chat"] = {{"begin", 1}, {"end", 2}};
    config["chat_format"] = chat_format();
    change(config["chat_format"]);
  };
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"name missing", "config.name", [](auto& c) { c.erase("name"); }},
      {"name not a string", "config.name", [](auto& c) { c["name"] = 7; }},
      {"name with a control character", "config.name", [](auto& c) { c["name"] = "a\x1b[31m"; }},
      {"name with a control character of two bytes", "config.name", [](auto& c) { c["name"] = "a\u009b31m"; }},
      {"name of 129 bytes", "config.name", [](auto& c) { c["name"] = std::string(129, 'x'); }},
      {"vocab_size missing", "config.vocab_size", [](auto& c) { c.erase("vocab_size"); }},
      {"vocab_size zero", "config.vocab_size", [](auto& c) { c["vocab_size"] = 0; }},
      {"vocab_size not a multiple of 16", "config.vocab_size", [](auto& c) { c["vocab_size"] = 24; }},
      {"vocab_size above 2^20", "config.vocab_size", [](auto& c) { c["vocab_size"] = (1 << 20) + 16; }},
      {"vocab_size negative", "config.vocab_size", [](auto& c) { c["vocab_size"] = -16; }},
      {"vocab_size a fraction", "config.vocab_size", [](auto& c) { c["vocab_size"] = 16.5; }},
      {"vocab_size written 16.0", "config.vocab_size", [](auto& c) { c["vocab_size"] = 16.0; }},
      {"vocab_size 2^32 + 16", "config.vocab_size", [](auto& c) { c["vocab_size"] = (uint64_t{1} << 32) + 16; }},
      {"vocab_size 2^64 - 1", "config.vocab_size", [](auto& c) { c["vocab_size"] = UINT64_MAX; }},
      {"vocab_size a string", "config.vocab_size", [](auto& c) { c["vocab_size"] = "16"; }},
      {"vocab_size null", "config.vocab_size", [](auto& c) { c["vocab_size"] = nullptr; }},
      {"vocab_size true", "config.vocab_size", [](auto& c) { c["vocab_size"] = true; }},
      {"d_model not a multiple of 64", "config.d_model", [](auto& c) { c["d_model"] = 96; }},
      {"d_model zero", "config.d_model", [](auto& c) { c["d_model"] = 0; }},
      {"d_model past the K bound", "config.d_model", [](auto& c) { c["d_model"] = 65536 + 64; }},
      {"d_ff not a multiple of 64", "config.d_ff", [](auto& c) { c["d_ff"] = 65; }},
      {"d_ff zero", "config.d_ff", [](auto& c) { c["d_ff"] = 0; }},
      {"d_ff past the K bound", "config.d_ff", [](auto& c) { c["d_ff"] = 65536 + 64; }},
      {"head_dim 32", "config.head_dim", [](auto& c) { c["head_dim"] = 32; }},
      {"head_dim 96", "config.head_dim", [](auto& c) { c["head_dim"] = 96; }},
      {"head_dim 512", "config.head_dim", [](auto& c) { c["head_dim"] = 512; }},
      {"head_dim zero", "config.head_dim", [](auto& c) { c["head_dim"] = 0; }},
      {"n_heads zero", "config.n_heads", [](auto& c) { c["n_heads"] = 0; }},
      {"n_heads x head_dim past the K bound", "config.n_heads", [](auto& c) { c["n_heads"] = 1025; }},
      {"n_kv_heads zero", "config.n_kv_heads", [](auto& c) { c["n_kv_heads"] = 0; }},
      {"n_kv_heads above n_heads", "config.n_kv_heads", [](auto& c) { c["n_kv_heads"] = 4; }},
      {"n_kv_heads does not divide n_heads", "config.n_kv_heads",
       [](auto& c) { c["n_heads"] = 3, c["n_kv_heads"] = 2; }},
      {"context zero", "config.context", [](auto& c) { c["context"] = 0; }},
      {"context above 2^24", "config.context", [](auto& c) { c["context"] = (1 << 24) + 1; }},
      {"norm_eps zero", "config.norm_eps", [](auto& c) { c["norm_eps"] = 0; }},
      {"norm_eps negative", "config.norm_eps", [](auto& c) { c["norm_eps"] = -1e-5; }},
      {"norm_eps below f32", "config.norm_eps", [](auto& c) { c["norm_eps"] = 1e-60; }},
      {"norm_eps huge", "config.norm_eps", [](auto& c) { c["norm_eps"] = 1e300; }},
      {"norm_eps a string", "config.norm_eps", [](auto& c) { c["norm_eps"] = "1e-5"; }},
      {"norm_eps null, as writers spell NaN", "config.norm_eps", [](auto& c) { c["norm_eps"] = std::nan(""); }},
      {"layers missing", "config.layers", [](auto& c) { c.erase("layers"); }},
      {"layers an object", "config.layers", [](auto& c) { c["layers"] = ordered_json::object(); }},
      {"layers empty", "config.layers", [](auto& c) { c["layers"] = ordered_json::array(); }},
      {"257 layers", "config.layers",
       [](auto& c) {
         for (int i = 2; i < 257; ++i) c["layers"].push_back(c["layers"][0]);
       }},
      {"a layer that is a number", "config.layers[1]", [](auto& c) { c["layers"][1] = 3; }},
      {"kind unknown", "config.layers[0].kind", [](auto& c) { c["layers"][0]["kind"] = "dilated"; }},
      {"kind missing", "config.layers[0].kind", [](auto& c) { c["layers"][0].erase("kind"); }},
      {"window missing", "config.layers[0].window", [](auto& c) { c["layers"][0].erase("window"); }},
      {"window zero", "config.layers[0].window", [](auto& c) { c["layers"][0]["window"] = 0; }},
      {"window above 2^24", "config.layers[0].window", [](auto& c) { c["layers"][0]["window"] = (1 << 24) + 1; }},
      {"window of a global layer", "config.layers[1]", [](auto& c) { c["layers"][1]["window"] = 8; }},
      {"slots do not begin at 0", "config.layers[0].kv_slot", [](auto& c) { c["layers"][0]["kv_slot"] = 1; }},
      {"a gap in the slots", "config.layers[1].kv_slot", [](auto& c) { c["layers"][1]["kv_slot"] = 2; }},
      {"kv_slot negative", "config.layers[1].kv_slot", [](auto& c) { c["layers"][1]["kv_slot"] = -1; }},
      {"kv_slot 2^31 - 1", "config.layers[1].kv_slot", [](auto& c) { c["layers"][1]["kv_slot"] = INT32_MAX; }},
      {"a slot of two kinds", "config.layers[1].kv_slot", [](auto& c) { c["layers"][1]["kv_slot"] = 0; }},
      {"a slot of two windows", "config.layers[2].kv_slot",
       [](auto& c) { c["layers"].push_back({{"kind", "sliding"}, {"window", 9}, {"kv_slot", 0}, {"rope", 0}}); }},
      {"a slot of two ropes", "config.layers[2].kv_slot",
       [](auto& c) { c["layers"].push_back({{"kind", "global"}, {"kv_slot", 1}, {"rope", 0}}); }},
      {"a gap in the ropes", "rope", [](auto& c) { c["layers"][1]["rope"] = 2; }},
      {"ropes do not begin at 0", "rope", [](auto& c) { c["layers"][0]["rope"] = 2; }},
      {"rope 2^31 - 1", "config.layers[1].rope", [](auto& c) { c["layers"][1]["rope"] = INT32_MAX; }},
      {"rope negative", "config.layers[1].rope", [](auto& c) { c["layers"][1]["rope"] = -1; }},
      {"an unknown field of a layer", "config.layers[0].\"sink\"", [](auto& c) { c["layers"][0]["sink"] = 4; }},
      {"an unknown field", "config.\"experts\"", [](auto& c) { c["experts"] = 8; }},
      {"chat a list", "config.chat", [](auto& c) { c["chat"] = ordered_json::array(); }},
      {"chat id beyond the vocabulary", "config.chat.end", [](auto& c) { c["chat"]["end"] = 16; }},
      {"chat id -1", "config.chat.end", [](auto& c) { c["chat"]["end"] = -1; }},
      {"an unknown chat symbol", "config.chat.\"narrator\"", [](auto& c) { c["chat"]["narrator"] = 3; }},
      {"chat_format a list", "config.chat_format must be", [](auto& c) { c["chat_format"] = {1, 2}; }},
      {"chat_format beside chat symbols of messages", "config.chat.close and config.chat_format",
       [](auto& c) { c["chat_format"] = chat_format(); }},
      {"an unknown field of chat_format", "config.chat_format.\"tools\"", in_format([](auto& f) { f["tools"] = 1; })},
      {"a role missing", "config.chat_format.system is missing", in_format([](auto& f) { f.erase("system"); })},
      {"a role that is a list", "config.chat_format.user must be an object",
       in_format([](auto& f) { f["user"] = {1}; })},
      {"an unknown field of a role", "config.chat_format.user.\"between\"",
       in_format([](auto& f) { f["user"]["between"] = "x"; })},
      {"before a text", "config.chat_format.user.before must be a list",
       in_format([](auto& f) { f["user"]["before"] = "x"; })},
      {"an item of a fraction", "config.chat_format.user.before[0]",
       in_format([](auto& f) { f["user"]["before"][0] = 1.5; })},
      {"an item of -1", "config.chat_format.begin[0]", in_format([](auto& f) { f["begin"][0] = -1; })},
      {"an item of true", "config.chat_format.reply[0]", in_format([](auto& f) { f["reply"][0] = true; })},
      {"an item of a list", "config.chat_format.stop[0]",
       in_format([](auto& f) { f["stop"][0] = ordered_json::array(); })},
      {"an item beyond the vocabulary", "config.chat_format.assistant.after[0]",
       in_format([](auto& f) { f["assistant"]["after"][0] = 16; })},
      {"an item of no text", "config.chat_format.user.after[1]",
       in_format([](auto& f) { f["user"]["after"][1] = ""; })},
      {"an item of 8193 bytes", "config.chat_format.user.after[1]",
       in_format([](auto& f) { f["user"]["after"][1] = std::string(8193, 'x'); })},
      {"65 items", "config.chat_format.user.after has 65",
       in_format([](auto& f) { f["user"]["after"] = std::vector<int>(65, 3); })},
      {"a name in another list than named", "config.chat_format.user.before[0] is a speaker's name",
       in_format([](auto& f) { f["user"]["before"][0] = nullptr; })},
      {"an unknown place", "config.chat_format.system.place",
       in_format([](auto& f) { f["system"]["place"] = "last_user"; })},
      {"a place of the user", "config.chat_format.user.\"place\"",
       in_format([](auto& f) { f["user"]["place"] = "first_user"; })},
      {"an unknown trim", "config.chat_format.user.trim_left",
       in_format([](auto& f) { f["user"]["trim_left"] = "tabs"; })},
      {"trim a number", "config.chat_format.user.trim_right", in_format([](auto& f) { f["user"]["trim_right"] = 1; })},
      {"reasoning_end a number", "config.chat_format.assistant.reasoning_end",
       in_format([](auto& f) { f["assistant"]["reasoning_end"] = 1; })},
      {"user_first a number", "config.chat_format.user_first", in_format([](auto& f) { f["user_first"] = 1; })},
      {"stop missing", "config.chat_format.stop", in_format([](auto& f) { f.erase("stop"); })},
      {"stop empty", "config.chat_format.stop", in_format([](auto& f) { f["stop"] = ordered_json::array(); })},
      {"stop with a text", "config.chat_format.stop[1]", in_format([](auto& f) { f["stop"][1] = "x"; })},
      {"stop beyond the vocabulary", "config.chat_format.stop[0]", in_format([](auto& f) { f["stop"][0] = 16; })},
      {"no token between two texts", "no token separates a user text from a following assistant text",
       in_format([](auto& f) { f["user"]["after"] = {"\n"}, f["assistant"]["before"] = {"bot: "}; })},
      {"no token before a reply", "no token separates a user text from a following assistant text",
       in_format([](auto& f) { f["user"]["after"] = {"\n"}, f["reply"] = ordered_json::array(); })},
      {"no token before a named text", "no token separates a system text from a following user text",
       in_format([](auto& f) { f["system"]["after"] = {"\n"}, f["user"]["named"] = {nullptr}; })},
      {"a system text in a user message without tokens", "config.chat_format.system.place",
       in_format([](auto& f) { f["system"]["place"] = "first_user", f["user"]["before"] = {"x"}; })},
      {"classifier a list", "config.classifier", [](auto& c) { c["classifier"] = {"spam"}; }},
      {"labels missing", "config.classifier.labels", [](auto& c) { c["classifier"] = ordered_json::object(); }},
      {"labels a string", "config.classifier.labels", [](auto& c) { c["classifier"]["labels"] = "spam"; }},
      {"labels empty", "config.classifier.labels", [](auto& c) { c["classifier"]["labels"] = ordered_json::array(); }},
      {"65 labels", "config.classifier.labels",
       [](auto& c) {
         for (int i = 0; i < 65; ++i) c["classifier"]["labels"].push_back(std::to_string(i));
       }},
      {"a label that is a number", "config.classifier.labels[1]",
       [](auto& c) { c["classifier"]["labels"] = {"spam", 7}; }},
      {"a label that is empty", "config.classifier.labels[1]",
       [](auto& c) { c["classifier"]["labels"] = {"spam", ""}; }},
      {"a label with a control character", "config.classifier.labels[0]",
       [](auto& c) { c["classifier"]["labels"] = {"a\nb", "spam"}; }},
      {"a label of 129 bytes", "config.classifier.labels[0]",
       [](auto& c) { c["classifier"]["labels"] = {std::string(129, 'x'), "spam"}; }},
      {"a label twice", "config.classifier.labels[0]", [](auto& c) { c["classifier"]["labels"] = {"spam", "spam"}; }},
      {"an unknown field of the classifier", "config.classifier.\"bias\"",
       [](auto& c) { c["classifier"] = {{"labels", {"spam", "rude"}}, {"bias", true}}; }},
  };
  return all;
}

}  // namespace

TEST_CASE("every broken rule of the config is refused by name", "[malformed]") {
  for (const Case& c : cases()) DYNAMIC_SECTION(c.name) {
      tiny::Parts parts = tiny::take_apart(tiny::bytes());
      parts.edit_config(c.edit);
      const std::string text = parts.metadata()["config"];
      tiny::seal(parts);
      const auto direct = kaiju::config_from_json(text);
      const kaiju::Status loaded = tiny::load(tiny::assemble(parts));
      INFO(direct.status().message() << "\n  " << loaded.message());
      CHECK(direct.status().code() == StatusCode::kBadModel);
      CHECK(tiny::contains(direct.status().message(), c.field));
      CHECK(loaded.code() == StatusCode::kBadModel);
      CHECK(tiny::contains(loaded.message(), c.field));
    }
}

TEST_CASE("misleading config text is refused", "[malformed]") {
  const std::string good = kaiju::config_to_json(tiny::config());
  const auto refused = [](const std::string& name, const std::string& text, const std::string& part) {
    DYNAMIC_SECTION(name) {
      const kaiju::Status status = kaiju::config_from_json(text).status();
      INFO(status.message());
      CHECK(status.code() == StatusCode::kBadModel);
      CHECK(tiny::contains(status.message(), part));
    }
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  };
  refused("no text", "", "config");
  refused("a list", "[]", "config");
  refused("null", "null", "config");
  refused("an open brace", "{", "config");
  refused("an empty object", "{}", "config.name");
  refused("a letter after the end", good + "x", "after its closing brace");
  refused("a NUL and an object after the end", good + std::string(1, '\0') + "{}", "after its closing brace");
  refused("the config twice", good + good, "after its closing brace");
  refused("d_ff twice", with("\"d_ff\":64", "\"d_ff\":64,\"d_ff\":64"), "\"d_ff\" twice");
  refused("kv_slot twice in a layer", with("\"kv_slot\":0", "\"kv_slot\":0,\"kv_slot\":0"), "\"kv_slot\" twice");
  refused("begin twice in chat", with("\"begin\":1", "\"begin\":1,\"begin\":1"), "\"begin\" twice");
  refused("a leading zero", with("\"d_ff\":64", "\"d_ff\":064"), "JSON");
  refused("a plus sign", with("\"d_ff\":64", "\"d_ff\":+64"), "JSON");
  refused("an exponent", with("\"d_ff\":64", "\"d_ff\":6.4e1"), "config.d_ff");
  refused("minus zero", with("\"d_ff\":64", "\"d_ff\":-0"), "config.d_ff");
  refused("beyond a double", with("\"d_ff\":64", "\"d_ff\":1e999"), "JSON");
  refused("2^64 + 64", with("\"d_ff\":64", "\"d_ff\":18446744073709551680"), "config.d_ff");  // 2^64 + 64
  refused("NaN", with("\"d_ff\":64", "\"d_ff\":NaN"), "JSON");
  refused("a comma too many", with("\"d_ff\":64", "\"d_ff\":64,"), "JSON");
  refused("a comment", with("\"d_ff\":64", "/* sixty-four */\"d_ff\":64"), "JSON");
  refused("nested lists", with("\"d_ff\":64", "\"d_ff\":[[[[[[64]]]]]]"), "nested");
  refused("bytes that are not UTF-8", with("tiny", "\xff\xfe"), "JSON");
  refused("a surrogate", with("tiny", "\xed\xa0\x80"), "JSON");
  refused("a name of 50,000 bytes", with("tiny", std::string(50000, 'x')), "string longer");
  refused("nested a hundred thousand deep", "{\"name\":" + std::string(100000, '[') + std::string(100000, ']') + "}",
          "nested");
  refused("a text of 300,000 bytes", "{\"name\":\"" + std::string(300000, 'x') + "\"}", "config is longer");
  std::string many = "{\"layers\":[";
  for (int i = 0; i < 10000; ++i) many += "0,";
  refused("ten thousand layers that are numbers", many + "0]}", "values");
}

TEST_CASE("a config is unchanged after conversion to JSON and back") {
  kaiju::ModelConfig config = tiny::config(3);
  config.name = "K\u00e4iju \"7\"\\";
  config.norm_eps = 1.2345678e-6f;
  const auto back = kaiju::config_from_json(kaiju::config_to_json(config));
  INFO(back.status().message());
  REQUIRE(back.ok());
  const kaiju::ModelConfig& b = back.value();
  CHECK(b.name == config.name);
  CHECK(b.norm_eps == config.norm_eps);
  CHECK(b.kv_slot_count == 2);
  CHECK(b.rope_count == 2);
  CHECK(b.layers.size() == 3);
  CHECK(b.layers[0].window == 8);
  CHECK(b.chat.begin == 1);
  CHECK(b.chat.end == -1);
  CHECK(b.chat.close == 6);
  CHECK(kaiju::config_to_json(b) == kaiju::config_to_json(config));
}

TEST_CASE("the config's text is canonical: fields in the documented order, numbers in their shortest form") {
  CHECK(kaiju::config_to_json(tiny::config()) ==
        R"({"name":"tiny","vocab_size":16,"d_model":64,"n_heads":2,"n_kv_heads":1,"head_dim":64,)"
        R"("d_ff":64,"context":256,"norm_eps":1e-05,)"
        R"("layers":[{"kind":"sliding","window":8,"kv_slot":0,"rope":0},)"
        R"({"kind":"global","kv_slot":1,"rope":1}],"chat":{"begin":1,"close":6}})");
}

TEST_CASE("a chat format is unchanged after conversion to JSON and back") {
  kaiju::ModelConfig config = tiny::config();
  ordered_json json = ordered_json::parse(kaiju::config_to_json(config));
  in_format([](auto&) {})(json);
  const auto read = kaiju::config_from_json(json.dump());
  INFO(read.status().message());
  REQUIRE(read.ok());
  CHECK(ordered_json::parse(kaiju::config_to_json(read.value()))["chat_format"].dump() ==
        ordered_json::parse(json.dump())["chat_format"].dump());
  const kaiju::ChatTemplate& chat = *read.value().chat_format;
  CHECK(chat.user_first);
  CHECK(chat.stop == std::vector<int32_t>{3, 1});
  CHECK(chat.user.named[1].kind == kaiju::ChatItem::Kind::kName);
  CHECK(chat.user.trim_left == kaiju::ChatTrim::kNewlines);
  CHECK(chat.system_place == kaiju::ChatSystem::kMessage);
  in_format([](auto& f) { f["system"] = {{"place", "first_user"}, {"after", {"\n\n"}}}, f["reply"].clear(); })(json);
  const auto other = kaiju::config_from_json(json.dump());
  INFO(other.status().message());
  REQUIRE(other.ok());
  CHECK(other.value().chat_format->system_place == kaiju::ChatSystem::kInFirstUser);
  CHECK(other.value().chat_format->reply == kaiju::ChatItems());
  CHECK(*kaiju::config_from_json(kaiju::config_to_json(other.value())).value().chat_format ==
        *other.value().chat_format);
}

TEST_CASE("a config's text and its numbers are the same in every locale and rounding mode") {
  kaiju::ModelConfig config = tiny::config();
  for (const float norm_eps : {1e-6f, 1.5e-6f, 1e-5f}) {
    config.norm_eps = norm_eps;
    const std::string text = kaiju::config_to_json(config);
    for (const char* name : {"C", "de_DE.UTF-8", "fr_FR.UTF-8", "C"}) {
      if (!std::setlocale(LC_ALL, name)) continue;  // the system lacks it
      CHECK(kaiju::config_to_json(config) == text);
      CHECK(kaiju::config_from_json(text).value().norm_eps == norm_eps);
    }
    for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
      std::fesetround(mode);
      const std::string written = kaiju::config_to_json(config);
      const float read = kaiju::config_from_json(text).value().norm_eps;
      std::fesetround(FE_TONEAREST);
      CHECK(written == text);
      CHECK(read == norm_eps);
    }
  }
}

TEST_CASE("a config that code builds is checked like one from a file") {
  kaiju::ModelConfig config = tiny::config();
  CHECK(kaiju::check_config(config).ok());
  config.kv_slot_count = 1;
  CHECK(tiny::contains(kaiju::check_config(config).message(), "slot_count"));
  config = tiny::config();
  config.chat.user = 16;
  CHECK(tiny::contains(kaiju::check_config(config).message(), "config.chat.user"));
  config = tiny::config();
  config.name = "\xc3";
  CHECK(tiny::contains(kaiju::check_config(config).message(), "UTF-8"));
  config.name = "a\u00a0b";
  CHECK(kaiju::check_config(config).ok());
  config = tiny::config();
  config.norm_eps = std::nanf("");
  CHECK(tiny::contains(kaiju::check_config(config).message(), "config.norm_eps"));
  config = tiny::config();
  config.layers[1].window = 5;
  CHECK(tiny::contains(kaiju::check_config(config).message(), "window"));
  config = tiny::config();
  config.layers[0].kind = static_cast<LayerKind>(9);
  CHECK(tiny::contains(kaiju::check_config(config).message(), "kind"));
  CHECK(kaiju::check_config(kaiju::ModelConfig()).code() == StatusCode::kBadModel);
}

TEST_CASE("presets have the published numbers of parameters and the documented cache sizes") {
  const auto count = [](const kaiju::ModelConfig& config) {
    double weights = 0;
    for (const auto& tensor : kaiju::required_tensors(config))
      if (tensor.dtype == kaiju::DType::kI8)
        weights += static_cast<double>(tensor.shape[0]) * static_cast<double>(tensor.shape[1]);
    return weights / 1e9;
  };
  const auto kv = [](const kaiju::ModelConfig& config, LayerKind kind) {
    int64_t bytes = 0;
    for (int32_t slot = 0; slot < config.kv_slot_count; ++slot) {
      const auto& owner = config.layers[static_cast<size_t>(config.owner_of(slot))];
      if (owner.kind == kind) bytes += int64_t{2} * config.kv_width() * std::max(owner.window, 1);
    }
    return bytes;
  };
  const struct {
    const char* name;
    size_t layers;
    double parameters, tolerance;
    int64_t global_bytes, window_bytes;
  } wanted[] = {{"nano", 14, 0.034, 0.001, 128, 512 << 10},
                {"small", 49, 13.2, 0.2, 768, 3584 << 10},
                {"medium", 63, 33.8, 0.3, 1024, 4608 << 10},
                {"large", 70, 110, 1, 1280, 5120 << 10}};
  for (const auto& want : wanted) {
    const auto config = kaiju::preset(want.name);
    INFO(want.name);
    REQUIRE(config.ok());
    CHECK(kaiju::check_config(config.value()).ok());
    CHECK(config.value().layers.size() == want.layers);
    CHECK(std::abs(count(config.value()) - want.parameters) < want.tolerance);
    CHECK(kv(config.value(), LayerKind::kGlobal) == want.global_bytes);
    CHECK(kv(config.value(), LayerKind::kWindow) == want.window_bytes);
    for (int layers = 1; layers <= 256; ++layers) {
      const auto cut = kaiju::preset(want.name, layers);
      REQUIRE(cut.ok());
      INFO(layers << ": " << kaiju::check_config(cut.value()).message());
      CHECK(kaiju::check_config(cut.value()).ok());
      CHECK(cut.value().layers.size() == static_cast<size_t>(layers));
    }
  }
  const auto nano = kaiju::preset("nano").value();
  std::vector<int> slots;
  for (const auto& layer : nano.layers) slots.push_back(layer.kv_slot);
  CHECK(slots == std::vector<int>{0, 0, 0, 1, 2, 2, 2, 3, 3, 3, 1, 4, 4, 4});
  for (const auto& [slot, layer] :
       std::vector<std::pair<int, int>>{{0, 0}, {1, 3}, {2, 4}, {3, 7}, {4, 11}, {5, -1}, {-1, -1}})
    CHECK(nano.owner_of(slot) == layer);
}

TEST_CASE("an unknown preset or number of layers is refused by name") {
  CHECK(kaiju::preset("huge").status().code() == StatusCode::kInvalidArgument);
  CHECK(tiny::contains(kaiju::preset("huge").status().message(), "nano, small, medium or large"));
  CHECK(tiny::contains(kaiju::preset("nano", -1).status().message(), "-1 layers"));
  CHECK(tiny::contains(kaiju::preset("nano", 257).status().message(), "257 layers"));
}
