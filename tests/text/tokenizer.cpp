// What the tokenizer promises for a sound model.
#include "kaiju/text/tokenizer.hpp"

#include <atomic>
#include <random>
#include <thread>

#include "catch.hpp"
#include "tests/text/tiny_tokenizer.hpp"
#include "tests/text/trained_tokenizer.hpp"

using namespace kaiju;
using namespace kaiju::tests;

namespace {

std::shared_ptr<const Tokenizer> tiny() { return load(tiny_model().bytes()).value(); }

// By value: the vector outlives the loop that walks it.
std::vector<int32_t> encode(const Tokenizer& tokenizer, const std::string& text) {
  return tokenizer.encode(text).value();
}

std::string random_utf8(std::mt19937& random, size_t characters) {
  std::string text;
  for (size_t i = 0; i < characters; ++i) {
    uint32_t c = random() % 4 == 0 ? random() % 0x110000 : random() % 0x250;
    if (c >= 0xD800 && c < 0xE000) c -= 0x800;
    if (c == 0x2581) c = ' ';  // SentencePiece's own mark for a space comes back as one
    if (c < 0x80) {
      text += static_cast<char>(c);
    } else if (c < 0x800) {
      text += {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    } else if (c < 0x10000) {
      text += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
               static_cast<char>(0x80 | (c & 63))};
    } else {
      text += {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)),
               static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
    }
  }
  return text;
}

}  // namespace

TEST_CASE("any UTF-8 text comes back from its tokens byte for byte") {
  const auto tokenizer = tiny();
  for (const char* text : {"", " ", "  two  spaces  ", "\n\t\r\n", "hello the world", "na\xC3\xAFve caf\xC3\xA9",
                           "\xF0\x9F\xA6\x96 \xE4\xBD\xA0\xE5\xA5\xBD"})
    CHECK(tokenizer->decode(tokenizer->encode(text).value()).value() == text);
  const unsigned seed = 7;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 500; ++i) {
    const std::string text = random_utf8(random, random() % 60);
    CHECK(tokenizer->decode(tokenizer->encode(text).value()).value() == text);
  }
}

TEST_CASE("a zero byte inside a text is a byte like any other") {
  const auto tokenizer = tiny();
  const std::string text("a\0b", 3);
  CHECK(tokenizer->decode(tokenizer->encode(text).value()).value() == text);
}

TEST_CASE("words known to the model are one token") {
  const auto tokenizer = tiny();
  const auto tokens = tokenizer->encode("hello world").value();
  REQUIRE(tokens.size() == 2);
  CHECK(tokenizer->piece(tokens[0]) == "hello");
  CHECK(tokenizer->piece(tokens[1]) == " world");
}

TEST_CASE("no text gives a control symbol") {
  const auto tokenizer = tiny();
  for (const char* text :
       {"<s>", "</s>", "<|card|>", "<|user|>", "<|char|>", "<|end|>", "<|text|>", "<unk>", "hello<|end|>world<|char|>"})
    for (const int32_t token : encode(*tokenizer, text)) CHECK(token >= 8);
}

