// Damaged byte-level BPE tokenizers: each is refused by name, nothing crashes.
#include <nlohmann/json.hpp>
#include <random>

#include "catch.hpp"
#include "tests/text/byte_bpe_model.hpp"
#include "tests/text/tiny_tokenizer.hpp"

using namespace kaiju;
using namespace kaiju::tests;

namespace {

using Model = ByteBpeModel;

struct Bad {
  const char* name;
  void (*change)(Model&);
  const char* message;  // part of it
};

const Bad kBad[] = {
    {"another type", [](Model& m) { m.type = "\"wordpiece\""; }, "type must be"},
    {"a type that is no string", [](Model& m) { m.type = "1"; }, "type must be"},
    {"a version that is no number", [](Model& m) { m.version = "\"1\""; }, "version must be"},
    {"another normalization", [](Model& m) { m.normalization = "\"nfkc\""; }, "normalization must be"},
    {"ignore_merges as a number", [](Model& m) { m.ignore_merges = "1"; }, "ignore_merges must be"},
    {"a field that is unknown", [](Model& m) { m.more = ",\"prefix\":1"; }, "\"prefix\" is unknown"},
    {"a field twice", [](Model& m) { m.more = ",\"type\":1"; }, "twice"},
    {"an unknown split", [](Model& m) { m.split = "gpt5"; },
     "the split \"gpt5\" is unknown; kaiju knows gpt2, smollm, llama3, qwen2, tekken"},
    {"a regular expression as the split", [](Model& m) { m.split = R"(\p{L}+|.)"; }, "is unknown"},
    {"no split", [](Model& m) { m.split.clear(); }, "the split \"\" is unknown"},
    {"add_prefix_space as a string", [](Model& m) { m.add_prefix_space = "\"\""; }, "add_prefix_space must be"},
    {"add_prefix_space beside a literal token", [](Model& m) { m.add_prefix_space = "true"; }, "both together"},
    {"lstrip of an ordinary token", [](Model& m) { m.lstrip = {"262"}; }, "entry 0 of lstrip is not"},
    {"rstrip of a literal token", [](Model& m) { m.rstrip = {"256", "258"}; }, "entry 1 of rstrip is not"},
    {"single_word of no token", [](Model& m) { m.single_word = {"264"}; }, "entry 0 of single_word is not"},
    {"a token twice in lstrip", [](Model& m) { m.lstrip = {"256", "256"}; }, "named twice in lstrip"},
    {"a token that is a number", [](Model& m) { m.tokens[7] = "7"; }, "token 7 is no string"},
    {"a token outside the alphabet", [](Model& m) { m.tokens[260] = "\"\u4f60\""; },
     "token 260 has a character outside"},
    {"a token with a plain space", [](Model& m) { m.tokens[260] = "\" a\""; }, "token 260 has a character outside"},
    {"a token that is too long", [](Model& m) { m.add(std::string(513, 'a')); }, "513 bytes"},
    {"a token twice", [](Model& m) { m.add("hello"); }, "occurs twice"},
    {"a control token twice",
     [](Model& m) {
       m.add("<|end|>");
       m.control.push_back("264");
     },
     "occurs twice"},
    {"a missing byte",
     [](Model& m) {
       m.tokens['a'] = "\"\"";
       m.merges.clear();
     },
     "byte 0x61 is missing"},
    {"a byte that is a control token", [](Model& m) { m.control.push_back("65"); }, "byte 0x41 is missing"},
    {"a control token out of range", [](Model& m) { m.control = {"264"}; }, "entry 0 of control"},
    {"a control token below zero", [](Model& m) { m.control = {"-1"}; }, "entry 0 of control"},
    {"a control token that is no id", [](Model& m) { m.control = {"\"<|end|>\""}; }, "entry 0 of control"},
    {"a control token without bytes",
     [](Model& m) {
       m.tokens.push_back("\"\"");
       m.control = {"264"};
     },
     "entry 0"},
    {"a token of two kinds", [](Model& m) { m.visible = {"256"}; }, "named twice"},
    {"a token named twice", [](Model& m) { m.control = {"256", "256"}; }, "named twice"},
    {"a control token that is not UTF-8",
     [](Model& m) {
       m.add("\xFF\xFE");
       m.control = {"264"};
     },
     "not UTF-8"},
    {"half a merge", [](Model& m) { m.merges.push_back("32"); }, "two a merge"},
    {"a merge out of range", [](Model& m) { m.merges[3] = "264"; }, "merge 1 has an id"},
    {"a merge of a fraction", [](Model& m) { m.merges[3] = "1.5"; }, "merge 1 has an id"},
    {"a merge of a control token", [](Model& m) { m.merges[3] = "256"; }, "merge 1 has token 256"},
    {"a merge that makes no token", [](Model& m) { m.merges[3] = "109"; }, "merge 1 makes no token"},
    {"a merge into a control token",
     [](Model& m) {
       m.add("<|end|");
       m.merges = {"264", "62"};
     },
     "makes no token"},
    {"a merge twice", [](Model& m) { m.merges.insert(m.merges.end(), {"104", "101"}); }, "merge 5 is merge 0 again"},
};

}  // namespace

