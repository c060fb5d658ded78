// What a server says to its peers and hears from them: joining, leaving, characters that are hot (moves.hpp).
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <iterator>
#include <set>

#include "../tools/standard_streams.hpp"
#include "failure.hpp"
#include "moves.hpp"
#include "together.hpp"

namespace kaiju::server {

using nlohmann::json;

namespace {

constexpr double kTellSeconds = 2, kTakeSeconds = 20;
constexpr size_t kChatsATime = 16;
constexpr int64_t kMostCharacters = 10'000;
constexpr auto kLongestJoining = std::chrono::minutes(5);

json json_of(const Region& region) { return {{"character", region.character}, {"tokens", region.tokens}}; }

json characters_json(const std::vector<Region>& regions) {
  json list = json::array();
  for (const Region& region : regions) list.push_back(json_of(region));
  return {{"characters", list}};
}

Region region_in(const json& one, int32_t vocabulary) {
  if (!one.is_object()) throw bad_request("characters must be objects", "characters");
  const Fields fields(one);
  Region region{fields.text("character"), fields.tokens("tokens", vocabulary)};
  fields.refuse_others();
  if (region.character.empty() || region.tokens.empty())
    throw bad_request("a character has the fields character and tokens", "characters");
  return region;
}

// The first of each list, then the second of each, and so on; each once.
std::vector<Region> merged(const std::vector<std::vector<Region>>& lists, size_t most) {
  std::vector<Region> all;
  std::set<std::string> seen;
  size_t longest = 0;
  for (const auto& list : lists) longest = std::max(longest, list.size());
  for (size_t rank = 0; rank < longest; ++rank)
    for (const auto& list : lists)
      if (rank < list.size() && all.size() < most && seen.insert(list[rank].character).second)
        all.push_back(list[rank]);
  return all;
}

std::vector<Region> regions_in(const std::string& body, int32_t vocabulary) {
  std::vector<Region> regions;
  const json list = json::parse(body, nullptr, false);
  if (!list.is_object() || !list.contains("characters") || !list["characters"].is_array()) return regions;
  try {
    for (const json& one : list["characters"]) regions.push_back(region_in(one, vocabulary));
  } catch (const Failure&) {  // of another version
  }
  return regions;
}

// Whoever leaves gives a chat to the peer with the highest digest of both names, so that peers get equal parts.
std::string peer_of(const std::vector<std::string>& peers, const std::string& chat) {
  return *std::max_element(peers.begin(), peers.end(), [&](const std::string& a, const std::string& b) {
    const std::string one = a + chat, other = b + chat;
    return XXH3_64bits(one.data(), one.size()) < XXH3_64bits(other.data(), other.size());
  });
}

}  // namespace

// --- joining

void Moves::join(StoreRegions store) {
  if (options_.warm == 0) return;
  joining_ = true;
  joined_at_most_ = Clock::now() + kLongestJoining;
  asio::co_spawn(service_.io, begin_joining(std::move(store)), asio::detached);
}

asio::awaitable<void> Moves::begin_joining(StoreRegions store) {
  std::vector<std::vector<Region>> lists;
  if (!peers_.addresses().empty()) {
    const std::string path = fmt::format("/peers/characters?most={}", options_.warm);
    const std::vector<PeerAnswer> answers = co_await peers_.ask_all("GET", path, nullptr, kTellSeconds);
    for (const PeerAnswer& answer : answers)
      if (answer.status == 200) lists.push_back(regions_in(answer.body, service_.model().config().vocab_size));
  }
  std::vector<Region> regions = merged(lists, options_.warm);
  try {
    if (regions.empty() && store) regions = co_await store(options_.warm);
  } catch (const Failure& failure) {
    tools::print(stderr, "kaiju-server: no characters are computed before requests come: {}\n", failure.message);
  }
  warm_left_ = warm_all_ = regions.size();
  for (Region& region : regions) {
    Wish one;
    one.region = std::move(region);
    one.first = true;
    wish(std::move(one));
  }
  joining_ = false;
}

void Moves::check_ready() const {
  if ((!joining_ && warm_left_ == 0) || Clock::now() > joined_at_most_) return;
  const std::string done = joining_
                               ? "asking peers for their characters"
                               : fmt::format("{} of {} characters are in the cache", warm_all_ - warm_left_, warm_all_);
  throw Failure{503, "the server warms its cache: " + done, {}, "warming", 1};
}

// --- a hot character, or a new version

asio::awaitable<void> Moves::tell(Region region, std::string card) {
  json question = characters_json(std::vector<Region>(1, region));
  if (!card.empty()) question["card"] = card;
  (void)co_await peers_.ask_all("POST", "/peers/warm", question, kTellSeconds);
}

// --- leaving

Moves::NamedChats Moves::newest_chats() const {
  NamedChats list;
  for (const std::string& id : newest_) {
    const Chat& chat = chats_.at(id);
    json one = kv_.json_of(chat.kv);
    one["chat"] = id;
    one["turns"] = chat.turns;
    list.emplace_back(id, std::move(one));
  }
  for (const auto& [name, kept] : service_.transcripts.newest(kMostChats)) {
    json one = kv_.json_of({kept->tokens, kept->scope});
    one["name"] = name;
    one["stopped"] = kept->stopped;
    one["checkpoint"] = kept->checkpoint;
    list.emplace_back(name, std::move(one));
  }
  return list;
}

asio::awaitable<void> Moves::leave(Clock::time_point until) {
  std::vector<std::string> peers = peers_.addresses();
  NamedChats chats = newest_chats();
  while (!peers.empty() && !chats.empty() && Clock::now() < until) {
    std::map<std::string, NamedChats> by_peer;
    for (auto& [id, chat] : chats) by_peer[peer_of(peers, id)].emplace_back(id, std::move(chat));
    Together leaving(service_.io);
    for (auto& [peer, given] : by_peer) leaving.start(hand_over(peer, given, until));
    co_await leaving.wait();
    chats.clear();
    for (auto& [peer, left] : by_peer) {  // of peers that do not answer
      if (left.empty()) continue;
      std::erase(peers, peer);
      std::move(left.begin(), left.end(), std::back_inserter(chats));
    }
  }
}

// What the peer has not taken stays in `chats`.
asio::awaitable<void> Moves::hand_over(std::string peer, NamedChats& chats, Clock::time_point until) {
  while (!chats.empty()) {
    const double left = std::chrono::duration<double>(until - Clock::now()).count();
    if (left <= 0) co_return;
    const size_t count = std::min(kChatsATime, chats.size());
    json question = json::object();
    question["chats"] = json::array();
    for (size_t i = 0; i < count; ++i) question["chats"].push_back(chats[i].second);
    const PeerAnswer answer = co_await peers_.ask(peer, "POST", "/peers/warm", question, std::min(left, kTakeSeconds));
    if (answer.status != 200) co_return;
    chats.erase(chats.begin(), chats.begin() + static_cast<std::ptrdiff_t>(count));
  }
}

asio::awaitable<void> Moves::take_chat(const json& chat, std::string from) {
  const Fields fields(chat);
  WantedKv wanted = kv_.wanted_in(fields);
  const std::string id = fields.text("chat"), name = fields.text("name");
  const bool stopped = fields.flag("stopped", false);
  const std::string checkpoint = fields.text("checkpoint");
  const auto turns = static_cast<size_t>(fields.integer("turns", 0, 0, INT32_MAX));
  fields.refuse_others();
  const Seat at(service_.checkpoints.current(), wanted.scope.character, id);
  (void)co_await kv_.fetch(at, wanted, std::move(from), "history");
  if (!id.empty())
    replied(id, turns, std::move(wanted));
  else if (!name.empty()) {
    Transcripts::Kept kept;
    kept.tokens = std::move(wanted.tokens);
    kept.stopped = stopped;
    kept.checkpoint = checkpoint;
    kept.scope = std::move(wanted.scope);
    service_.transcripts.keep_named(name, std::move(kept));
  }
}

// --- routes

asio::awaitable<void> Moves::answer_characters(Exchange& exchange) {
  peers_.check(exchange);
  const std::string query = exchange.query;
  const std::string most = query.starts_with("most=") ? query.substr(5) : "";
  if (most.empty() || most.size() > 9 || most.find_first_not_of("0123456789") != std::string::npos)
    throw bad_request("give ?most=N: how many characters", "most");
  const size_t count = std::min<size_t>(std::stoul(most), kMostCharacters);
  std::string text = characters_json(popular_.most_asked(count)).dump();
  co_await exchange.answer(200, std::move(text), "application/json");
}

asio::awaitable<void> Moves::answer_warm(Exchange& exchange) {
  peers_.check(exchange);
  const json body = exchange.json();
  const Fields fields(body);
  const std::string from = Peers::sender(exchange), card = fields.text("card");
  if (fields.has("characters"))
    for (const json& one : fields.at("characters")) {
      Wish made;
      made.region = region_in(one, service_.model().config().vocab_size);
      made.from = from;
      made.card = card;
      wish(std::move(made));
    }
  if (fields.has("chats"))
    for (const json& one : fields.at("chats")) co_await take_chat(one, from);
  fields.refuse_others();
  std::string text = json::object().dump();
  co_await exchange.answer(200, std::move(text), "application/json");
}

void Moves::add_routes(Server& server) {
  if (!peers_.any()) return;
  server.route("GET", "/peers/characters", [this](Exchange& exchange) { return answer_characters(exchange); });
  server.route("POST", "/peers/warm", [this](Exchange& exchange) { return answer_warm(exchange); });
  server.route("POST", "/peers/kv", [this](Exchange& exchange) { return kv_.give(exchange); });
}

}  // namespace kaiju::server
