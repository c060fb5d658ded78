// Converts messages to tokens: see chat.hpp.
#include "kaiju/text/chat.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "white_space.hpp"

namespace kaiju {
namespace {

constexpr size_t kMostNameBytes = 128;

bool is_system(ChatRole role) { return role == ChatRole::kCard || role == ChatRole::kSystem; }

const char* name_of(ChatRole role) {
  switch (role) {
    case ChatRole::kCard:
      return "card";
    case ChatRole::kUser:
      return "user message";
    case ChatRole::kCharacter:
      return "character message";
    case ChatRole::kSystem:
      return "system message";
  }
  return "message";
}

std::string_view trimmed(std::string_view text, ChatTrim left, ChatTrim right) {
  if (left == ChatTrim::kSpace) text = without_leading_space(text);
  if (left == ChatTrim::kNewlines) text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  if (right == ChatTrim::kSpace) text = without_trailing_space(text);
  if (right == ChatTrim::kNewlines) text = text.substr(0, text.find_last_not_of('\n') + 1);
  return text;
}

// The text as the template writes it.
std::string_view written(std::string_view text, const ChatRoleTemplate& role) {
  text = trimmed(text, role.trim_left, role.trim_right);
  const size_t end = role.reasoning_end.empty() ? std::string_view::npos : text.rfind(role.reasoning_end);
  if (end == std::string_view::npos) return text;
  return trimmed(text.substr(end + role.reasoning_end.size()), ChatTrim::kNewlines, ChatTrim::kNone);
}

Status check_name(std::string_view name) {
  if (name.size() > kMostNameBytes)
    return invalid_argument(
        fmt::format("the speaker's name has {} bytes; the limit is {}", name.size(), kMostNameBytes));
  KAIJU_TRY(Tokenizer::check_text(name));
  const bool control = std::any_of(name.begin(), name.end(), [](char c) { return (c >= 0 && c < 0x20) || c == 0x7F; });
  return control ? invalid_argument("the speaker's name has a control character") : Status();
}

ChatItem item(int32_t token) { return {ChatItem::Kind::kToken, token, {}}; }

// The format that a model's chat symbols make.
Result<ChatTemplate> template_of(const ChatSymbols& chat, const Tokenizer& tokenizer) {
  const std::pair<const char*, int32_t> needed[] = {{"begin", chat.begin},
                                                    {"card", chat.card},
                                                    {"user", chat.user},
                                                    {"character", chat.character},
                                                    {"close", chat.close}};
  ChatTemplate format;
  for (const auto& [name, token] : needed) {
    if (token < 0)
      return Status(StatusCode::kUnsupported,
                    fmt::format("the model has no chat symbol '{}', so it cannot chat", name));
    if (!tokenizer.is_control(token))
      return bad_model(fmt::format(
          "chat symbol '{}' (token {}) is no control symbol of the tokenizer: text could forge it", name, token));
    format.stop.push_back(token);
  }
  for (const int32_t token : {chat.end, chat.text})
    if (token >= 0) format.stop.push_back(token);
  format.begin = {item(chat.begin)};
  format.system.before = {item(chat.begin), item(chat.card)};
  format.user.before = {item(chat.user)};
  format.assistant.before = {item(chat.character)};
  format.system.after = format.user.after = format.assistant.after = {item(chat.close)};
  return format;
}

Status check_tokens(const ChatTemplate& format, const Tokenizer& tokenizer) {
  const auto check = [&](int32_t token) -> Status {
    if (tokenizer.is_special(token)) return {};
    return bad_model(
        fmt::format("config.chat_format: token {} is no special token of the tokenizer: text could forge it", token));
  };
  const ChatItems none;
  for (const ChatItems* items :
       {&format.begin, format.reply ? &*format.reply : &none, &format.system.before, &format.system.after,
        &format.system.named, &format.user.before, &format.user.after, &format.user.named, &format.assistant.before,
        &format.assistant.after, &format.assistant.named})
    for (const ChatItem& each : *items)
      if (each.kind == ChatItem::Kind::kToken) KAIJU_TRY(check(each.token));
  for (const int32_t token : format.stop) KAIJU_TRY(check(token));
  return {};
}

}  // namespace

// Collects text until a token comes, and encodes it as one.
class ChatFormat::Writer {
 public:
  Writer(const ChatTemplate& format, const Tokenizer& tokenizer) : format_(format), tokenizer_(tokenizer) {}

