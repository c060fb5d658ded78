// Text that changes with every turn: where it stands in a prompt, and what is said of its cost.
#include "kaiju/text/volatile_text.hpp"

#include <algorithm>

#include "catch.hpp"
#include "tests/text/tiny_tokenizer.hpp"

using namespace kaiju;
using namespace kaiju::tests;

namespace {

ChatFormat chat() {
  ModelConfig config;
  config.vocab_size = kTinyVocabulary;
  config.context = 4096;
  config.chat = {.begin = 1, .end = 2, .card = 3, .user = 4, .character = 5, .close = 6, .text = 7};
  return ChatFormat::create(config, load(tiny_model().bytes()).value()).value();
}

std::vector<ChatMessage> talk() {
  return {{ChatRole::kCard, "hello\nworld", {}}, {ChatRole::kUser, "one", {}},       {ChatRole::kCharacter, "two", {}},
          {ChatRole::kUser, "three", {}},        {ChatRole::kCharacter, "four", {}}, {ChatRole::kUser, "five", {}}};
}

std::vector<int32_t> formatted(const std::vector<ChatMessage>& messages) {
  std::vector<int32_t> tokens;
  REQUIRE(chat().format(messages, {.reply = true}, tokens).ok());
  return tokens;
}

struct Placed {
  std::vector<int32_t> tokens;
  VolatileCost cost;
};
Placed place(const std::vector<ChatMessage>& messages, std::string_view text, int32_t depth) {
  Placed placed;
  auto cost = format_volatile(chat(), messages, {text, depth}, {.reply = true}, placed.tokens);
  REQUIRE(cost.status().message() == "");
  placed.cost = *cost;
  CHECK(placed.cost.prompt_tokens == static_cast<int32_t>(placed.tokens.size()));
  return placed;
}

}  // namespace

TEST_CASE("volatile text stands before the message that so many others follow") {
  std::vector<ChatMessage> wanted = talk();
  wanted[5].text = "noon\n\nfive";
  CHECK(place(talk(), "noon", 1).tokens == formatted(wanted));
  wanted = talk();
  wanted[5].text = "five\n\nnoon";  // it ends the prompt
  CHECK(place(talk(), "noon", 0).tokens == formatted(wanted));
  wanted = talk();
  wanted[3].text = "three\n\nnoon";  // before a character's message: behind the user's
  CHECK(place(talk(), "noon", 2).tokens == formatted(wanted));
  wanted = talk();
  wanted[3].text = "noon\n\nthree";
  CHECK(place(talk(), "noon", 3).tokens == formatted(wanted));
  wanted = talk();
  wanted[1].text = "noon\n\none";  // never before the card
  CHECK(place(talk(), "noon", 100).tokens == formatted(wanted));
  CHECK(place(talk(), "", 2).tokens == formatted(talk()));
}

TEST_CASE("volatile text is a message of its own where no user's message is beside it, or that has a name") {
  std::vector<ChatMessage> named = talk();
  named[5].name = "Ann";
  named[3].name = "Ann";
  std::vector<ChatMessage> wanted = named;
  wanted.insert(wanted.begin() + 5, {ChatRole::kUser, "noon", {}});
  CHECK(place(named, "noon", 1).tokens == formatted(wanted));
  const std::vector<ChatMessage> greeting = {{ChatRole::kCard, "hello\nworld", {}}, {ChatRole::kCharacter, "two", {}}};
  CHECK(place(greeting, "noon", 1).tokens == formatted({greeting[0], {ChatRole::kUser, "noon", {}}, greeting[1]}));
}

TEST_CASE("the stable tokens of a prompt are those that no other volatile text changes") {
  for (int32_t depth = 0; depth < 8; ++depth) {
    CAPTURE(depth);
    const Placed noon = place(talk(), "noon", depth), night = place(talk(), "night", depth),
                 word = place(talk(), "world", depth);
    const auto same = [&](const Placed& other) {
      return static_cast<int32_t>(
          std::mismatch(noon.tokens.begin(), noon.tokens.end(), other.tokens.begin(), other.tokens.end()).first -
          noon.tokens.begin());
    };
    CHECK(noon.cost.stable_tokens == std::min(same(night), same(word)));
    CHECK(noon.cost.stable_behind_history == place(talk(), "noon", 1).cost.stable_tokens);
    if (depth > 1) CHECK(noon.cost.stable_tokens < noon.cost.stable_behind_history);
  }
}

TEST_CASE("a volatile text that cannot be placed is refused and adds no tokens") {
  std::vector<int32_t> tokens = {7};
  CHECK(format_volatile(chat(), talk(), {"noon", -1}, {}, tokens).status().code() == StatusCode::kInvalidArgument);
  CHECK(format_volatile(chat(), talk(), {"\xFF", 1}, {}, tokens).status().code() == StatusCode::kInvalidArgument);
  CHECK(tokens == std::vector<int32_t>{7});
}
