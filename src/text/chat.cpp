// Converts messages to tokens: see chat.hpp.
#include "kaiju/text/chat.hpp"

#include <fmt/format.h>

#include <utility>

namespace kaiju {

Result<ChatFormat> ChatFormat::create(const ModelConfig& config, std::shared_ptr<const Tokenizer> tokenizer) {
  if (!tokenizer) return Status(StatusCode::kUnsupported, "the model has no tokenizer, so it cannot chat");
  const ChatSymbols& chat = config.chat;
  const std::pair<const char*, int32_t> needed[] = {{"begin", chat.begin},
                                                    {"card", chat.card},
                                                    {"user", chat.user},
                                                    {"character", chat.character},
                                                    {"close", chat.close}};
  ChatFormat format;
  for (const auto& [name, token] : needed) {
    if (token < 0)
      return Status(StatusCode::kUnsupported,
                    fmt::format("the model has no chat symbol '{}', so it cannot chat", name));
    if (!tokenizer->is_control(token))
      return bad_model(fmt::format(
          "chat symbol '{}' (token {}) is no control symbol of the tokenizer: text could forge it", name, token));
    format.stop_tokens_.push_back(token);
  }
  for (const int32_t token : {chat.end, chat.text})
    if (token >= 0) format.stop_tokens_.push_back(token);
  format.symbols_ = chat;
  format.tokenizer_ = std::move(tokenizer);
  return format;
}

Status ChatFormat::append(ChatRole role, std::string_view text, std::vector<int32_t>& tokens) const {
  const char* what = role == ChatRole::kCard ? "card" : role == ChatRole::kUser ? "user message" : "character message";
  if (role == ChatRole::kCard && text.empty()) return invalid_argument("the card is empty");
  auto encoded = tokenizer_->encode(text);
  if (!encoded.ok()) return {encoded.status().code(), fmt::format("{}: {}", what, encoded.status().message())};
  if (role == ChatRole::kCard) tokens.push_back(symbols_.begin);
  tokens.push_back(role == ChatRole::kCard   ? symbols_.card
                   : role == ChatRole::kUser ? symbols_.user
                                             : symbols_.character);
  tokens.insert(tokens.end(), encoded->begin(), encoded->end());
  tokens.push_back(symbols_.close);
  return {};
}

}  // namespace kaiju