  Status add(const ChatItems& items, std::string_view name = {}) {
    for (const ChatItem& each : items) {
      if (each.kind == ChatItem::Kind::kToken) {
        KAIJU_TRY(encode());
        tokens_.push_back(each.token);
      } else {
        text_ += each.kind == ChatItem::Kind::kName ? name : std::string_view(each.text);
      }
    }
    return {};
  }
  // Begins a sequence. `next` is the message that follows, or NULL.
  Status system(std::string_view text, const ChatMessage* next) {
    if (format_.system_place == ChatSystem::kInFirstUser) {
      KAIJU_TRY(add(format_.begin));
      KAIJU_TRY(open(format_.user, next && next->role == ChatRole::kUser ? next->name : std::string_view()));
      in_user_ = true;
    }
    KAIJU_TRY(add(format_.system.before));
    text_ += text;
    return add(format_.system.after);
  }
  // An empty message of the user at the beginning, where one must be before a reply.
  Status user_before_reply() {
    if (!in_user_ && !format_.user_first) return {};
    return message({ChatRole::kUser, {}, {}});
  }
  Status message(const ChatMessage& message) {
    const ChatRoleTemplate& role = role_of(message);
    if (!std::exchange(in_user_, false)) KAIJU_TRY(open(role, message.name));
    say(message.name, written(message.text, role), role);
    return add(role.after);
  }
  // A reply that begins with the message's text.
  Status open_reply(const ChatMessage& message) {
    const ChatRoleTemplate& role = format_.assistant;
    if (message.name.empty() || role.named.empty())
      KAIJU_TRY(reply());
    else
      KAIJU_TRY(open(role, message.name));
    say(message.name, trimmed(message.text, role.trim_left, ChatTrim::kNone), role);
    return {};
  }
  Status reply() { return add(format_.reply ? *format_.reply : format_.assistant.before); }
  // Encodes the text that no token follows.
  Status encode() {
    if (text_.empty()) return {};
    auto encoded = tokenizer_.encode(text_);
    if (!encoded.ok()) return encoded.status();
    tokens_.insert(tokens_.end(), encoded->begin(), encoded->end());
    text_.clear();
    return {};
  }
  std::vector<int32_t>& tokens() { return tokens_; }

 private:
  const ChatRoleTemplate& role_of(const ChatMessage& message) const {
    return message.role == ChatRole::kUser ? format_.user : format_.assistant;
  }
  Status open(const ChatRoleTemplate& role, std::string_view name) {
    return add(name.empty() || role.named.empty() ? role.before : role.named, name);
  }
  void say(std::string_view name, std::string_view text, const ChatRoleTemplate& role) {
    if (!name.empty() && role.named.empty()) text_.append(name).append(text.empty() ? ":" : ": ");
    text_ += text;
  }

