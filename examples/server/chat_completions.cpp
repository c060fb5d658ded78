// POST /v1/chat/completions, and /v1/chat/completions/render, which only tokenizes.
#include <fmt/format.h>

#include "failure.hpp"
#include "messages.hpp"
#include "openai.hpp"

namespace server {

using kaiju::Event, kaiju::EventKind;
using Json = nlohmann::ordered_json;

namespace {

Json logprob_of(const Service& service, int32_t token, float logprob) {
  const std::string text = token_text(service, token);
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", text}, {"logprob", logprob}, {"bytes", bytes}};
}

Json logprobs_of(const Service& service, const Event& event) {
  Json one = logprob_of(service, event.token, event.logprob);
  one["top_logprobs"] = Json::array();
  for (const kaiju::TokenLogprob& top : event.top)
    one["top_logprobs"].push_back(logprob_of(service, top.token, top.logprob));
  return one;
}

// One request of the route, from its body to its last byte.
class ChatCompletion {
 public:
  ChatCompletion(Service& service, Exchange& exchange)
      : service_(service),
        exchange_(exchange),
        body_(exchange.json()),
        fields_(body_),
        tenant_(service.tenants.of(exchange)) {}

  asio::awaitable<void> answer() {
    service_.tenants.admit(tenant_);
    const AtOnce counted(tenant_);
    read();
    run_.push_back(start(service_, wanted_, prompt_.tokens));
    exchange_.on_gone = [this] {
      ++service_.metrics.disconnects;
      service_.driver.cancel(run_[0].request);
    };
    logprobs_.resize(run_[0].choices.size(), Json::array());
    std::exception_ptr failed;
    try {
      if (wanted_.stream)
        co_await stream();
      else
        co_await whole();
    } catch (...) {
      failed = std::current_exception();
    }
    if (!failed) co_return;
    service_.driver.cancel(run_[0].request);  // nobody reads it
    std::rethrow_exception(failed);
  }

  // The tokens of the prompt alone.
  Json render() {
    const bool begin = fields_.flag("add_generation_prompt", true);
    const std::string salt = service_.tenants.salt(tenant_, fields_.text("cache_salt"));
    const Prompt prompt = prompt_of(service_, salt, read_messages(fields_, service_.chat()), begin);
    return {{"request_id", "chatcmpl-" + exchange_.id},
            {"model", service_.model_name},
            {"token_ids", prompt.tokens},
            {"token_offsets", nullptr}};
  }

 private:
  void read() {
    wanted_ = read_wanted(fields_, true, service_.defaults, *service_.model);
    if (fields_.has("response_format")) {
      const Json format = fields_.at("response_format");
      if (!format.is_object() || format.value("type", "") != "text")
        throw bad_request("response_format other than text is not supported: this server has no grammar engine",
                          "response_format");
    }
    messages_ = read_messages(fields_, service_.chat());
    salt_ = service_.tenants.salt(tenant_, fields_.text("cache_salt"));
    prompt_ = prompt_of(service_, salt_, messages_, true);
    complete(service_, tenant_, fields_, prompt_.tokens.size(), wanted_);
  }

  Json head(const char* object) const {
    return {{"id", "chatcmpl-" + exchange_.id},
            {"object", object},
            {"created", created_},
            {"model", service_.model_name},
            {"system_fingerprint", service_.model->checkpoint()->digest().substr(0, 16)}};
  }

  void keep() {
    for (const Choice& choice : run_[0].choices)
      if (choice.done() && !choice.tokens.empty() && choice.reason != kaiju::DoneReason::kStopString)
        keep_reply(service_, salt_, messages_, prompt_, choice.text, choice.tokens,
                   choice.reason == kaiju::DoneReason::kStopToken);
    count_finished(service_, exchange_, run_);
  }

