// /checkpoints over HTTP: another checkpoint is loaded, gets its share of the chats, is promoted or rolled back.
#include <algorithm>
#include <cmath>

#include "failure.hpp"
#include "routes.hpp"

namespace kaiju::server {

using Json = nlohmann::ordered_json;

namespace {

constexpr int64_t kWarmCharacters = 32, kMostWarmCharacters = 10'000;

int32_t share_in(const Fields& fields) {
  return static_cast<int32_t>(std::lround(fields.number("share", 0, 0, 100) / 100 * kWholeShare));
}

Json memory_json(const MemoryNeed& need) {
  return {{"weights", need.weights},
          {"kv", need.kv},
          {"workspace", need.workspace},
          {"host_tier", need.host_tier},
          {"device", need.device}};
}

Json served_json(const Checkpoints& checkpoints, const Served& one) {
  return {{"checkpoint", one.name},
          {"digest", one.digest()},
          {"state", checkpoints.state_of(one)},
          {"share", 100 * checkpoints.share_of(one)},
          {"unfinished", one.replicas.unfinished()},
          {"warm_left", &one == checkpoints.candidate().get() ? checkpoints.warm_left() : 0},
          {"memory", memory_json(checkpoints.need_of(one))}};
}

Json checkpoints_json(const Checkpoints& checkpoints) {
  Json served = Json::array();
  for (const Served* const one : checkpoints.all()) served.push_back(served_json(checkpoints, *one));
  const std::string& previous = checkpoints.previous();
  return {{"current", checkpoints.current()->name},
          {"previous", previous.empty() ? Json() : Json(previous)},
          {"served", served},
          {"checkpoints", checkpoints.names()}};
}

// Ids of characters, those with the most replies since the start first.
std::vector<std::string> busiest(const std::vector<Character>& characters, const Metrics& metrics, size_t most) {
  const auto replied = [&](const std::string& id) {
    const auto found = metrics.surprise.find(id);
    return found == metrics.surprise.end() ? 0 : found->second.tokens;
  };
  std::vector<std::string> ids;
  for (const Character& character : characters)
    if (!character.retired) ids.push_back(character.id);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](const std::string& a, const std::string& b) { return replied(a) > replied(b); });
  ids.resize(std::min(ids.size(), most));
  return ids;
}

WarmPrefix prefix_of(const Cast& cast) {
  WarmPrefix prefix;
  prefix.tokens = cast.head;
  prefix.scope.character = cast.region;
  prefix.scope.shared_tokens = static_cast<int32_t>(cast.head.size());
  return prefix;
}

asio::awaitable<std::vector<WarmPrefix>> warm_prefixes(StoredChats* chats, size_t most) {
  std::vector<WarmPrefix> prefixes;
  if (!chats || most == 0) co_return prefixes;
  const std::function<Result<std::vector<Character>>(Store&)> list = [](Store& store) { return store.characters(); };
  const std::vector<Character> characters = co_await chats->store.get(list);
  for (const std::string& id : busiest(characters, chats->service.metrics, most)) {
    const std::vector<ChatCharacter> wanted(1, ChatCharacter{id, 0});
    const Cast cast = co_await chats->load_cast(wanted, std::string());
    prefixes.push_back(prefix_of(cast));
  }
  co_return prefixes;
}

asio::awaitable<void> begin(Service& service, StoredChats* chats, Exchange& exchange) {
  const nlohmann::json body = exchange.json();
  const Fields fields(body);
  NewCandidate wanted;
  wanted.name = fields.text("checkpoint");
  wanted.share = share_in(fields);
  wanted.move = fields.flag("move", false);
  wanted.promote = fields.flag("promote", false);
  wanted.dry_run = fields.flag("dry_run", false);
  const auto warm = static_cast<size_t>(fields.integer("warm", kWarmCharacters, 0, kMostWarmCharacters));
  fields.refuse_others();
  if (wanted.name.empty())
    throw bad_request("checkpoint is missing: the name of one of GET /checkpoints", "checkpoint");
  const bool dry_run = wanted.dry_run;
  const Checkpoints::Warm prefixes = [chats, warm] { return warm_prefixes(chats, warm); };
  const MemoryNeed need = co_await service.checkpoints.begin(std::move(wanted), prefixes);
  Json answer = checkpoints_json(service.checkpoints);
  answer["memory"] = memory_json(need);
  co_await exchange.answer(answer, dry_run ? 200 : 201);
}

asio::awaitable<void> change(Service& service, Exchange& exchange) {
  const nlohmann::json body = exchange.json();
  const Fields fields(body);
  const std::string name = exchange.parts[0];
  const bool promote = fields.flag("promote", false), shares = fields.has("share");
  const int32_t share = share_in(fields);
  fields.refuse_others();
  if (promote == shares) throw bad_request("give share, 0 to 100, or \"promote\": true");
  if (promote)
    co_await service.checkpoints.promote(name);
  else
    service.checkpoints.set_share(name, share);
  co_await exchange.answer(checkpoints_json(service.checkpoints));
}

}  // namespace

void add_checkpoint_routes(Server& server, Service& service, StoredChats* chats) {
  const auto route = [&](const char* method, const char* path, auto handle) {
    server.route(method, path, [&service, handle](Exchange& exchange) -> asio::awaitable<void> {
      service.tenants.want_trusted(exchange, "checkpoints");
      co_await handle(exchange);
    });
  };
  route("GET", "/checkpoints", [&service](Exchange& exchange) -> asio::awaitable<void> {
    co_await exchange.answer(checkpoints_json(service.checkpoints));
  });
  route("POST", "/checkpoints", [&service, chats](Exchange& exchange) { return begin(service, chats, exchange); });
  route("PATCH", "/checkpoints/{}", [&service](Exchange& exchange) { return change(service, exchange); });
  route("DELETE", "/checkpoints/{}", [&service](Exchange& exchange) -> asio::awaitable<void> {
    refuse_fields(exchange);
    service.checkpoints.roll_back(exchange.parts[0]);
    co_await exchange.answer(checkpoints_json(service.checkpoints));
  });
}

}  // namespace kaiju::server
