// What is asked about the server and its model: models, health, version, metrics, tokens, the API's description.
#include <fmt/format.h>

#include "assets.hpp"
#include "failure.hpp"
#include "messages.hpp"
#include "moves.hpp"
#include "openai.hpp"
#include "recorder.hpp"
#include "routers.hpp"
#include "watch.hpp"

namespace kaiju::server {

using Json = nlohmann::ordered_json;

namespace {

Json model_of(const Service& service) {
  return {{"id", service.model_name},
          {"object", "model"},
          {"created", service.created},
          {"owned_by", "kaiju"},
          {"root", service.model().config().name},
          {"max_model_len", service.checkpoints.current()->context()},
          {"digest", service.model().checkpoint()->digest()}};
}

Json tokenize(Service& service, Exchange& exchange) {
  const nlohmann::json body = exchange.json();
  const Fields fields(body);
  Tenant& tenant = service.tenants.of(exchange);
  const bool special = fields.flag("add_special_tokens", true), begin = fields.flag("add_generation_prompt", true);
  const bool strings = fields.flag("return_token_strs", false);
  const std::string text = fields.text("prompt");
  std::vector<int32_t> tokens;
  if (fields.has("messages")) {
    const std::string salt = service.tenants.salt(tenant, fields.text("cache_salt"));
    tokens = prompt_of(service, salt, read_messages(fields, service.chat()), begin).tokens;
  } else {
    if (!fields.has("prompt")) throw bad_request("prompt is missing: give a text, or messages", "prompt");
    if (auto chat = service.model().chat(); chat.ok() && special) (*chat)->append_begin(tokens);
    auto encoded = service.tokenizer().encode(text);
    if (!encoded.ok()) throw of_status(encoded.status(), "prompt");
    tokens.insert(tokens.end(), encoded->begin(), encoded->end());
  }
  Json answer = {
      {"count", tokens.size()}, {"max_model_len", service.checkpoints.current()->context()}, {"tokens", tokens}};
  answer["token_strs"] = nullptr;
  if (strings) {
    answer["token_strs"] = Json::array();
    for (const int32_t token : tokens) answer["token_strs"].push_back(token_text(service, token));
  }
  return answer;
}

Json detokenize(Service& service, Exchange& exchange) {
  const nlohmann::json body = exchange.json();
  const Fields fields(body);
  if (!fields.has("tokens")) throw bad_request("tokens is missing: a list of token ids", "tokens");
  auto text = service.tokenizer().decode(fields.tokens("tokens", service.model().config().vocab_size));
  if (!text.ok()) throw of_status(text.status(), "tokens");
  return {{"prompt", *text}};
}

std::vector<ShownCheckpoint> shown_checkpoints(const Checkpoints& checkpoints) {
  std::vector<ShownCheckpoint> shown;
  for (const Served* const one : checkpoints.all())
    shown.push_back({one->name, one->digest(), checkpoints.state_of(*one), checkpoints.share_of(*one),
                     one->replicas.unfinished(), one->counts});
  return shown;
}

std::vector<ShownReplica> shown_replicas(const Replicas& replicas) {
  std::vector<ShownReplica> shown;
  for (const Driver& driver : replicas) {
    const kaiju::Metrics metrics = driver.engine().metrics();
    shown.push_back(
        {driver.unfinished(), metrics.requests_done + metrics.requests_failed, driver.engine().status().ok()});
  }
  return shown;
}

MoveCounts shown_moves(const Moves& moves) {
  MoveCounts counts = moves.counts();
  counts.warm_left = moves.warm_left();
  counts.hot = moves.hot_count();
  return counts;
}

std::string metrics_of(const Service& service, const Exchange& exchange) {
  const Served& served = *service.checkpoints.current();
  return text_of(service.metrics, {.model = service.model_name,
                                   .engine = service.checkpoints.engine_metrics(),
                                   .info = served.engine().info(),
                                   .connections = service.server.connections(),
                                   .unfinished = service.checkpoints.unfinished(),
                                   .journal = service.recorder.counts(),
                                   .watch = service.watch.counts(),
                                   .scales = served.scales.counts(),
                                   .kv_events = service.routers ? service.routers->counts() : KvEventCounts(),
                                   .moves = shown_moves(*service.moves),
                                   .accounts = service.tenants.accounts(),
                                   .shares = service.tenants.shares_of(served.replicas),
                                   .checkpoints = shown_checkpoints(service.checkpoints),
                                   .replicas = shown_replicas(served.replicas),
                                   .by_key = service.tenants.may_see_others(exchange)});
}

Json healthy_json(const Served& served) {
  return {{"status", "ok"},
          {"checkpoint", served.name},
          {"digest", served.digest()},
          {"replicas", served.replicas.working()}};
}

void check_health(const Service& service) {
  const std::string damage = service.watch.damage();
  if (!damage.empty()) throw Failure{503, damage, {}, "damaged"};
}

}  // namespace

void add_meta_routes(Server& server, Service& service) {
  const auto get = [&](const char* path, auto make) {
    server.route("GET", path, [&service, make](Exchange& exchange) -> asio::awaitable<void> {
      co_await exchange.answer(make(service, exchange));
    });
  };
  get("/v1/models", [](Service& of, Exchange& exchange) {
    (void)of.tenants.of(exchange);
    return Json{{"object", "list"}, {"data", {model_of(of)}}};
  });
  get("/v1/models/{}", [](Service& of, Exchange& exchange) {
    (void)of.tenants.of(exchange);
    if (exchange.parts[0] != of.model_name)
      throw Failure{404, fmt::format("there is no model {}; this server has {}", exchange.parts[0], of.model_name),
                    "model", "model_not_found"};
    return model_of(of);
  });
  get("/version", [](Service&, Exchange&) { return Json{{"version", KAIJU_SERVER_VERSION}}; });
  server.route("GET", "/health", [&service](Exchange& exchange) -> asio::awaitable<void> {
    const Replicas& replicas = service.checkpoints.current()->replicas;
    const Status status = replicas.status();
    if (replicas.working() == 0)
      throw Failure{503, "the engine has stopped: " + status.message(), {}, "engine_stopped"};
    if (service.server.draining()) throw Failure{503, "the server is shutting down", {}, "draining", 1};
    check_health(service);
    service.moves->check_ready();
    co_await exchange.answer(healthy_json(*service.checkpoints.current()));
  });
  server.route("GET", "/metrics", [&service](Exchange& exchange) -> asio::awaitable<void> {
    co_await exchange.answer(200, metrics_of(service, exchange), "text/plain; version=0.0.4; charset=utf-8");
  });
  server.route("GET", "/openapi.json", [](Exchange& exchange) -> asio::awaitable<void> {
    co_await exchange.answer(200, std::string(kOpenApi), "application/json");
  });
  server.route("POST", "/tokenize", [&service](Exchange& exchange) -> asio::awaitable<void> {
    co_await exchange.answer(tokenize(service, exchange));
  });
  server.route("POST", "/detokenize", [&service](Exchange& exchange) -> asio::awaitable<void> {
    (void)service.tenants.of(exchange);
    co_await exchange.answer(detokenize(service, exchange));
  });
  for (const char* path : {"/v1/embeddings", "/v1/images/generations", "/v1/audio/transcriptions", "/v1/audio/speech",
                           "/v1/moderations", "/v1/responses"})
    server.route("POST", path, [path](Exchange&) -> asio::awaitable<void> {
      throw Failure{404, fmt::format("{} is not supported by this server", path), {}, "not_supported"};
      co_return;
    });
}

}  // namespace kaiju::server
