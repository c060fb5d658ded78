#include "chats.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "failure.hpp"
#include "kaiju.h"

namespace kaiju::server {

namespace {

std::vector<int32_t> formatted(const ChatFormat& chat, const std::vector<ChatMessage>& messages,
                               const ChatParts& parts) {
  std::vector<int32_t> tokens;
  if (const Status status = chat.format(messages, parts, tokens); !status.ok()) throw of_status(status);
  return tokens;
}

// The newest messages, in which keys of the character book are looked for.
std::string recent_text(const Card& card, const std::vector<Turn>& before, const std::optional<std::string>& text) {
  const auto depth = static_cast<size_t>(std::max<int64_t>(card.scan_depth.value_or(kDefaultScanDepth), 0));
  std::vector<std::string> messages;
  for (const Turn& turn : before) {
    if (turn.user) messages.push_back(*turn.user);
    if (turn.chosen >= 0) messages.push_back(turn.replies[static_cast<size_t>(turn.chosen)].text);
  }
  if (text) messages.push_back(*text);
  std::string recent;
  for (size_t i = messages.size() - std::min(messages.size(), depth); i < messages.size(); ++i)
    recent += messages[i] + "\n";
  return recent;
}

std::span<const int32_t> chosen_tokens(const Turn& turn) {
  if (turn.chosen < 0) return {};
  return turn.replies[static_cast<size_t>(turn.chosen)].tokens;
}

// Whether a turn was refused before its reply had a word. Later prompts leave it out: what was blocked must not come to
// the model after all.
bool is_blocked(const Turn& turn) {
  if (turn.chosen < 0) return false;
  const Reply& reply = turn.replies[static_cast<size_t>(turn.chosen)];
  return reply.reason == "refused" && reply.tokens.empty();
}

}  // namespace

std::string tokenizer_name(const Model& model) {
  auto chat = model.chat();
  if (!chat.ok()) throw of_status(chat.status());
  const std::vector<int32_t> probe =
      formatted(**chat, {{ChatRole::kCard, "A\nB", {}}, {ChatRole::kUser, "C", {}}, {ChatRole::kCharacter, "D", {}}},
                {.reply = true});
  const TensorInfo* tokenizer = model.checkpoint()->find("tokenizer");
  return fmt::format("{}-{:016x}", tokenizer ? tokenizer->digest : "none",
                     XXH3_64bits(probe.data(), probe.size() * sizeof(int32_t)));
}

std::vector<int32_t> head_of(const ChatFormat& chat, const std::string& name, const std::string& description) {
  const std::string card = name + "\n" + description;
  return formatted(chat, {{ChatRole::kCard, card, {}}}, {});
}

size_t Cast::index_of(const std::string& id) const {
  std::vector<size_t> named;
  std::vector<std::string> all;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i].id == id) return i;
    if (cards[i].name == id) named.push_back(i);
    all.push_back(fmt::format("{} ({})", ids[i].id, cards[i].name));
  }
  if (named.size() == 1) return named[0];
  throw bad_request(fmt::format("the speaker {:?} is {}; the characters of this chat are {}", id,
                                named.empty() ? "not in this chat" : "the name of several", fmt::join(all, ", ")),
                    "speaker");
}

Cast cast_of(const ChatFormat& chat, const std::vector<Character>& characters, const std::string& user) {
  Cast cast;
  std::string names, descriptions;
  for (const Character& character : characters) {
    auto card = read_card(character.canonical, {.user = user.empty() ? "the user" : user});
    if (!card.ok()) throw of_status(card.status());
    names += (names.empty() ? "" : " and ") + card->name;
    descriptions += (descriptions.empty() ? "" : "\n\n") + card->description;
    cast.ids.push_back({character.id, character.version});
    cast.region += fmt::format("{}/{} ", character.id, character.version);
    cast.cards.push_back(std::move(card).value());
  }
  // A chat of one has the very tokens that were stored with the character.
  const bool stored = characters.size() == 1 && !characters[0].tokens.empty() && !characters[0].foreign;
  cast.head = stored ? characters[0].tokens : head_of(chat, names, descriptions);
  cast.region += fmt::format("{:016x}", XXH3_64bits(cast.head.data(), cast.head.size() * sizeof(int32_t)));
  return cast;
}

