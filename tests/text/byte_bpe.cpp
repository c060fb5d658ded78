// Byte-level BPE: the tokens of the reference, merges by rank. Splits and special tokens have files of their own.
#include <atomic>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "catch.hpp"
#include "tests/text/byte_bpe_model.hpp"
#include "tests/text/tiny_tokenizer.hpp"

using namespace kaiju;
using namespace kaiju::tests;

namespace {

constexpr int32_t kVocabulary = 512 + 16;

std::shared_ptr<const Tokenizer> make(const std::string& json) {
  const auto tokenizer = load(json, kVocabulary);
  INFO(tokenizer.status().message());
  REQUIRE(tokenizer.ok());
  return tokenizer.value();
}

template <class Change>
std::shared_ptr<const Tokenizer> make_changed(const Change& change) {
  return make(changed_bpe(change));
}

std::string stored(const std::string& name) {
  std::ifstream file(std::string(KAIJU_SOURCE_DIR) + "/tests/text/byte_bpe/" + name, std::ios::binary);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string repeated(std::string_view text, size_t bytes) {
  std::string out;
  while (out.size() + text.size() <= bytes) out += text;
  return out;
}

using Tokens = std::vector<int32_t>;

}  // namespace

TEST_CASE("tokens are those of the package tokenizers, for each family of models") {
  for (const char* family : {"gpt2", "gpt2_space", "smollm", "llama3", "qwen", "tekken"}) {
    const auto tokenizer = make(stored(std::string(family) + ".kaiju.json"));
    const auto vectors = nlohmann::json::parse(stored(std::string(family) + ".vectors.json")).at("vectors");
    CHECK(vectors.size() >= 60);
    for (const auto& vector : vectors) {
      const auto text = vector.at("text").get<std::string>();
      INFO(family << ", " << text);
      const auto tokens =
          vector.at("special").get<bool>() ? tokenizer->encode_with_special_tokens(text) : tokenizer->encode(text);
      REQUIRE(tokens.ok());
      CHECK(tokens.value() == vector.at("tokens").get<Tokens>());
    }
  }
}

TEST_CASE("the lowest rank merges first, the leftmost of equals") {
  const auto tokenizer = make(ByteBpeModel().json());
  CHECK(tokenizer->encode("hello").value() == Tokens{262});
  CHECK(tokenizer->encode("hell").value() == Tokens{259, 260});
  CHECK(tokenizer->encode("lll").value() == Tokens{260, 108});
  CHECK(tokenizer->encode("lllll").value() == Tokens{260, 260, 108});
  CHECK(tokenizer->encode("hello world").value() == Tokens{262, 263, 111, 114, 108, 100});
  CHECK(tokenizer->encode("").value().empty());
}

TEST_CASE("a long word merges as a short one does") {
  const auto tokenizer = make(ByteBpeModel().json());
  const std::string text = repeated("hellolll", 4096);
  const Tokens one = {262, 260, 108};
  Tokens expected;
  for (size_t i = 0; i < text.size() / 8; ++i) expected.insert(expected.end(), one.begin(), one.end());
  CHECK(tokenizer->encode(text).value() == expected);
}

TEST_CASE("with ignore_merges a word that is a token becomes it, whatever the merges say") {
  const auto add = [](ByteBpeModel& model) { model.add("abc"); };
  const auto ignoring = [&](ByteBpeModel& model) {
    add(model);
    model.ignore_merges = "true";
  };
  CHECK(make_changed(add)->encode("abc").value() == Tokens{97, 98, 99});
  CHECK(make_changed(ignoring)->encode("abc").value() == Tokens{264});
  CHECK(make_changed(ignoring)->encode("abcd").value() == Tokens{97, 98, 99, 100});
}

TEST_CASE("a literal token is found in every text") {
  const auto tokenizer = make(ByteBpeModel().json());
  CHECK(tokenizer->encode("a     b").value() == Tokens{97, 258, 32, 98});
  CHECK(tokenizer->decode(Tokens{97, 258, 98}).value() == "a    b");
}

TEST_CASE("pieces are raw bytes: control tokens have none, visible ones their text") {
  const auto tokenizer = make_changed([](ByteBpeModel& model) { model.tokens.push_back("\"\""); });
  for (int byte = 0; byte < 256; ++byte)
    CHECK(tokenizer->piece(byte) == std::string_view(std::string(1, static_cast<char>(byte))));
  CHECK(tokenizer->piece(256).empty());
  CHECK(tokenizer->is_control(256));
  CHECK(tokenizer->piece(257) == "<think>");
  CHECK_FALSE(tokenizer->is_control(257));
  CHECK(tokenizer->piece(264).empty());  // an id without a token
  CHECK_FALSE(tokenizer->adds_space());
  CHECK(tokenizer->size() == 265);
  for (const int32_t token : {-1, 265, INT32_MAX, INT32_MIN}) {
    CHECK(tokenizer->piece(token).empty());
    CHECK_FALSE(tokenizer->is_control(token));
  }
}

TEST_CASE("any text comes back from its tokens") {
  const auto tokenizer = make(ByteBpeModel().json());
  for (const std::string& text : {std::string("h\xC3\xA9llo \xF0\x9F\x98\x80\r\n\t x"), std::string("a\0b", 3),
                                  std::string("\xE2\x80\xA8\xC2\x85 "), repeated("\xE4\xBD\xA0", 500)})
    CHECK(tokenizer->decode(tokenizer->encode(text).value()).value() == text);
}

TEST_CASE("a byte without a token is left out of the text") {
  const auto tokenizer = make_changed([](ByteBpeModel& model) { model.tokens[4] = "\"\""; });
  CHECK(tokenizer->encode("hello\4").value() == Tokens{262});
  CHECK(tokenizer->encode("\4").value().empty());
}

TEST_CASE("the longest text is encoded, whatever it is made of") {
  const auto tokenizer = make(stored("qwen.kaiju.json")), tekken = make(stored("tekken.kaiju.json"));
  CHECK(tekken->encode(repeated("A", Tokenizer::kMaxTextBytes)).ok());
  for (const char* part : {" ", " \n", "!", "\xCC\x95\xCC\xA3"}) {
    INFO(part);
    CHECK(tokenizer->encode(repeated(part, Tokenizer::kMaxTextBytes)).ok());
  }
}

TEST_CASE("NFC composes characters and orders marks before the text is split") {
  const auto plain = make(ByteBpeModel().json());
  const auto tokenizer = make_changed([](ByteBpeModel& model) { model.normalization = "\"nfc\""; });
  for (const auto& [text, normal] : std::vector<std::pair<std::string, std::string>>{
           {"e\xCC\x81", "\xC3\xA9"},                                 // e and acute
           {"\xE2\x84\xAB", "\xC3\x85"},                              // the sign for angstrom
           {"q\xCC\x87\xCC\xA3", "q\xCC\xA3\xCC\x87"},                // dot above, dot below
           {"\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xED\x95\x9C"},  // Hangul
           {"\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC"},              // excluded from composition
           {"\xEF\xAC\x81 plain", "\xEF\xAC\x81 plain"}}) {           // NFKC would change it
    INFO(text);
    CHECK(tokenizer->encode(text).value() == plain->encode(normal).value());
  }
}

TEST_CASE("a text that NFC makes too long is refused") {
  const auto tokenizer = make_changed([](ByteBpeModel& model) { model.normalization = "\"nfc\""; });
  const auto tokens = tokenizer->encode(repeated("\xE0\xA5\x98", 600 << 10));
  REQUIRE_FALSE(tokens.ok());
  CHECK(tokens.status().code() == StatusCode::kInvalidArgument);
  CHECK(tokens.status().message().find("rules make") != std::string::npos);
}

TEST_CASE("text too long or not UTF-8 is refused with the place") {
  const auto tokenizer = make(ByteBpeModel().json());
  for (const bool special : {false, true}) {
    const auto encode = [&](const std::string& text) {
      return (special ? tokenizer->encode_with_special_tokens(text) : tokenizer->encode(text)).status();
    };
    CHECK(encode(std::string(Tokenizer::kMaxTextBytes + 1, 'a')).code() == StatusCode::kInvalidArgument);
    CHECK(encode("ab\xFF").message().find("byte 3") != std::string::npos);
  }
}

TEST_CASE("many threads encode with one byte-level tokenizer") {
  const auto tokenizer = make(stored("qwen.kaiju.json"));
  const std::string text = "hello e\xCC\x81 the world, 123 I say \xF0\x9F\x98\x80";
  const auto expected = tokenizer->encode(text).value();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) wrong += tokenizer->encode(text).value() != expected;
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}
