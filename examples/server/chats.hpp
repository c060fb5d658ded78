// Chats: characters and the turns of their chats as tokens. Knows nothing of HTTP and nothing of where they are kept.
//
// The prompt of a turn is the head (the characters' descriptions), the turns before it that still fit, and its own
// input. It is a function of what the store holds, so a chat needs no memory between two turns: the KV of everything
// but the newest input is found in the engine's cache, under the character's name and the owner's salt.
#pragma once

#include <string>
#include <vector>

#include "cards/card.hpp"
#include "service.hpp"
#include "store/store.hpp"

namespace kaiju::server {

// Names what a model's token ids mean in a chat: a digest of its tokenizer and of its chat format. Throws Failure.
std::string tokenizer_name(const Model& model);

// The tokens of a character's description; they begin every prompt of its chats. Throws Failure.
std::vector<int32_t> head_of(const ChatFormat& chat, const std::string& name, const std::string& description);

// A chat's characters, read from their cards with the user's name in them.
struct Cast {
  std::vector<ChatCharacter> ids;
  std::vector<Card> cards;
  std::vector<int32_t> head;
  std::string region;  // the name of the shared region: ids, versions, digest of the head

  // Of an id, or of a name that one character alone has. Throws Failure.
  size_t index_of(const std::string& id) const;
};
Cast cast_of(const ChatFormat& chat, const std::vector<Character>& characters, const std::string& user);

// The tokens of a greeting, which no user asked for.
std::vector<int32_t> greeting_tokens(const ChatFormat& chat, const Cast& cast, const std::string& text);
// The tokens of a user's message, with what the cards put before it, up to where the speaker's reply begins.
std::vector<int32_t> input_tokens(const ChatFormat& chat, const Cast& cast, size_t speaker,
                                  const std::vector<Turn>& before, const std::optional<std::string>& text,
                                  const std::string& user);

// The tokens of a text as the reply of a turn.
std::vector<int32_t> reply_tokens(const ChatFormat& chat, const Tokenizer& tokenizer, const Cast& cast,
                                  const Turn& turn, const std::string& text);
// Token ids of another tokenizer give way to those of the texts. Whether there were any.
bool encode_foreign(const ChatFormat& chat, const Tokenizer& tokenizer, const Cast& cast, const std::string& user,
                    std::vector<Turn>& turns);

// The prompt of a turn, whose input is `input`, behind the turns `before` but for those that were refused without a
// word; room for `reserved` tokens is kept.
std::vector<int32_t> turn_prompt(const ChatFormat& chat, const Cast& cast, std::span<const Turn> before,
                                 const std::vector<int32_t>& input, size_t reserved, size_t context);

}  // namespace kaiju::server
