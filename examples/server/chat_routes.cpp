// /characters, /chats and /reports over HTTP.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "../tools/standard_streams.hpp"
#include "chats.hpp"
#include "failure.hpp"
#include "openai.hpp"
#include "routes.hpp"
#include "store_thread.hpp"

namespace kaiju::server {

using Json = nlohmann::ordered_json;

namespace {

constexpr size_t kTitleBytes = 60;
constexpr int64_t kMostChats = 1000;  // of a list

std::string owner_of(const Tenant& tenant, bool keys) { return keys ? tenant.name : ""; }

// The one parameter that a query may have.
int64_t number_in(const std::string& query, const std::string& name, int64_t otherwise) {
  if (query.empty()) return otherwise;
  const std::string given = query.substr(0, query.find('='));
  if (given != name) throw bad_request(fmt::format("there is no parameter {:?} here, but {}", given, name), given);
  const std::string text = query.substr(std::min(given.size() + 1, query.size()));
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != 0 || value < 0) throw bad_request(fmt::format("{} must be a whole number", name), name);
  return value;
}

// The first words of a text, whole characters.
std::string title_of(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.size() <= kTitleBytes) return text;
  size_t end = kTitleBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

const char* reason_of(DoneReason reason) {
  switch (reason) {
    case DoneReason::kLength:
      return "length";
    case DoneReason::kLoop:
      return "loop";
    case DoneReason::kCancelled:
    case DoneReason::kDeadline:
      return "cancelled";
    default:
      return "stop";
  }
}

// `changeable`: by the key that asks.
Json character_json(const Character& character, const Card& card, bool changeable) {
  return {{"id", character.id},
          {"version", character.version},
          {"name", character.name},
          {"description", card.description},
          {"greeting", card.greeting},
          {"suggestions", card.suggestions},
          {"tokens", character.tokens.size()},
          {"digest", character.digest},
          {"notes", card.notes},
          {"picture", character.has_picture},
          {"retired", character.retired},
          {"changeable", changeable},
          {"created", time_text(character.created_ms)}};
}

Card card_in(const std::string& canonical) {
  auto card = read_card(canonical);
  if (!card.ok()) throw of_status(card.status());
  return std::move(card).value();
}

Json summary_json(const ChatSummary& chat) {
  Json ids = Json::array();
  for (const ChatCharacter& one : chat.characters) ids.push_back(one.id);
  return {{"id", chat.id},
          {"title", chat.title},
          {"characters", ids},
          {"turns", chat.turn_count},
          {"updated", time_text(chat.updated_ms)}};
}

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

Json report_json(const Report& report) {
  return {{"id", report.id},
          {"chat", report.chat},
          {"turn", report.turn},
          {"reply", report.reply},
          {"kind", report.kind},
          {"comment", report.comment},
          {"user", report.user_text ? Json(*report.user_text) : Json()},
          {"text", report.reply_text},
          {"character", report.speaker.id},
          {"version", report.speaker.version},
          {"created", time_text(report.created_ms)}};
}

}  // namespace

class ChatRoutes::Impl {
 public:
  Impl(Service& service, std::unique_ptr<Store> store, bool keys, KeptKv* kv)
      : service_(service), store_(std::move(store)), keys_(keys), kv_(kv) {}

  void add(Server& server);
  void join() { store_.join(); }

 private:
  struct Asked {
    std::string owner, id;
    Chat chat;
    Cast cast;
  };
  // What a reply of a chat needs, and what has come of it.
  struct Generation {
    Wanted wanted;
    Run run;
    std::string text;
    bool gone = false;   // the client left
    bool begun = false;  // some text was sent
  };

  const ChatFormat& chat() const { return service_.chat(); }
  size_t context() const { return static_cast<size_t>(service_.driver.engine().info().context); }
  std::string owner(const Exchange& exchange) const { return owner_of(service_.tenants.of(exchange), keys_); }

