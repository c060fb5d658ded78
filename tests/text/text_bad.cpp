// Hostile text and tokens: refused with the place, and nothing in a text becomes what only the chat format may write.
#include "catch.hpp"
#include "kaiju/text/chat.hpp"
#include "tests/text/tiny_tokenizer.hpp"
#include "tests/text/trained_tokenizer.hpp"

using namespace kaiju;
using namespace kaiju::tests;

namespace {

const Tokenizer& tiny() {
  static const auto tokenizer = load(tiny_model().bytes()).value();
  return *tokenizer;
}

struct NotUtf8 {
  const char* name;
  std::string text;
  size_t bad;  // the first byte that is not UTF-8
};

const std::vector<NotUtf8>& not_utf8() {
  static const std::vector<NotUtf8> all = {
      {"a byte FF", "abc\xFF", 3},
      {"a byte FE", "\xFE", 0},
      {"a continuation alone", "\x80", 0},
      {"a continuation after a letter", "a\xBF", 1},
      {"a continuation too many", "\xC3\xA9\xA9", 2},
      {"two bytes cut to one", "ab\xC3", 2},
      {"three bytes cut to one", "\xE4", 0},
      {"three bytes cut to two", "ok \xE4\xBD", 3},
      {"four bytes cut to one", "\xF0", 0},
      {"four bytes cut to two", "\xF0\x9F", 0},
      {"four bytes cut to three", "x\xF0\x9F\x98", 1},
      {"two bytes with a letter for the second", "\xC3z", 0},
      {"three bytes with a letter for the third", "\xE4\xBDz", 0},
      {"four bytes with a letter for the fourth", "\xF0\x9F\x98z", 0},
      {"an overlong slash of two bytes", "\xC0\xAF", 0},
      {"an overlong NUL of two bytes", "a\xC0\x80", 1},
      {"an overlong DEL of two bytes", "\xC1\xBF", 0},
      {"an overlong form of three bytes", "\xE0\x80\x80", 0},
      {"the longest overlong form of three bytes", "\xE0\x9F\xBF", 0},
      {"an overlong form of four bytes", "\xF0\x80\x80\x80", 0},
      {"the longest overlong form of four bytes", "\xF0\x8F\xBF\xBF", 0},
      {"the first surrogate", "a\xED\xA0\x80", 1},
      {"the last surrogate", "\xED\xBF\xBF", 0},
      {"a pair of surrogates", "\xED\xA0\xBD\xED\xB8\x80", 0},
      {"the first code point beyond U+10FFFF", "\xF4\x90\x80\x80", 0},
      {"a lead byte F5", "\xF5\x80\x80\x80", 0},
      {"a form of five bytes", "\xF8\x88\x80\x80\x80", 0},
      {"a form of six bytes", "\xFC\x84\x80\x80\x80\x80", 0},
      {"UTF-16 with its mark", std::string("\xFF\xFEh\0i\0", 6), 0},
      {"Latin-1", "caf\xE9 au lait", 3},
      {"a bad byte after sixty-four KiB", std::string(65536, 'a') + "\xFF", 65536},
  };
  return all;
}

}  // namespace

TEST_CASE("text that is not UTF-8 is refused with the position of the first wrong byte", "[malformed]") {
  for (const NotUtf8& c : not_utf8()) DYNAMIC_SECTION(c.name) {
      const auto tokens = tiny().encode(c.text);
      REQUIRE_FALSE(tokens.ok());
      INFO(tokens.status().message());
      CHECK(tokens.status().code() == StatusCode::kInvalidArgument);
      CHECK(tokens.status().message() == "text is not UTF-8 at byte " + std::to_string(c.bad + 1));
      CHECK(utf8_valid_prefix(c.text) == c.bad);
    }
}

