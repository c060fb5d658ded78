// ChatTemplate: how a model's checkpoint states which tokens stand around the texts of a chat. ChatTemplate is plain
// data; text/chat.hpp converts messages to tokens with it, docs/checkpoint.md has the form in the file, and
// examples/import/chat_format.py derives it from a Jinja template.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kaiju {

// One part of what stands around a text. A text next to another one is tokenized together with it.
struct ChatItem {
  enum class Kind : int32_t {
    kToken,  // a token id, which no text can produce
    kText,   // literal text
    kName,   // the name of the message's speaker
  };
  Kind kind = Kind::kToken;
  int32_t token = -1;  // of kToken
  std::string text;    // of kText, not empty

  friend bool operator==(const ChatItem&, const ChatItem&) = default;
};

using ChatItems = std::vector<ChatItem>;

// What is removed from one end of a message's text.
enum class ChatTrim : int32_t {
  kNone,
  kSpace,     // all white space, as Python's str.strip() does
  kNewlines,  // "\n" alone
};

struct ChatRoleTemplate {
  ChatItems before, after;
  ChatItems named;  // instead of `before` if the message has a speaker's name; empty: the template knows no names
  ChatTrim trim_left = ChatTrim::kNone, trim_right = ChatTrim::kNone;
  // If not empty: of the trimmed text, everything up to the last occurrence of this string and the newlines after it is
  // left out. This is how a template drops the reasoning of earlier replies.
  std::string reasoning_end;

  friend bool operator==(const ChatRoleTemplate&, const ChatRoleTemplate&) = default;
};

enum class ChatSystem : int32_t {
  kMessage,      // a message of its own, which begins the sequence instead of ChatTemplate::begin
  kInFirstUser,  // inside the first user message, before its text; ChatTemplate::begin begins the sequence
};

struct ChatTemplate {
  ChatItems begin;  // begins a sequence without a system message; includes the default system message, if there is one
  ChatRoleTemplate system, user, assistant;
  std::optional<ChatItems> reply;  // begins a reply, if that is not assistant.before, which begins earlier replies
  ChatSystem system_place = ChatSystem::kMessage;
  bool user_first = false;    // a conversation has to begin with a message of the user
  std::vector<int32_t> stop;  // a reply ends at each of these tokens

  friend bool operator==(const ChatTemplate&, const ChatTemplate&) = default;
};

}  // namespace kaiju