  // --- characters
  static std::string_view card_of(const Exchange& exchange) {
    if (exchange.header("content-type").starts_with("multipart/"))
      throw bad_request("send the file of the card itself, not a form: curl --data-binary @card.png");
    return exchange.body();
  }
  NewCharacter read(std::string_view bytes) const {
    auto card = read_card(bytes);
    if (!card.ok()) throw of_status(card.status());
    NewCharacter made{card->name, card->canonical, card->digest, head_of(chat(), card->name, card->description),
                      card->picture};
    if (made.tokens.size() > context() / 2)
      throw bad_request(fmt::format("the description has {} tokens; half of the model's context is {}",
                                    made.tokens.size(), context() / 2),
                        "description");
    return made;
  }
  asio::awaitable<void> create_character(Exchange& exchange) {
    NewCharacter made = read(card_of(exchange));
    made.owner = owner(exchange);
    const Character character = co_await store_.get<Character>(
        [&made](Store& store) { return store.create_character(slug_of(made.name), made); });
    co_await exchange.answer(described(character, made), 201);
  }
  asio::awaitable<void> add_version(Exchange& exchange) {
    const NewCharacter made = read(card_of(exchange));
    const std::string id = co_await changeable(exchange);
    const Character character =
        co_await store_.get<Character>([&](Store& store) { return store.add_version(id, made); });
    co_await exchange.answer(described(character, made), 201);
  }
  static Json described(Character character, const NewCharacter& made) {
    character.tokens = made.tokens;
    return character_json(character, card_in(made.canonical), true);
  }
  // A character may be changed by the key that made it and by trusted keys, and by everybody where there are no keys.
  bool may_change(const Tenant& tenant, const Character& character) const {
    return !keys_ || tenant.trusted || (!character.owner.empty() && character.owner == tenant.name);
  }
  // The id of the character that a request wants to change.
  asio::awaitable<std::string> changeable(Exchange& exchange) {
    const std::string id = exchange.parts[0];
    const Character character = co_await store_.get<Character>([&](Store& store) { return store.character(id); });
    if (!may_change(service_.tenants.of(exchange), character)) throw not_yours(id);
    co_return id;
  }
  static Failure not_yours(const std::string& id) {
    return {403,
            fmt::format("the character {} is not this key's: the key that made it and trusted keys may change it; make "
                        "one of your own with POST /characters",
                        id),
            {},
            "not_yours"};
  }
  asio::awaitable<void> show_character(Exchange& exchange) {
    const std::string id = exchange.parts[0];
    const int64_t version = number_in(exchange.query, "version", 0);
    const Character character =
        co_await store_.get<Character>([&](Store& store) { return store.character(id, version); });
    const std::vector<int64_t> versions =
        co_await store_.get<std::vector<int64_t>>([&](Store& store) { return store.versions(id); });
    co_await exchange.answer(with_versions(service_.tenants.of(exchange), character, versions));
  }
  Json with_versions(const Tenant& tenant, Character character, const std::vector<int64_t>& versions) const {
    const Card card = card_in(character.canonical);
    if (character.foreign) character.tokens = head_of(chat(), card.name, card.description);
    Json answer = character_json(character, card, may_change(tenant, character));
    answer["versions"] = versions;
    return answer;
  }
  asio::awaitable<void> list_characters(Exchange& exchange) {
    const auto characters =
        co_await store_.get<std::vector<Character>>([](Store& store) { return store.characters(); });
    co_await exchange.answer(listed(service_.tenants.of(exchange), characters));
  }
  Json listed(const Tenant& tenant, const std::vector<Character>& characters) const {
    Json list = Json::array();
    for (const Character& character : characters) {
      Json one = character_json(character, card_in(character.canonical), may_change(tenant, character));
      for (const char* name : {"description", "tokens", "digest", "notes", "created"}) one.erase(name);
      list.push_back(std::move(one));
    }
    return {{"characters", list}};
  }
  asio::awaitable<void> show_picture(Exchange& exchange) {
    const std::string id = exchange.parts[0];
    const int64_t version = number_in(exchange.query, "version", 0);
    std::string picture = co_await store_.get<std::string>([&](Store& store) { return store.picture(id, version); });
    if (picture.empty()) throw Failure{404, "the character has no picture"};
    co_await exchange.answer(200, std::move(picture), "image/png");
  }
  asio::awaitable<void> retire_character(Exchange& exchange) {
    const std::string id = co_await changeable(exchange);
    co_await store_.run([&](Store& store) { return store.retire_character(id); });
    co_await exchange.answer(retired());
  }
  asio::awaitable<void> restore_character(Exchange& exchange) {
    const std::string id = co_await changeable(exchange);
    co_await store_.run([&](Store& store) { return store.restore_character(id); });
    co_await show_character(exchange);
  }
  static Json retired() { return {{"retired", true}}; }