  const ChatTemplate& format_;
  const Tokenizer& tokenizer_;
  bool in_user_ = false;  // the next user message is begun already
  std::string text_;
  std::vector<int32_t> tokens_;
};

std::string system_text_of_card(std::string_view card) {
  const size_t line = card.find('\n');
  const std::string_view name = card.substr(0, line);
  std::string text;
  if (!name.empty()) text = fmt::format("You are {0}. Reply as {0} would, and stay in character.", name);
  if (line == std::string_view::npos) return text;
  const std::string_view description = card.substr(line + 1);
  if (!text.empty() && !description.empty()) text += "\n\n";
  return text.append(description);
}

Result<ChatFormat> ChatFormat::create(const ModelConfig& config, std::shared_ptr<const Tokenizer> tokenizer) {
  if (!tokenizer) return Status(StatusCode::kUnsupported, "the model has no tokenizer, so it cannot chat");
  ChatFormat format;
  if (config.chat_format) {
    KAIJU_TRY(check_tokens(*config.chat_format, *tokenizer));
    format.template_ = *config.chat_format;
  } else {
    auto native = template_of(config.chat, *tokenizer);
    if (!native.ok()) return native.status();
    format.template_ = std::move(native).value();
    format.has_cards_ = true;
  }
  const ChatTemplate& t = format.template_;
  const std::pair<const ChatItems&, std::vector<int32_t>&> parts[] = {
      {t.begin, format.begin_},
      {t.reply ? *t.reply : t.assistant.before, format.reply_start_},
      {t.assistant.after, format.close_},
      {t.user.before, format.opening_}};
  for (const auto& [items, tokens] : parts) {
    Writer out(t, *tokenizer);
    KAIJU_TRY(out.add(items));
    KAIJU_TRY(out.encode());
    tokens = std::move(out.tokens());
  }
  format.tokenizer_ = std::move(tokenizer);
  return format;
}

Result<std::string> ChatFormat::system_text(const ChatMessage& message) const {
  const bool card = message.role == ChatRole::kCard;
  if (!card && has_cards_)
    return Status(StatusCode::kUnsupported, "the model has no system messages; give it a character's card");
  std::string text;
  if (card && !has_cards_)
    text = written(system_text_of_card(message.text), template_.system);
  else
    text = written(message.text, template_.system);
  if (text.empty()) return invalid_argument(card ? "the card is empty" : "the system message is empty: leave it out");
  return text;
}

ChatItems ChatFormat::after_stop() const {
  const ChatItems& after = template_.assistant.after;
  const auto stop = std::find_if(after.begin(), after.end(), [&](const ChatItem& each) {
    return each.kind == ChatItem::Kind::kToken &&
           std::count(template_.stop.begin(), template_.stop.end(), each.token) > 0;
  });
  return stop == after.end() ? ChatItems() : ChatItems(stop + 1, after.end());
}

Status ChatFormat::check(const ChatMessage& message, bool first) const {
  const bool system = is_system(message.role);
  if (system && !first) return invalid_argument(fmt::format("a {} comes first", name_of(message.role)));
  if (system && !message.name.empty()) return invalid_argument("only users and characters have a speaker's name");
  KAIJU_TRY(Tokenizer::check_text(message.text));
  return check_name(message.name);
}

Status ChatFormat::format(std::span<const ChatMessage> messages, const ChatParts& parts,
                          std::vector<int32_t>& tokens) const {
  if (parts.open && (parts.reply || messages.empty() || messages.back().role != ChatRole::kCharacter))
    return invalid_argument("only a character's message at the end can be left open, without the start of a reply");
  if (parts.close && parts.after_stop)
    return invalid_argument("a reply is closed, or ended with its stop token: close and after_stop exclude each other");
  Writer out(template_, *tokenizer_);
  const bool has_system = !messages.empty() && is_system(messages.front().role);
  const bool begins = has_system || parts.begin;
  if (parts.begin && !has_system) KAIJU_TRY(out.add(template_.begin));
  if (parts.close) KAIJU_TRY(out.add(template_.assistant.after));
  if (parts.after_stop) KAIJU_TRY(out.add(after_stop()));
  const auto write = [&](size_t i) -> Status {
    const ChatMessage& message = messages[i];
    const bool last = i + 1 == messages.size();
    if (is_system(message.role)) {
      auto text = system_text(message);
      if (!text.ok()) return text.status();
      return out.system(*text, last ? nullptr : &messages[i + 1]);
    }
    if (begins && i == size_t{has_system} && message.role == ChatRole::kCharacter) KAIJU_TRY(out.user_before_reply());
    return parts.open && last ? out.open_reply(message) : out.message(message);
  };
  const auto finish = [&]() -> Status {
    if (parts.reply && begins && messages.size() == size_t{has_system}) KAIJU_TRY(out.user_before_reply());
    if (parts.reply) KAIJU_TRY(out.reply());
    return out.encode();
  };
  const auto of_message = [&](size_t i, const Status& status) -> Status {
    if (status.ok()) return status;
    return {status.code(), fmt::format("message {}: {}: {}", i, name_of(messages[i].role), status.message())};
  };
  for (size_t i = 0; i < messages.size(); ++i)
    KAIJU_TRY(of_message(i, check(messages[i], i == 0 && !parts.begin && !parts.close && !parts.after_stop)));
  for (size_t i = 0; i < messages.size(); ++i) KAIJU_TRY(of_message(i, write(i)));
  const Status finished = finish();
  KAIJU_TRY(messages.empty() ? finished : of_message(messages.size() - 1, finished));
  tokens.insert(tokens.end(), out.tokens().begin(), out.tokens().end());
  return {};
}

Status ChatFormat::append(ChatRole role, std::string_view text, std::vector<int32_t>& tokens) const {
  const ChatMessage message{role, text, {}};
  return format({&message, 1}, {}, tokens);
}

std::span<const int32_t> ChatFormat::opening(std::span<const int32_t> head) const {
  if (template_.system_place != ChatSystem::kInFirstUser || head.size() <= begin_.size()) return {};
  if (!std::equal(begin_.begin(), begin_.end(), head.begin()) || head[begin_.size()] != opening_.front()) return {};
  for (const ChatItem& each : template_.user.after)
    if (each.kind == ChatItem::Kind::kToken && std::count(head.begin(), head.end(), each.token) > 0) return {};
  return opening_;
}

}  // namespace kaiju
