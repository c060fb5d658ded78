// POST /v1/chat/completions, and /v1/chat/completions/render, which only tokenizes.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "begun.hpp"
#include "failure.hpp"
#include "grammar.hpp"
#include "messages.hpp"
#include "moves.hpp"
#include "openai.hpp"

namespace kaiju::server {

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
  for (const TokenLogprob& top : event.top) one["top_logprobs"].push_back(logprob_of(service, top.token, top.logprob));
  return one;
}

class ChatCompletion : public Completion {
 public:
  ChatCompletion(Service& service, Exchange& exchange)
      : Completion(service, exchange, {true, "chatcmpl-", "chat.completion", "chat.completion.chunk"}) {}

  // The tokens of the prompt alone. Refuses what answer would refuse.
  Json render() {
    const Wanted wanted = read_wanted(fields_, true, service_.defaults, service_.model());
    (void)read_grammar(fields_, exchange_.body(), wanted);
    const bool begin = fields_.flag("add_generation_prompt", true);
    const std::string salt = service_.tenants.salt(tenant_, fields_.text("cache_salt"));
    const Prompt prompt = prompt_of(service_, salt, read_messages(fields_, service_.chat()), begin);
    return {{"request_id", "chatcmpl-" + exchange_.id},
            {"model", service_.model_name},
            {"token_ids", prompt.tokens},
            {"token_offsets", nullptr}};
  }

 private:
  // The tokens of its replies, which another server may have generated.
  asio::awaitable<void> prepare() override {
    const std::vector<Message> messages = read_messages(fields_, service_.chat());
    Scope scope;
    scope.salt = service_.tenants.salt(tenant_, fields_.text("cache_salt"));
    scope.tenant = tenant_.name;
    std::vector<std::string> names = Transcripts::names_in_hex(scope.salt, messages);
    co_await service_.moves->bring_history(std::move(names), std::move(scope));
  }

  std::vector<Asked> read_prompts() override {
    messages_ = read_messages(fields_, service_.chat());
    salt_ = service_.tenants.salt(tenant_, fields_.text("cache_salt"));
    prompt_ = prompt_of(service_, salt_, messages_, true);
    prompt_.tokens = read_prompt_tokens(fields_, service_, std::move(prompt_.tokens));
    logprobs_.resize(static_cast<size_t>(wanted_.best_of), Json::array());
    Asked asked{prompt_.tokens, newest_text(messages_)};
    name_character(asked);
    scope_ = {asked.character, asked.shared_tokens, salt_, tenant_.name};
    return {std::move(asked)};
  }

  // prompt_cache_key names the character that the system message at the beginning describes: all who have the same key
  // and the same text share the KV of that text.
  void name_character(Asked& asked) const {
    const std::string key = fields_.text("prompt_cache_key");
    const ChatRole first = messages_[0].role;
    if (key.empty() || (first != ChatRole::kSystem && first != ChatRole::kCard)) return;
    if (!service_.tenants.may_name_character(tenant_)) return;
    std::vector<int32_t> head;
    const ChatMessage card{first, messages_[0].text, messages_[0].name};
    if (!service_.chat().format({&card, 1}, {}, head).ok()) return;
    const auto end = std::mismatch(head.begin(), head.end(), asked.tokens.begin(), asked.tokens.end()).first;
    head.erase(end, head.end());
    if (head.empty()) return;
    asked.character =
        fmt::format("{}/{}/{:016x}", tenant_.name, key, XXH3_64bits(head.data(), head.size() * sizeof(int32_t)));
    asked.shared_tokens = static_cast<int32_t>(head.size());
  }

  // All up to the user's first message stays the same from turn to turn.
  std::string chat_name() const override {
    std::string name = salt_;
    for (const Message& message : messages_) {
      name += fmt::format("\n{} {}", static_cast<int>(message.role), message.text);
      if (message.role == ChatRole::kUser) break;
    }
    return name;
  }
  Checkpoints::Began began() const override {
    const auto& candidate = service_.checkpoints.candidate();
    if (candidate && prompt_.checkpoint == candidate->name) return Checkpoints::Began::kWithCandidate;
    const bool replied = std::any_of(messages_.begin(), messages_.end(),
                                     [](const Message& message) { return message.role == ChatRole::kCharacter; });
    return replied ? Checkpoints::Began::kBefore : Checkpoints::Began::kNot;
  }

  Json messages(size_t) const override { return body_.at("messages"); }

  void take(size_t, size_t choice, const Event& event) override {
    if (wanted_.logprobs && !wanted_.stream && event.kind == EventKind::kToken)
      logprobs_[choice].push_back(logprobs_of(service_, event));
  }

  void finished() override {
    for (const Choice& choice : runs_[0].choices)
      if (choice.done() && !choice.tokens.empty() && choice.reason != DoneReason::kStopString)
        keep_reply(service_, salt_, messages_, prompt_, choice.text, choice.tokens,
                   choice.reason == DoneReason::kStopToken, at_->name, scope_);
  }

  Json whole_choice(size_t, size_t choice) const override {
    return {{"message", {{"role", "assistant"}, {"content", runs_[0].choices[choice].text}, {"refusal", nullptr}}},
            {"logprobs", wanted_.logprobs ? Json{{"content", logprobs_[choice]}, {"refusal", nullptr}} : Json()}};
  }

  Json delta(Json what, Json logprobs = {}, const char* finish = nullptr) const {
    return {{"delta", std::move(what)}, {"logprobs", std::move(logprobs)}, {"finish_reason", text_or_null(finish)}};
  }

  void add_first_chunks(size_t, std::vector<std::string>& chunks) const override {
    for (size_t i = 0; i < runs_[0].choices.size(); ++i)
      chunks.push_back(chunk(0, i, delta({{"role", "assistant"}, {"content", ""}}), wanted_.token_ids));
  }

  void add_chunks(size_t, size_t choice, const Event& event, std::vector<std::string>& chunks) const override {
    const bool token = event.kind == EventKind::kToken;
    Json logprobs;
    if (wanted_.logprobs && token) logprobs = {{"content", Json::array({logprobs_of(service_, event)})}};
    const bool tokens = wanted_.token_ids && token;
    if (!event.text.empty() || !logprobs.is_null() || tokens) {
      Json fields = delta({{"content", event.text}}, std::move(logprobs));
      if (tokens) fields["token_ids"] = tokens_of(0, choice, event);
      chunks.push_back(chunk(0, choice, fields));
    }
    if (!token && event.reason != DoneReason::kNone)
      chunks.push_back(chunk(0, choice, delta(Json::object(), {}, finish_reason(event.reason))));
  }

  std::vector<Message> messages_;
  std::string salt_;
  Prompt prompt_;
  Scope scope_;                 // of the request
  std::vector<Json> logprobs_;  // of each choice
};

}  // namespace

void add_chat_completion_routes(Server& server, Service& service) {
  server.route("POST", "/v1/chat/completions", [&service](Exchange& exchange) -> asio::awaitable<void> {
    ChatCompletion completion(service, exchange);
    co_await completion.answer();
  });
  server.route("POST", "/v1/chat/completions/render", [&service](Exchange& exchange) -> asio::awaitable<void> {
    ChatCompletion completion(service, exchange);
    co_await exchange.answer(completion.render());
  });
}

}  // namespace kaiju::server