  // --- chats
  asio::awaitable<Cast> load_cast(std::vector<ChatCharacter> wanted, std::string user) {
    const auto characters =
        co_await store_.get<std::vector<Character>>([&](Store& store) -> Result<std::vector<Character>> {
          std::vector<Character> found;
          for (const ChatCharacter& one : wanted) {
            auto character = store.character(one.id, one.version);
            if (!character.ok()) return character.status();
            found.push_back(std::move(character).value());
          }
          return found;
        });
    co_return cast_of(chat(), characters, user);
  }
  void check_idle(const std::string& id) const {
    if (busy_.contains(id))
      throw Failure{409, "a reply of this chat is being written: wait for it or stop it", {}, "busy"};
  }
  asio::awaitable<Asked> load(Exchange& exchange, bool to_change) {
    Asked asked;
    asked.owner = owner(exchange);
    asked.id = exchange.parts[0];
    if (to_change) check_idle(asked.id);
    asked.chat = co_await store_.get<Chat>([&](Store& store) { return store.chat(asked.owner, asked.id); });
    asked.cast = co_await load_cast(asked.chat.characters, asked.chat.user);
    if (encode_foreign(chat(), service_.tokenizer(), asked.cast, asked.chat.user, asked.chat.turns))
      tell_foreign(asked.id);
    co_return asked;
  }
  // Once is enough: every chat from before may be one.
  void tell_foreign(const std::string& id) {
    if (std::exchange(told_foreign_, true)) return;
    tools::print(stderr,
                 "kaiju-server: the store has chats of another model's tokenizer, {} is one: their texts are "
                 "encoded anew\n",
                 id);
  }
  Json chat_json(const Asked& asked) const {
    Json characters = Json::array(), turns = Json::array();
    for (size_t i = 0; i < asked.cast.ids.size(); ++i)
      characters.push_back(
          {{"id", asked.cast.ids[i].id}, {"version", asked.cast.ids[i].version}, {"name", asked.cast.cards[i].name}});
    for (const Turn& turn : asked.chat.turns) turns.push_back(turn_json(turn));
    const size_t tokens = turn_prompt(chat(), asked.cast, asked.chat.turns, {}, context() / 4, context()).size();
    return {
        {"id", asked.id},   {"title", asked.chat.title}, {"characters", characters},         {"turns", turns},
        {"tokens", tokens}, {"context", context()},      {"busy", busy_.contains(asked.id)}, {"user", asked.chat.user}};
  }
  asio::awaitable<void> create_chat(Exchange& exchange) {
    const nlohmann::json body = exchange.json();
    const Fields fields(body);
    NewChat wanted;
    wanted.owner = owner(exchange);
    wanted.user = fields.text("user");
    std::vector<std::string> ids = fields.texts("characters");
    if (fields.has("character")) ids.insert(ids.begin(), fields.text("character"));
    fields.refuse_others();
    if (ids.empty()) throw bad_request("character is missing: the id of one of /characters", "character");
    if (std::set<std::string>(ids.begin(), ids.end()).size() != ids.size())
      throw bad_request("characters has an id twice", "characters");
    for (const std::string& id : ids) wanted.characters.push_back({id, 0});
    Cast cast = co_await load_cast(wanted.characters, wanted.user);
    wanted.characters = cast.ids;
    wanted.title = title(cast);
    const std::optional<Turn> greeting = greeting_of(cast);
    const ChatSummary made = co_await store_.get<ChatSummary>([&](Store& store) -> Result<ChatSummary> {
      auto chat = store.create_chat(wanted);
      if (chat.ok() && greeting) KAIJU_TRY(store.append_turn(wanted.owner, chat->id, 0, *greeting));
      return chat;
    });
    exchange.parts.assign(1, made.id);
    const Asked asked = co_await load(exchange, false);
    co_await exchange.answer(chat_json(asked), 201);
  }
  static std::string title(const Cast& cast) {
    std::string names;
    for (const Card& card : cast.cards) names += (names.empty() ? "" : ", ") + card.name;
    return title_of(names);
  }
  std::optional<Turn> greeting_of(const Cast& cast) const {
    const Card& card = cast.cards[0];
    if (card.greeting.empty()) return {};
    Turn turn;
    turn.speaker = cast.ids[0].id;
    std::vector<std::string> texts = {card.greeting};
    texts.insert(texts.end(), card.alternate_greetings.begin(), card.alternate_greetings.end());
    for (const std::string& text : texts) {
      Reply reply;
      reply.text = text;
      reply.tokens = greeting_tokens(chat(), cast, text);
      reply.reason = "stop";
      turn.replies.push_back(std::move(reply));
    }
    turn.chosen = 0;
    return turn;
  }
  asio::awaitable<void> list_chats(Exchange& exchange) {
    const std::string whose = owner(exchange);
    const int64_t most = std::min(number_in(exchange.query, "limit", kMostChats), kMostChats);
    const auto chats =
        co_await store_.get<std::vector<ChatSummary>>([&](Store& store) { return store.chats(whose, most); });
    co_await exchange.answer(listed(chats));
  }
  static Json listed(const std::vector<ChatSummary>& chats) {
    Json list = Json::array();
    for (const ChatSummary& chat : chats) list.push_back(summary_json(chat));
    return {{"chats", list}};
  }
  asio::awaitable<void> show_chat(Exchange& exchange) {
    const Asked asked = co_await load(exchange, false);
    co_await exchange.answer(chat_json(asked));
  }
  // Answers with the chat as it is now.
  asio::awaitable<void> answer_chat(Exchange& exchange, int status = 200) {
    const Asked asked = co_await load(exchange, false);
    co_await exchange.answer(chat_json(asked), status);
  }

