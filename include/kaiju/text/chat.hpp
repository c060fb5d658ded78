// The chat format: how a character's card and the turns of a conversation become tokens.
//
//   <begin> <card> NAME "\n" DESCRIPTION <close>  (<user> text <close> | <character> text <close>)*
//
// Chat symbols are inserted as token ids and every text is encoded on its own, so no text can produce a symbol. A
// prompt for a reply ends with <character>; the reply ends at <close>. A greeting is a character's turn before the
// first user turn.
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

// Immutable, safe from any thread.
class ChatFormat {
 public:
  // kUnsupported for a model without chat symbols or without a tokenizer; kBadModel if text could be encoded to one of
  // the symbols.
  static Result<ChatFormat> create(const ModelConfig& config, std::shared_ptr<const Tokenizer> tokenizer);

  // Appends one message with its symbols to `tokens`; a card also begins the sequence. kInvalidArgument for text that
  // is not UTF-8 or longer than Tokenizer::kMaxTextBytes, and for an empty card.
  Status append(ChatRole role, std::string_view text, std::vector<int32_t>& tokens) const;
  // Appends the symbol that starts the character's reply.
  void append_reply_start(std::vector<int32_t>& tokens) const { tokens.push_back(symbols_.character); }
  // Appends the symbol that closes a reply. Needed after a reply that ended at its length limit.
  void append_close(std::vector<int32_t>& tokens) const { tokens.push_back(symbols_.close); }

  // Tokens that end a reply: <close>, and every other chat symbol, because no reply may contain one.
  const std::vector<int32_t>& stop_tokens() const { return stop_tokens_; }
  const ChatSymbols& symbols() const { return symbols_; }

 private:
  ChatSymbols symbols_;
  std::vector<int32_t> stop_tokens_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace kaiju
