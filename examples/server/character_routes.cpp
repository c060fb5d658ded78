// /characters over HTTP: cards that are read, their versions, pictures, and who may change them.
#include <fmt/format.h>

#include <algorithm>

#include "failure.hpp"
#include "moves.hpp"
#include "routes.hpp"

namespace kaiju::server {

using Json = nlohmann::ordered_json;

namespace {

Card card_in(std::string_view bytes) {
  auto card = read_card(bytes);
  if (!card.ok()) throw of_status(card.status());
  return std::move(card).value();
}

NewCharacter character_of(const ChatFormat& format, const Card& card) {
  return {card.name, card.canonical, card.digest, head_of(format, card.name, card.description), card.picture};
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

// A character may be changed by the key that made it and by trusted keys, and by everybody where there are no keys.
bool may_change(const StoredChats& chats, const Tenant& tenant, const Character& character) {
  return !chats.keys || tenant.trusted || (!character.owner.empty() && character.owner == tenant.name);
}

Failure not_yours(const std::string& id) {
  return {403,
          fmt::format("the character {} is not this key's: the key that made it and trusted keys may change it; make "
                      "one of your own with POST /characters",
                      id),
          {},
          "not_yours"};
}

// The id of the character that a request wants to change.
asio::awaitable<std::string> changeable_id(StoredChats& chats, Exchange& exchange) {
  const std::string id = exchange.parts[0];
  const Character character = co_await chats.store.get<Character>([&](Store& store) { return store.character(id); });
  if (!may_change(chats, chats.service.tenants.of(exchange), character)) throw not_yours(id);
  co_return id;
}

NewCharacter character_in(const StoredChats& chats, const Exchange& exchange) {
  if (exchange.header("content-type").starts_with("multipart/"))
    throw bad_request("send the file of the card itself, not a form: curl --data-binary @card.png");
  NewCharacter made = character_of(chats.format(), card_in(exchange.body()));
  if (made.tokens.size() > chats.context() / 2)
    throw bad_request(fmt::format("the description has {} tokens; half of the model's context is {}",
                                  made.tokens.size(), chats.context() / 2),
                      "description");
  return made;
}

Json made_json(Character character, const NewCharacter& made) {
  character.tokens = made.tokens;
  return character_json(character, card_in(made.canonical), true);
}

Region region_of(const Cast& cast) { return {cast.region, cast.head}; }

asio::awaitable<Region> newest_region(StoredChats& chats, std::string id) {
  std::vector<ChatCharacter> wanted;
  wanted.push_back(ChatCharacter{std::move(id), 0});
  const Cast cast = co_await chats.load_cast(std::move(wanted), std::string());
  co_return region_of(cast);
}

// The description of a new version is computed before its first chat needs it. Chats of other versions go on with
// theirs.
asio::awaitable<void> warm_newest(StoredChats& chats, std::string id) {
  Wish made;
  made.region = co_await newest_region(chats, id);
  made.card = std::move(id);
  made.tells = true;
  chats.service.moves->wish(std::move(made));
}

asio::awaitable<void> create_character(StoredChats& chats, Exchange& exchange) {
  NewCharacter made = character_in(chats, exchange);
  made.owner = chats.owner(exchange);
  const Character character = co_await chats.store.get<Character>(
      [&made](Store& store) { return store.create_character(slug_of(made.name), made); });
  co_await warm_newest(chats, character.id);
  co_await exchange.answer(made_json(character, made), 201);
}

asio::awaitable<void> add_version(StoredChats& chats, Exchange& exchange) {
  const NewCharacter made = character_in(chats, exchange);
  const std::string id = co_await changeable_id(chats, exchange);
  const Character character =
      co_await chats.store.get<Character>([&](Store& store) { return store.add_version(id, made); });
  co_await warm_newest(chats, id);
  co_await exchange.answer(made_json(character, made), 201);
}

Json with_versions(const StoredChats& chats, const Tenant& tenant, Character character,
                   const std::vector<int64_t>& versions) {
  const Card card = card_in(character.canonical);
  if (character.foreign) character.tokens = head_of(chats.format(), card.name, card.description);
  Json answer = character_json(character, card, may_change(chats, tenant, character));
  answer["versions"] = versions;
  return answer;
}

asio::awaitable<void> show_character(StoredChats& chats, Exchange& exchange) {
  const std::string id = exchange.parts[0];
  const int64_t version = query_number(exchange, "version", 0);
  const Character character =
      co_await chats.store.get<Character>([&](Store& store) { return store.character(id, version); });
  const std::vector<int64_t> versions =
      co_await chats.store.get<std::vector<int64_t>>([&](Store& store) { return store.versions(id); });
  co_await exchange.answer(with_versions(chats, chats.service.tenants.of(exchange), character, versions));
}

Json characters_json(const StoredChats& chats, const Tenant& tenant, const std::vector<Character>& characters) {
  Json list = Json::array();
  for (const Character& character : characters) {
    Json one = character_json(character, card_in(character.canonical), may_change(chats, tenant, character));
    for (const char* name : {"description", "tokens", "digest", "notes", "created"}) one.erase(name);
    list.push_back(std::move(one));
  }
  return {{"characters", list}};
}

asio::awaitable<void> list_characters(StoredChats& chats, Exchange& exchange) {
  const auto characters =
      co_await chats.store.get<std::vector<Character>>([](Store& store) { return store.characters(); });
  co_await exchange.answer(characters_json(chats, chats.service.tenants.of(exchange), characters));
}

asio::awaitable<void> show_picture(StoredChats& chats, Exchange& exchange) {
  const std::string id = exchange.parts[0];
  const int64_t version = query_number(exchange, "version", 0);
  std::string picture = co_await chats.store.get<std::string>([&](Store& store) { return store.picture(id, version); });
  if (picture.empty()) throw Failure{404, "the character has no picture"};
  co_await exchange.answer(200, std::move(picture), "image/png");
}

asio::awaitable<void> retire_character(StoredChats& chats, Exchange& exchange) {
  const std::string id = co_await changeable_id(chats, exchange);
  co_await chats.store.run([&](Store& store) { return store.retire_character(id); });
  co_await exchange.answer(one_field("retired", true));
}

asio::awaitable<void> restore_character(StoredChats& chats, Exchange& exchange) {
  const std::string id = co_await changeable_id(chats, exchange);
  co_await chats.store.run([&](Store& store) { return store.restore_character(id); });
  co_await show_character(chats, exchange);
}

asio::awaitable<std::vector<Region>> newest_regions(StoredChats& chats, size_t most) {
  const std::function<Result<std::vector<Character>>(Store&)> list = [](Store& from) { return from.characters(); };
  std::vector<Character> characters = co_await chats.store.get(list);
  std::erase_if(characters, [](const Character& one) { return one.retired; });
  std::sort(characters.begin(), characters.end(),
            [](const Character& a, const Character& b) { return a.created_ms > b.created_ms; });
  std::vector<Region> regions;
  for (const Character& one : characters) {
    if (regions.size() == most) break;
    regions.push_back(co_await newest_region(chats, one.id));
  }
  co_return regions;
}

}  // namespace

std::function<asio::awaitable<std::vector<Region>>(size_t most)> store_regions(StoredChats& chats) {
  return [&chats](size_t most) { return newest_regions(chats, most); };
}

void add_character_routes(StoredChats& chats) {
  chats.route("POST", "/characters", create_character);
  chats.route("GET", "/characters", list_characters);
  chats.route("GET", "/characters/{}", show_character);
  chats.route("PUT", "/characters/{}", add_version);
  chats.route("DELETE", "/characters/{}", retire_character);
  chats.route("POST", "/characters/{}/restore", restore_character);
  chats.route("GET", "/characters/{}/picture", show_picture);
}

void add_bundled_characters(Store& store, const Service& service, const std::vector<BundledCard>& cards) {
  auto there = store.characters();
  if (!there.ok()) throw of_status(there.status());
  if (!there->empty()) return;
  for (const auto& [file, bytes] : cards) {
    auto card = read_card(bytes);
    if (!card.ok()) throw bad_request(fmt::format("{}: {}", file, card.status().message()));
    auto added = store.create_character(slug_of(card->name), character_of(service.chat(), *card));
    if (!added.ok()) throw of_status(added.status());
  }
}

}  // namespace kaiju::server