  // --- replies
  asio::awaitable<void> say(Exchange& exchange) {
    const nlohmann::json body = exchange.json_or_nothing();
    const Fields fields(body);
    Asked asked = co_await load(exchange, true);
    Turn turn;
    if (fields.has("text")) turn.user = fields.text("text");
    const size_t speaker = asked.cast.index_of(fields.text("speaker", asked.cast.ids[0].id));
    turn.speaker = asked.cast.ids[speaker].id;
    if (!turn.user && asked.cast.ids.size() == 1) throw bad_request("text is missing: what the user says", "text");
    turn.input_tokens = input_tokens(chat(), asked.cast, speaker, asked.chat.turns, turn.user, asked.chat.user);
    const size_t index = asked.chat.turns.size();
    co_await reply(exchange, asked, fields, turn, index, 0);
  }
  asio::awaitable<void> swipe(Exchange& exchange) {
    const nlohmann::json body = exchange.json_or_nothing();
    const Fields fields(body);
    Asked asked = co_await load(exchange, true);
    if (asked.chat.turns.empty()) throw bad_request("there is no turn to answer again");
    Turn turn = asked.chat.turns.back();
    if (turn.input_tokens.empty()) throw bad_request("the newest turn is a greeting: there is nothing to answer again");
    const size_t index = asked.chat.turns.size() - 1;
    asked.chat.turns.pop_back();
    co_await reply(exchange, asked, fields, turn, index, turn.replies.size());
  }
  // Generates a reply to `turn`, sends it while it comes, and keeps it before its end is told.
  asio::awaitable<void> reply(Exchange& exchange, Asked& asked, const Fields& fields, Turn& turn, size_t index,
                              size_t earlier) {
    Tenant& tenant = service_.tenants.of(exchange);
    Wanted wanted = read_wanted(fields, true, service_.defaults, *service_.model);
    if (wanted.n != 1) throw bad_request("n must be 1: ask again with swipe", "n");
    const Grammar grammar = read_grammar(fields, exchange.body(), wanted);
    (void)fields.has("cache_salt");
    fields.refuse_others();
    std::unique_ptr<Guide> guide = co_await service_.grammars.guide(grammar, 1);
    if (kv_) exchange.log["restored"] = co_await kv_->restore(asked.id, scope_of(tenant, asked, fields));
    check_idle(asked.id);  // another may have begun while the chat was loaded
    service_.tenants.admit(tenant);
    const AtOnce counted(tenant);
    Generation made = prepare(tenant, asked, fields, turn, earlier, std::move(wanted), std::move(guide));
    Busy busy(*this, asked.id, made.run.request);
    exchange.on_gone = [this, &exchange, &made, &tenant] {
      count_disconnect(service_, exchange, tenant);
      made.gone = true;
      service_.driver.cancel(made.run.request);
    };
    if (made.wanted.stream) co_await exchange.begin_events();
    while (!made.run.done) {
      std::vector<std::string> pieces;
      co_await next(service_, made.run, [&](size_t, const Event& event) { add_piece(event, made, pieces); });
      if (made.wanted.stream) co_await send(exchange, made, pieces);
    }
    Reply kept = reply_of(made);
    try {
      co_await keep(asked, turn, index, earlier, kept);
    } catch (const Failure&) {
      if (kv_) kv_->forget(asked.id);  // the chat may have been deleted meanwhile
      throw;
    }
    count(exchange, made);
    busy.end();
    if (made.gone) throw boost::system::system_error(asio::error::connection_reset);
    if (made.wanted.stream) {
      co_await exchange.event(done_text(index, kept));
      co_await exchange.end_events();
    } else {
      co_await exchange.answer(done_json(index, kept));
    }
  }
  Generation prepare(const Tenant& tenant, const Asked& asked, const Fields& fields, const Turn& turn, size_t earlier,
                     Wanted wanted, std::unique_ptr<Guide> guide) {
    Generation made;
    made.wanted = std::move(wanted);
    RequestOptions& options = made.wanted.options;
    if (!fields.has("loop_guard")) options.loop_guard = true;
    const size_t reserved = std::min<size_t>(context() / 4, static_cast<size_t>(options.max_tokens));
    const std::vector<int32_t> prompt =
        turn_prompt(chat(), asked.cast, asked.chat.turns, turn.input_tokens, reserved, context());
    made.wanted.max_tokens_given = false;  // cut to the room that there is
    complete(service_, tenant, fields, prompt.size(), made.wanted);
    options.sampling.variant = static_cast<uint32_t>(earlier);
    options.scope = scope_of(tenant, asked, fields);
    made.run = start(service_, tenant, made.wanted, prompt, std::move(guide), holder_of(asked.id));
    return made;
  }
  Scope scope_of(const Tenant& tenant, const Asked& asked, const Fields& fields) const {
    Scope scope;
    scope.salt = service_.tenants.salt(tenant, fields.text("cache_salt"));
    scope.character = asked.cast.region;
    scope.shared_tokens = static_cast<int32_t>(asked.cast.head.size());
    return scope;
  }
  Driver::Keep holder_of(const std::string& chat) const {
    if (!kv_) return {};
    return [kv = kv_, chat](SessionId session) { kv->hold(chat, session); };
  }
  // A reply that goes on behind "NAME:" begins with a space, which is no part of what is shown.
  static std::string_view shown(std::string_view text) {
    return text.substr(std::min(text.find_first_not_of(' '), text.size()));
  }
  static void add_piece(const Event& event, Generation& made, std::vector<std::string>& pieces) {
    const std::string_view text = made.begun ? std::string_view(event.text) : shown(event.text);
    if (text.empty()) return;
    made.begun = true;
    pieces.push_back(dump(Json{{"text", text}}));
  }
  // A client that left does not take the reply with it: what was written until then is kept.
  asio::awaitable<void> send(Exchange& exchange, Generation& made, std::vector<std::string>& pieces) {
    try {
      for (std::string& piece : pieces)
        if (!made.gone) co_await exchange.event(std::move(piece));
      if (!pieces.empty() && !made.gone) service_.metrics.event_to_socket.add(made.run.events->seconds());
    } catch (const boost::system::system_error&) {
      made.gone = true;
      service_.driver.cancel(made.run.request);
    }
  }
  Reply reply_of(const Generation& made) const {
    const Choice& choice = made.run.choices[0];
    Reply kept;
    kept.text = shown(choice.text);
    kept.tokens = choice.tokens;
    kept.reason = reason_of(choice.reason);
    if (choice.reason == DoneReason::kStopToken && !kept.tokens.empty()) kept.tokens.pop_back();
    // Where a stop string or a circle was cut off, the tokens are those of the text that was shown.
    if (choice.reason == DoneReason::kStopString || choice.reason == DoneReason::kLoop)
      if (auto tokens = service_.tokenizer().encode(choice.text); tokens.ok()) kept.tokens = *tokens;
    kept.prompt_tokens = made.run.counts.prompt_tokens;
    kept.cached_tokens = made.run.counts.cached_tokens;
    kept.generated_tokens = made.run.counts.generated;
    return kept;
  }
  asio::awaitable<void> keep(const Asked& asked, Turn turn, size_t index, size_t earlier, const Reply& kept) {
    const bool first = earlier == 0 && turn.replies.empty();
    const bool titled = turn.user && std::none_of(asked.chat.turns.begin(), asked.chat.turns.end(),
                                                  [](const Turn& one) { return one.user.has_value(); });
    co_await store_.run([&](Store& store) -> Status {
      // A turn whose text was edited is there already, without replies.
      if (!first || static_cast<int64_t>(index) < asked.chat.turn_count) {
        auto added = store.add_reply(asked.owner, asked.id, static_cast<int64_t>(index), kept);
        return added.ok() ? Status() : added.status();
      }
      turn.replies = {kept};
      turn.chosen = 0;
      KAIJU_TRY(store.append_turn(asked.owner, asked.id, static_cast<int64_t>(index), turn));
      return titled ? store.set_title(asked.owner, asked.id, title_of(*turn.user)) : Status();
    });
  }
  void count(Exchange& exchange, const Generation& made) {
    count_finished(service_, exchange, std::vector<Run>(1, made.run));
  }
  static Json done_json(size_t index, const Reply& kept) {
    return {{"done", true},
            {"turn", index},
            {"reply", kept.text},
            {"reason", kept.reason},
            {"prompt_tokens", kept.prompt_tokens},
            {"cached_tokens", kept.cached_tokens},
            {"generated_tokens", kept.generated_tokens}};
  }
  static std::string done_text(size_t index, const Reply& kept) { return dump(done_json(index, kept)); }

