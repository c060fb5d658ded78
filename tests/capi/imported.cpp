// Imported models through the C interface: system messages, names, and conversations whose system text is inside the
// first user message.
#include <cstddef>

#include "catch.hpp"
#include "tests/capi/host.hpp"
#include "tests/capi/programs.hpp"

using namespace kaiju::tests;

namespace {

using Tokens = std::vector<int32_t>;

// The tokens 4 "<|user|>", 5 "<|char|>" and 6 "<|end|>" of the tiny tokenizer, with text beside them.
const std::string& imported_model_file() {
  static const std::string path = [] {
    const auto token = [](int32_t id) { return kaiju::ChatItem{kaiju::ChatItem::Kind::kToken, id, {}}; };
    const auto text = [](const char* words) { return kaiju::ChatItem{kaiju::ChatItem::Kind::kText, -1, words}; };
    kaiju::ChatTemplate format;
    format.begin = {token(1)};
    format.system.after = {text("\n\n")};
    format.system_place = kaiju::ChatSystem::kInFirstUser;
    format.user.before = {token(4), text("you\n")};
    format.assistant.before = {token(5), text("me\n")};
    format.user.after = format.assistant.after = {token(6), text("\n")};
    format.user_first = true;
    format.stop = {6, 4, 5};
    const std::string file = temporary_folder() + "/imported.kaiju.safetensors";
    add_tokenizer(plain_model_file(), file, tiny_model().bytes(), {.begin = 1}, format);
    return file;
  }();
  return path;
}

kaiju_message message(int32_t role, const std::string& text, const std::string& name = "") {
  return {role, 0, text.data(), text.size(), name.data(), name.size()};
}

Tokens formatted(const Host& host, const std::vector<kaiju_message>& messages, int32_t flags) {
  size_t count = 0;
  Tokens tokens(1000);
  const Answer answer = ask([&](kaiju_error** e) {
    return kaiju_chat_format(host.model, messages.data(), sizeof(kaiju_message), messages.size(), flags, tokens.data(),
                             tokens.size(), &count, e);
  });
  INFO(answer.message);
  REQUIRE(answer.status == KAIJU_OK);
  tokens.resize(count);
  return tokens;
}

Tokens tokenized(const Host& host, const std::string& text) {
  size_t count = 0;
  Tokens tokens(1000);
  REQUIRE(kaiju_tokenize(host.model, text.data(), text.size(), tokens.data(), tokens.size(), &count, nullptr) ==
          KAIJU_OK);
  tokens.resize(count);
  return tokens;
}

Tokens operator+(Tokens left, const Tokens& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

}  // namespace

TEST_CASE("messages of an imported model have system texts and names") {
  const Host host(imported_model_file());
  const auto encode = [&](const char* text) { return tokenized(host, text); };
  const std::string card = "Ann\nthe world.", system = "hello world", hi = "hi", ann = "Ann";
  CHECK(formatted(host, {message(KAIJU_ROLE_SYSTEM, system), message(KAIJU_ROLE_USER, hi)}, KAIJU_CHAT_REPLY) ==
        Tokens{1, 4} + encode("you\nhello world\n\nhi") + Tokens{6} + encode("\n") + Tokens{5} + encode("me\n"));
  CHECK(formatted(host, {message(KAIJU_ROLE_CARD, card), message(KAIJU_ROLE_USER, hi)}, 0) ==
        Tokens{1, 4} + encode("you\nYou are Ann. Reply as Ann would, and stay in character.\n\nthe world.\n\nhi") +
            Tokens{6} + encode("\n"));
  CHECK(formatted(host, {message(KAIJU_ROLE_USER, hi, ann)}, KAIJU_CHAT_BEGIN) ==
        Tokens{1, 4} + encode("you\nAnn: hi") + Tokens{6} + encode("\n"));
  CHECK(formatted(host, {message(KAIJU_ROLE_CHARACTER, "", ann)}, KAIJU_CHAT_CLOSE | KAIJU_CHAT_OPEN) ==
        Tokens{6} + encode("\n") + Tokens{5} + encode("me\nAnn:"));
  CHECK(number_of(host.model, KAIJU_MODEL_CHAT_BEGIN) == 1);
  CHECK(number_of(host.model, KAIJU_MODEL_CHAT_CLOSE) == -1);
}

TEST_CASE("a message of the header's first version has no name") {
  const Host host(imported_model_file());
  const std::string hi = "hi";
  struct OldMessage {
    int32_t role, reserved;
    const char* content;
    size_t content_size;
  } const old[] = {{KAIJU_ROLE_USER, 0, hi.data(), hi.size()}, {KAIJU_ROLE_CHARACTER, 0, hi.data(), hi.size()}};
  static_assert(sizeof(OldMessage) == offsetof(kaiju_message, name));
  Tokens tokens(1000);
  size_t count = 0;
  REQUIRE(kaiju_chat_format(host.model, reinterpret_cast<const kaiju_message*>(old), sizeof old[0], 2, 0, tokens.data(),
                            tokens.size(), &count, nullptr) == KAIJU_OK);
  tokens.resize(count);
  CHECK(tokens == formatted(host, {message(KAIJU_ROLE_USER, hi), message(KAIJU_ROLE_CHARACTER, hi)}, 0));
}

TEST_CASE("a conversation with the system text in the first user message has the tokens of the whole") {
  const Host host(imported_model_file());
  const std::string card = "Ann\nthe world.", first = "hello", second = "the world";
  const Tokens head = formatted(host, {message(KAIJU_ROLE_CARD, card)}, 0);
  kaiju_conversation* talk = nullptr;
  REQUIRE(kaiju_conversation_create(host.engine, head.data(), head.size(), &talk, nullptr) == KAIJU_OK);
  const Tokens input = formatted(host, {message(KAIJU_ROLE_USER, first)}, KAIJU_CHAT_REPLY);
  const Tokens reply = tokenized(host, second);
  REQUIRE(kaiju_conversation_append(talk, input.data(), input.size(), reply.data(), reply.size(), nullptr) == KAIJU_OK);
  Tokens tokens(1000);
  size_t count = 0;
  REQUIRE(kaiju_conversation_tokens(talk, tokens.data(), tokens.size(), &count, nullptr) == KAIJU_OK);
  tokens.resize(count);
  CHECK(tokens == formatted(host,
                            {message(KAIJU_ROLE_CARD, card), message(KAIJU_ROLE_USER, first),
                             message(KAIJU_ROLE_CHARACTER, second)},
                            0));
  kaiju_conversation_destroy(talk);
}

TEST_CASE("kaiju-chat talks with an imported model") {
  const Run run = run_program("kaiju-chat", {"--model", imported_model_file(), "--threads", "1", "--character",
                                             short_card(), "--max-tokens", "8", "--say", "hi", "--say", "hello"});
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK(run.lines().size() >= 2);
}
