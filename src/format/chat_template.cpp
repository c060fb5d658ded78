// The chat format of a config: see chat_template.hpp.
#include "chat_template.hpp"

#include <algorithm>
#include <iterator>

#include "reader.hpp"

namespace kaiju::format {
namespace {

constexpr size_t kMostItems = 64;  // of one list
constexpr const char* kPath = "config.chat_format";

struct RoleField {
  const char* name;
  ChatRoleTemplate ChatTemplate::* member;
};
constexpr RoleField kRoles[] = {
    {"system", &ChatTemplate::system}, {"user", &ChatTemplate::user}, {"assistant", &ChatTemplate::assistant}};

struct ListField {
  const char* name;
  ChatItems ChatRoleTemplate::* member;
};
constexpr ListField kLists[] = {
    {"before", &ChatRoleTemplate::before}, {"after", &ChatRoleTemplate::after}, {"named", &ChatRoleTemplate::named}};

struct TrimField {
  const char* name;
  ChatTrim ChatRoleTemplate::* member;
};
constexpr TrimField kTrims[] = {{"trim_left", &ChatRoleTemplate::trim_left},
                                {"trim_right", &ChatRoleTemplate::trim_right}};

const char* word(ChatTrim trim) { return trim == ChatTrim::kSpace ? "space" : "newlines"; }

Status read_items(const Json& value, const std::string& path, ChatItems& items) {
  if (!value.array()) return bad_model(fmt::format("{} must be a list", path));
  for (const Json& each : *value.array()) {
    ChatItem& item = items.emplace_back();
    if (each.whole() && *each.whole() <= INT32_MAX) {
      item.token = static_cast<int32_t>(*each.whole());
    } else if (each.text()) {
      item.kind = ChatItem::Kind::kText;
      item.text = *each.text();
    } else if (std::holds_alternative<std::monostate>(each.value)) {
      item.kind = ChatItem::Kind::kName;
    } else {
      return bad_model(
          fmt::format("{}[{}] must be a token id, a text, or null for the speaker's name", path, items.size() - 1));
    }
  }
  return {};
}

Status read_role(const Json& value, const std::string& path, ChatTemplate& chat, ChatRoleTemplate& role) {
  if (!value.object()) return bad_model(fmt::format("{} must be an object", path));
  Reader reader(*value.object(), path);
  const Json* found = nullptr;
  if (reader.has("place") && &role == &chat.system) {
    std::string place;
    KAIJU_TRY(reader.string("place", place));
    if (place != "first_user")
      return bad_model(fmt::format("{}.place is {}: must be \"first_user\", or left out", path, in_quotes(place)));
    chat.system_place = ChatSystem::kInFirstUser;
  }
  for (const ListField& list : kLists) {
    if (!reader.has(list.name)) continue;
    KAIJU_TRY(reader.find(list.name, &found));
    KAIJU_TRY(read_items(*found, fmt::format("{}.{}", path, list.name), role.*list.member));
  }
  for (const TrimField& trim : kTrims) {
    if (!reader.has(trim.name)) continue;
    std::string text;
    KAIJU_TRY(reader.string(trim.name, text));
    if (text != word(ChatTrim::kSpace) && text != word(ChatTrim::kNewlines))
      return bad_model(
          fmt::format("{}.{} is {}: must be \"space\" or \"newlines\", or left out", path, trim.name, in_quotes(text)));
    role.*trim.member = text == word(ChatTrim::kSpace) ? ChatTrim::kSpace : ChatTrim::kNewlines;
  }
  if (reader.has("reasoning_end")) KAIJU_TRY(reader.string("reasoning_end", role.reasoning_end));
  return reader.end();
}

Status check_token(const std::string& path, int32_t token, int32_t vocab_size) {
  if (token >= 0 && token < vocab_size) return {};
  return bad_model(fmt::format("{} is {}: must be a token id below vocab_size, {}", path, token, vocab_size));
}

Status check_text(const std::string& path, const std::string& text) {
  if (text.empty() || text.size() > kMostChatTextBytes)
    return bad_model(fmt::format("{} has {} bytes: a text has 1 to {}", path, text.size(), kMostChatTextBytes));
  if (!is_utf8(text)) return bad_model(fmt::format("{} is not UTF-8", path));
  return {};
}

Status check_items(const std::string& path, const ChatItems& items, bool names, int32_t vocab_size) {
  if (items.size() > kMostItems)
    return bad_model(fmt::format("{} has {} entries: at most {} allowed", path, items.size(), kMostItems));
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string which = fmt::format("{}[{}]", path, i);
    switch (items[i].kind) {
      case ChatItem::Kind::kToken:
        KAIJU_TRY(check_token(which, items[i].token, vocab_size));
        break;
      case ChatItem::Kind::kText:
        KAIJU_TRY(check_text(which, items[i].text));
        break;
      case ChatItem::Kind::kName:
        if (!names)
          return bad_model(fmt::format("{} is a speaker's name: only the list \"named\" may have one", which));
        break;
    }
  }
  return {};
}

bool has_token(const ChatItems& items) {
  return std::any_of(items.begin(), items.end(),
                     [](const ChatItem& item) { return item.kind == ChatItem::Kind::kToken; });
}

std::string items_json(const ChatItems& items) {
  std::string text = "[";
  for (const ChatItem& item : items) {
    if (text.size() > 1) text += ',';
    if (item.kind == ChatItem::Kind::kToken)
      text += fmt::format("{}", item.token);
    else
      text += item.kind == ChatItem::Kind::kName ? "null" : json_string(item.text);
  }
  return text + ']';
}

std::string role_json(const ChatRoleTemplate& role, bool in_first_user) {
  std::string text = in_first_user ? "\"place\":\"first_user\"," : "";
  for (const ListField& list : kLists)
    if (!(role.*list.member).empty()) text += fmt::format("\"{}\":{},", list.name, items_json(role.*list.member));
  for (const TrimField& trim : kTrims)
    if (role.*trim.member != ChatTrim::kNone) text += fmt::format("\"{}\":\"{}\",", trim.name, word(role.*trim.member));
  if (!role.reasoning_end.empty()) text += fmt::format("\"reasoning_end\":{},", json_string(role.reasoning_end));
  if (!text.empty()) text.pop_back();
  return "{" + text + "}";
}

}  // namespace

