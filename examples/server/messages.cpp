#include "messages.hpp"

#include <fmt/format.h>

#include "failure.hpp"

namespace kaiju::server {

using nlohmann::json;

namespace {

std::string content_of(const json& message, bool of_user, const std::string& where) {
  const auto found = message.find("content");
  if (found == message.end() || found->is_null()) {
    if (of_user)
      throw bad_request(where + ".content is missing: a string, or a list of text parts", where + ".content");
    return {};
  }
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) throw bad_request(where + ".content must be a string or a list of text parts", where);
  std::string text;
  for (const json& part : *found) {
    const std::string type =
        part.is_object() ? part.value("type", json("text")).is_string() ? part.value("type", "text") : "" : "";
    if (type != "text")
      throw bad_request(fmt::format("{}.content has a part of type {:?}: this server takes text only", where, type),
                        where);
    if (!part.contains("text") || !part["text"].is_string())
      throw bad_request(where + ".content has a part without text", where);
    text += part["text"].get<std::string>();
  }
  return text;
}

// A model with cards has no system messages: its card says who it is.
std::string card_of(const std::string& text) { return "Assistant\n" + text; }

}  // namespace

std::vector<Message> read_messages(const Fields& fields, const ChatFormat& chat) {
  if (!fields.has("messages") || !fields.at("messages").is_array() || fields.at("messages").empty())
    throw bad_request("messages must be a list of at least one message", "messages");
  std::vector<Message> messages;
  std::string system;
  const json& given = fields.at("messages");
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    const json& message = given[i];
    if (!message.is_object()) throw bad_request(where + " must be an object with role and content", where);
    const Fields parts(message);
    const std::string role = parts.text("role");
    Message one{ChatRole::kUser, content_of(message, role == "user", where), parts.text("name")};
    if (role == "system" || role == "developer") {
      if (messages.empty()) {
        system += (system.empty() ? "" : "\n\n") + one.text;
        continue;
      }
      one.name.clear();
    } else if (role == "assistant") {
      one.role = ChatRole::kCharacter;
      if (parts.has("tool_calls")) throw bad_request(where + ": tool_calls are not supported by this server", where);
    } else if (role != "user") {
      throw bad_request(
          fmt::format("{} has the role \"{}\"; roles are system, developer, user and assistant", where, role), where);
    }
    messages.push_back(std::move(one));
  }
  if (!system.empty())
    messages.insert(messages.begin(), chat.has_system() ? Message{ChatRole::kSystem, system, {}}
                                                        : Message{ChatRole::kCard, card_of(system), {}});
  if (messages.empty()) throw bad_request("messages has no message with a text", "messages");
  return messages;
}

std::string newest_text(const std::vector<Message>& messages) {
  const auto by_user = [](const Message& message) { return message.role == ChatRole::kUser; };
  auto first = messages.end();
  if (first != messages.begin() && first[-1].role == ChatRole::kCharacter) --first;
  while (first != messages.begin() && by_user(first[-1])) --first;
  std::string text;
  for (; first != messages.end(); ++first) text += (text.empty() ? "" : "\n") + first->text;
  return text;
}

Prompt prompt_of(Service& service, const std::string& salt, const std::vector<Message>& messages, bool begin_reply) {
  const ChatFormat& chat = service.chat();
  Prompt prompt;
  prompt.continues = begin_reply && messages.back().role == ChatRole::kCharacter;
  size_t known = 0;
  ChatParts parts;
  // A message that the reply continues has to stay open: what is kept has its end.
  const std::span<const Message> whole(messages.data(), messages.size() - (prompt.continues ? 1 : 0));
  if (const Transcripts::Kept* kept = service.transcripts.find(salt, whole, known)) {
    prompt.tokens = kept->tokens;
    prompt.checkpoint = kept->checkpoint;
    (kept->stopped ? parts.after_stop : parts.close) = true;
  } else {
    parts.begin = messages[0].role == ChatRole::kUser || messages[0].role == ChatRole::kCharacter;
  }
  parts.reply = begin_reply && !prompt.continues;
  parts.open = prompt.continues;
  std::vector<ChatMessage> list;
  for (size_t i = known; i < messages.size(); ++i)
    list.push_back({messages[i].role, messages[i].text, messages[i].name});
  if (const Status status = chat.format(list, parts, prompt.tokens); !status.ok()) throw of_status(status, "messages");
  return prompt;
}

void keep_reply(Service& service, const std::string& salt, std::vector<Message> messages, const Prompt& prompt,
                const std::string& text, const std::vector<int32_t>& reply, bool stopped, const std::string& checkpoint,
                const Scope& scope) {
  Transcripts::Kept kept{{}, stopped, checkpoint, scope};
  kept.tokens.reserve(prompt.tokens.size() + reply.size());  // exactly what it counts for
  kept.tokens.insert(kept.tokens.end(), prompt.tokens.begin(), prompt.tokens.end());
  kept.tokens.insert(kept.tokens.end(), reply.begin(), reply.end());
  if (prompt.continues)
    messages.back().text += text;
  else
    messages.push_back({ChatRole::kCharacter, text, {}});
  service.transcripts.keep(salt, messages, std::move(kept));
}

}  // namespace kaiju::server
