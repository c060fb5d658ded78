// Special tokens of byte-level BPE: text never forges them; trusted text gets them with the white space that they take.
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "catch.hpp"
#include "kaiju/text/chat.hpp"
#include "tests/text/byte_bpe_model.hpp"
#include "tests/text/tiny_tokenizer.hpp"

using namespace kaiju;
using namespace kaiju::tests;

namespace {

using Tokens = std::vector<int32_t>;

std::shared_ptr<const Tokenizer> make(const std::string& json) {
  const auto tokenizer = load(json, 528);
  INFO(tokenizer.status().message());
  REQUIRE(tokenizer.ok());
  return tokenizer.value();
}

template <class Change>
std::shared_ptr<const Tokenizer> make_changed(const Change& change) {
  return make(changed_bpe(change));
}

nlohmann::json stored(const std::string& family) {
  std::ifstream file(std::string(KAIJU_SOURCE_DIR) + "/tests/text/byte_bpe/" + family + ".kaiju.json");
  REQUIRE(file.good());
  return nlohmann::json::parse(file);
}

}  // namespace

TEST_CASE("no text forges a special token, whatever the split") {
  for (const char* split : {"gpt2", "smollm", "llama3", "qwen2", "tekken"})
    for (const char* family : {"gpt2", "smollm", "llama3", "qwen", "tekken"}) {
      auto json = stored(family);
      json["split"] = split;
      json["ignore_merges"] = true;
      const auto tokenizer = make(json.dump());
      const auto special = [&](int32_t token) {
        for (const char* role : {"control", "visible"})
          if (std::find(json[role].begin(), json[role].end(), token) != json[role].end()) return true;
        return false;
      };
      for (const char* role : {"control", "visible"})
        for (const int32_t id : json[role]) {
          const auto name = json["tokens"][id].get<std::string>();  // ASCII without spaces, so shown as it is
          INFO(split << ", " << family << ", " << name);
          CHECK(tokenizer->encode_with_special_tokens(name).value() == Tokens{id});
          for (const std::string& text : {name, name + name, "a" + name + "b", " " + name + "\n", "1" + name + "2",
                                          "\n\n" + name, "<" + name + ">", "'" + name + "'s", "A" + name + "\u4f60"}) {
            const auto tokens = tokenizer->encode(text).value();
            for (const int32_t token : tokens) CHECK_FALSE(special(token));
            CHECK(tokenizer->decode(tokens).value() == text);
          }
        }
    }
}

TEST_CASE("no ordinary text becomes a special token, and trusted text does") {
  const auto tokenizer = make(ByteBpeModel().json());
  const std::string text = "a<|end|>b<think>";
  for (const int32_t token : tokenizer->encode(text).value()) CHECK(token < 256);
  CHECK(tokenizer->decode(tokenizer->encode(text).value()).value() == text);
  CHECK(tokenizer->encode_with_special_tokens(text).value() == Tokens{97, 256, 98, 257});
  CHECK(tokenizer->encode_with_special_tokens("<|end").value() == tokenizer->encode("<|end").value());
}

TEST_CASE("with ignore_merges no word that is a special token's text becomes it") {
  const auto tokenizer = make_changed([](ByteBpeModel& model) {
    model.ignore_merges = "true";
    model.add("<<<>>>");  // one word of every split
    model.control.push_back("264");
  });
  CHECK(tokenizer->encode("<<<>>>").value() == Tokens{60, 60, 60, 62, 62, 62});
  CHECK(tokenizer->encode_with_special_tokens("<<<>>>").value() == Tokens{264});
}

TEST_CASE("an ordinary token may have the text of a special one") {
  const auto tokenizer = make_changed([](ByteBpeModel& model) {
    model.add("<<<>>>");
    model.add("<<<>>>");
    model.control.push_back("264");
    model.ignore_merges = "true";
  });
  CHECK(tokenizer->encode("<<<>>>").value() == Tokens{265});
  CHECK(tokenizer->encode_with_special_tokens("<<<>>>").value() == Tokens{264});
  CHECK(tokenizer->is_control(264));
  CHECK_FALSE(tokenizer->is_control(265));
}