Status read_chat_template(const Json& value, ChatTemplate& out) {
  if (!value.object()) return bad_model(fmt::format("{} must be an object", kPath));
  Reader reader(*value.object(), kPath);
  const Json* found = nullptr;
  if (reader.has("begin")) {
    KAIJU_TRY(reader.find("begin", &found));
    KAIJU_TRY(read_items(*found, fmt::format("{}.begin", kPath), out.begin));
  }
  if (reader.has("reply")) {
    KAIJU_TRY(reader.find("reply", &found));
    KAIJU_TRY(read_items(*found, fmt::format("{}.reply", kPath), out.reply.emplace()));
  }
  for (const RoleField& role : kRoles) {
    KAIJU_TRY(reader.find(role.name, &found));
    KAIJU_TRY(read_role(*found, fmt::format("{}.{}", kPath, role.name), out, out.*role.member));
  }
  if (reader.has("user_first")) {
    KAIJU_TRY(reader.find("user_first", &found));
    const bool* first = std::get_if<bool>(&found->value);
    if (!first) return bad_model(fmt::format("{}.user_first must be true or false", kPath));
    out.user_first = *first;
  }
  KAIJU_TRY(reader.find("stop", &found));
  ChatItems stop;
  KAIJU_TRY(read_items(*found, fmt::format("{}.stop", kPath), stop));
  for (size_t i = 0; i < stop.size(); ++i) {
    if (stop[i].kind != ChatItem::Kind::kToken)
      return bad_model(fmt::format("{}.stop[{}] must be a token id", kPath, i));
    out.stop.push_back(stop[i].token);
  }
  return reader.end();
}

Status check_chat_template(const ChatTemplate& chat, int32_t vocab_size) {
  KAIJU_TRY(check_items(fmt::format("{}.begin", kPath), chat.begin, false, vocab_size));
  if (chat.reply) KAIJU_TRY(check_items(fmt::format("{}.reply", kPath), *chat.reply, false, vocab_size));
  for (const RoleField& field : kRoles) {
    const ChatRoleTemplate& role = chat.*field.member;
    for (const ListField& list : kLists)
      KAIJU_TRY(check_items(fmt::format("{}.{}.{}", kPath, field.name, list.name), role.*list.member,
                            list.member == &ChatRoleTemplate::named, vocab_size));
    if (!role.reasoning_end.empty())
      KAIJU_TRY(check_text(fmt::format("{}.{}.reasoning_end", kPath, field.name), role.reasoning_end));
  }
  // A token between any two texts: otherwise a text could imitate what separates it from the next one.
  for (const RoleField& first : kRoles) {
    if (&(chat.*first.member) == &chat.system && chat.system_place == ChatSystem::kInFirstUser) continue;
    for (const RoleField& next : kRoles) {
      const ChatRoleTemplate& role = chat.*next.member;
      if (&role == &chat.system || has_token((chat.*first.member).after)) continue;
      const bool reply_begins = &role == &chat.assistant && chat.reply;
      if (!has_token(role.before) || (!role.named.empty() && !has_token(role.named)) ||
          (reply_begins && !has_token(*chat.reply)))
        return bad_model(
            fmt::format("{}: no token separates a {} text from a following {} text", kPath, first.name, next.name));
    }
  }
  if (chat.system_place == ChatSystem::kInFirstUser &&
      (chat.user.before.empty() || chat.user.before.front().kind != ChatItem::Kind::kToken ||
       !has_token(chat.user.after)))
    return bad_model(fmt::format(
        "{}.system.place: a user message that has the system text must begin with a token and end with one", kPath));
  if (chat.stop.empty() || chat.stop.size() > kMostItems)
    return bad_model(fmt::format("{}.stop has {} entries: 1 to {} allowed", kPath, chat.stop.size(), kMostItems));
  for (size_t i = 0; i < chat.stop.size(); ++i)
    KAIJU_TRY(check_token(fmt::format("{}.stop[{}]", kPath, i), chat.stop[i], vocab_size));
  return {};
}

std::string chat_template_json(const ChatTemplate& chat) {
  std::string text = "{";
  if (!chat.begin.empty()) text += fmt::format("\"begin\":{},", items_json(chat.begin));
  for (const RoleField& role : kRoles)
    text += fmt::format("\"{}\":{},", role.name,
                        role_json(chat.*role.member, role.member == &ChatTemplate::system &&
                                                         chat.system_place == ChatSystem::kInFirstUser));
  if (chat.reply) text += fmt::format("\"reply\":{},", items_json(*chat.reply));
  if (chat.user_first) text += "\"user_first\":true,";
  return text + fmt::format("\"stop\":[{}]}}", fmt::join(chat.stop, ","));
}

}  // namespace kaiju::format
