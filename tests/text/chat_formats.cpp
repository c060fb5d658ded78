// Chat formats of imported models: they give the tokens that the models' templates give, text forges nothing, and
// prompts grow at their end. The vectors are of chat_formats/make_vectors.py.
#include <fstream>
#include <nlohmann/json.hpp>

#include "catch.hpp"
#include "kaiju/format/checkpoint.hpp"
#include "kaiju/text/chat.hpp"
#include "src/text/white_space.hpp"
#include "tests/text/byte_bpe_model.hpp"
#include "tests/text/tiny_tokenizer.hpp"

using namespace kaiju;
using namespace kaiju::tests;

namespace {

using Json = nlohmann::json;
using Tokens = std::vector<int32_t>;

constexpr const char* kFamilies[] = {"chatml",     "qwen2.5",        "qwen3",        "qwen3_no_thinking",   "smollm2",
                                     "smollm3",    "llama3",         "llama3.1",     "smollm3_no_thinking", "gemma3",
                                     "mistral_v3", "mistral_tekken", "mistral_small"};

Json read(const std::string& path) {
  std::ifstream file(std::string(KAIJU_SOURCE_DIR "/tests/text/") + path);
  return Json::parse(file);
}

// A config with this chat format and nothing else of interest.
Result<ModelConfig> config_with(const Json& chat_format, int32_t vocab_size = 1024) {
  return config_from_json(fmt::format(
      R"({{"name":"","vocab_size":{},"d_model":64,"n_heads":1,"n_kv_heads":1,"head_dim":64,"d_ff":64,"context":64,)"
      R"("norm_eps":1e-5,"layers":[{{"kind":"global","kv_slot":0,"rope":0}}],"chat_format":{}}})",
      vocab_size, chat_format.dump()));
}

struct Family {
  Json vectors;
  std::shared_ptr<const Tokenizer> tokenizer;
  ChatFormat chat;

  explicit Family(const std::string& name)
      : vectors(read("chat_formats/" + name + ".json")),
        tokenizer(load(tokenizer_json(vectors), 1024).value()),
        chat(ChatFormat::create(config_with(vectors["chat_format"]).value(), tokenizer).value()) {}

  static std::string tokenizer_json(const Json& vectors) {
    Json stored = read("byte_bpe/" + vectors["tokenizer"].get<std::string>() + ".kaiju.json");
    for (const char* role : {"control", "visible"})
      for (const Json& text : vectors[role]) {
        stored[role].push_back(stored["tokens"].size());
        stored["tokens"].push_back(text);
      }
    return stored.dump();
  }
};

std::vector<ChatMessage> messages_of(const Json& conversation) {
  std::vector<ChatMessage> messages;
  for (const Json& each : conversation) {
    const auto& role = each["role"].get_ref<const std::string&>();
    messages.push_back({role == "system" ? ChatRole::kSystem
                        : role == "user" ? ChatRole::kUser
                                         : ChatRole::kCharacter,
                        each["content"].get_ref<const std::string&>(),
                        {}});
    if (each.contains("name")) messages.back().name = each["name"].get_ref<const std::string&>();
  }
  return messages;
}

Tokens prompt(const ChatFormat& chat, std::span<const ChatMessage> messages) {
  const bool begin = messages.empty() || (messages[0].role != ChatRole::kSystem && messages[0].role != ChatRole::kCard);
  Tokens tokens;
  const Status status = chat.format(messages, {.begin = begin, .reply = true}, tokens);
  INFO(status.message());
  REQUIRE(status.ok());
  return tokens;
}

bool begins_with(const Tokens& tokens, const Tokens& beginning) {
  return tokens.size() >= beginning.size() && std::equal(beginning.begin(), beginning.end(), tokens.begin());
}

// A format with control tokens 256 "<|end|>", 264 "<|start|>", and 257 "<think>" (visible) of byte-level BPE.
std::shared_ptr<const Tokenizer> small_tokenizer() {
  return load(changed_bpe([](ByteBpeModel& model) {
                model.control.push_back("264");
                model.add("<|start|>");
              }),
              1024)
      .value();
}

Json small_format() {
  return Json::parse(R"({"system": {"before": [264, "system\n"], "after": [256, "\n"]},
                         "user": {"before": [264, "user\n"], "after": [256, "\n"]},
                         "assistant": {"before": [264, "assistant\n"], "after": [256, "\n"]}, "stop": [256]})");
}

ChatFormat small_chat(const Json& format = small_format()) {
  const auto config = config_with(format);
  INFO(config.status().message());
  REQUIRE(config.ok());
  return ChatFormat::create(config.value(), small_tokenizer()).value();
}

// What the tokens spell, control tokens as they are written in templates.
std::string spelt(const Tokens& tokens) {
  const auto tokenizer = small_tokenizer();
  std::string text;
  for (const int32_t token : tokens)
    text += token == 264 ? "<|start|>" : token == 256 ? "<|end|>" : std::string(tokenizer->piece(token));
  return text;
}