TEST_CASE("no text gives a control symbol of a single character") {
  for (const std::string symbol : {"#", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\xA6\x96"})
    for (const char type : {1, 2}) {  // unigram, byte pair encoding
      INFO(symbol << " with model_type " << static_cast<int>(type));
      const auto size = static_cast<char>(symbol.size());
      const std::string piece = {'\x0A', static_cast<char>(size + 4), '\x0A', size}, kind = "\x18\x03",
                        trainer = {'\x12', 2, '\x18', type};
      const auto loaded = load(tiny_model().bytes() + piece + symbol + kind + trainer);
      REQUIRE(loaded.status().message() == "");
      const Tokenizer& tokenizer = *loaded.value();
      CHECK(tokenizer.is_control(tokenizer.size() - 1));
      CHECK(tokenizer.piece(tokenizer.size() - 1).empty());
      for (const std::string& text : {symbol, "hello" + symbol + " " + symbol + symbol + "world"}) {
        const auto tokens = tokenizer.encode(text);
        REQUIRE(tokens.status().message() == "");
        for (const int32_t token : tokens.value()) CHECK_FALSE(tokenizer.is_control(token));
        CHECK(tokenizer.decode(tokens.value()).value() == text);
      }
    }
}

TEST_CASE("control symbols give no text") {
  const auto tokenizer = tiny();
  for (int32_t token = 1; token < 8; ++token) {
    CHECK(tokenizer->is_control(token));
    CHECK(tokenizer->piece(token).empty());
  }
  CHECK_FALSE(tokenizer->is_control(8));
}

TEST_CASE("byte pieces give their byte") {
  const auto tokenizer = tiny();
  for (int byte = 0; byte < 256; ++byte) CHECK(tokenizer->piece(8 + byte) == std::string(1, static_cast<char>(byte)));
}

TEST_CASE("a piece outside the vocabulary is empty and no control symbol") {
  const auto tokenizer = tiny();
  for (const int32_t token : {-1, tokenizer->size(), INT32_MAX, INT32_MIN}) {
    CHECK(tokenizer->piece(token).empty());
    CHECK_FALSE(tokenizer->is_control(token));
  }
}

TEST_CASE("the space that encoding adds is gone after decoding") {
  auto model = tiny_model();
  model.model.add_dummy_prefix = true;
  const auto tokenizer = load(model.bytes()).value();
  CHECK(tokenizer->adds_space());
  const auto tokens = tokenizer->encode("world").value();
  CHECK(tokens.size() == 1);
  CHECK(tokenizer->decode(tokens).value() == "world");
  CHECK(tokenizer->decode(tokenizer->encode(" world").value()).value() == " world");
}

TEST_CASE("a model with fewer pieces than the vocabulary is accepted") { CHECK(load(tiny_model().bytes(), 4096).ok()); }

TEST_CASE("a byte pair model splits and joins text") {
  auto model = tiny_model();
  model.model.model_type = 2;
  const auto tokenizer = load(model.bytes()).value();
  for (const char* text : {"hello world", "the \xC3\xA9", ""})
    CHECK(tokenizer->decode(tokenizer->encode(text).value()).value() == text);
}

TEST_CASE("models as SentencePiece trains them are read, with and without a normaliser") {
  for (const char* rules : {"identity", "nmt_nfkc", "nfkc_cf"}) {
    const auto tokenizer = load(train_tokenizer(rules), 512);
    INFO(rules << ": " << tokenizer.status().message());
    REQUIRE(tokenizer.ok());
    CHECK(tokenizer.value()->decode(tokenizer.value()->encode("hello world").value()).value() == "hello world");
    // U+FF21, a wide A: NFKC makes it a plain one, nfkc_cf a small one, identity leaves it.
    const std::string wide = tokenizer.value()->decode(tokenizer.value()->encode("\xEF\xBC\xA1").value()).value();
    CHECK(wide == (rules == std::string("identity") ? "\xEF\xBC\xA1" : rules == std::string("nmt_nfkc") ? "A" : "a"));
  }
}

TEST_CASE("the length of a normalised text is known before it is encoded") {
  for (const char* rules : {"nmt_nfkc", "nfkc_cf", "identity"}) {
    const std::string bytes = train_tokenizer(rules);
    auto model = read_sentencepiece_model(as_bytes(bytes), 512);
    REQUIRE(model.ok());
    const Normaliser normaliser(model->charsmap);
    const auto tokenizer = load(bytes, 512).value();
    // Without white space, of which an encoder may take some away.
    for (const char* text :
         {"", "hello", "\xEF\xBC\xA1\xEF\xBC\xA2", "\xEF\xB7\xBA", "a\xEF\xB7\xBA\xEF\xB7\xBA",
          "\xE3\x8C\x80\xE3\x8F\xBF", "\xEF\xAC\x83", "e\xCC\x81\xCC\x81", "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB",
          "\xE4\xBD\xA0\xE5\xA5\xBD", "\xF0\x9F\x98\x80", "\xC3\x9F\xC3\x84\xCE\xA3", "1\xE2\x81\x84\x32\xC2\xBD",
          "\xE2\x91\xA0\xE2\x85\xAB\xE2\x84\xA2", "\x01\x02x"}) {
      INFO(rules << ", " << text);
      CHECK(normaliser.bytes_of(text) == tokenizer->decode(tokenizer->encode(text).value()).value().size());
    }
  }
}

TEST_CASE("many threads encode at once") {
  const auto tokenizer = tiny();
  const auto expected = tokenizer->encode("hello the world, I say").value();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) wrong += tokenizer->encode("hello the world, I say").value() != expected;
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}
