// The chat format: how a character's card and the turns of a conversation become tokens.
//
//   <begin> <card> NAME "\n" DESCRIPTION <close>  (<user> text <close> | <character> text <close>)*
//
// The chat symbols (<begin>, <user> and so on) are inserted as token ids, and every text is encoded separately, so no
// text can produce a chat symbol. A prompt that asks for a reply ends with <character>, and the reply ends at <close>.
// A character's turn before the first user turn is a greeting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/format/config.hpp"
#include "kaiju/text/tokenizer.hpp"

namespace kaiju {

enum class ChatRole : int32_t { kCard = 1, kUser = 2, kCharacter = 3 };

// A ChatFormat is immutable, so any number of threads may use it at once.
class ChatFormat {
 public:
  // Creates the chat format of a model. Returns kUnsupported if the model has no chat symbols or no tokenizer. Returns
  // kBadModel if the tokenizer could encode a text to one of the chat symbols.
  static Result<ChatFormat> create(const ModelConfig& config, std::shared_ptr<const Tokenizer> tokenizer);

  // Appends one message with its chat symbols to `tokens`. If the message is a character card, append() first appends
  // the symbol <begin>. Returns kInvalidArgument if the text is not UTF-8, if it is longer than
  // Tokenizer::kMaxTextBytes, or if it is an empty card.
  Status append(ChatRole role, std::string_view text, std::vector<int32_t>& tokens) const;
  // Appends the chat symbol <character>, which starts the character's reply.
  void append_reply_start(std::vector<int32_t>& tokens) const { tokens.push_back(symbols_.character); }
  // Appends the chat symbol <close>, which ends a reply. append_close() is needed after a reply that ended at its
  // length limit.
  void append_close(std::vector<int32_t>& tokens) const { tokens.push_back(symbols_.close); }

  // Returns the tokens that end a reply: <close> and every other chat symbol, because a reply must not contain chat
  // symbols.
  const std::vector<int32_t>& stop_tokens() const { return stop_tokens_; }
  const ChatSymbols& symbols() const { return symbols_; }

 private:
  ChatSymbols symbols_;
  std::vector<int32_t> stop_tokens_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace kaiju