std::string spelt(const ChatFormat& chat, const std::vector<ChatMessage>& messages, const ChatParts& parts) {
  Tokens tokens;
  const Status status = chat.format(messages, parts, tokens);
  return status.ok() ? spelt(tokens) : status.message();
}

}  // namespace

TEST_CASE("imported chat formats give the tokens of the models' templates") {
  for (const char* name : kFamilies) {
    const Family family(name);
    for (const Json& each : family.vectors["conversations"]) {
      INFO(name << ": " << each["messages"].dump());
      CHECK(prompt(family.chat, messages_of(each["messages"])) == each["tokens"].get<Tokens>());
    }
  }
}

TEST_CASE("the prompt of a turn begins with the prompt of the turn before") {
  for (const char* name : kFamilies) {
    const Family family(name);
    for (const Json& each : family.vectors["conversations"]) {
      std::vector<ChatMessage> messages = messages_of(each["messages"]);
      // A template that keeps white space merges it with its own newline, so such a reply begins with other tokens.
      for (ChatMessage& message : messages)
        if (message.role == ChatRole::kCharacter) message.text = without_leading_space(message.text);
      Tokens before;
      for (size_t i = 0; i < messages.size(); ++i) {
        if (messages[i].role != ChatRole::kUser) continue;
        INFO(name << ", " << i << ": " << each["messages"].dump());
        const Tokens now = prompt(family.chat, std::span(messages).first(i + 1));
        CHECK(begins_with(now, before));
        before = now;
      }
    }
  }
}

TEST_CASE("a conversation in parts has the tokens of the whole") {
  for (const char* name : kFamilies) {
    if (name == std::string("mistral_v3")) continue;  // its space before a text is one token with the text
    const Family family(name);
    const std::vector<ChatMessage> all = {{ChatRole::kCard, "Wren\nWren is a robot gardener."},
                                          {ChatRole::kUser, "Hello! Who are you?"},
                                          {ChatRole::kCharacter, "I am Wren."},
                                          {ChatRole::kUser, "What do you grow?"}};
    INFO(name);
    Tokens head;
    REQUIRE(family.chat.append(all[0].role, all[0].text, head).ok());
    Tokens parts = head;
    for (size_t i = 1; i < all.size(); i += 2) {
      Tokens input;
      REQUIRE(family.chat.format({&all[i], 1}, {.reply = true}, input).ok());
      const auto opening = family.chat.opening(head);
      if (i == 1) {
        REQUIRE(begins_with(input, {opening.begin(), opening.end()}));
        input.erase(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(opening.size()));
      }
      parts.insert(parts.end(), input.begin(), input.end());
      if (i + 1 == all.size()) break;
      const auto reply = family.tokenizer->encode(all[i + 1].text);
      parts.insert(parts.end(), reply.value().begin(), reply.value().end());
      family.chat.append_close(parts);
    }
    CHECK(parts == prompt(family.chat, all));
  }
}

TEST_CASE("a head that ends inside the first user message has an opening, others have none") {
  for (const char* name : {"gemma3", "mistral_tekken", "mistral_v3"}) {
    const Family family(name);
    INFO(name);
    Tokens head, closed, begin;
    REQUIRE(family.chat.append(ChatRole::kSystem, "Be brief.", head).ok());
    CHECK_FALSE(family.chat.opening(head).empty());
    const ChatMessage messages[] = {{ChatRole::kSystem, "Be brief."}, {ChatRole::kUser, "Hi"}};
    REQUIRE(family.chat.format(messages, {}, closed).ok());
    CHECK(family.chat.opening(closed).empty());
    family.chat.append_begin(begin);
    CHECK(family.chat.opening(begin).empty());
    CHECK(family.chat.opening({}).empty());
  }
  const Family family("llama3");
  Tokens head;
  REQUIRE(family.chat.append(ChatRole::kSystem, "Be brief.", head).ok());
  CHECK(family.chat.opening(head).empty());
}

TEST_CASE("a card becomes the system message of an imported model") {
  CHECK(system_text_of_card("Wren\nA robot.\nKind.") ==
        "You are Wren. Reply as Wren would, and stay in character.\n\nA robot.\nKind.");
  CHECK(system_text_of_card("Wren") == "You are Wren. Reply as Wren would, and stay in character.");
  CHECK(system_text_of_card("Wren\n") == "You are Wren. Reply as Wren would, and stay in character.");
  CHECK(system_text_of_card("\nA robot.") == "A robot.");
  CHECK(system_text_of_card("").empty());
  const ChatFormat chat = small_chat();
  CHECK(spelt(chat, {{ChatRole::kCard, "Wren\nA robot."}}, {}) ==
        spelt(chat, {{ChatRole::kSystem, system_text_of_card("Wren\nA robot.")}}, {}));
}

