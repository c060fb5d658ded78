// Volatile text: text of a prompt that changes with every turn, such as the time, an author's note or entries of a
// lorebook. The KV of all tokens behind it has to be computed again whenever it changes, so it belongs behind the
// history. format_volatile puts it there, or where the host wants it, and says what that costs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/text/chat.hpp"

namespace kaiju {

struct VolatileText {
  std::string_view text;  // UTF-8; empty: none
  // How many messages follow the text. 1: it stands right before the newest message, behind the history. 0: it ends the
  // prompt. A depth beyond the first message puts it behind the card or system message.
  int32_t depth = 1;
};

struct VolatileCost {
  int32_t prompt_tokens = 0;
  // The first tokens of the prompt that do not depend on the text. If the next prompt has another text and the same
  // messages, its KV is found up to here at most, and the `prompt_tokens - stable_tokens` behind it are computed again.
  int32_t stable_tokens = 0;
  // stable_tokens of the same prompt with the text behind the history (depth 1).
  int32_t stable_behind_history = 0;
};

// Appends messages with a volatile text among them to `tokens`, as ChatFormat::format does. The text becomes a part of
// the user's message that follows it or precedes it, an empty line apart; where neither is the user's, or the one that
// follows has a speaker's name, it becomes a user's message of its own. Returns the errors of ChatFormat::format, and
// kInvalidArgument if the depth is negative.
Result<VolatileCost> format_volatile(const ChatFormat& chat, std::span<const ChatMessage> messages,
                                     const VolatileText& text, const ChatParts& parts, std::vector<int32_t>& tokens);

}  // namespace kaiju
