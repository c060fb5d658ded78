// The messages of a chat completion, and the prompt that they become.
#pragma once

#include <string>
#include <vector>

#include "service.hpp"

namespace kaiju::server {

// Reads the field messages: roles system and developer, user, assistant; content a string or a list of text parts.
// System messages at the beginning become one; one that comes later becomes a user message in its place, which is where
// it breaks the least of the cache. Throws Failure that names the message.
std::vector<Message> read_messages(const Fields& fields, const ChatFormat& chat);

// What has been said since the assistant's last message, and the message that a reply continues.
std::string newest_text(const std::vector<Message>& messages);

struct Prompt {
  std::vector<int32_t> tokens;
  bool continues = false;  // the last message is the assistant's, and the reply continues it
  std::string checkpoint;  // that wrote the newest kept reply; empty: none is kept
};

// The tokens of messages: those that a kept transcript has, then the rest formatted.
Prompt prompt_of(Service& service, const std::string& salt, const std::vector<Message>& messages, bool begin_reply);

// Keeps the history that ended with this reply, so that the next request continues its tokens.
void keep_reply(Service& service, const std::string& salt, std::vector<Message> messages, const Prompt& prompt,
                const std::string& text, const std::vector<int32_t>& reply, bool stopped, const std::string& checkpoint,
                const Scope& scope);

}  // namespace kaiju::server