std::vector<int32_t> greeting_tokens(const ChatFormat& chat, const Cast& cast, const std::string& text) {
  const std::string card = cast.cards[0].name + "\n" + cast.cards[0].description;
  const std::string name = cast.cards.size() > 1 ? cast.cards[0].name : "";
  std::vector<int32_t> tokens = formatted(chat, {{ChatRole::kCard, card, {}}, {ChatRole::kCharacter, text, name}}, {});
  const std::vector<int32_t> head = head_of(chat, cast.cards[0].name, cast.cards[0].description);
  if (tokens.size() > head.size() && std::equal(head.begin(), head.end(), tokens.begin()))
    tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(head.size()));
  const std::span<const int32_t> close = chat.close();
  if (tokens.size() > close.size() && std::equal(close.rbegin(), close.rend(), tokens.rbegin()))
    tokens.resize(tokens.size() - close.size());
  return tokens;
}

std::vector<int32_t> input_tokens(const ChatFormat& chat, const Cast& cast, size_t speaker,
                                  const std::vector<Turn>& before, const std::optional<std::string>& text,
                                  const std::string& user) {
  const Card& card = cast.cards[speaker];
  const bool group = cast.cards.size() > 1;
  const std::string lore = volatile_text(card, recent_text(card, before, text));
  std::string said = lore;
  if (text && !text->empty()) said += (lore.empty() ? "" : "\n\n") + *text;
  std::vector<ChatMessage> messages;
  if (!said.empty()) messages.push_back({ChatRole::kUser, said, group && lore.empty() ? user : std::string()});
  if (group) messages.push_back({ChatRole::kCharacter, "", card.name});  // "NAME:", which the reply continues
  return formatted(chat, messages, {.reply = !group, .open = group});
}

std::vector<int32_t> reply_tokens(const ChatFormat& chat, const Tokenizer& tokenizer, const Cast& cast,
                                  const Turn& turn, const std::string& text) {
  if (turn.input_tokens.empty()) return greeting_tokens(chat, cast, text);
  auto tokens = tokenizer.encode(text);
  if (!tokens.ok()) throw of_status(tokens.status(), "text");
  return std::move(tokens).value();
}

bool encode_foreign(const ChatFormat& chat, const Tokenizer& tokenizer, const Cast& cast, const std::string& user,
                    std::vector<Turn>& turns) {
  bool found = false;
  for (size_t i = 0; i < turns.size(); ++i) {
    Turn& turn = turns[i];
    if (turn.foreign && !turn.input_tokens.empty()) {  // else a greeting
      const std::vector<Turn> before(turns.begin(), turns.begin() + static_cast<std::ptrdiff_t>(i));
      turn.input_tokens = input_tokens(chat, cast, cast.index_of(turn.speaker), before, turn.user, user);
    }
    found |= turn.foreign;
    for (Reply& reply : turn.replies) {
      if (reply.foreign) reply.tokens = reply_tokens(chat, tokenizer, cast, turn, reply.text);
      found |= std::exchange(reply.foreign, false);
    }
    turn.foreign = false;
  }
  return found;
}

std::vector<int32_t> turn_prompt(const ChatFormat& chat, const Cast& cast, std::span<const Turn> before,
                                 const std::vector<int32_t>& input, size_t reserved, size_t context) {
  const std::span<const int32_t> close = chat.close(), opening = chat.opening(cast.head);
  std::vector<const Turn*> turns;
  std::vector<size_t> sizes;
  for (const Turn& turn : before) {
    if (is_blocked(turn)) continue;
    turns.push_back(&turn);
    sizes.push_back(turn.input_tokens.size() + chosen_tokens(turn).size() + close.size());
  }
  sizes.push_back(input.size());
  const size_t dropped = kaiju_chat_turns_to_drop(sizes.data(), sizes.size(), cast.head.size(), reserved, context);
  std::vector<int32_t> prompt = cast.head;
  const auto append = [&](std::span<const int32_t> tokens) {
    prompt.insert(prompt.end(), tokens.begin(), tokens.end());
  };
  // Where the head ends inside a user message, the first input goes on with that message.
  const auto append_input = [&](size_t turn, std::span<const int32_t> tokens) {
    const bool begun = turn == dropped && tokens.size() >= opening.size() &&
                       std::equal(opening.begin(), opening.end(), tokens.begin());
    append(begun ? tokens.subspan(opening.size()) : tokens);
  };
  for (size_t i = dropped; i < turns.size(); ++i) {
    append_input(i, turns[i]->input_tokens);
    append(chosen_tokens(*turns[i]));
    append(close);
  }
  append_input(turns.size(), input);
  return prompt;
}

}  // namespace kaiju::server