TEST_CASE("speakers have names before their texts, or where the template puts them") {
  const ChatFormat chat = small_chat();
  const std::vector<ChatMessage> messages = {{ChatRole::kUser, "Hi", "Ann"}, {ChatRole::kCharacter, "Yes?", "Wren"}};
  CHECK(spelt(chat, messages, {}) == "<|start|>user\nAnn: Hi<|end|>\n<|start|>assistant\nWren: Yes?<|end|>\n");
  CHECK(spelt(chat, {{ChatRole::kUser, "", "Ann"}}, {}) == "<|start|>user\nAnn:<|end|>\n");
  Json format = small_format();
  format["user"]["named"] = {264, "user name=", nullptr, "\n"};
  CHECK(spelt(small_chat(format), messages, {}) ==
        "<|start|>user name=Ann\nHi<|end|>\n<|start|>assistant\nWren: Yes?<|end|>\n");
  for (const std::string& name : {std::string("A\nB"), std::string("\x1b"), std::string(129, 'x'), std::string("\xFF")})
    CHECK(spelt(chat, {{ChatRole::kUser, "Hi", name}}, {}).starts_with("message 0: user message: "));
  CHECK(spelt(chat, {{ChatRole::kSystem, "Hi", "Ann"}}, {}).find("speaker's name") != std::string::npos);
}

TEST_CASE("a message that is left open is continued by the reply") {
  const ChatFormat chat = small_chat();
  const std::vector<ChatMessage> messages = {{ChatRole::kUser, "Hi"}, {ChatRole::kCharacter, "", "Wren"}};
  CHECK(spelt(chat, messages, {.open = true}) == "<|start|>user\nHi<|end|>\n<|start|>assistant\nWren:");
  Json format = small_format();
  format["assistant"]["trim_left"] = format["assistant"]["trim_right"] = "space";
  format["reply"] = {264, "assistant\n", 257, "\n"};
  CHECK(spelt(small_chat(format), {{ChatRole::kCharacter, " Once "}}, {.open = true}) ==
        "<|start|>assistant\n<think>\nOnce ");
  const char* problem = "only a character's message at the end can be left open";
  CHECK(spelt(chat, messages, {.reply = true, .open = true}).starts_with(problem));
  CHECK(spelt(chat, {}, {.open = true}).starts_with(problem));
  CHECK(spelt(chat, {{ChatRole::kUser, "Hi"}}, {.open = true}).starts_with(problem));
}

TEST_CASE("what follows a reply comes before the next message, whole or without the stop token that ended it") {
  const ChatFormat chat = small_chat();
  const std::vector<ChatMessage> next = {{ChatRole::kUser, "Hi"}};
  const std::string user = "<|start|>user\nHi<|end|>\n";
  CHECK(spelt(chat, next, {.close = true}) == "<|end|>\n" + user);
  CHECK(spelt(chat, next, {.after_stop = true}) == "\n" + user);
  CHECK(spelt(chat, next, {.close = true, .after_stop = true}).find("exclude each other") != std::string::npos);
  CHECK(spelt(chat, {{ChatRole::kSystem, "S"}}, {.after_stop = true}).find("comes first") != std::string::npos);
  Json format = small_format();
  format["stop"] = {264};
  CHECK(spelt(small_chat(format), next, {.after_stop = true}) == user);
}

TEST_CASE("an empty user message is before a greeting where the user has to begin") {
  Json format = small_format();
  const std::vector<ChatMessage> greeting = {{ChatRole::kSystem, "S"}, {ChatRole::kCharacter, "Hello"}};
  CHECK(spelt(small_chat(format), greeting, {}) == "<|start|>system\nS<|end|>\n<|start|>assistant\nHello<|end|>\n");
  format["user_first"] = true;
  const std::string nobody = "<|start|>user\n<|end|>\n";
  CHECK(spelt(small_chat(format), greeting, {}) ==
        "<|start|>system\nS<|end|>\n" + nobody + "<|start|>assistant\nHello<|end|>\n");
  CHECK(spelt(small_chat(format), {}, {.begin = true, .reply = true}) == nobody + "<|start|>assistant\n");
  CHECK(spelt(small_chat(format), {}, {.reply = true}) == "<|start|>assistant\n");  // in the middle of a conversation
  format["system"] = {{"place", "first_user"}, {"after", {"\n\n"}}};
  CHECK(spelt(small_chat(format), greeting, {}) == "<|start|>user\nS\n\n<|end|>\n<|start|>assistant\nHello<|end|>\n");
  CHECK(spelt(small_chat(format), {{ChatRole::kSystem, "S"}}, {.reply = true}) ==
        "<|start|>user\nS\n\n<|end|>\n<|start|>assistant\n");
  CHECK(spelt(small_chat(format), {{ChatRole::kSystem, "S"}}, {}) == "<|start|>user\nS\n\n");
}