  asio::awaitable<void> stop(Exchange& exchange) {
    refuse_fields(exchange);
    const Asked asked = co_await load(exchange, false);  // its owner's only
    const auto found = busy_.find(asked.id);
    if (found != busy_.end()) service_.driver.cancel(found->second);
    co_await exchange.answer(stopped(found != busy_.end()));
  }
  static Json stopped(bool was) { return {{"stopped", was}}; }

  // --- changes
  asio::awaitable<void> choose(Exchange& exchange) {
    const nlohmann::json body = exchange.json_or_nothing();
    const Fields fields(body);
    if (!fields.has("reply"))
      throw bad_request("reply is missing: which reply of the newest turn counts, from 0", "reply");
    const int64_t reply = fields.integer("reply", 0, 0, INT32_MAX);
    fields.refuse_others();
    const Asked asked = co_await load(exchange, true);
    const int64_t turn = asked.chat.turn_count - 1;
    co_await store_.run([&](Store& store) { return store.choose_reply(asked.owner, asked.id, turn, reply); });
    co_await answer_chat(exchange);
  }
  asio::awaitable<void> edit(Exchange& exchange) {
    const nlohmann::json body = exchange.json_or_nothing();
    const Fields fields(body);
    const Asked asked = co_await load(exchange, true);
    const int64_t turn = fields.integer("turn", -1, 0, INT32_MAX);
    const std::string part = fields.text("part"), text = fields.text("text");
    fields.refuse_others();
    if (turn < 0) throw bad_request("turn is missing: the number of the turn, from 0", "turn");
    if (turn >= asked.chat.turn_count)
      throw bad_request(fmt::format("there is no turn {}; the chat has {}", turn, asked.chat.turn_count), "turn");
    if (part != "user" && part != "reply") throw bad_request("part must be user or reply", "part");
    if (!fields.has("text")) throw bad_request("text is missing: what the part is now", "text");
    const std::vector<int32_t> tokens = edited_tokens(asked, static_cast<size_t>(turn), part == "user", text);
    co_await store_.run([&](Store& store) {
      return part == "user" ? store.edit_user(asked.owner, asked.id, turn, text, tokens)
                            : store.edit_reply(asked.owner, asked.id, turn, text, tokens);
    });
    co_await answer_chat(exchange);
  }
  std::vector<int32_t> edited_tokens(const Asked& asked, size_t turn, bool user, const std::string& text) const {
    const Turn& edited = asked.chat.turns[turn];
    if (user) {
      const std::vector<Turn> before(asked.chat.turns.begin(),
                                     asked.chat.turns.begin() + static_cast<std::ptrdiff_t>(turn));
      return input_tokens(chat(), asked.cast, asked.cast.index_of(edited.speaker), before, text, asked.chat.user);
    }
    return reply_tokens(chat(), service_.tokenizer(), asked.cast, edited, text);
  }
  // A body is no harm, as long as it asks for nothing.
  static void refuse_fields(const Exchange& exchange) {
    const nlohmann::json body = exchange.json_or_nothing();
    Fields(body).refuse_others();
  }
  asio::awaitable<void> rename(Exchange& exchange) {
    const nlohmann::json body = exchange.json_or_nothing();
    const Fields fields(body);
    const std::string whose = owner(exchange), id = exchange.parts[0], title = fields.text("title");
    fields.refuse_others();
    if (title.empty()) throw bad_request("title is missing: what the chat is called", "title");
    co_await store_.run([&](Store& store) { return store.set_title(whose, id, title); });
    co_await answer_chat(exchange);
  }
  asio::awaitable<void> undo(Exchange& exchange) {
    refuse_fields(exchange);
    const Asked asked = co_await load(exchange, true);
    if (asked.chat.turn_count == 0) throw bad_request("there is no turn to undo");
    co_await store_.run(
        [&](Store& store) { return store.truncate_turns(asked.owner, asked.id, asked.chat.turn_count - 1); });
    co_await answer_chat(exchange);
  }
  asio::awaitable<void> fork(Exchange& exchange) {
    const nlohmann::json body = exchange.json_or_nothing();
    const Fields fields(body);
    const Asked asked = co_await load(exchange, false);
    const int64_t turns = fields.integer("turns", asked.chat.turn_count, 0, asked.chat.turn_count);
    fields.refuse_others();
    const ChatSummary made = co_await store_.get<ChatSummary>([&](Store& store) -> Result<ChatSummary> {
      auto fork = store.fork_chat(asked.owner, asked.id, turns);
      if (fork.ok()) KAIJU_TRY(store.set_title(asked.owner, fork->id, title_of(asked.chat.title) + ", forked"));
      return fork;
    });
    exchange.parts.assign(1, made.id);
    co_await answer_chat(exchange, 201);
  }
  asio::awaitable<void> remove(Exchange& exchange) {
    const std::string whose = owner(exchange), id = exchange.parts[0];
    if (busy_.contains(id)) service_.driver.cancel(busy_.at(id));
    co_await store_.run([&](Store& store) { return store.delete_chat(whose, id); });
    if (kv_) kv_->forget(id);
    co_await exchange.answer(deleted());
  }
  static Json deleted() { return {{"deleted", true}}; }
  asio::awaitable<void> report(Exchange& exchange) {
    const nlohmann::json body = exchange.json();
    const Fields fields(body);
    const Asked asked = co_await load(exchange, false);
    const NewReport wanted = report_of(fields, asked);
    const int64_t id =
        co_await store_.get<int64_t>([&](Store& store) { return store.add_report(asked.owner, wanted); });
    co_await exchange.answer(numbered(id), 201);
  }
  // Without a turn it is the newest, without a reply the chosen one.
  static NewReport report_of(const Fields& fields, const Asked& asked) {
    const std::vector<Turn>& turns = asked.chat.turns;
    const std::string kind = fields.text("kind");
    if (kind != "wrong refusal" && kind != "bad reply")
      throw bad_request("kind must be \"wrong refusal\" or \"bad reply\"", "kind");
    if (turns.empty()) throw bad_request("the chat has no turn to report", "turn");
    NewReport wanted;
    wanted.chat = asked.id;
    wanted.turn = fields.integer("turn", asked.chat.turn_count - 1, 0, INT32_MAX);
    const size_t turn = std::min(static_cast<size_t>(wanted.turn), turns.size() - 1);
    wanted.reply = fields.integer("reply", std::max<int64_t>(turns[turn].chosen, 0), 0, INT32_MAX);
    wanted.kind = kind;
    wanted.comment = fields.text("comment");
    fields.refuse_others();
    return wanted;
  }
  static Json numbered(int64_t id) { return {{"id", id}}; }
  asio::awaitable<void> list_reports(Exchange& exchange) {
    if (keys_ && !service_.tenants.of(exchange).trusted) throw Failure{403, "reports are shown to trusted keys alone"};
    const int64_t after = number_in(exchange.query, "after", 0);
    const auto reports = co_await store_.get<std::vector<Report>>([&](Store& store) { return store.reports(after); });
    co_await exchange.answer(listed(reports));
  }
  static Json listed(const std::vector<Report>& reports) {
    Json list = Json::array();
    for (const Report& report : reports) list.push_back(report_json(report));
    return {{"reports", list}};
  }

