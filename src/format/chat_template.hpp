// Converts a ChatTemplate from JSON and back, and checks every rule of docs/checkpoint.md, "Chat format".
#pragma once

#include <string>

#include "json.hpp"
#include "kaiju/format/chat_template.hpp"

namespace kaiju::format {

inline constexpr size_t kMostChatTextBytes = 8192;

Status read_chat_template(const Json& value, ChatTemplate& out);
Status check_chat_template(const ChatTemplate& chat, int32_t vocab_size);
std::string chat_template_json(const ChatTemplate& chat);

}  // namespace kaiju::format