TEST_CASE("a system message comes first, is not empty, and only imported models have one") {
  const ChatFormat chat = small_chat();
  CHECK(spelt(chat, {{ChatRole::kUser, "Hi"}, {ChatRole::kSystem, "S"}}, {}) ==
        "message 1: system message: a system message comes first");
  CHECK(spelt(chat, {{ChatRole::kSystem, "S"}}, {.begin = true}) ==
        "message 0: system message: a system message comes first");
  CHECK(spelt(chat, {{ChatRole::kSystem, ""}}, {}) ==
        "message 0: system message: the system message is empty: leave it out");
  CHECK(spelt(chat, {{ChatRole::kCard, ""}}, {}) == "message 0: card: the card is empty");
  ModelConfig native;
  native.chat = {.begin = 1, .end = 2, .card = 3, .user = 4, .character = 5, .close = 6, .text = 7};
  const auto with_cards = ChatFormat::create(native, load(tiny_model().bytes()).value());
  Tokens tokens;
  CHECK(with_cards.value().append(ChatRole::kSystem, "S", tokens).code() == StatusCode::kUnsupported);
  CHECK(tokens.empty());
}

TEST_CASE("white space is what Python's str.strip() removes") {
  for (const char* space : {"\t", "\n", "\v", "\f", "\r", "\x1c", "\x1f", " ", "\u0085", "\u00a0", "\u1680", "\u2000",
                            "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"}) {
    INFO(Json(space).dump());
    CHECK(without_leading_space(std::string(space) + space + "a" + space) == std::string("a") + space);
    CHECK(without_trailing_space(std::string(space) + "a" + space + space) == std::string(space) + "a");
    CHECK(without_leading_space(space).empty());
    CHECK(without_trailing_space(space).empty());
  }
  for (const char* other : {"\u200b", "\ufeff", "\u2007\u00b7", "\u180e", "\x1b", "\u0084"})
    CHECK(without_trailing_space(other) == other);
}

TEST_CASE("reasoning and white space of earlier texts go where the template drops them") {
  Json format = small_format();
  format["assistant"]["reasoning_end"] = "</think>";
  format["assistant"]["trim_right"] = "space";
  format["user"]["trim_left"] = "newlines";
  const ChatFormat chat = small_chat(format);
  CHECK(spelt(chat, {{ChatRole::kCharacter, "<think>\na</think>b</think>\n\n c \n"}}, {}) ==
        "<|start|>assistant\n c<|end|>\n");
  CHECK(spelt(chat, {{ChatRole::kUser, "\n\n \n</think>a\n"}}, {}) == "<|start|>user\n \n</think>a\n<|end|>\n");
  CHECK(spelt(chat, {{ChatRole::kUser, "\n\n"}}, {}) == "<|start|>user\n<|end|>\n");
}

TEST_CASE("a chat format needs tokens that no text produces") {
  const auto create = [](const Json& format, int32_t vocab_size = 1024) {
    return ChatFormat::create(config_with(format, vocab_size).value(), small_tokenizer()).status();
  };
  CHECK(create(small_format()).ok());
  Json visible = small_format();
  visible["assistant"]["before"].push_back(257);
  CHECK(create(visible).ok());
  for (const char* role : {"system", "user", "assistant"})
    for (const int32_t token : {97, 258, 259, 300}) {  // ordinary, literal, merged, absent
      Json format = small_format();
      format[role]["after"].push_back(token);
      CHECK(create(format).code() == StatusCode::kBadModel);
      CHECK(create(format).message().find(fmt::format("token {}", token)) != std::string::npos);
    }
  Json stop = small_format();
  stop["stop"].push_back(97);
  CHECK(create(stop).code() == StatusCode::kBadModel);
}

TEST_CASE("a SentencePiece tokenizer puts the space before a text itself") {
  TinyModel model = tiny_model();
  model.model.add_dummy_prefix = true;
  const auto tokenizer = load(model.bytes()).value();
  const Json format = Json::parse(R"({"begin": [1], "system": {"place": "first_user", "after": ["\n\n"]},
      "user": {"before": [4], "after": [5]}, "assistant": {"after": [2]}, "user_first": true, "stop": [2]})");
  const ChatFormat chat = ChatFormat::create(config_with(format, kTinyVocabulary).value(), tokenizer).value();
  const std::vector<ChatMessage> messages = {{ChatRole::kSystem, "the"}, {ChatRole::kUser, "world"}};
  Tokens expected = {1, 4};
  const Tokens text = tokenizer->encode("the\n\nworld").value();
  expected.insert(expected.end(), text.begin(), text.end());
  expected.push_back(5);
  CHECK(prompt(chat, messages) == expected);
}
