// What the two completion routes share: the prompts of a request, run in the engine, and their choices.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reply.hpp"
#include "service.hpp"

namespace server {

// A prompt in the engine. Its choices fill while its events are taken.
struct Run {
  std::shared_ptr<Reply> reply;
  kaiju::RequestId request = 0;
  std::vector<Choice> choices;  // best_of
  kaiju::RequestCounts counts;
  bool done = false;
};

// Submits a prompt, as the tenant's next request. Throws Failure where the engine refuses it.
Run start(Service& service, const Tenant& tenant, const Wanted& wanted, std::span<const int32_t> prompt);

// Takes the next events of a run, and hands each to `use` with the index of its choice. Throws Failure where the
// request failed.
asio::awaitable<void> next(Service& service, Run& run,
                           const std::function<void(size_t choice, const kaiju::Event& event)>& use);

// The request's options with what the server adds: salt, deadline. Refuses a prompt that leaves no room, and
// cuts max_tokens that nobody gave to the room that there is.
void complete(Service& service, const Tenant& tenant, const Fields& fields, size_t prompt_tokens, Wanted& wanted);

// The n likeliest choices, by log-probability a token, as indices.
std::vector<size_t> best(const std::vector<Choice>& choices, int32_t n);

nlohmann::ordered_json usage_of(const std::vector<Run>& runs);
// Counts a client that left before its answer.
void count_disconnect(Service& service, const Tenant& tenant);
// Counts finished runs in the metrics and in the exchange's log.
void count_finished(Service& service, Exchange& exchange, const std::vector<Run>& runs);

// The bytes of a token's text.
std::string token_text(const Service& service, int32_t token);
nlohmann::ordered_json text_or_null(const char* text);
std::string dump(const nlohmann::ordered_json& json);
int64_t unix_time();

}  // namespace server