  // GCC 12 does not compile lists in braces inside a coroutine: what is answered is made by the functions below.
  Json whole_answer() const {
    Json answer = head("chat.completion");
    answer["choices"] = Json::array();
    for (const size_t i : best(run_[0].choices, wanted_.n)) {
      const Choice& choice = run_[0].choices[i];
      answer["choices"].push_back(
          {{"index", answer["choices"].size()},
           {"message", {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}}},
           {"logprobs", wanted_.logprobs ? Json{{"content", logprobs_[i]}, {"refusal", nullptr}} : Json()},
           {"finish_reason", text_or_null(finish_reason(choice.reason))}});
    }
    answer["usage"] = usage_of(run_);
    return answer;
  }

  std::string chunk(size_t choice, Json delta, Json logprobs = {}, const char* finish = nullptr) const {
    Json data = head("chat.completion.chunk");
    data["choices"] = Json::array();
    data["choices"].push_back({{"index", choice},
                               {"delta", std::move(delta)},
                               {"logprobs", std::move(logprobs)},
                               {"finish_reason", text_or_null(finish)}});
    if (wanted_.usage_in_stream) data["usage"] = nullptr;
    return dump(data);
  }
  std::string first_chunk(size_t choice) const { return chunk(choice, {{"role", "assistant"}, {"content", ""}}); }

  std::string usage_chunk() const {
    Json data = head("chat.completion.chunk");
    data["choices"] = Json::array();
    data["usage"] = usage_of(run_);
    return dump(data);
  }

  // The chunks of an event.
  void add_chunks(size_t choice, const Event& event, std::vector<std::string>& chunks) const {
    const bool token = event.kind == EventKind::kToken;
    Json logprobs;
    if (wanted_.logprobs && token) logprobs = {{"content", Json::array({logprobs_of(service_, event)})}};
    if (!event.text.empty() || !logprobs.is_null())
      chunks.push_back(chunk(choice, {{"content", event.text}}, std::move(logprobs)));
    if (!token && event.reason != kaiju::DoneReason::kNone)
      chunks.push_back(chunk(choice, Json::object(), {}, finish_reason(event.reason)));
  }

  asio::awaitable<void> whole() {
    while (!run_[0].done)
      co_await next(service_, run_[0], [&](size_t choice, const Event& event) {
        if (wanted_.logprobs && event.kind == EventKind::kToken)
          logprobs_[choice].push_back(logprobs_of(service_, event));
      });
    keep();
    co_await exchange_.answer(whole_answer());
  }

  asio::awaitable<void> stream() {
    co_await exchange_.begin_events();
    for (size_t i = 0; i < run_[0].choices.size(); ++i) co_await exchange_.event(first_chunk(i));
    while (!run_[0].done) {
      std::vector<std::string> chunks;
      co_await next(service_, run_[0], [&](size_t choice, const Event& event) { add_chunks(choice, event, chunks); });
      for (std::string& one : chunks) co_await exchange_.event(std::move(one));
      if (!chunks.empty()) service_.metrics.event_to_socket.add(run_[0].reply->seconds());
    }
    keep();
    if (wanted_.usage_in_stream) co_await exchange_.event(usage_chunk());
    co_await exchange_.end_events();
  }

  Service& service_;
  Exchange& exchange_;
  const nlohmann::json body_;
  const Fields fields_;
  Tenant& tenant_;
  const int64_t created_ = unix_time();
  Wanted wanted_;
  std::vector<Message> messages_;
  std::string salt_;
  Prompt prompt_;
  std::vector<Run> run_;  // one
  std::vector<Json> logprobs_;
};

}  // namespace

void add_chat_routes(Server& server, Service& service) {
  server.route("POST", "/v1/chat/completions", [&service](Exchange& exchange) -> asio::awaitable<void> {
    ChatCompletion completion(service, exchange);
    co_await completion.answer();
  });
  server.route("POST", "/v1/chat/completions/render", [&service](Exchange& exchange) -> asio::awaitable<void> {
    ChatCompletion completion(service, exchange);
    co_await exchange.answer(completion.render());
  });
}

}  // namespace server
