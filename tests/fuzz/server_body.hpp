// What the fuzz targets of kaiju-server share: what a completion route reads of a body.
#pragma once

#include "examples/server/failure.hpp"
#include "examples/server/grammar.hpp"
#include "examples/server/http.hpp"
#include "examples/server/messages.hpp"
#include "examples/server/parameters.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace fuzz {

// The bundled model, loaded once.
inline const kaiju::Model& server_model() {
  static const std::shared_ptr<const kaiju::Model> model = [] {
    auto loaded = kaiju::Model::load(KAIJU_FUZZ_MODEL);
    promise(loaded.ok(), "the bundled model loads");
    return loaded.value();
  }();
  return *model;
}

// As the routes do before they ask the engine. Throws Failure.
inline void read_body(const kaiju::server::Exchange& exchange, bool chat) {
  const nlohmann::json body = exchange.json();
  const kaiju::server::Fields fields(body);
  const kaiju::server::Wanted wanted = kaiju::server::read_wanted(fields, chat, {}, server_model());
  (void)kaiju::server::read_grammar(fields, exchange.body(), wanted);
  const kaiju::RequestOptions& options = wanted.options;
  promise(wanted.n >= 1 && wanted.n <= wanted.best_of && options.sequence_count == wanted.best_of,
          "at least as many sequences as choices");
  promise(options.max_tokens >= 1 && wanted.min_tokens >= 0 && wanted.min_tokens <= options.max_tokens,
          "lengths are in order");
  promise(options.sampling.temperature >= 0 && options.sampling.top_p >= 0 && options.sampling.top_p <= 1 &&
              options.sampling.top_k >= 0,
          "sampling is in range");
  for (const auto& [token, bias] : options.sampling.logit_bias)
    promise(token >= 0 && token < server_model().config().vocab_size, "a bias is of a token of the model");
  if (!chat) {
    (void)fields.tokens("prompt", server_model().config().vocab_size);
    return;
  }
  const kaiju::ChatFormat& format = *server_model().chat().value();
  const std::vector<kaiju::server::Message> messages = kaiju::server::read_messages(fields, format);
  promise(!messages.empty(), "there is a message");
  for (size_t i = 0; i < messages.size(); ++i)
    promise((messages[i].role == kaiju::ChatRole::kCard) <= (i == 0), "a card comes first");
}

}  // namespace fuzz
