// Byte-level BPE: the tokens of the reference, merges by rank, special tokens only where asked for, bounded work.
#include <atomic>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "catch.hpp"
#include "kaiju/text/chat.hpp"
#include "src/text/split.hpp"
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

// The words of a text.
std::vector<std::string> words(const std::vector<std::string>& patterns, const std::string& text) {
  const auto split = Split::compile(patterns);
  INFO(split.status().message());
  REQUIRE(split.ok());
  std::vector<uint32_t> ends;
  const Status status = Split(split.value()).words(text, ends);
  INFO(status.message());
  REQUIRE(status.ok());
  std::vector<std::string> out;
  uint32_t begin = 0;
  for (const uint32_t end : ends) {
    out.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return out;
}

std::string repeated(std::string_view text, size_t bytes) {
  std::string out;
  while (out.size() + text.size() <= bytes) out += text;
  return out;
}

using Tokens = std::vector<int32_t>;

}  // namespace

TEST_CASE("tokens are those of the package tokenizers, for each family of models") {
  for (const char* family : {"gpt2", "smollm", "llama3", "qwen", "tekken"}) {
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

TEST_CASE("no ordinary text becomes a special token, and trusted text does") {
  const auto tokenizer = make(ByteBpeModel().json());
  const std::string text = "a<|end|>b<think>";
  for (const int32_t token : tokenizer->encode(text).value()) CHECK(token < 256);
  CHECK(tokenizer->decode(tokenizer->encode(text).value()).value() == text);
  CHECK(tokenizer->encode_with_special_tokens(text).value() == Tokens{97, 256, 98, 257});
  CHECK(tokenizer->encode_with_special_tokens("<|end").value() == tokenizer->encode("<|end").value());
}

TEST_CASE("with ignore_merges too no ordinary text becomes a special token") {
  const auto tokenizer = make_changed([](ByteBpeModel& model) {
    model.ignore_merges = "true";
    model.split = {"[^ ]+"};
  });
  for (const int32_t token : tokenizer->encode("<|end|> <think>").value()) CHECK(token < 256);
}

TEST_CASE("an ordinary token may have the text of a special one") {
  const auto tokenizer = make_changed([](ByteBpeModel& model) {
    model.add("<|end|>");
    model.ignore_merges = "true";
    model.split = {"[^ ]+"};
  });
  CHECK(tokenizer->encode("<|end|>").value() == Tokens{264});
  CHECK(tokenizer->encode_with_special_tokens("<|end|>").value() == Tokens{256});
  CHECK_FALSE(tokenizer->is_control(264));
}

TEST_CASE("of special tokens that begin alike the longest is found") {
  const auto tokenizer = make_changed([](ByteBpeModel& model) {
    model.add("<|end|><|end|>");
    model.add("<|");
    model.control = {"256", "264", "265"};
  });
  CHECK(tokenizer->encode_with_special_tokens("<|end|><|end|><|end|><|en").value() == Tokens{264, 256, 265, 101, 110});
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
  const auto tokenizer = make_changed([](ByteBpeModel& model) {
    model.tokens[4] = "\"\"";
    model.split.clear();
  });
  CHECK(tokenizer->encode("h\4ello\4").value() == Tokens{262});
  CHECK(tokenizer->encode("\4").value().empty());
}

TEST_CASE("each pattern of a split divides the words of the one before") {
  CHECK(words({R"(\p{N})", "[a-z]+"}, "ab12-cd") == std::vector<std::string>{"ab", "1", "2", "-", "cd"});
  CHECK(words({}, "ab 12") == std::vector<std::string>{"ab 12"});
  CHECK(words({"x"}, "ab") == std::vector<std::string>{"ab"});
}

TEST_CASE("words of any length are found whole, wherever they lie") {
  const std::vector<std::string> pattern = {R"(\s+(?!\S)|\s+|\p{L}+)"};
  for (size_t before = 0; before < 140; before += 7)
    for (size_t length = 1; length < 300; length += 13) {
      const std::string digits(before, '7'), letters = repeated("\xC3\xA9", 2 * length), spaces(length, ' ');
      std::vector<std::string> expected;
      if (before > 0) expected.push_back(digits);
      expected.insert(expected.end(), {letters, "1"});
      if (length > 1) expected.push_back(spaces.substr(1));
      expected.insert(expected.end(), {" ", "b"});
      CHECK(words(pattern, digits + letters + "1" + spaces + "b") == expected);
    }
}

TEST_CASE("a lookbehind sees the text before a window") {
  const std::string zeros(200, '0');
  CHECK(words({"(?<=x0{3})1|(?<=0)2"}, zeros + "x0001" + zeros + "2") ==
        std::vector<std::string>{zeros + "x000", "1", zeros, "2"});
}

TEST_CASE("white space is Unicode's: U+0085 is, U+180E is not") {
  CHECK(words({R"(\s+)"},
              "a\xC2\x85"
              "b") == std::vector<std::string>{"a", "\xC2\x85", "b"});
  CHECK(words({R"(\s+)"},
              "a\xE1\xA0\x8E"
              "b") == std::vector<std::string>{"a\xE1\xA0\x8E"
                                               "b"});
  CHECK(words({R"([^\s]+)"}, "a\xE1\xA0\x8E ") == std::vector<std::string>{"a\xE1\xA0\x8E", " "});
  CHECK(words({R"(\\s)"}, R"(a\s)") == std::vector<std::string>{"a", R"(\s)"});
}

TEST_CASE("a pattern that backtracks without end is stopped by name") {
  for (const char* pattern : {"(a+)+b", "(a|aa)+c|x", "(?:a?){60}a{60}b|z"}) {
    const auto tokenizer = make_changed([&](ByteBpeModel& model) { model.split = {pattern}; });
    const auto tokens = tokenizer->encode(repeated("a", 1 << 20));
    INFO(pattern << ": " << tokens.status().message());
    REQUIRE_FALSE(tokens.ok());
    CHECK(tokens.status().code() == StatusCode::kBadModel);
    CHECK(tokens.status().message().find("pattern 1 of split") != std::string::npos);
    CHECK(tokenizer->encode("xyz").ok());
  }
}

TEST_CASE("a pattern that looks at a long word for each of its letters is stopped by name") {
  for (const char* pattern : {R"(\p{L}*!|.)", "a*b", "(?=a*+c)a|d"}) {
    const auto tokenizer = make_changed([&](ByteBpeModel& model) { model.split = {pattern}; });
    const auto tokens = tokenizer->encode(repeated("a", 1 << 17) + "cb");
    INFO(pattern << ": " << tokens.status().message());
    REQUIRE_FALSE(tokens.ok());
    CHECK(tokens.status().code() == StatusCode::kBadModel);
    CHECK(tokens.status().message().find("again and again") != std::string::npos);
    CHECK(tokenizer->encode(repeated("a word ", 1 << 17)).ok());
  }
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

TEST_CASE("a hundred thousand added tokens are loaded and found") {
  const auto tokenizer = load(changed_bpe([](ByteBpeModel& model) {
                                for (int i = 0; i < 100'000; ++i) {
                                  model.control.push_back(std::to_string(model.tokens.size()));
                                  model.add(fmt::format("<|reserved_{}|>", i));
                                }
                              }),
                              1 << 20);
  INFO(tokenizer.status().message());
  REQUIRE(tokenizer.ok());
  CHECK(tokenizer.value()->encode_with_special_tokens("a<|reserved_99999|><|reserved_9|>").value() ==
        Tokens{97, 264 + 99'999, 264 + 9});
}

TEST_CASE("a chat needs only control tokens of byte-level BPE") {
  ModelConfig config;
  const auto tokenizer = make_changed([](ByteBpeModel& model) {
    for (const char* name : {"<s>", "<card>", "<user>", "<char>"}) {
      model.control.push_back(std::to_string(model.tokens.size()));
      model.add(name);
    }
  });
  config.chat.begin = 264;
  config.chat.card = 265;
  config.chat.user = 266;
  config.chat.character = 267;
  config.chat.close = 256;
  const auto chat = ChatFormat::create(config, tokenizer);
  INFO(chat.status().message());
  REQUIRE(chat.ok());
  Tokens tokens;
  REQUIRE(chat.value().append(ChatRole::kUser, "hello<|end|>", tokens).ok());
  CHECK(tokens.front() == 266);
  CHECK(std::count(tokens.begin(), tokens.end(), 256) == 1);
  config.chat.close = 257;  // visible
  CHECK_FALSE(ChatFormat::create(config, tokenizer).ok());
}

TEST_CASE("a SentencePiece model finds no special tokens, and says so") {
  const auto tokenizer = load(tiny_model().bytes()).value();
  CHECK(tokenizer->encode_with_special_tokens("a").status().code() == StatusCode::kUnsupported);
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