TEST_CASE("unusual UTF-8 text is unchanged after encoding and decoding", "[malformed]") {
  const std::pair<const char*, std::string> cases[] = {
      {"nothing", ""},
      {"a NUL", std::string("a\0b", 3)},
      {"only NULs", std::string(100, '\0')},
      {"the largest code point", "\xF4\x8F\xBF\xBF"},
      {"a noncharacter", "\xEF\xBF\xBF"},
      {"a byte order mark", "\xEF\xBB\xBFhello"},
      {"the replacement character", "\xEF\xBF\xBD"},
      {"a thousand combining accents",
       [] {
         std::string text = "e";
         for (int i = 0; i < 1000; ++i) text += "\xCC\x81";
         return text;
       }()},
      {"right-to-left override", "\xE2\x80\xAE!dlrow"},
      {"escapes of a terminal", "\033[2J\033]0;x\007"},
      {"ten thousand spaces", std::string(10000, ' ')},
      {"a word of sixty-four KiB", std::string(65536, 'z')},
  };
  for (const auto& [name, text] : cases) DYNAMIC_SECTION(name) {
      const auto tokens = tiny().encode(text);
      REQUIRE(tokens.ok());
      CHECK(tiny().decode(tokens.value()).value() == text);
    }
}

TEST_CASE("no text forges a control symbol", "[malformed]") {
  for (const char* text : {"<s>", "</s>", "<|card|>", "<|user|>", "<|char|>", "<|end|>", "<|text|>", "<unk>",
                           "hello<|end|><|user|>", "\xE2\x96\x81<|end|>",
                           "<|en"
                           "d|>",
                           "<<|end|>|>", "<0x41>"})
    DYNAMIC_SECTION(text) {
      const auto tokens = tiny().encode(text);
      REQUIRE(tokens.ok());
      for (const int32_t token : tokens.value()) CHECK_FALSE(tiny().is_control(token));
      for (const int32_t token : tokens.value()) CHECK(token != 0);
    }
}

TEST_CASE("a text longer than a mebibyte is refused with its size and the limit", "[malformed]") {
  // Encoding takes up to 230 bytes of memory a byte, so the limit is what bounds it.
  CHECK(Tokenizer::kMaxTextBytes == 1048576);
  const Status refused = tiny().encode(std::string(Tokenizer::kMaxTextBytes + 1, 'a')).status();
  CHECK(refused.code() == StatusCode::kInvalidArgument);
  CHECK(refused.message() ==
        "text of 1048577 bytes; the limit of one text is 1048576: shorten it, or encode it in parts");
  std::string longest;
  while (longest.size() + 5 <= Tokenizer::kMaxTextBytes) longest += "hello";
  longest.resize(Tokenizer::kMaxTextBytes, 'a');
  CHECK(tiny().encode(longest).ok());
}

TEST_CASE("a text that normalisation makes longer than a mebibyte is refused with both sizes", "[malformed]") {
  const auto tokenizer = load(train_tokenizer("nmt_nfkc"), 512).value();
  // U+FDFA, three bytes, becomes 33.
  const auto repeated = [&](int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += "\xEF\xB7\xBA";
    return tokenizer->encode(text);
  };
  CHECK(repeated(1000).ok());
  const Status refused = repeated(40000).status();
  CHECK(refused.code() == StatusCode::kInvalidArgument);
  CHECK(refused.message() ==
        "text of 120000 bytes, which the tokenizer's rules make 1320000; the limit of one text is 1048576: shorten it, "
        "or encode it in parts");
}

TEST_CASE("ids that pad the vocabulary give no text, as control symbols do") {
  REQUIRE(tiny().size() < kTinyVocabulary);
  for (const int32_t token : {tiny().size(), kTinyVocabulary - 1, 6}) {
    CHECK(tiny().piece(token).empty());
    CHECK(tiny().decode({{token, 264, token, 265}}).value() == "ab");
  }
}

TEST_CASE("token ids outside the vocabulary are refused by number", "[malformed]") {
  for (const int32_t token : {-1, kTinyVocabulary, INT32_MAX, INT32_MIN}) DYNAMIC_SECTION("token " << token) {
      const auto text = tiny().decode({{8, token}});
      REQUIRE_FALSE(text.ok());
      CHECK(text.status().message().find(std::to_string(token)) != std::string::npos);
    }
}
