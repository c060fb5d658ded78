// /chats over HTTP: chats are made, listed, shown, changed and deleted. Replies are generated in reply_routes.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "failure.hpp"
#include "moves.hpp"
#include "routes.hpp"

namespace kaiju::server {

using Json = nlohmann::ordered_json;

namespace {

constexpr int64_t kMostChats = 1000;  // of a list

// --- what is answered
Json turn_json(const Turn& turn) {
  Json replies = Json::array();
  for (const Reply& reply : turn.replies) replies.push_back(reply.text);
  const Reply none, &chosen = turn.chosen >= 0 ? turn.replies[static_cast<size_t>(turn.chosen)] : none;
  return {{"user", turn.user ? Json(*turn.user) : Json()},
          {"speaker", turn.speaker},
          {"replies", replies},
          {"chosen", std::max<int64_t>(turn.chosen, 0)},
          {"prompt_tokens", chosen.prompt_tokens},
          {"cached_tokens", chosen.cached_tokens},
          {"reason", chosen.reason}};
}

Json chat_json(const StoredChats& chats, const LoadedChat& loaded) {
  const Chat& chat = loaded.chat;
  Json characters = Json::array(), turns = Json::array();
  for (size_t i = 0; i < loaded.cast.ids.size(); ++i)
    characters.push_back(
        {{"id", loaded.cast.ids[i].id}, {"version", loaded.cast.ids[i].version}, {"name", loaded.cast.cards[i].name}});
  for (const Turn& turn : chat.turns) turns.push_back(turn_json(turn));
  const size_t context = chats.context();
  const size_t tokens = turn_prompt(chats.format(), loaded.cast, chat.turns, {}, context / 4, context).size();
  return {{"id", loaded.id},
          {"title", chat.title},
          {"characters", characters},
          {"turns", turns},
          {"tokens", tokens},
          {"context", context},
          {"busy", chats.busy.contains(loaded.id)},
          {"user", chat.user}};
}

// Answers with the chat as it is now.
asio::awaitable<void> answer_chat(StoredChats& chats, Exchange& exchange, int status) {
  const LoadedChat loaded = co_await chats.load(exchange);
  co_await exchange.answer(chat_json(chats, loaded), status);
}

asio::awaitable<void> show_chat(StoredChats& chats, Exchange& exchange) { return answer_chat(chats, exchange, 200); }

// A chat that was made just now.
asio::awaitable<void> answer_new_chat(StoredChats& chats, Exchange& exchange, const std::string& id) {
  exchange.parts.assign(1, id);
  return answer_chat(chats, exchange, 201);
}

Json chats_json(const std::vector<ChatSummary>& chats) {
  Json list = Json::array();
  for (const ChatSummary& chat : chats) {
    Json ids = Json::array();
    for (const ChatCharacter& one : chat.characters) ids.push_back(one.id);
    list.push_back({{"id", chat.id},
                    {"title", chat.title},
                    {"characters", ids},
                    {"turns", chat.turn_count},
                    {"updated", time_text(chat.updated_ms)}});
  }
  return {{"chats", list}};
}

asio::awaitable<void> list_chats(StoredChats& chats, Exchange& exchange) {
  const std::string owner = chats.owner(exchange);
  const int64_t most = std::min(query_number(exchange, "limit", kMostChats), kMostChats);
  const auto found =
      co_await chats.store.get<std::vector<ChatSummary>>([&](Store& store) { return store.chats(owner, most); });
  co_await exchange.answer(chats_json(found));
}

// --- new chats
NewChat read_new_chat(const Fields& fields, const std::string& owner) {
  NewChat wanted;
  wanted.owner = owner;
  wanted.user = fields.text("user");
  std::vector<std::string> ids = fields.texts("characters");
  if (fields.has("character")) ids.insert(ids.begin(), fields.text("character"));
  fields.refuse_others();
  if (ids.empty()) throw bad_request("character is missing: the id of one of /characters", "character");
  if (std::set<std::string>(ids.begin(), ids.end()).size() != ids.size())
    throw bad_request("characters has an id twice", "characters");
  for (const std::string& id : ids) wanted.characters.push_back({id, 0});
  return wanted;
}

std::string names_of(const Cast& cast) {
  std::string names;
  for (const Card& card : cast.cards) names += (names.empty() ? "" : ", ") + card.name;
  return names;
}

// The first turn of a chat, with all greetings as its replies; nothing where the first character has none.
std::optional<Turn> greeting_of(const ChatFormat& format, const Cast& cast) {
  const Card& card = cast.cards[0];
  if (card.greeting.empty()) return {};
  Turn turn;
  turn.speaker = cast.ids[0].id;
  std::vector<std::string> texts = {card.greeting};
  texts.insert(texts.end(), card.alternate_greetings.begin(), card.alternate_greetings.end());
  for (const std::string& text : texts) {
    Reply reply;
    reply.text = text;
    reply.tokens = greeting_tokens(format, cast, text);
    reply.reason = "stop";
    turn.replies.push_back(std::move(reply));
  }
  turn.chosen = 0;
  return turn;
}

asio::awaitable<void> create_chat(StoredChats& chats, Exchange& exchange) {
  const nlohmann::json body = exchange.json();
  NewChat wanted = read_new_chat(Fields(body), chats.owner(exchange));
  const Cast cast = co_await chats.load_cast(wanted.characters, wanted.user);
  wanted.characters = cast.ids;
  wanted.title = title_of(names_of(cast));
  const std::optional<Turn> greeting = greeting_of(chats.format(), cast);
  const ChatSummary made = co_await chats.store.get<ChatSummary>([&](Store& store) -> Result<ChatSummary> {
    auto chat = store.create_chat(wanted);
    if (chat.ok() && greeting) KAIJU_TRY(store.append_turn(wanted.owner, chat->id, 0, *greeting));
    return chat;
  });
  co_await answer_new_chat(chats, exchange, made.id);
}

asio::awaitable<void> fork_chat(StoredChats& chats, Exchange& exchange) {
  const nlohmann::json body = exchange.json_or_nothing();
  const Fields fields(body);
  const LoadedChat loaded = co_await chats.load(exchange);
  const int64_t turns = fields.integer("turns", loaded.chat.turn_count, 0, loaded.chat.turn_count);
  fields.refuse_others();
  const ChatSummary made = co_await chats.store.get<ChatSummary>([&](Store& store) -> Result<ChatSummary> {
    auto fork = store.fork_chat(loaded.owner, loaded.id, turns);
    if (fork.ok()) KAIJU_TRY(store.set_title(loaded.owner, fork->id, title_of(loaded.chat.title) + ", forked"));
    return fork;
  });
  co_await answer_new_chat(chats, exchange, made.id);
}

// --- changes
asio::awaitable<void> choose_reply(StoredChats& chats, Exchange& exchange) {
  const nlohmann::json body = exchange.json_or_nothing();
  const Fields fields(body);
  if (!fields.has("reply"))
    throw bad_request("reply is missing: which reply of the newest turn counts, from 0", "reply");
  const int64_t reply = fields.integer("reply", 0, 0, INT32_MAX);
  fields.refuse_others();
  const LoadedChat loaded = co_await chats.load_idle(exchange);
  const int64_t turn = loaded.chat.turn_count - 1;
  co_await chats.store.run([&](Store& store) { return store.choose_reply(loaded.owner, loaded.id, turn, reply); });
  co_await show_chat(chats, exchange);
}

// Another text of a turn's user, or of its chosen reply.
struct Edit {
  int64_t turn;
  bool user;
  std::string text;
};

Edit read_edit(const Fields& fields, const Chat& chat) {
  const int64_t turn = fields.integer("turn", -1, 0, INT32_MAX);
  const std::string part = fields.text("part"), text = fields.text("text");
  fields.refuse_others();
  if (turn < 0) throw bad_request("turn is missing: the number of the turn, from 0", "turn");
  if (turn >= chat.turn_count)
    throw bad_request(fmt::format("there is no turn {}; the chat has {}", turn, chat.turn_count), "turn");
  if (part != "user" && part != "reply") throw bad_request("part must be user or reply", "part");
  if (!fields.has("text")) throw bad_request("text is missing: what the part is now", "text");
  return {turn, part == "user", text};
}

std::vector<int32_t> edited_tokens(const StoredChats& chats, const LoadedChat& loaded, const Edit& edit) {
  const std::vector<Turn>& turns = loaded.chat.turns;
  const Turn& edited = turns[static_cast<size_t>(edit.turn)];
  if (!edit.user) return reply_tokens(chats.format(), chats.service.tokenizer(), loaded.cast, edited, edit.text);
  const std::vector<Turn> before(turns.begin(), turns.begin() + static_cast<std::ptrdiff_t>(edit.turn));
  return input_tokens(chats.format(), loaded.cast, loaded.cast.index_of(edited.speaker), before, edit.text,
                      loaded.chat.user);
}

asio::awaitable<void> edit_turn(StoredChats& chats, Exchange& exchange) {
  const nlohmann::json body = exchange.json_or_nothing();
  const Fields fields(body);
  const LoadedChat loaded = co_await chats.load_idle(exchange);
  const Edit edit = read_edit(fields, loaded.chat);
  const std::vector<int32_t> tokens = edited_tokens(chats, loaded, edit);
  co_await chats.store.run([&](Store& store) {
    return edit.user ? store.edit_user(loaded.owner, loaded.id, edit.turn, edit.text, tokens)
                     : store.edit_reply(loaded.owner, loaded.id, edit.turn, edit.text, tokens);
  });
  co_await show_chat(chats, exchange);
}

asio::awaitable<void> rename_chat(StoredChats& chats, Exchange& exchange) {
  const nlohmann::json body = exchange.json_or_nothing();
  const Fields fields(body);
  const std::string owner = chats.owner(exchange), id = exchange.parts[0], title = fields.text("title");
  fields.refuse_others();
  if (title.empty()) throw bad_request("title is missing: what the chat is called", "title");
  co_await chats.store.run([&](Store& store) { return store.set_title(owner, id, title); });
  co_await show_chat(chats, exchange);
}

asio::awaitable<void> undo_turn(StoredChats& chats, Exchange& exchange) {
  refuse_fields(exchange);
  const LoadedChat loaded = co_await chats.load_idle(exchange);
  if (loaded.chat.turn_count == 0) throw bad_request("there is no turn to undo");
  const int64_t turns = loaded.chat.turn_count - 1;
  co_await chats.store.run([&](Store& store) { return store.truncate_turns(loaded.owner, loaded.id, turns); });
  co_await show_chat(chats, exchange);
}

asio::awaitable<void> delete_chat(StoredChats& chats, Exchange& exchange) {
  const std::string owner = chats.owner(exchange), id = exchange.parts[0];
  if (chats.busy.contains(id)) {
    (void)co_await chats.load(exchange);  // its owner's only
    chats.busy.cancel(id);
  }
  co_await chats.store.run([&](Store& store) { return store.delete_chat(owner, id); });
  if (chats.kv) chats.kv->forget(id);
  chats.service.moves->forget(id);
  co_await exchange.answer(one_field("deleted", true));
}

}  // namespace

void add_chat_routes(StoredChats& chats) {
  chats.route("POST", "/chats", create_chat);
  chats.route("GET", "/chats", list_chats);
  chats.route("GET", "/chats/{}", show_chat);
  chats.route("DELETE", "/chats/{}", delete_chat);
  chats.route("POST", "/chats/{}/choose", choose_reply);
  chats.route("POST", "/chats/{}/edit", edit_turn);
  chats.route("POST", "/chats/{}/rename", rename_chat);
  chats.route("POST", "/chats/{}/undo", undo_turn);
  chats.route("POST", "/chats/{}/fork", fork_chat);
}

}  // namespace kaiju::server