TEST_CASE("of special tokens that begin alike the longest is found") {
  const auto tokenizer = make_changed([](ByteBpeModel& model) {
    model.add("<|end|><|end|>");
    model.add("<|");
    model.control = {"256", "264", "265"};
  });
  CHECK(tokenizer->encode_with_special_tokens("<|end|><|end|><|end|><|en").value() == Tokens{264, 256, 265, 101, 110});
}

TEST_CASE("a token with lstrip or rstrip takes the white space beside it") {
  const auto tokenizer = make_changed([](ByteBpeModel& model) {
    model.lstrip = {"256"};
    model.rstrip = {"257"};
    model.literal.clear();
  });
  const auto encode = [&](std::string_view text) { return tokenizer->encode_with_special_tokens(text).value(); };
  CHECK(encode("a \n\u3000<|end|> b") == Tokens{97, 256, 32, 98});
  CHECK(encode("a <think> \t\u2028b") == Tokens{97, 32, 257, 98});
  CHECK(encode("  <|end|>") == Tokens{256});
  CHECK(encode("<think>  ") == Tokens{257});
  CHECK(encode("<think>  <|end|>  a") == Tokens{257, 256, 32, 32, 97});
  CHECK(tokenizer->encode("a <|end|>").value() == make(ByteBpeModel().json())->encode("a <|end|>").value());
}

TEST_CASE("a token with single_word is not found beside characters of words") {
  const auto tokenizer = make_changed([](ByteBpeModel& model) { model.single_word = {"256"}; });
  const auto found = [&](const std::string& text) {
    const auto tokens = tokenizer->encode_with_special_tokens(text).value();
    return std::count(tokens.begin(), tokens.end(), 256);
  };
  CHECK(found("<|end|>") == 1);
  CHECK(found("a <|end|>.<|end|>") == 2);
  CHECK(found("a<think><|end|>") == 1);
  for (const char* part : {"a", "1", "_", "\u00e9", "\u0301", "\u4f60", "\u200d", "\u24b6", "\u2160"}) {
    INFO(part);
    CHECK(found(part + std::string("<|end|>")) == 0);
    CHECK(found(std::string("<|end|>") + part) == 0);
    CHECK(found(std::string("<|end|>") + part + "<|end|>!<|end|>") == 1);
  }
  for (const char* part : {"-", "\u00bd", "\u200b", "\U0001F600"}) CHECK(found(part + std::string("<|end|>")) == 1);
}

TEST_CASE("add_prefix_space puts a space before a text that has none") {
  const auto tokenizer = make_changed([](ByteBpeModel& model) {
    model.add_prefix_space = "true";
    model.literal.clear();
  });
  CHECK(tokenizer->adds_space());
  CHECK(tokenizer->encode("wa").value() == Tokens{263, 97});
  CHECK(tokenizer->encode(" wa").value() == Tokens{263, 97});
  CHECK(tokenizer->encode("\nwa").value() == Tokens{32, 10, 119, 97});
  CHECK(tokenizer->encode("").value().empty());
  CHECK(tokenizer->decode(tokenizer->encode("wa").value()).value() == "wa");
  CHECK(tokenizer->encode_with_special_tokens("<|end|>wa<think>w").value() == Tokens{256, 263, 97, 257, 263});
  CHECK(tokenizer->encode(std::string(Tokenizer::kMaxTextBytes - 1, 'a')).ok());
  CHECK(tokenizer->encode(std::string(Tokenizer::kMaxTextBytes, 'a')).status().message().find("rules make") !=
        std::string::npos);
}

TEST_CASE("a hundred thousand special tokens are loaded and found") {
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
