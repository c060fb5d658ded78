// See kv_exchange.hpp.
#include "kv_exchange.hpp"

#include <algorithm>
#include <cstring>

#include "failure.hpp"
#include "moves.hpp"

namespace kaiju::server {

using nlohmann::json;

namespace kv_answers {

// An answer's line of JSON, and the saved session after it.
struct Parts {
  std::string_view head, session;
};

}  // namespace kv_answers

namespace {

using kv_answers::Parts;

constexpr int32_t kWorthACopy = 64;  // tokens: fewer are computed sooner than asked for
constexpr double kFetchSeconds = 2;  // a request waits for it
constexpr size_t kMostNames = 64;    // of histories that are asked for: the longest ones

// nullopt: it is none.
std::optional<Parts> parts_of(std::string_view body) {
  const size_t end = body.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  return Parts{body.substr(0, end), body.substr(end + 1)};
}

SealTag seal_of(const Sealer& sealer, std::string_view head) {
  SealTag tag{};
  (void)sealer(std::as_bytes(std::span(head)), tag);
  return tag;
}

SessionSource source_of(std::string_view& left) {
  return [&left](std::span<std::byte> bytes) -> Result<size_t> {
    const size_t count = std::min(bytes.size(), left.size());
    if (count > 0) std::memcpy(bytes.data(), left.data(), count);
    left.remove_prefix(count);
    return count;
  };
}

int32_t cached_in(const json& head) { return head.value("cached", 0); }

// Whatever a peer says, it is no reason to end.
json read_head(std::string_view text) {
  json head = json::parse(text, nullptr, false);
  return head.is_object() ? head : json::object();
}

}  // namespace

// What an answer's head says.
struct KvExchange::Given {
  WantedKv kv;  // tokens: those that were asked for; empty: those of the answer
  KnownReply reply;
  int32_t cached = 0;
};

json KvExchange::json_of(const WantedKv& wanted) const {
  return {{"tokens", wanted.tokens},
          {"character", wanted.scope.character},
          {"shared_tokens", wanted.scope.shared_tokens},
          {"tenant", wanted.scope.tenant},
          {"salt", service_.tenants.salt_name(wanted.scope.salt)}};
}

WantedKv KvExchange::wanted_in(const Fields& fields) const {
  WantedKv wanted;
  wanted.tokens = fields.tokens("tokens", service_.model().config().vocab_size);
  wanted.scope.character = fields.text("character");
  wanted.scope.shared_tokens =
      static_cast<int32_t>(fields.integer("shared_tokens", 0, 0, static_cast<int64_t>(wanted.tokens.size())));
  wanted.scope.tenant = fields.text("tenant");
  wanted.scope.salt = service_.tenants.salt_named(fields.text("salt"));
  return wanted;
}

asio::awaitable<int32_t> KvExchange::cached(Seat at, WantedKv wanted) {
  int32_t count = 0;
  const std::function<void(Engine&)> call = [&](Engine& engine) {
    if (const auto found = engine.cached_tokens(wanted.tokens, wanted.scope); found.ok()) count = *found;
  };
  co_await at.driver().between_steps(call);
  co_return count;
}

// The replica that has most of it.
asio::awaitable<Seat> KvExchange::holder(WantedKv wanted) {
  const std::shared_ptr<Served> current = service_.checkpoints.current();
  Seat best(current, current->replicas.first());
  int32_t most = -1;
  for (Driver& driver : current->replicas) {
    const Seat at(current, driver);
    const int32_t here = current->replicas.size() == 1 ? 0 : co_await cached(at, wanted);
    if (here <= most) continue;
    most = here;
    best = at;
  }
  co_return best;
}

// The answer to a peer; empty: there is too little.
asio::awaitable<std::string> KvExchange::saved(Seat at, const WantedKv& wanted, json head, int32_t least) {
  const Sealer sealer = peers_.sealer();
  std::string body;
  const std::function<void(Engine&)> call = [&](Engine& engine) {
    const auto cached = engine.cached_tokens(wanted.tokens, wanted.scope);
    if (!cached.ok() || *cached < least) return;
    head["cached"] = *cached;
    const std::string line = head.dump();
    const auto session = engine.create_session();
    if (!session.ok()) return;
    SaveOptions options;
    options.key = sealer;
    options.kv = *cached > 0;
    options.before = seal_of(sealer, line);
    options.scope = wanted.scope;
    body = line + "\n";
    Status status = engine.set_session_tokens(*session, wanted.tokens);
    if (status.ok())
      status = engine.save_session(*session, options, [&](std::span<const std::byte> piece) {
        body.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        return Status();
      });
    if (!status.ok()) body.clear();
    (void)engine.destroy_session(*session);
  };
  co_await at.driver().between_steps(call);
  co_return body;
}

// Into the cache. Nothing of a body that is refused is kept (Engine::restore_session).
asio::awaitable<bool> KvExchange::restore(Seat at, const PeerAnswer& answer, Given& given) {
  const auto parts = parts_of(answer.body);
  if (!parts) co_return false;
  const Sealer sealer = peers_.sealer();
  RestoreOptions options;
  options.key = sealer;
  options.scope = given.kv.scope;
  options.before = seal_of(sealer, parts->head);
  bool good = false;
  const std::function<void(Engine&)> call = [&](Engine& engine) {
    std::string_view left = parts->session;
    const auto session = engine.restore_session(options, source_of(left));
    if (!session.ok()) return;
    auto tokens = engine.session_tokens(*session);
    good = tokens.ok() && (given.kv.tokens.empty() || *tokens == given.kv.tokens);
    if (good) given.kv.tokens = std::move(*tokens);
    (void)engine.destroy_session(*session);  // its KV stays in the cache
  };
  co_await at.driver().between_steps(call);
  co_return good;
}

asio::awaitable<bool> KvExchange::fetch(Seat at, WantedKv wanted, std::string from, const char* what) {
  const int32_t here = co_await cached(at, wanted);
  if (static_cast<int32_t>(wanted.tokens.size()) - here < kWorthACopy) co_return false;
  json question = json_of(wanted);
  question["least"] = here + kWorthACopy;
  std::vector<PeerAnswer> answers;
  if (from.empty())
    answers = co_await peers_.ask_all("POST", "/peers/kv", question, kFetchSeconds);
  else
    answers.push_back(co_await peers_.ask(from, "POST", "/peers/kv", question, kFetchSeconds));
  std::erase_if(answers, [](const PeerAnswer& answer) { return answer.status != 200; });
  std::sort(answers.begin(), answers.end(),
            [](const PeerAnswer& a, const PeerAnswer& b) { return a.body.size() > b.body.size(); });
  for (const PeerAnswer& answer : answers) {
    Given given;
    given.kv = wanted;
    if (co_await restore(at, answer, given)) {
      service_.moves->count(what, "fetched", answer.body.size());
      co_return true;
    }
    service_.moves->count(what, "refused");
  }
  co_return false;
}

asio::awaitable<bool> KvExchange::fetch_history(std::vector<std::string> names, Scope scope) {
  names.resize(std::min(names.size(), kMostNames));
  json question = json::object();
  question["names"] = names;
  std::vector<PeerAnswer> answers = co_await peers_.ask_all("POST", "/peers/kv", question, kFetchSeconds);
  size_t best = names.size();
  const PeerAnswer* chosen = nullptr;
  json head;
  for (const PeerAnswer& answer : answers) {
    const auto parts = answer.status == 200 ? parts_of(answer.body) : std::nullopt;
    if (!parts) continue;
    json said = read_head(parts->head);
    const size_t index = said.value("index", names.size());
    if (index > best || (index == best && !(chosen && cached_in(said) > cached_in(head)))) continue;
    best = index;
    chosen = &answer;
    head = std::move(said);
  }
  if (!chosen || best >= names.size()) co_return false;
  Given given;
  given.kv.scope = scope;
  given.kv.scope.character = head.value("character", "");
  given.kv.scope.shared_tokens = head.value("shared_tokens", 0);
  const bool good = co_await restore(service_.checkpoints.home(given.kv.scope.character), *chosen, given);
  service_.moves->count("history", good ? "fetched" : "refused", good ? chosen->body.size() : 0);
  if (!good) co_return false;
  Transcripts::Kept kept;
  kept.tokens = std::move(given.kv.tokens);
  kept.stopped = head.value("stopped", false);
  kept.checkpoint = head.value("checkpoint", "");
  kept.scope = given.kv.scope;
  service_.transcripts.keep_named(names[best], std::move(kept));
  co_return true;
}

asio::awaitable<void> KvExchange::give(Exchange& exchange) {
  peers_.check(exchange);
  const json body = exchange.json();
  const Fields fields(body);
  WantedKv wanted;
  json head = json::object();
  int32_t least = 0;
  if (fields.has("names")) {
    const std::vector<std::string> names = fields.texts("names");
    fields.refuse_others();
    for (size_t i = 0; i < names.size() && wanted.tokens.empty(); ++i)
      if (const Transcripts::Kept* const kept = service_.transcripts.find_named(names[i])) {
        wanted.tokens = kept->tokens;
        wanted.scope = kept->scope;
        head["index"] = i;
        head["stopped"] = kept->stopped;
        head["checkpoint"] = kept->checkpoint;
        head["character"] = kept->scope.character;
        head["shared_tokens"] = kept->scope.shared_tokens;
      }
  } else {
    wanted = wanted_in(fields);
    least = static_cast<int32_t>(fields.integer("least", 1, 1, INT32_MAX));
    fields.refuse_others();
  }
  std::string given;
  if (!wanted.tokens.empty()) given = co_await saved(co_await holder(wanted), wanted, std::move(head), least);
  if (!given.empty()) service_.moves->count_given(given.size());
  const int status = given.empty() ? 204 : 200;
  co_await exchange.answer(status, std::move(given), "application/octet-stream");
}

}  // namespace kaiju::server
