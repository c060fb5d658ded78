#include "stored_chats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "../tools/standard_streams.hpp"
#include "failure.hpp"

namespace kaiju::server {

namespace {

constexpr size_t kTitleBytes = 60;

}  // namespace

bool BusyChats::cancel(const std::string& id) const {
  const auto found = runs_.find(id);
  if (found != runs_.end()) server::cancel(*found->second);
  return found != runs_.end();
}

void BusyChats::check_idle(const std::string& id) const {
  if (contains(id)) throw Failure{409, "a reply of this chat is being written: wait for it or stop it", {}, "busy"};
}

BusyChats::Mark::Mark(BusyChats& busy, std::string id, const Run& run) : busy_(busy), id_(std::move(id)), run_(run) {
  busy_.runs_[id_] = &run;
}

// Another reply of the chat may have begun since.
void BusyChats::Mark::end() {
  if (const auto found = busy_.runs_.find(id_); found != busy_.runs_.end() && found->second == &run_)
    busy_.runs_.erase(found);
}

void StoredChats::route(const char* method, const char* path, Route handler) {
  service.server.route(method, path, [this, handler](Exchange& exchange) -> asio::awaitable<void> {
    (void)service.tenants.of(exchange);  // a known key, or 401
    co_await handler(*this, exchange);
  });
}

// What the store is asked is made before co_await, as UseEvent is (openai.hpp).
asio::awaitable<LoadedChat> StoredChats::load(Exchange& exchange) {
  LoadedChat loaded;
  loaded.owner = owner(exchange);
  loaded.id = exchange.parts[0];
  const std::function<Result<Chat>(Store&)> read = [&](Store& from) { return from.chat(loaded.owner, loaded.id); };
  loaded.chat = co_await store.get(read);
  loaded.cast = co_await load_cast(loaded.chat.characters, loaded.chat.user);
  if (encode_foreign(format(), service.tokenizer(), loaded.cast, loaded.chat.user, loaded.chat.turns))
    tell_foreign(loaded.id);
  co_return loaded;
}

asio::awaitable<LoadedChat> StoredChats::load_idle(Exchange& exchange) {
  busy.check_idle(exchange.parts[0]);
  return load(exchange);
}

asio::awaitable<Cast> StoredChats::load_cast(std::vector<ChatCharacter> wanted, std::string user) {
  const std::function<Result<std::vector<Character>>(Store&)> read =
      [&](Store& from) -> Result<std::vector<Character>> {
    std::vector<Character> found;
    for (const ChatCharacter& one : wanted) {
      auto character = from.character(one.id, one.version);
      if (!character.ok()) return character.status();
      found.push_back(std::move(character).value());
    }
    return found;
  };
  const std::vector<Character> characters = co_await store.get(read);
  co_return cast_of(format(), characters, user);
}

Seat StoredChats::place(const LoadedChat& loaded) const {
  const auto has_reply = [](const Turn& turn) { return !turn.input_tokens.empty() && !turn.replies.empty(); };
  const std::vector<Turn>& turns = loaded.chat.turns;
  Checkpoints& checkpoints = service.checkpoints;
  Checkpoints::Began began = Checkpoints::Began::kNot;
  if (std::any_of(turns.begin(), turns.end(), has_reply))
    began = checkpoints.remembers(loaded.id) ? Checkpoints::Began::kWithCandidate : Checkpoints::Began::kBefore;
  std::shared_ptr<Served> at = checkpoints.place(loaded.id, began);
  if (at == checkpoints.candidate()) checkpoints.remember(loaded.id);
  return {at, loaded.cast.region, loaded.id};
}

// Once is enough: every chat from before may be one.
void StoredChats::tell_foreign(const std::string& id) {
  if (std::exchange(told_foreign_, true)) return;
  tools::print(stderr,
               "kaiju-server: the store has chats of another model's tokenizer, {} is one: their texts are "
               "encoded anew\n",
               id);
}

int64_t query_number(const Exchange& exchange, const std::string& name, int64_t otherwise) {
  const std::string& query = exchange.query;
  if (query.empty()) return otherwise;
  const std::string given = query.substr(0, query.find('='));
  if (given != name) throw bad_request(fmt::format("there is no parameter {:?} here, but {}", given, name), given);
  const std::string text = query.substr(std::min(given.size() + 1, query.size()));
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != 0 || value < 0) throw bad_request(fmt::format("{} must be a whole number", name), name);
  return value;
}

void refuse_fields(const Exchange& exchange) {
  const nlohmann::json body = exchange.json_or_nothing();
  Fields(body).refuse_others();
}

std::string title_of(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.size() <= kTitleBytes) return text;
  size_t end = kTitleBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

nlohmann::ordered_json one_field(const char* name, nlohmann::ordered_json value) { return {{name, std::move(value)}}; }

}  // namespace kaiju::server