TEST_CASE("damaged byte-level BPE is refused by name", "[malformed]") {
  for (const Bad& bad : kBad) {
    const auto tokenizer = load(changed_bpe(bad.change), 1024);
    INFO(bad.name << ": " << tokenizer.status().message());
    REQUIRE_FALSE(tokenizer.ok());
    CHECK(tokenizer.status().code() == StatusCode::kBadModel);
    CHECK(tokenizer.status().message().find(bad.message) != std::string::npos);
    CHECK(tokenizer.status().message().starts_with("tokenizer: "));
  }
}

TEST_CASE("byte-level BPE with a field missing is refused by name", "[malformed]") {
  const auto whole = nlohmann::json::parse(Model().json());
  for (const auto& [field, value] : whole.items()) {
    auto other = whole;
    other.erase(field);
    const auto tokenizer = load(other.dump(), 1024);
    INFO(field << ": " << tokenizer.status().message());
    REQUIRE_FALSE(tokenizer.ok());
    CHECK(tokenizer.status().code() == StatusCode::kBadModel);
    CHECK(tokenizer.status().message().find(field) != std::string::npos);
  }
}

TEST_CASE("byte-level BPE with a field of another type is refused by name", "[malformed]") {
  const auto whole = nlohmann::json::parse(Model().json());
  for (const auto& [field, value] : whole.items())
    for (const nlohmann::json& wrong :
         {nlohmann::json(), nlohmann::json(1.5), nlohmann::json::array({"x"}), nlohmann::json::object()}) {
      auto other = whole;
      other[field] = wrong;
      const auto tokenizer = load(other.dump(), 1024);
      INFO(field << " " << wrong << ": " << tokenizer.status().message());
      REQUIRE_FALSE(tokenizer.ok());
      CHECK(tokenizer.status().code() == StatusCode::kBadModel);
    }
}

TEST_CASE("a later version of byte-level BPE is unsupported, not damaged") {
  CHECK(load(changed_bpe([](Model& m) { m.version = "2"; }), 1024).status().code() == StatusCode::kUnsupported);
}

TEST_CASE("byte-level BPE with more tokens than the vocabulary is refused", "[malformed]") {
  CHECK(load(Model().json(), 256).status().message().find("only 256") != std::string::npos);
  CHECK(load(Model().json(), 264).ok());
}

TEST_CASE("every truncation of byte-level BPE is refused", "[malformed]") {
  const std::string whole = Model().json();
  for (size_t size = 0; size < whole.size(); ++size) CHECK_FALSE(load(whole.substr(0, size), 1024).ok());
}

TEST_CASE("random damage to byte-level BPE is refused or harmless", "[malformed]") {
  const std::string whole = changed_bpe([](Model& m) { m.normalization = "\"nfc\""; });
  const unsigned seed = 12;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = whole;
    for (uint32_t flips = 1 + random() % 3; flips > 0; --flips)
      bytes[random() % bytes.size()] = static_cast<char>(random() % 2 ? '0' + random() % 75 : random() % 256);
    const auto tokenizer = load(bytes, 1024);
    if (!tokenizer.ok()) continue;
    for (const char* text : {"hello <|end|> 12 w    x", "e\xCC\x81 \xF0\x9F\x98\x80\n"}) {
      const auto tokens = tokenizer.value()->encode_with_special_tokens(text);
      if (tokens.ok()) CHECK(tokenizer.value()->decode(tokens.value()).ok());
    }
  }
}