  // A chat whose reply is being written.
  class Busy {
   public:
    Busy(Impl& impl, std::string id, RequestId request) : impl_(impl), id_(std::move(id)), request_(request) {
      impl_.busy_[id_] = request;
    }
    ~Busy() { end(); }
    Busy(const Busy&) = delete;
    // Another reply of the chat may have begun since.
    void end() {
      const auto found = impl_.busy_.find(id_);
      if (found != impl_.busy_.end() && found->second == request_) impl_.busy_.erase(found);
    }

   private:
    Impl& impl_;
    std::string id_;
    RequestId request_;
  };

  Service& service_;
  StoreThread store_;
  bool keys_;
  KeptKv* kv_;  // nullptr: none is kept
  std::map<std::string, RequestId> busy_;
  bool told_foreign_ = false;
};

void ChatRoutes::Impl::add(Server& server) {
  using Method = asio::awaitable<void> (Impl::*)(Exchange&);
  const auto route = [&](const char* method, const char* path, Method handler) {
    server.route(method, path, [this, handler](Exchange& exchange) -> asio::awaitable<void> {
      (void)service_.tenants.of(exchange);  // a known key, or 401
      co_await (this->*handler)(exchange);
    });
  };
  route("POST", "/characters", &Impl::create_character);
  route("GET", "/characters", &Impl::list_characters);
  route("GET", "/characters/{}", &Impl::show_character);
  route("PUT", "/characters/{}", &Impl::add_version);
  route("DELETE", "/characters/{}", &Impl::retire_character);
  route("POST", "/characters/{}/restore", &Impl::restore_character);
  route("GET", "/characters/{}/picture", &Impl::show_picture);
  route("POST", "/chats", &Impl::create_chat);
  route("GET", "/chats", &Impl::list_chats);
  route("GET", "/chats/{}", &Impl::show_chat);
  route("DELETE", "/chats/{}", &Impl::remove);
  route("POST", "/chats/{}/say", &Impl::say);
  route("POST", "/chats/{}/swipe", &Impl::swipe);
  route("POST", "/chats/{}/stop", &Impl::stop);
  route("POST", "/chats/{}/choose", &Impl::choose);
  route("POST", "/chats/{}/edit", &Impl::edit);
  route("POST", "/chats/{}/rename", &Impl::rename);
  route("POST", "/chats/{}/undo", &Impl::undo);
  route("POST", "/chats/{}/fork", &Impl::fork);
  route("POST", "/chats/{}/report", &Impl::report);
  route("GET", "/reports", &Impl::list_reports);
}

ChatRoutes::ChatRoutes(Service& service, std::unique_ptr<Store> store, bool keys, KeptKv* kv)
    : impl_(std::make_unique<Impl>(service, std::move(store), keys, kv)) {}
ChatRoutes::~ChatRoutes() = default;
void ChatRoutes::add(Server& server) { impl_->add(server); }
void ChatRoutes::join() { impl_->join(); }

void add_bundled_characters(Store& store, const Service& service, const std::vector<BundledCard>& cards) {
  auto there = store.characters();
  if (!there.ok()) throw of_status(there.status());
  if (!there->empty()) return;
  for (const auto& [file, bytes] : cards) {
    auto card = read_card(bytes);
    if (!card.ok()) throw bad_request(fmt::format("{}: {}", file, card.status().message()));
    const NewCharacter made{card->name, card->canonical, card->digest,
                            head_of(service.chat(), card->name, card->description), card->picture};
    if (auto added = store.create_character(slug_of(card->name), made); !added.ok()) throw of_status(added.status());
  }
}

}  // namespace kaiju::server
