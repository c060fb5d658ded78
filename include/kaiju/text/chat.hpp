// The chat format: how the messages of a conversation become tokens.
//
// A model trained for kaiju has chat symbols (ChatSymbols):
//
//   <begin> <card> NAME "\n" DESCRIPTION <close>  (<user> text <close> | <character> text <close>)*
//
// An imported model has a ChatTemplate, with a system message instead of a card. Both are the same structure here:
// around each text stand items, which are token ids and literal texts. Literal text next to a message's text is
// tokenized together with it, as if the whole prompt were tokenized as one string. Token ids separate the texts of any
// two messages, and no text can produce one of these tokens.
//
// What begins a reply also stands before the text of every earlier reply, unless the template has `reply` (docs/
// checkpoint.md). So the prompt of the next turn begins with the tokens of this turn's prompt, and their KV stays
// cached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/format/config.hpp"
#include "kaiju/text/tokenizer.hpp"

namespace kaiju {

enum class ChatRole : int32_t {
  kCard = 1,  // a character: its name, a newline and the description
  kUser = 2,
  kCharacter = 3,  // the model: a message before the first user message is a greeting
  kSystem = 4,     // instructions; only for models with a ChatTemplate
};

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::string_view text;
  // The speaker's name, or empty. If the model's template knows no names, "NAME: " is put before the text.
  std::string_view name = {};
};

// What else ChatFormat::format appends.
struct ChatParts {
  bool begin = false;  // first, if no card or system message does: what begins a sequence
  bool close = false;  // before the messages: what follows the text of a reply
  // Before the messages: what follows the stop token of a reply, such as a newline. Not together with `close`.
  bool after_stop = false;
  bool reply = false;  // at the end: what begins a reply
  bool open = false;   // the last message, a character's, is left open: a reply continues its text
};

// Returns the system message that stands for a character's card: "You are NAME. Reply as NAME would, and stay in
// character.", an empty line, and the description.
std::string system_text_of_card(std::string_view card);

// A ChatFormat is immutable, so any number of threads may use it at once.
class ChatFormat {
 public:
  // Creates the chat format of a model. Returns kUnsupported if the model has no chat format or no tokenizer. Returns
  // kBadModel if the tokenizer could encode a text to one of the format's tokens.
  static Result<ChatFormat> create(const ModelConfig& config, std::shared_ptr<const Tokenizer> tokenizer);

  // Appends messages to `tokens`. A card or a system message comes first, and begins a sequence. Where the template
  // puts the system text into the first user message, a list that ends with the card or system message leaves that user
  // message open. Where a conversation has to begin with the user, an empty user message is put before a greeting.
  //
  // Returns kInvalidArgument, and leaves `tokens` as they were, if a text is not UTF-8 or longer than
  // Tokenizer::kMaxTextBytes, if a card or system message is empty or not the first message, or if a name is longer
  // than 128 bytes or has control characters. The error names the message, counted from 0. Returns kUnsupported for a
  // system message if the model has chat symbols.
  Status format(std::span<const ChatMessage> messages, const ChatParts& parts, std::vector<int32_t>& tokens) const;

  // Appends one message.
  Status append(ChatRole role, std::string_view text, std::vector<int32_t>& tokens) const;
  // Appends what begins a sequence without a card or system message.
  void append_begin(std::vector<int32_t>& tokens) const { tokens.insert(tokens.end(), begin_.begin(), begin_.end()); }
  // Appends what begins a reply.
  void append_reply_start(std::vector<int32_t>& tokens) const {
    tokens.insert(tokens.end(), reply_start_.begin(), reply_start_.end());
  }
  // Appends what follows the text of a reply. append_close() is needed after a reply that ended at its length limit.
  void append_close(std::vector<int32_t>& tokens) const { tokens.insert(tokens.end(), close_.begin(), close_.end()); }

  // Returns the tokens that append_close() appends. The first one is usually also a stop token.
  std::span<const int32_t> close() const { return close_; }
  // Returns the tokens that begin a user message if `head` already has them: where the template puts the system text
  // into the first user message, a head made of a card or system message alone ends inside that message. Otherwise the
  // result is empty. See Conversation::create.
  std::span<const int32_t> opening(std::span<const int32_t> head) const;

  // Returns the tokens that end a reply: a reply must not contain tokens of the chat format.
  const std::vector<int32_t>& stop_tokens() const { return template_.stop; }
  // Returns false if the model has chat symbols: a card is then part of the format, and there are no system messages.
  bool has_system() const { return !has_cards_; }

 private:
  class Writer;

  Status check(const ChatMessage& message, bool first) const;
  ChatItems after_stop() const;
  Result<std::string> system_text(const ChatMessage& message) const;

  ChatTemplate template_;
  bool has_cards_ = false;  // made of ChatSymbols
  std::vector<int32_t> begin_, reply_start_, close_, opening_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace kaiju
